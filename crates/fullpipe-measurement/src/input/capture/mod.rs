//! Captures: pcap and pcapng files of any connection, recorded at any point on its path.
//!
//! ```text
//!   file ──► frames ──► TCP headers ──► one tracker per connection ──► flows like those of a log, one chosen
//!                                        │
//!                                        ├ packets that were captured more than once (`copies`)
//!                                        ├ two directions: the kind of each segment, counted once
//!                                        ├ two timelines: rate, RTT, window and flight over time ──► samples
//!                                        ├ ACKs that each endpoint knew when it sent (`sender_view`)
//!                                        └ loop times from the tap to each endpoint: the capture point
//! ```
//!
//! A capture contains neither `Cwnd` nor buffer sizes. Unlike a log, it contains every segment, the receive
//! window at each instant, and data in flight. The file is read once, from start to end, in memory that does
//! not grow with its length.

mod clock;
mod connection;
mod copies;
mod frames;
#[cfg(test)]
pub(crate) mod made;
mod one_way;
mod sender_view;
mod timeline;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;

use fullpipe_tcp::wire::Packet;
use fullpipe_units::Bytes;

use super::InputError;
use crate::measurement::packets::{Connection, Packets, Side};
use crate::measurement::sharing::{at_times_of, may_share};
use crate::measurement::{
    Detail, Direction, Flow, Format, Hosts, Measurement, Origin, Protocol, Role, RttRange, Summary, Total,
    Totals,
};
use clock::CaptureClock;
use connection::{ConnectionTracker, PacketView};
use copies::RecentPackets;
use frames::Ending;
use one_way::Memory;

pub use frames::is_capture;

/// Maximum number of tracked connections; packets of other connections are only counted.
const MOST_CONNECTIONS: usize = 4_096;
/// Maximum number of spans in the timeline of each connection while there are at most [`AT_EASE`]
/// connections; `MOST_REMEMBERED` bounds the rest of its state. Together they allow a few hundred kilobytes
/// per connection. With more connections each one gets less, so that all of them need at most a hundred
/// megabytes.
const MOST_SPANS: usize = 4_096;
const MOST_REMEMBERED: usize = 1_024;
const AT_EASE: usize = 64;
/// Minimum number of data segments in a transfer.
const FEWEST_SEGMENTS: u64 = 10;

/// Memory limit for each direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    spans: usize,
    memory: Memory,
}

impl Room {
    /// Returns the memory limit for each of `connections` connections.
    fn for_each_of(connections: usize) -> Self {
        let share = connections.div_ceil(AT_EASE).max(1).next_power_of_two();
        Self { spans: MOST_SPANS / share, memory: Memory(MOST_REMEMBERED / share) }
    }
}

/// Reads a capture. The diagnosed flow is connection number `choice`, counted from 1 with the largest first,
/// or the one that carried the most data. The other flows are the connections that may share its path in the
/// same direction.
///
/// # Errors
/// Returns an error if the source is not a capture, if its link type is unknown, or if no connection carried
/// enough data.
pub fn read(source: impl Read, choice: Option<usize>) -> Result<Measurement, InputError> {
    let mut table = Table::default();
    let ending = frames::each(source, |frame| table.see(&frame))?;
    (0..table.order.len()).for_each(|number| table.catch_up(number));
    table.order.iter_mut().for_each(|(_, tracked)| tracked.finish());
    let mut connections: Vec<(Connection, &ConnectionTracker)> = table
        .order
        .iter()
        .map(|(ends, tracked)| (tracked.summary(*ends, tracked.sender()), tracked))
        .collect();
    // The largest connections come first.
    connections.sort_by_key(|(connection, _)| std::cmp::Reverse(connection.counts.data_bytes));
    connections.retain(|(connection, _)| connection.counts.data_segments > 0);
    if connections.is_empty() {
        return Err(nothing_moved(&table, &ending));
    }
    let number = choice.unwrap_or(1);
    let Some((connection, tracked)) = number.checked_sub(1).and_then(|index| connections.get(index)) else {
        return Err(InputError::new(
            format!("the capture has no connection {number}"),
            format!(
                "the connections in the capture are numbered from 1 to {}, the largest first",
                connections.len()
            ),
        ));
    };
    if connection.counts.data_segments < FEWEST_SEGMENTS {
        return Err(InputError::new(
            format!(
                "connection {number} has {} data segments, which are too few for a measurement",
                connection.counts.data_segments
            ),
            "capture a transfer that takes a second or more",
        ));
    }
    let chosen = flow(number, connection, tracked);
    let mut notes = notes(connection, tracked, &table, &ending);
    if connections.len() > 1 && choice.is_none() {
        notes.insert(
            0,
            format!(
                "the capture has {} connections with data; this is the largest (choose another with --flow)",
                connections.len()
            ),
        );
    }
    let totals = Totals { direction: chosen.direction, summary: chosen.summary, datagrams: None };
    let others = (1..)
        .zip(&connections)
        .filter(|(other, (of_other, _))| *other != number && goes_the_same_way(connection, of_other));
    let beside: Vec<Flow> = others
        .map(|(number, (of_other, other))| companion(&chosen, tracked, number, of_other, other))
        .filter(|flow| flow.intervals.iter().any(|interval| !interval.bytes.is_zero()))
        .collect();
    let origin = Origin {
        format: Format::Capture,
        truncated: ending.truncated,
        connections: connections.into_iter().map(|(connection, _)| connection).collect(),
        notes,
        ..Origin::default()
    };
    let flows = std::iter::once(chosen).chain(beside).collect();
    Ok(Measurement { origin, hosts: Hosts::default(), flows, totals: vec![totals], chosen: Some(0) })
}

/// Returns whether the data of two connections passes the capture point in the same direction: they have the
/// sending or the receiving host in common.
fn goes_the_same_way(a: &Connection, b: &Connection) -> bool {
    let [a, b] = [a, b].map(|connection| (connection.from.ip(), connection.to.ip()));
    (a.0 == b.0 || a.1 == b.1) && may_share(a, b)
}

/// All connections of a capture.
struct Table {
    room: Room,
    known: BTreeMap<[SocketAddr; 2], usize>,
    order: Vec<([SocketAddr; 2], ConnectionTracker)>,
    /// For each connection, how often the clock had been set when the connection last forgot its times.
    forgotten: Vec<u64>,
    /// Index of the connection to which the last packet belongs.
    latest: usize,
    /// Headers of the latest packets, to find those that were captured more than once.
    recent: RecentPackets,
    packets: u64,
    /// Number of packets that are not TCP; `unfollowed` is the number of packets of connections beyond the
    /// maximum.
    others: u64,
    unfollowed: u64,
    clock: CaptureClock,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            room: Room::for_each_of(0),
            known: BTreeMap::new(),
            order: Vec::new(),
            forgotten: Vec::new(),
            latest: 0,
            recent: RecentPackets::default(),
            packets: 0,
            others: 0,
            unfollowed: 0,
            clock: CaptureClock::default(),
        }
    }
}

impl Table {
    fn see(&mut self, frame: &frames::Frame<'_>) {
        self.packets += 1;
        let Ok(packet) = Packet::parse_cut(frame.ip, frame.len) else {
            self.others += 1;
            return;
        };
        let forward = packet.from <= packet.to;
        let ends = if forward { [packet.from, packet.to] } else { [packet.to, packet.from] };
        // Usually a packet belongs to the same connection as the previous packet.
        let same = self.order.get(self.latest).filter(|(known, _)| *known == ends).map(|_| self.latest);
        let known = same.or_else(|| self.known.get(&ends).copied());
        let segment = &packet.segment;
        let mut view = PacketView {
            at: frame.at,
            captured: frame.at,
            from: usize::from(!forward),
            id: identification(frame.ip),
            seq: segment.seq,
            ack: segment.ack,
            len: segment.len.into(),
            window: segment.window,
            flags: segment.flags,
            timestamps: segment.timestamps.map(|timestamps| (timestamps.value, timestamps.echo)),
            syn: segment.syn,
            sack: &segment.sack,
        };
        if let Some(number) = known {
            self.catch_up(number);
        }
        let tracker = known.map(|number| &self.order[number].1);
        let took_none = |pause| tracker.is_some_and(|tracked| tracked.shows_no_pause(&view, pause));
        view.at = self.clock.time(frame.at, took_none);
        let number = match known {
            Some(number) => {
                self.catch_up(number);
                number
            }
            None if self.order.len() >= MOST_CONNECTIONS => {
                self.unfollowed += 1;
                return;
            }
            None => {
                self.order.push((ends, ConnectionTracker::new(view.at)));
                self.forgotten.push(self.clock.leaps());
                self.known.insert(ends, self.order.len() - 1);
                self.make_room();
                self.order.len() - 1
            }
        };
        self.latest = number;
        let tracked = &mut self.order[number].1;
        let repetition = self.recent.repetition(number, &view);
        if !tracked.is_copy(&view, repetition) {
            tracked.see(&view, self.room);
        }
    }

    /// Makes a connection forget the times from before the clock was last set. In a damaged file the clock
    /// may seem to be set with every packet. To bound the work, only the connection of the current packet
    /// forgets its times immediately.
    #[inline]
    fn catch_up(&mut self, number: usize) {
        let leaps = self.clock.leaps();
        if self.forgotten[number] != leaps {
            self.forgotten[number] = leaps;
            self.order[number].1.forget_times();
        }
    }

    /// Reduces the memory per connection as the number of connections grows.
    fn make_room(&mut self) {
        let room = Room::for_each_of(self.order.len());
        if room != self.room {
            self.room = room;
            self.order.iter_mut().for_each(|(_, tracked)| tracked.shrink(room));
        }
    }
}

/// Returns the identification in an IPv4 header, or zero for IPv6. In IPv4, too, zero may mean that there is
/// none (RFC 6864 section 4.1).
#[inline]
fn identification(ip: &[u8]) -> u16 {
    match ip {
        [first, _, _, _, high, low, ..] if first >> 4 == 4 => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

/// Returns the connection as a flow with number `number`.
fn flow(number: usize, connection: &Connection, tracked: &ConnectionTracker) -> Flow {
    let timeline = tracked.timeline(tracked.sender());
    let length = connection.length;
    let least = tracked.loops(tracked.sender());
    let intervals = timeline.intervals(connection.side, least);
    let bytes = Bytes::new(intervals.iter().map(|interval| interval.bytes.get()).sum());
    let rtt = connection
        .least_rtt
        .zip(timeline.rtts(connection.side, least))
        .map(|(min, (mean, max))| RttRange { min: min.min(mean), mean, max });
    let sent = Total::mean(bytes, length, Some(connection.counts.retransmits));
    let samples = tracked.samples(tracked.sender(), connection.side);
    Flow {
        id: number as u32,
        direction: Direction::Forward,
        role: if connection.side == Side::Receiver { Role::Receiver } else { Role::Sender },
        protocol: Protocol::Tcp,
        congestion_control: None,
        mss: Some(connection.mss),
        offered: None,
        intervals,
        summary: Summary { sent: Some(sent), received: None, rtt },
        detail: Some(Detail::Packets(Packets { connection: connection.clone(), samples })),
    }
}

/// Returns a connection as a flow without packets, whose intervals have the times of the chosen flow's
/// intervals.
fn companion(
    chosen: &Flow,
    of_chosen: &ConnectionTracker,
    number: usize,
    connection: &Connection,
    tracked: &ConnectionTracker,
) -> Flow {
    let own = flow(number, connection, tracked);
    let [begin, other] = [of_chosen, tracked].map(|tracked| tracked.timeline(tracked.sender()).begin());
    let shift = (other.saturating_since(begin), begin.saturating_since(other));
    Flow { intervals: at_times_of(&chosen.intervals, &own.intervals, shift), detail: None, ..own }
}

fn nothing_moved(table: &Table, ending: &Ending) -> InputError {
    if table.packets == 0 && ending.timeless > 0 {
        return InputError::new(
            format!("the {} packets of this capture have no timestamps", ending.timeless),
            "use tcpdump -w F or dumpcap, which write timestamps",
        );
    }
    if table.order.iter().any(|(_, tracked)| tracked.acks_alone()) {
        return InputError::new(
            format!(
                "this capture of {} packets contains the ACKs of a transfer but not its data",
                table.packets
            ),
            "capture both directions: tcpdump -s 96 -w F tcp port 5201, on one of the two hosts",
        );
    }
    if ending.fragments > 0 {
        return InputError::new(
            format!(
                "{} of the {} packets of this capture are IP fragments, and no TCP connection with data is complete",
                ending.fragments, table.packets
            ),
            "capture where segments are not yet fragmented: on the sending host, not behind a tunnel or a \
             link with a smaller MTU",
        );
    }
    InputError::new(
        format!("this capture of {} packets contains no TCP connection with data", table.packets),
        "capture while the transfer runs: tcpdump -s 96 -w F tcp port 5201",
    )
}

fn notes(
    connection: &Connection,
    tracked: &ConnectionTracker,
    table: &Table,
    ending: &Ending,
) -> Vec<String> {
    let mut notes = Vec::new();
    let counts = &connection.counts;
    notes.push(match connection.side {
        Side::Sender => {
            "captured at the sender: the capture contains every segment that the sender sent, including \
             those lost later"
                .into()
        }
        Side::Receiver => {
            "captured at the receiver: packets lost before the capture point are visible only as gaps".into()
        }
        Side::Between => "captured between the two hosts".into(),
        Side::Unknown => "the capture does not show at which end it was taken".into(),
    });
    if connection.copies > 0 {
        let all = tracked.packets();
        notes.push(format!(
            "of {all} packets, {} are copies, as with a mirror port or with -i any on a bridge; on average, \
             each packet was captured {:.1} times, but is counted only once",
            connection.copies,
            all as f64 / (all - connection.copies).max(1) as f64
        ));
    }
    if !connection.acknowledged {
        notes.push(
            "the capture contains only one direction: without ACKs, the window, the data in flight and the \
             RTT are not known, and rates are those of the sent data"
                .into(),
        );
    } else if !connection.handshake {
        notes.push(
            "the receiver's window is not known, because the handshake, which contains the window scale, is \
             missing"
                .into(),
        );
    }
    let away = tracked.timeline(tracked.sender()).away();
    if !away.is_zero() {
        notes.push(format!(
            "the capture contains no packets for {away}, although data was transferred; the limit during \
             that time is not known"
        ));
    }
    if counts.missed_bytes > 0 {
        notes.push(format!(
            "{} acknowledged bytes are not in the capture, so the capturing tool dropped packets",
            counts.missed_bytes
        ));
    }
    notes.extend(table.clock.remark());
    if ending.dropped > 0 {
        notes.push(format!("the capturing tool reports that it dropped {} packets", ending.dropped));
    }
    if ending.fragments > 0 {
        notes.push(format!(
            "{} packets are IP fragments of TCP segments and are ignored, so their data counts as missing",
            ending.fragments
        ));
    }
    if ending.timeless > 0 {
        notes.push(format!("{} packets have no timestamp and are ignored", ending.timeless));
    }
    if tracked.forgotten() > 0 {
        notes.push(format!(
            "{} gaps were dropped, because too many were open at once; the segments that filled these gaps \
             count as retransmitted",
            tracked.forgotten()
        ));
    }
    if tracked.forgotten_blocks() > 0 {
        notes.push(format!(
            "{} SACK blocks were ignored, because the receiver reported too many ranges at once; the actual \
             data in flight is smaller than shown",
            tracked.forgotten_blocks()
        ));
    }
    if table.unfollowed > 0 {
        notes.push(format!(
            "only the first {MOST_CONNECTIONS} connections are considered; {} packets belong to other connections",
            table.unfollowed
        ));
    }
    notes
}

#[cfg(test)]
mod tests;
