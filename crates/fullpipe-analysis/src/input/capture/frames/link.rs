//! Link header before the IP header, and the timestamp unit of an interface.

use fullpipe_units::Instant;

use super::Frame;
use crate::input::InputError;

/// Length in bytes of an Ethernet header before its EtherType; `VLAN_TAG` is the length of a VLAN tag.
const MAC_ADDRESSES: usize = 12;
const VLAN_TAG: usize = 4;
/// Length of the header on the BSD loopback link, and in the two "any" formats of Linux, in bytes.
const BSD_LOOPBACK: usize = 4;
const LINUX_SLL: usize = 16;
const LINUX_SLL2: usize = 20;
/// Offset of the EtherType in the two "any" formats of Linux.
const SLL_PROTOCOL: usize = 14;
const SLL2_PROTOCOL: usize = 0;

/// Link header before the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Ethernet,
    Nothing,
    BsdLoopback,
    LinuxSll,
    LinuxSll2,
}

impl Link {
    /// Returns the link for a link type (tcpdump.org/linktypes.html).
    pub(super) fn of(link_type: u32) -> Result<Self, InputError> {
        match link_type {
            1 => Ok(Self::Ethernet),
            // RAW (12 on some systems), IPV4 and IPV6.
            101 | 12 | 228 | 229 => Ok(Self::Nothing),
            // NULL and LOOP.
            0 | 108 => Ok(Self::BsdLoopback),
            113 => Ok(Self::LinuxSll),
            276 => Ok(Self::LinuxSll2),
            other => Err(InputError::new(
                format!("this capture has the unknown link type {other}"),
                "capture on an Ethernet, loopback or TUN device, or on 'any'",
            )),
        }
    }

    #[inline]
    pub(super) fn frame<'a>(self, at: Instant, bytes: &'a [u8], original: u32) -> Frame<'a> {
        let header = self.header(bytes).filter(|&header| header <= bytes.len());
        let ip = header.map_or(&[][..], |header| &bytes[header..]);
        let len = (original as usize).saturating_sub(header.unwrap_or(0)).max(ip.len());
        Frame { at, ip, len }
    }

    /// Returns the number of bytes before the IP header, or `None` if the packet is not IP.
    #[inline]
    fn header(self, bytes: &[u8]) -> Option<usize> {
        let kind = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let ip = |kind: u16| matches!(kind, 0x0800 | 0x86dd);
        match self {
            Self::Nothing => Some(0),
            // The number of the address family differs between systems; the IP version serves the same
            // purpose.
            Self::BsdLoopback => Some(BSD_LOOPBACK),
            Self::LinuxSll => ip(kind(SLL_PROTOCOL)?).then_some(LINUX_SLL),
            Self::LinuxSll2 => ip(kind(SLL2_PROTOCOL)?).then_some(LINUX_SLL2),
            Self::Ethernet => {
                let mut at = MAC_ADDRESSES;
                while matches!(kind(at)?, 0x8100 | 0x88a8 | 0x9100) {
                    at += VLAN_TAG;
                }
                ip(kind(at)?).then_some(at + 2)
            }
        }
    }
}

const SECOND: u64 = 1_000_000_000;

/// Unit and offset of an interface's timestamps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    ticks_per_second: u64,
    /// Offset to add to timestamps, in seconds (`if_tsoffset`).
    offset: i64,
}

impl Default for Clock {
    /// Returns a clock with microsecond timestamps, the default of both formats.
    fn default() -> Self {
        Self::of_ticks(1_000_000)
    }
}

impl Clock {
    pub(super) const fn of_ticks(ticks_per_second: u64) -> Self {
        Self { ticks_per_second, offset: 0 }
    }

    /// Sets the timestamp unit as encoded in `if_tsresol`: `1/10^n` or `1/2^n` of a second.
    pub(super) fn counting_in(self, resolution: u8) -> Self {
        let ticks_per_second = match resolution {
            binary if binary & 0x80 != 0 => 1 << (binary & 0x7f).min(63),
            decimal => 10u64.pow(u32::from(decimal).min(18)),
        };
        Self { ticks_per_second, ..self }
    }

    pub(super) const fn from(self, offset: i64) -> Self {
        Self { offset, ..self }
    }

    #[inline]
    pub(super) fn instant(self, ticks: u64) -> Instant {
        // The two common units need no division, which would be a tenth of the work per packet.
        let nanos = match self.ticks_per_second {
            SECOND => Some(ticks),
            1_000_000 => ticks.checked_mul(1_000),
            _ => return self.of_parts(ticks / self.ticks_per_second, ticks % self.ticks_per_second),
        };
        self.shifted(nanos)
    }

    /// Returns the instant at `seconds` plus `ticks`, which are less than a second.
    #[inline]
    pub(super) fn of_parts(self, seconds: u64, ticks: u64) -> Instant {
        let nanos = match self.ticks_per_second {
            SECOND => ticks,
            1_000_000 => ticks * 1_000,
            per_second => (u128::from(ticks) * u128::from(SECOND) / u128::from(per_second)) as u64,
        };
        self.shifted(seconds.checked_mul(SECOND).and_then(|whole| whole.checked_add(nanos)))
    }

    /// Adds the offset. A damaged file may contain any timestamp, so the result is bounded to allow later
    /// additions.
    #[inline]
    fn shifted(self, nanos: Option<u64>) -> Instant {
        let nanos = nanos.unwrap_or(u64::MAX);
        let nanos = match self.offset {
            0 => nanos,
            offset => nanos.saturating_add_signed(offset.saturating_mul(SECOND as i64)),
        };
        Instant::from_nanos(nanos.min(u64::MAX / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_the_packet() {
        let mut tagged = vec![0; MAC_ADDRESSES];
        tagged.extend([0x81, 0x00, 0, 7, 0x08, 0x00, 0x45]);
        assert_eq!(Link::Ethernet.header(&tagged), Some(18));
        let mut arp = vec![0; MAC_ADDRESSES];
        arp.extend([0x08, 0x06, 0, 1]);
        assert_eq!(Link::Ethernet.header(&arp), None);
        assert_eq!(Link::Ethernet.header(&arp[..10]), None);
        let mut any = vec![0; SLL_PROTOCOL];
        any.extend([0x86, 0xdd, 0x60]);
        assert_eq!(Link::LinuxSll.header(&any), Some(LINUX_SLL));
        assert_eq!(Link::LinuxSll2.header(&[0x08, 0x00, 0, 0]), Some(LINUX_SLL2));
        let frame = Link::LinuxSll2.frame(Instant::ZERO, &[0x08, 0x00, 0, 0], 60);
        assert!(frame.ip.is_empty(), "cut off before the packet");
    }

    /// An instant is the same in any unit and with any offset.
    #[test]
    fn resolutions_and_offsets_of_time() {
        let moment = Instant::from_nanos(1_500_000_000);
        for (resolution, ticks) in
            [(6, 1_500_000), (9, 1_500_000_000), (3, 1_500), (0x80 | 20, 3 << 19), (12, 1_500_000_000_000)]
        {
            let clock = Clock::default().counting_in(resolution);
            assert_eq!(clock.instant(ticks), moment, "{resolution}");
        }
        assert_eq!(Clock::default().instant(1_500_000), moment);
        assert_eq!(Clock::default().from(-2).instant(3_500_000), moment);
        assert_eq!(Clock::default().from(1).instant(500_000), moment);
        let odd = Clock::default().counting_in(0xff).from(i64::MAX);
        assert!(odd.instant(u64::MAX) + fullpipe_units::Duration::from_secs(1) > odd.instant(0));
    }
}
