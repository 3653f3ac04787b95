//! Packets in a file: pcap and pcapng, and what stands before the IP header.

use std::io::{Cursor, Read};

use fullpipe_units::Instant;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};

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
pub(super) fn each(source: impl Read, mut see: impl FnMut(Frame<'_>)) -> Result<bool, InputError> {
    let mut source = source;
    let mut magic = [0; 4];
    source.read_exact(&mut magic).map_err(|e| unreadable(&PcapError::IoError(e)))?;
    let source = Cursor::new(magic).chain(source);
    if magic == PCAPNG { each_of_pcapng(source, &mut see) } else { each_of_pcap(source, &mut see) }
}

fn each_of_pcap(source: impl Read, see: &mut impl FnMut(Frame<'_>)) -> Result<bool, InputError> {
    let mut reader = PcapReader::new(source).map_err(|e| unreadable(&e))?;
    let link = Link::of(reader.header().datalink)?;
    while let Some(packet) = reader.next_packet() {
        let packet = match packet {
            Ok(packet) => packet,
            Err(error) => return breaks_off(&error),
        };
        let at = Instant::from_nanos(u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX / 2));
        see(link.frame(at, &packet.data, packet.orig_len));
    }
    Ok(false)
}

fn each_of_pcapng(source: impl Read, see: &mut impl FnMut(Frame<'_>)) -> Result<bool, InputError> {
    let mut reader = PcapNgReader::new(source).map_err(|e| unreadable(&e))?;
    let mut interfaces: Vec<(Link, Clock)> = Vec::new();
    while let Some(block) = reader.next_block() {
        match block {
            Ok(Block::SectionHeader(_)) => interfaces.clear(),
            Ok(Block::InterfaceDescription(block)) => {
                interfaces.push((Link::of(block.linktype)?, Clock::of(&block)));
            }
            Ok(Block::EnhancedPacket(packet)) => {
                let interface = interfaces.get(packet.interface_id as usize);
                let (link, clock) =
                    interface.ok_or_else(|| broken("a packet names an interface that is not there"))?;
                // The reader takes the file's ticks for nanoseconds.
                let ticks = u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX / 2);
                see(link.frame(clock.instant(ticks), &packet.data, packet.original_len));
            }
            // Of the others only the simple packet block holds a packet, and that has no time.
            Ok(_) => {}
            Err(error) => return breaks_off(&error),
        }
    }
    Ok(false)
}

/// A capture that was being written when it was copied ends within a packet: what came before counts.
fn breaks_off(error: &PcapError) -> Result<bool, InputError> {
    match error {
        PcapError::IncompleteBuffer => Ok(true),
        PcapError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(true),
        error => Err(unreadable(error)),
    }
}

fn unreadable(error: &PcapError) -> InputError {
    match error {
        PcapError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            broken("it ends within its header")
        }
        PcapError::IoError(error) => InputError::new(format!("cannot be read: {error}"), ""),
        error => broken(&error.to_string()),
    }
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
    fn of(link: DataLink) -> Result<Self, InputError> {
        match link {
            DataLink::ETHERNET => Ok(Self::Ethernet),
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Ok(Self::Nothing),
            DataLink::NULL | DataLink::LOOP => Ok(Self::BsdLoopback),
            DataLink::LINUX_SLL => Ok(Self::LinuxSll),
            DataLink::LINUX_SLL2 => Ok(Self::LinuxSll2),
            other => Err(InputError::new(
                format!("link type {} of this capture is not known", u32::from(other)),
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
    ticks_per_second: u128,
}

impl Clock {
    fn of(interface: &InterfaceDescriptionBlock<'_>) -> Self {
        let resolution = interface.options.iter().find_map(|option| match option {
            InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
            _ => None,
        });
        let ticks_per_second = match resolution.unwrap_or(6) {
            binary if binary & 0x80 != 0 => 1 << (binary & 0x7f).min(64),
            decimal => 10u128.pow(u32::from(decimal).min(18)),
        };
        Self { ticks_per_second }
    }

    fn instant(self, ticks: u64) -> Instant {
        let nanos = u128::from(ticks) * 1_000_000_000 / self.ticks_per_second;
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 2))
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
