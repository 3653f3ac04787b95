//! pcap: a file header, then records, each with a timestamp, two lengths and the first bytes of a packet
//! (draft-ietf-opsawg-pcap).

use std::io::Read;

use super::link::{Clock, Link};
use super::window::Window;
use super::{ENDS_EARLY, Ending, Frame, LARGEST_BLOCK, Order, PCAP, TOO_LONG, broken};
use crate::input::InputError;

/// Length of the file header in bytes; `RECORD` is the length of a record header: seconds, fraction, captured
/// length, length on the wire.
const HEADER: usize = 24;
const RECORD: usize = 16;
/// Offset of the link type in the file header.
const LINK_TYPE: usize = 20;

/// Passes every packet to `see`.
pub(super) fn each<R: Read>(
    mut window: Window<R>,
    mut see: impl FnMut(Frame<'_>),
) -> Result<Ending, InputError> {
    let header = window.ahead(HEADER)?;
    let (Some(magic), true) = (header.first_chunk(), header.len() >= HEADER) else {
        return Err(broken(ENDS_EARLY));
    };
    let number = PCAP
        .iter()
        .position(|known| known == magic)
        .ok_or_else(|| broken("the file does not begin with the header of a pcap file"))?;
    let order = if number % 2 == 0 { Order::Big } else { Order::Little };
    let clock = Clock::of_ticks(if number < 2 { 1_000_000 } else { 1_000_000_000 });
    // The upper bits describe the frame check sequence of Ethernet.
    let link = Link::of(order.u32(header, LINK_TYPE) & 0xffff)?;
    window.consume(HEADER);
    let truncated = loop {
        let record = window.ahead(RECORD)?;
        if record.len() < RECORD {
            break !record.is_empty();
        }
        let [seconds, part, captured, original] = [0, 4, 8, 12].map(|at| order.u32(record, at));
        let length = RECORD + captured as usize;
        if length > LARGEST_BLOCK {
            return Err(broken(TOO_LONG));
        }
        let Some(bytes) = window.ahead(length)?.get(RECORD..length) else { break true };
        see(link.frame(clock.of_parts(seconds.into(), part.into()), bytes, original));
        window.consume(length);
    };
    Ok(Ending { truncated, ..Ending::default() })
}
