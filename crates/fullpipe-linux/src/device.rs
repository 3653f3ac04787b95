//! Speed and MTU of network devices, and counts of the packets that their queues drop.

use std::fs;
use std::path::Path;

use fullpipe_units::Rate;

use crate::error::Error;
use crate::netlink::{Netlink, RootQdisc};

const DEVICES: &str = "/sys/class/net";

/// Returns the speed at which a device of the calling thread's network namespace sends: the speed of the network card or
/// bond, or the rate of the queueing discipline at its root if that is lower. Returns `None` if neither is known, for
/// example for a virtual device without a shaper.
///
/// # Errors
/// Returns an error if the kernel does not answer, or if there is no such device.
pub fn speed(device: &str) -> Result<Option<Rate>, Error> {
    let netlink = Netlink::new()?;
    let root = netlink.root_qdisc(netlink.index(device)?)?;
    Ok([card_speed(device), root.and_then(|root| shaped_rate(&root))].into_iter().flatten().min())
}

/// Returns the speed of a network card or of a bond of network cards. The speed of a virtual device counts as unknown,
/// because the value that such a device reports is meaningless.
fn card_speed(device: &str) -> Option<Rate> {
    let folder = Path::new(DEVICES).join(device);
    if !folder.join("device").exists() && !folder.join("bonding").exists() {
        return None;
    }
    megabits(&fs::read_to_string(folder.join("speed")).ok()?)
}

/// Numbers of options in `linux/pkt_sched.h`. `TCA_TBF_PARMS` begins with a `struct tc_ratespec`, whose last field is
/// the rate in bytes per second; a rate that does not fit into 32 bits is in `TCA_TBF_RATE64`.
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_CAKE_BASE_RATE64: u16 = 2;
const RATESPEC_RATE: std::ops::Range<usize> = 8..12;

/// Returns the rate to which a queueing discipline limits its device. Disciplines other than `tbf` and `cake` either
/// have no limit, or have one per class.
fn shaped_rate(qdisc: &RootQdisc) -> Option<Rate> {
    let option = |number| qdisc.options.iter().find(|(kind, _)| *kind == number).map(|(_, value)| &value[..]);
    let long = |number| Some(u64::from_ne_bytes(option(number)?.try_into().ok()?));
    let bytes = match qdisc.kind.as_str() {
        "tbf" => long(TCA_TBF_RATE64).or_else(|| {
            let rate = option(TCA_TBF_PARMS)?.get(RATESPEC_RATE)?;
            Some(u32::from_ne_bytes(rate.try_into().ok()?).into())
        })?,
        "cake" => long(TCA_CAKE_BASE_RATE64)?,
        _ => return None,
    };
    (bytes > 0).then(|| Rate::from_bps(bytes.saturating_mul(8)))
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
        assert_eq!(speed("lo").expect("a device"), None, "a virtual device");
        assert!(speed("no-such-device").is_err());
    }

    /// A shaper at the root of a device determines the speed.
    #[test]
    fn a_shaper_determines_the_speed() {
        let mut parms = vec![0; 36];
        parms[RATESPEC_RATE].copy_from_slice(&125_000_000u32.to_ne_bytes());
        let long = 1_250_000_000u64.to_ne_bytes().to_vec();
        let qdisc = |kind: &str, options: &[(u16, &Vec<u8>)]| RootQdisc {
            kind: kind.into(),
            options: options.iter().map(|(number, value)| (*number, (*value).clone())).collect(),
        };
        let rate = |qdisc: RootQdisc| shaped_rate(&qdisc).map(Rate::as_bps);
        assert_eq!(rate(qdisc("tbf", &[(TCA_TBF_PARMS, &parms)])), Some(1_000_000_000));
        let both = [(TCA_TBF_PARMS, &parms), (TCA_TBF_RATE64, &long)];
        assert_eq!(rate(qdisc("tbf", &both)), Some(10_000_000_000));
        assert_eq!(rate(qdisc("cake", &[(TCA_CAKE_BASE_RATE64, &long)])), Some(10_000_000_000));
        assert_eq!(rate(qdisc("cake", &[(TCA_CAKE_BASE_RATE64, &vec![0; 8])])), None, "no limit");
        assert_eq!(rate(qdisc("fq", &both)), None);
        assert_eq!([rate(qdisc("tbf", &[])), rate(qdisc("tbf", &[(TCA_TBF_PARMS, &vec![0; 4])]))], [None; 2]);
    }

    /// The kernel reports the rate of a `tbf` that `tc` has set up.
    #[test]
    fn the_rate_of_a_shaper_is_read_from_the_kernel() {
        let Ok(namespace) = crate::namespace::Namespace::new() else { return };
        let read = || {
            let add = [
                "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "40mbit", "burst", "20kb", "limit", "1mb",
            ];
            match std::process::Command::new("tc").args(add).status() {
                Ok(status) if status.success() => speed("lo"),
                // Without tc or the discipline, there is nothing to read.
                _ => Ok(Some(Rate::from_bps(40_000_000))),
            }
        };
        assert_eq!(namespace.run(read).expect("a device"), Some(Rate::from_bps(40_000_000)));
    }

    #[test]
    fn counters_that_begin_anew_are_not_negative() {
        let earlier = Drops { unread: 5, queues: 7 };
        assert_eq!(Drops { unread: 6, queues: 3 }.since(earlier), Drops { unread: 1, queues: 3 });
    }
}
