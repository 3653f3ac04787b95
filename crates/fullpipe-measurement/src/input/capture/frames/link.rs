//! Link header before the IP header, and the timestamp unit of an interface.

use fullpipe_units::Instant;

use super::Frame;
use crate::input::InputError;

/// Length in bytes of an Ethernet header before its EtherType, and of the EtherType.
const MAC_ADDRESSES: usize = 12;
const ETHER_TYPE: usize = 2;
/// Length in bytes of a VLAN tag after the EtherType that announces it: the tag, and the next EtherType.
const VLAN_TAG: usize = 4;
/// Length in bytes of an MPLS label with its flags and TTL, and of the control word of a pseudowire.
/// Source: RFC 3032 section 2.1, RFC 4448 section 4.6.
const MPLS_LABEL: usize = 4;
/// Length in bytes of a PPPoE session header, without the PPP protocol.
/// Source: RFC 2516 section 4.
const PPPOE: usize = 6;
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
    Ppp,
    Pppoe,
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
            // PPP and PPP_HDLC.
            9 | 50 => Ok(Self::Ppp),
            51 => Ok(Self::Pppoe),
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
        match self {
            Self::Nothing => Some(0),
            // The number of the address family differs between systems; the IP version serves the same
            // purpose.
            Self::BsdLoopback => Some(BSD_LOOPBACK),
            Self::LinuxSll => after_type(bytes, word(bytes, SLL_PROTOCOL)?, LINUX_SLL),
            Self::LinuxSll2 => after_type(bytes, word(bytes, SLL2_PROTOCOL)?, LINUX_SLL2),
            Self::Ethernet => after_addresses(bytes, MAC_ADDRESSES),
            // HDLC's address and control fields, which both ends may omit.
            Self::Ppp if bytes.starts_with(&[0xff, 0x03]) => in_ppp(bytes, 2),
            Self::Ppp => in_ppp(bytes, 0),
            Self::Pppoe => in_pppoe(bytes, 0),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// Returns the offset of the IP header in an Ethernet frame whose EtherType is at `at`.
#[inline]
fn after_addresses(bytes: &[u8], at: usize) -> Option<usize> {
    after_type(bytes, word(bytes, at)?, at + ETHER_TYPE)
}

/// Returns the offset of the IP header in the bytes from `at` on, which follow the EtherType `kind`. Each
/// header moves `at` forward, so the loop ends at the end of the bytes at the latest.
#[inline]
fn after_type(bytes: &[u8], mut kind: u16, mut at: usize) -> Option<usize> {
    loop {
        match kind {
            0x0800 | 0x86dd => return Some(at),
            0x8100 | 0x88a8 | 0x9100 => {
                kind = word(bytes, at + 2)?;
                at += VLAN_TAG;
            }
            0x8847 | 0x8848 => return in_mpls(bytes, at),
            0x8864 => return in_pppoe(bytes, at),
            _ => return None,
        }
    }
}

/// Returns the offset of the IP header behind MPLS labels. The labels do not identify the next header, but
/// its first four bits do (RFC 4928 section 3).
fn in_mpls(bytes: &[u8], mut at: usize) -> Option<usize> {
    const BOTTOM_OF_STACK: u8 = 1;
    while bytes.get(at + 2)? & BOTTOM_OF_STACK == 0 {
        at += MPLS_LABEL;
    }
    at += MPLS_LABEL;
    match bytes.get(at)? >> 4 {
        4 | 6 => Some(at),
        // The control word of a pseudowire, which carries an Ethernet frame.
        0 => after_addresses(bytes, at + MPLS_LABEL + MAC_ADDRESSES),
        _ => None,
    }
}

fn in_pppoe(bytes: &[u8], at: usize) -> Option<usize> {
    in_ppp(bytes, at + PPPOE)
}

/// Returns the offset of the IP header behind a PPP protocol number, which may be compressed to one byte.
fn in_ppp(bytes: &[u8], at: usize) -> Option<usize> {
    const COMPRESSED: u8 = 1;
    let (protocol, at) = match *bytes.get(at)? {
        short if short & COMPRESSED != 0 => (short.into(), at + 1),
        _ => (word(bytes, at)?, at + 2),
    };
    match protocol {
        0x0021 | 0x0057 => Some(at),
        0x0281 | 0x0283 => in_mpls(bytes, at),
        _ => None,
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

    /// Captures on provider edges and on DSL lines have these headers; a reader that does not know the
    /// headers would count every packet as not TCP.
    #[test]
    fn headers_of_providers_are_skipped() {
        const LABEL: [u8; 4] = [0, 1, 0x30, 64];
        const LAST_LABEL: [u8; 4] = [0, 2, 0x31, 64];
        let ethernet = |kind: u16, rest: &[&[u8]]| {
            [&[2; MAC_ADDRESSES][..], &kind.to_be_bytes(), &rest.concat()].concat()
        };
        let session = [0x11, 0, 0, 7, 0, 22];
        let inner = ethernet(0x0800, &[&[0x45]]);
        for (bytes, header) in [
            (ethernet(0x8847, &[&LAST_LABEL, &[0x45]]), 18),
            (ethernet(0x8848, &[&LABEL, &LABEL, &LAST_LABEL, &[0x60]]), 26),
            (ethernet(0x8100, &[&[0, 7, 0x88, 0x47], &LAST_LABEL, &[0x45]]), 22),
            (ethernet(0x8847, &[&LABEL, &LAST_LABEL, &[0; 4], &inner]), 14 + 8 + 4 + 14),
            (ethernet(0x8864, &[&session, &[0, 0x21], &[0x45]]), 22),
            (ethernet(0x8864, &[&session, &[0, 0x57], &[0x60]]), 22),
            (ethernet(0x8864, &[&session, &[0x21], &[0x45]]), 21),
            (ethernet(0x88a8, &[&[0, 9, 0x81, 0], &[0, 7, 0x88, 0x64], &session, &[0, 0x21], &[0x45]]), 30),
        ] {
            assert_eq!(Link::Ethernet.header(&bytes), Some(header), "{bytes:02x?}");
            assert!(matches!(bytes[header], 0x45 | 0x60), "{bytes:02x?}");
            for end in 0..header - 1 {
                assert_eq!(
                    Link::Ethernet.frame(Instant::ZERO, &bytes[..end], 0).ip,
                    [0u8; 0],
                    "cut at {end}"
                );
            }
        }
        for other in [
            ethernet(0x8847, &[&LABEL]),
            ethernet(0x8847, &[&LAST_LABEL, &[0x12]]),
            // PPPoE discovery, and the link control protocol of PPP.
            ethernet(0x8863, &[&session, &[0, 0x21], &[0x45]]),
            ethernet(0x8864, &[&session, &[0xc0, 0x21], &[0x45]]),
        ] {
            assert_eq!(Link::Ethernet.header(&other), None, "{other:02x?}");
        }
        assert_eq!(Link::of(9).unwrap().header(&[0xff, 0x03, 0, 0x21, 0x45]), Some(4));
        assert_eq!(Link::of(9).unwrap().header(&[0x57, 0x60]), Some(1));
        assert_eq!(Link::of(51).unwrap().header(&[&session[..], &[0, 0x21, 0x45]].concat()), Some(8));
        let sll = [&[0; SLL_PROTOCOL][..], &[0x88, 0x64], &session, &[0, 0x21, 0x45]].concat();
        assert_eq!(Link::LinuxSll.header(&sll), Some(24));
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
