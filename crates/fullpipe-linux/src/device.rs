//! Speed and MTU of network devices, and counts of the packets that their queues drop.

use std::fs;
use std::path::Path;

use fullpipe_units::Rate;

use crate::error::Error;
use crate::netlink::Netlink;

const DEVICES: &str = "/sys/class/net";

/// Returns the speed of a network card or of a bond of network cards; `None` if it is not known. The speed of
/// a virtual device counts as unknown, because the value that such a device reports is meaningless.
pub fn speed(device: &str) -> Option<Rate> {
    let folder = Path::new(DEVICES).join(device);
    if !folder.join("device").exists() && !folder.join("bonding").exists() {
        return None;
    }
    megabits(&fs::read_to_string(folder.join("speed")).ok()?)
}

/// Sets the MTU of a device in the network namespace of the calling thread, in bytes.
///
/// # Errors
/// Returns an error if there is no such device, or if the process lacks the privileges.
pub fn set_mtu(device: &str, mtu: u32) -> Result<(), Error> {
    let netlink = Netlink::new()?;
    netlink.set_mtu(netlink.index(device)?, mtu)
}

/// Reads a speed in Mbit/s. A negative number stands for an unknown speed.
fn megabits(text: &str) -> Option<Rate> {
    let megabits: u64 = text.trim().parse().ok()?;
    (megabits > 0).then(|| Rate::from_bps(megabits.saturating_mul(1_000_000)))
}

/// Numbers of packets that the kernel has dropped since the devices were created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Number of packets to the TUN device that were dropped because its reader did not read them in time.
    pub unread: u64,
    /// Number of packets of all programs that the queues of the outgoing devices have dropped.
    pub queues: u64,
}

impl Drops {
    /// Reads the drop counters of the TUN device `tun` and of the queues of `devices`, in the network
    /// namespace of the calling thread.
    ///
    /// # Errors
    /// Returns an error if the kernel does not answer, or if there is no device `tun`.
    pub fn read(tun: &str, devices: &[String]) -> Result<Self, Error> {
        let unread = Self::unread(tun)?;
        let netlink = Netlink::new()?;
        let named = netlink.devices()?;
        let index_of =
            |device: &String| named.iter().find(|(_, name)| name == device).map(|(index, _)| *index);
        let indices: Vec<u32> = devices.iter().filter_map(index_of).collect();
        let queues = netlink.queue_drops()?;
        let of_devices = queues.into_iter().filter(|(index, _)| indices.contains(index));
        Ok(Self { unread, queues: of_devices.map(|(_, drops)| u64::from(drops)).sum() })
    }

    /// Reads the number of packets to the TUN device `tun` that were dropped because its reader did not read
    /// them in time.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::read`].
    pub fn unread(tun: &str) -> Result<u64, Error> {
        Ok(Netlink::new()?.counts(tun)?.tx_dropped)
    }

    /// Returns the number of drops since `earlier`. If a device was replaced in the meantime, its counters
    /// started again at zero.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let since = |now: u64, earlier: u64| now.checked_sub(earlier).unwrap_or(now);
        Self { unread: since(self.unread, earlier.unread), queues: since(self.queues, earlier.queues) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_speed_is_no_speed() {
        assert_eq!(megabits("1000\n"), Some(Rate::from_bps(1_000_000_000)));
        assert_eq!([megabits("-1\n"), megabits("0\n"), megabits("")], [None; 3]);
        assert_eq!(speed("lo"), None, "a virtual device");
    }

    #[test]
    fn counters_that_begin_anew_are_not_negative() {
        let earlier = Drops { unread: 5, queues: 7 };
        assert_eq!(Drops { unread: 6, queues: 3 }.since(earlier), Drops { unread: 1, queues: 3 });
    }
}
