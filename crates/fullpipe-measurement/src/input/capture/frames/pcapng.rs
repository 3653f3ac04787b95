//! pcapng: blocks with the block length at both ends (draft-ietf-opsawg-pcapng).
//!
//! ```text
//!   section ──► interfaces, numbered from 0: link type, resolution and offset of their times
//!      ▲    ──► packets, each of one interface        ──► passed on
//!      └─── ──► statistics: lost packets              ──► counted
//! ```
//!
//! All other blocks are skipped by their length. The section header determines the byte order.

use std::io::Read;

use super::link::{Clock, Link};
use super::window::Window;
use super::{ENDS_EARLY, Ending, Frame, LARGEST_BLOCK, Order, PCAPNG, TOO_LONG, broken};
use crate::input::InputError;

/// Block types.
const SECTION: u32 = u32::from_be_bytes(PCAPNG);
const INTERFACE: u32 = 1;
/// Packet block, which the enhanced packet block has replaced.
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Byte-order magic in the section header block.
const ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Length in bytes of the block fields before the body (type and length); `BEHIND` is the length of the
/// fields after the body (length again).
const BEFORE: usize = 8;
const BEHIND: usize = 4;
/// Length in bytes of the fixed part of a block's body, before its options or packet.
const INTERFACE_FIXED: usize = 8;
const PACKET_FIXED: usize = 20;
const STATISTICS_FIXED: usize = 12;
/// Options of interface description and statistics blocks.
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;
const ISB_IFDROP: u16 = 5;
const ISB_OSDROP: u16 = 7;
/// Maximum number of interfaces per section.
const MOST_INTERFACES: usize = 4_096;

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Link,
    clock: Clock,
    /// Packets dropped on the interface, according to its latest statistics block.
    dropped: u64,
}

/// Passes every packet that has a timestamp to `see`.
pub(super) fn each<R: Read>(
    mut window: Window<R>,
    mut see: impl FnMut(Frame<'_>),
) -> Result<Ending, InputError> {
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut ending = Ending::default();
    let mut order = None;
    ending.truncated = loop {
        let first = order.is_none();
        let ahead = window.ahead(BEFORE + BEHIND)?;
        if ahead.len() < BEFORE + BEHIND {
            if first {
                return Err(broken(ENDS_EARLY));
            }
            break !ahead.is_empty();
        }
        // The block type of a section header reads the same in both byte orders.
        if ahead.starts_with(&PCAPNG) {
            order = Some(order_of(ahead)?);
        }
        let order =
            order.ok_or_else(|| broken("the file does not begin with the header of a pcapng file"))?;
        let (kind, length) = (order.u32(ahead, 0), order.u32(ahead, 4) as usize);
        if length > LARGEST_BLOCK {
            return Err(broken(TOO_LONG));
        }
        if length < BEFORE + BEHIND || length % 4 != 0 {
            return Err(broken("the length of a block is invalid"));
        }
        let Some(block) = window.ahead(length)?.get(..length) else {
            if first {
                return Err(broken(ENDS_EARLY));
            }
            break true;
        };
        if order.u32(block, length - BEHIND) as usize != length {
            return Err(broken("the two lengths of a block differ"));
        }
        let body = &block[BEFORE..length - BEHIND];
        match kind {
            ENHANCED_PACKET | OBSOLETE_PACKET => see(packet(kind, body, order, &interfaces)?),
            INTERFACE if interfaces.len() >= MOST_INTERFACES => {
                return Err(broken("the file has too many interfaces"));
            }
            INTERFACE => interfaces.push(Interface::read(body, order)?),
            SECTION => {
                ending.dropped += dropped(&interfaces);
                interfaces.clear();
            }
            STATISTICS => take_statistics(body, order, &mut interfaces),
            SIMPLE_PACKET => ending.timeless += 1,
            _ => {}
        }
        window.consume(length);
    };
    ending.dropped += dropped(&interfaces);
    Ok(ending)
}

/// Returns the byte order of the section that starts here.
fn order_of(section: &[u8]) -> Result<Order, InputError> {
    [Order::Little, Order::Big]
        .into_iter()
        .find(|order| order.u32(section, BEFORE) == ORDER_MAGIC)
        .ok_or_else(|| broken("the byte order of a section is unknown"))
}

fn packet<'a>(
    kind: u32,
    body: &'a [u8],
    order: Order,
    interfaces: &[Interface],
) -> Result<Frame<'a>, InputError> {
    let Some((fixed, data)) = body.split_at_checked(PACKET_FIXED) else {
        return Err(broken("a packet block is shorter than its header"));
    };
    // In the obsolete packet block, this field consists of a 16-bit interface number and a 16-bit drop count.
    let number = if kind == OBSOLETE_PACKET { order.u16(fixed, 0).into() } else { order.u32(fixed, 0) };
    let interface = interfaces.get(number as usize);
    let Interface { link, clock, .. } =
        interface.ok_or_else(|| broken("a packet refers to an unknown interface"))?;
    let [high, low, captured, original] = [4, 8, 12, 16].map(|at| order.u32(fixed, at));
    let bytes = data.get(..captured as usize).ok_or_else(|| broken("a packet is longer than its block"))?;
    Ok(link.frame(clock.instant(u64::from(high) << 32 | u64::from(low)), bytes, original))
}

impl Interface {
    fn read(body: &[u8], order: Order) -> Result<Self, InputError> {
        let Some((fixed, rest)) = body.split_at_checked(INTERFACE_FIXED) else {
            return Err(broken("an interface block is shorter than its header"));
        };
        let link = Link::of(order.u16(fixed, 0).into())?;
        let mut clock = Clock::default();
        for (code, value) in options(rest, order) {
            match (code, value) {
                (IF_TSRESOL, &[resolution]) => clock = clock.counting_in(resolution),
                (IF_TSOFFSET, _) => {
                    if let Ok(octets) = value.try_into() {
                        clock = clock.from(order.u64(octets) as i64);
                    }
                }
                _ => {}
            }
        }
        Ok(Self { link, clock, dropped: 0 })
    }
}

/// Records the number of packets dropped on an interface so far. The interface and the operating system may
/// both count the same packet, so the larger count is used.
fn take_statistics(body: &[u8], order: Order, interfaces: &mut [Interface]) {
    let Some((fixed, rest)) = body.split_at_checked(STATISTICS_FIXED) else { return };
    let Some(interface) = interfaces.get_mut(order.u32(fixed, 0) as usize) else { return };
    let counts = options(rest, order)
        .filter(|(code, _)| matches!(*code, ISB_IFDROP | ISB_OSDROP))
        .filter_map(|(_, value)| value.try_into().ok())
        .map(|octets| order.u64(octets))
        // A value of all ones means that the count is unknown.
        .filter(|&count| count != u64::MAX);
    interface.dropped = counts.max().unwrap_or(0).max(interface.dropped);
}

fn dropped(interfaces: &[Interface]) -> u64 {
    interfaces.iter().fold(0, |sum, interface| sum.saturating_add(interface.dropped))
}

/// Returns options as code and value, up to the end-of-options marker or a truncated option.
fn options(bytes: &[u8], order: Order) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.len() < 4 {
            return None;
        }
        let (code, length) = (order.u16(rest, 0), usize::from(order.u16(rest, 2)));
        let value = rest.get(4..4 + length).filter(|_| code != 0)?;
        rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    })
}
