//! Packets in a file: pcap and pcapng, and what stands before the IP header.

use std::io::{self, Read};

use fullpipe_units::Instant;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, LegacyPcapReader, Linktype, PcapBlockOwned, PcapError, PcapNGReader};

use crate::input::InputError;

/// The first four octets of pcapng, and of pcap in both byte orders with times in microseconds and nanoseconds.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const PCAP: [[u8; 4]; 4] =
    [[0xa1, 0xb2, 0xc3, 0xd4], [0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d], [0x4d, 0x3c, 0xb2, 0xa1]];

/// Octets of an Ethernet header without its type, and of a VLAN tag.
const MAC_ADDRESSES: usize = 12;
const VLAN_TAG: usize = 4;
/// Octets before the packet where the link is the loopback of BSD, and in the two "any" formats of Linux.
const BSD_LOOPBACK: usize = 4;
const LINUX_SLL: usize = 16;
const LINUX_SLL2: usize = 20;
/// How far an Ethernet type lies from the start of the two.
const SLL_PROTOCOL: usize = 14;
const SLL2_PROTOCOL: usize = 0;

/// Octets that are read at once, and those of the longest block: a packet has a quarter of a megabyte at most.
const BUFFER: usize = 1 << 20;
const LARGEST_BLOCK: usize = 16 << 20;
/// Interfaces of one section.
const MOST_INTERFACES: usize = 4_096;

/// One captured packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// When, since whatever the file counts from.
    pub(super) at: Instant,
    /// Its first octets, from the IP header on; empty if it is no IP packet.
    pub(super) ip: &'a [u8],
    /// Its length on the wire, from the IP header on.
    pub(super) len: usize,
}

/// Whether a file that begins like this is a capture.
pub fn is_capture(beginning: &[u8]) -> bool {
    beginning.first_chunk().is_some_and(|magic| *magic == PCAPNG || PCAP.contains(magic))
}

/// Shows every packet of a capture to `see`, in the order of the file. Answers whether the file breaks off.
pub(super) fn each(source: impl Read, see: impl FnMut(Frame<'_>)) -> Result<bool, InputError> {
    let mut magic = [0; 4];
    let mut source = source;
    let had = fill(&mut source, &mut magic).map_err(|e| unreadable(&e))?;
    let source = Whole(io::Cursor::new(magic).take(had as u64).chain(source));
    let header = |error: PcapError<&[u8]>| match error {
        PcapError::ReadError => broken("it cannot be read"),
        PcapError::Incomplete(_) | PcapError::UnexpectedEof | PcapError::Eof => {
            broken("it ends within its header")
        }
        error => broken(&what(&error)),
    };
    if magic == PCAPNG {
        each_of(PcapNGReader::new(BUFFER, source).map_err(header)?, see)
    } else {
        each_of(LegacyPcapReader::new(BUFFER, source).map_err(header)?, see)
    }
}

/// Reads until `buffer` is full or nothing comes any more: pipes hand over little at a time.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut had = 0;
    while had < buffer.len() {
        match source.read(&mut buffer[had..]) {
            Ok(0) => break,
            Ok(more) => had += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(had)
}

/// A source whose reads are as long as asked for, but at its end.
struct Whole<R>(R);

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        fill(&mut self.0, buffer)
    }
}

fn each_of(mut reader: impl PcapReaderIterator, mut see: impl FnMut(Frame<'_>)) -> Result<bool, InputError> {
    let mut interfaces: Vec<(Link, Clock)> = Vec::new();
    let mut capacity = BUFFER;
    loop {
        let read = match reader.next() {
            Ok((read, block)) => {
                take(&block, &mut interfaces, &mut see)?;
                read
            }
            Err(PcapError::Eof) => return Ok(false),
            // A capture that was being written when it was copied ends within a packet: what came before counts.
            Err(PcapError::UnexpectedEof) => return Ok(true),
            Err(PcapError::Incomplete(_)) => {
                refill(&mut reader)?;
                continue;
            }
            Err(PcapError::BufferTooSmall) if capacity < LARGEST_BLOCK => {
                capacity *= 2;
                reader.grow(capacity);
                refill(&mut reader)?;
                continue;
            }
            Err(error) => return Err(broken(&what(&error))),
        };
        reader.consume(read);
    }
}

fn refill(reader: &mut impl PcapReaderIterator) -> Result<(), InputError> {
    reader.refill().map_err(|_| InputError::new("cannot be read to its end", ""))
}

/// One block of either format.
fn take(
    block: &PcapBlockOwned<'_>,
    interfaces: &mut Vec<(Link, Clock)>,
    see: &mut impl FnMut(Frame<'_>),
) -> Result<(), InputError> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let ticks_per_second = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            interfaces.push((Link::of(header.network)?, Clock { ticks_per_second }));
        }
        PcapBlockOwned::Legacy(packet) => {
            if let [(link, clock)] = interfaces[..] {
                let ticks = u64::from(packet.ts_sec) * clock.ticks_per_second + u64::from(packet.ts_usec);
                see(link.frame(clock.instant(ticks), packet.data, packet.origlen));
            }
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => interfaces.clear(),
        PcapBlockOwned::NG(Block::InterfaceDescription(block)) => {
            if interfaces.len() >= MOST_INTERFACES {
                return Err(broken("it has more interfaces than any host"));
            }
            interfaces.push((Link::of(block.linktype)?, Clock::of(block.if_tsresol)));
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let interface = interfaces.get(packet.if_id as usize);
            let (link, clock) =
                interface.ok_or_else(|| broken("a packet names an interface that is not there"))?;
            let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            let bytes = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
            see(link.frame(clock.instant(ticks), bytes, packet.origlen));
        }
        // Of the others only the simple packet block holds a packet, and that has no time.
        PcapBlockOwned::NG(_) => {}
    }
    Ok(())
}

/// An error without the octets at which it happened.
fn what(error: &PcapError<&[u8]>) -> String {
    match error {
        PcapError::NomError(_, kind) | PcapError::OwnedNomError(_, kind) => {
            format!("a block of it does not read ({kind:?})")
        }
        PcapError::BufferTooSmall => "a block is longer than any packet".into(),
        error => error.to_string(),
    }
}

fn unreadable(error: &io::Error) -> InputError {
    InputError::new(format!("cannot be read: {error}"), "")
}

fn broken(what: &str) -> InputError {
    InputError::new(
        format!("no capture that can be read: {what}"),
        "write it again, as tcpdump -w F or dumpcap do",
    )
}

/// What stands before the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Ethernet,
    Nothing,
    BsdLoopback,
    LinuxSll,
    LinuxSll2,
}

impl Link {
    fn of(link: Linktype) -> Result<Self, InputError> {
        // The upper bits of a pcap header tell of Ethernet's check sequence.
        match Linktype(link.0 & 0xffff) {
            Linktype::ETHERNET => Ok(Self::Ethernet),
            // The second was RAW on some systems.
            Linktype::RAW | Linktype(12) | Linktype::IPV4 | Linktype::IPV6 => Ok(Self::Nothing),
            Linktype::NULL | Linktype::LOOP => Ok(Self::BsdLoopback),
            Linktype::LINUX_SLL => Ok(Self::LinuxSll),
            Linktype::LINUX_SLL2 => Ok(Self::LinuxSll2),
            other => Err(InputError::new(
                format!("link type {} of this capture is not known", other.0),
                "capture on an Ethernet, loopback or TUN device, or on 'any'",
            )),
        }
    }

    fn frame<'a>(self, at: Instant, bytes: &'a [u8], original: u32) -> Frame<'a> {
        let header = self.header(bytes).filter(|&header| header <= bytes.len());
        let ip = header.map_or(&[][..], |header| &bytes[header..]);
        let len = (original as usize).saturating_sub(header.unwrap_or(0)).max(ip.len());
        Frame { at, ip, len }
    }

    /// Octets before the IP header; `None` before something else.
    fn header(self, bytes: &[u8]) -> Option<usize> {
        let kind = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let ip = |kind: u16| matches!(kind, 0x0800 | 0x86dd);
        match self {
            Self::Nothing => Some(0),
            // The address family before it has another number on each system; the IP version tells the same.
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

/// In what an interface counts time (`if_tsresol`): in `1/10^n` or `1/2^n` of a second.
#[derive(Clone, Copy, Debug)]
struct Clock {
    ticks_per_second: u64,
}

impl Clock {
    fn of(resolution: u8) -> Self {
        let ticks_per_second = match resolution {
            binary if binary & 0x80 != 0 => 1 << (binary & 0x7f).min(63),
            decimal => 10u64.pow(u32::from(decimal).min(18)),
        };
        Self { ticks_per_second }
    }

    fn instant(self, ticks: u64) -> Instant {
        // Seconds and the rest apart: a division of 128 bits for each packet would be a tenth of the work.
        let (seconds, rest) = (ticks / self.ticks_per_second, ticks % self.ticks_per_second);
        let nanos = match self.ticks_per_second {
            1_000_000_000 => rest,
            1_000_000 => rest * 1_000,
            ticks => (u128::from(rest) * 1_000_000_000 / u128::from(ticks)) as u64,
        };
        let whole = seconds.checked_mul(1_000_000_000).and_then(|whole| whole.checked_add(nanos));
        Instant::from_nanos(whole.unwrap_or(u64::MAX).min(u64::MAX / 2))
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

    #[test]
    fn resolutions_of_time() {
        let clock = |ticks_per_second| Clock { ticks_per_second };
        assert_eq!(clock(1_000_000).instant(1_500_000), Instant::from_nanos(1_500_000_000));
        assert_eq!(clock(1 << 20).instant(3 << 19), Instant::from_nanos(1_500_000_000));
    }
}
