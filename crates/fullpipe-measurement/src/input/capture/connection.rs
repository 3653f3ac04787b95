//! One connection: its two directions, its handshake, and the side of the path on which it was captured.

use std::net::SocketAddr;

use fullpipe_tcp::wire::{Flags, SackBlocks, SeqNum, SynOptions};
use fullpipe_units::{Bytes, Duration, Instant};

use super::Room;
use super::copies::{CopyRules, Repetition};
use super::one_way::{Ack, Data, ETHERNET_SEGMENT, OneWay, SegmentKind, duplicate_segments};
use super::sender_view::{AckInfo, Answers};
use super::timeline::{Loops, Timeline};
use crate::measurement::packets::{Connection, Sample, Side};

/// Payload length of a full-sized segment, in bytes, until the real value is known: an Ethernet MTU with
/// timestamps.
const USUAL_MSS: u64 = 1_448;
/// Smallest segment size that counts as a limit of the path (RFC 9293 section 3.7.1); smaller segments come
/// from the application.
const LEAST_MSS: u64 = 536;
/// Length of the timestamp option in each header, in bytes.
const TIMESTAMPS: u64 = 12;
/// Maximum delay between an ACK and the data that it released on an ACK-clocked host.
pub(super) const PROMPT: Duration = Duration::from_micros(50);
/// Longest usual tick of a timestamp clock (RFC 7323 section 5.4 allows up to a second).
const TICK: Duration = Duration::from_millis(10);
/// Maximum time for which a sender with unacknowledged data is silent: its retransmission timeout is at most
/// a few seconds on any path on which data moved before (RFC 6298).
const SILENT: Duration = Duration::from_secs(10);
/// Maximum gap between the packets of one burst: a sender that has been released writes and sends without a
/// pause.
/// Source: three times the delay that counts as immediate; a write of 128 KiB takes less.
const BURST: Duration = Duration::from_micros(150);
/// A capture counts as made at the nearer endpoint if the times from the tap to the two endpoints and back
/// differ by at least this factor.
const NEAR: u64 = 8;

/// Relevant header fields of one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketView<'a> {
    pub(super) at: Instant,
    /// Timestamp in the file, which may be slightly out of order.
    pub(super) captured: Instant,
    /// Endpoint that sent the packet: 0 or 1.
    pub(super) from: usize,
    /// Identification in the IPv4 header; zero for none.
    pub(super) id: u16,
    pub(super) seq: SeqNum,
    pub(super) ack: SeqNum,
    pub(super) len: u64,
    pub(super) window: u16,
    pub(super) flags: Flags,
    pub(super) timestamps: Option<(u32, u32)>,
    pub(super) syn: Option<SynOptions>,
    pub(super) sack: &'a SackBlocks,
}

/// Handshake options and response time of one endpoint.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    syn: Option<SynOptions>,
    syn_at: Option<Instant>,
    /// Latest timestamp from the other endpoint that this endpoint has not echoed yet, and the time at which
    /// it passed.
    awaits_echo: Option<(u32, Instant)>,
    last_timestamp: Option<u32>,
    /// First timestamp of this endpoint, and the time at which it passed.
    first_timestamp: Option<(u32, Instant)>,
    /// Time at which the last new timestamp passed.
    last_timestamp_at: Instant,
    /// Shortest time from the tap to this endpoint and back.
    least_loop: Option<Duration>,
}

/// Departure of a packet with new data.
#[derive(Clone, Copy, Debug)]
struct Departure {
    at: Instant,
    /// Whether an ACK released the packet.
    prompt: bool,
}

impl Departure {
    /// Returns the departure of a packet at `now`. An ACK released it if the packet follows the ACK
    /// immediately, or continues a burst whose first packet did so.
    fn after(ack: Option<Instant>, last: Option<Self>, now: Instant) -> Self {
        let since = |earlier: Instant| now.saturating_since(earlier);
        let burst = last.filter(|last| since(last.at) <= BURST && ack.is_none_or(|ack| ack <= last.at));
        let at_once = ack.is_some_and(|ack| since(ack) <= PROMPT);
        Self { at: now, prompt: at_once || burst.is_some_and(|last| last.prompt) }
    }
}

impl End {
    /// Returns the maximum time that this endpoint's timestamp clock can have taken to reach `value`, or
    /// `None` before its first timestamp. Most clocks tick every millisecond; for slower clocks, the fastest
    /// rate so far is the bound.
    fn passed_until(&self, value: u32) -> Option<Duration> {
        let ((first, begin), last) = self.first_timestamp.zip(self.last_timestamp)?;
        let ticks = |from: u32, to: u32| u64::try_from(to.wrapping_sub(from) as i32).unwrap_or(0);
        let slowest = self.last_timestamp_at.saturating_since(begin) * 2 / ticks(first, last).max(1);
        let tick = TICK.max(slowest);
        Some(Duration::from_nanos(tick.as_nanos().saturating_mul(ticks(last, value) + 1)))
    }

    fn took(&mut self, time: Duration) {
        self.least_loop = Some(self.least_loop.map_or(time, |least| least.min(time)));
    }
}

/// State of a connection while its packets are read.
#[derive(Clone, Debug)]
pub(super) struct ConnectionTracker {
    ends: [End; 2],
    /// Data sent by endpoint 0 and by endpoint 1.
    directions: [OneWay; 2],
    /// For each direction, ACKs on their way to the sender of the data.
    answers: [Answers; 2],
    /// Time at which the last of these ACKs passed.
    last_ack: [Option<Instant>; 2],
    /// Last packet with new data in each direction.
    last_new: [Option<Departure>; 2],
    timelines: [Timeline; 2],
    /// Largest window that was advertised to each endpoint.
    widest: [u64; 2],
    timestamps: bool,
    handshake_done: bool,
    /// Evidence about copies in the packets of each endpoint.
    copy_rules: [CopyRules; 2],
    /// Number of packets; the next field is the number of copies among them.
    packets: u64,
    copies: u64,
    /// Largest value so far of the mean number of captures per packet, rounded up. The mean is never larger
    /// than the true number, because later packets of a burst may precede the copies of earlier ones.
    times: u64,
}

/// The packets of a connection usually have copies if at least one in this many packets is a copy. If each
/// packet is captured twice, every second one is a copy, but the copies of a burst may follow after all of
/// its packets.
const USUALLY: u64 = 8;

impl ConnectionTracker {
    pub(super) fn new(begin: Instant) -> Self {
        Self {
            ends: Default::default(),
            directions: Default::default(),
            answers: Default::default(),
            last_ack: Default::default(),
            last_new: Default::default(),
            timelines: [Timeline::new(begin), Timeline::new(begin)],
            widest: [0; 2],
            timestamps: false,
            handshake_done: false,
            copy_rules: Default::default(),
            packets: 0,
            copies: 0,
            times: 1,
        }
    }

    /// Returns whether a packet is a copy of another one, which has been counted already. `repetition`
    /// describes earlier packets with the same headers, if there were any.
    #[inline]
    pub(super) fn is_copy(&mut self, seen: &PacketView<'_>, repetition: Option<Repetition>) -> bool {
        self.packets += 1;
        let (rules, one_way) = (&self.copy_rules[seen.from], &self.directions[seen.from]);
        let copy = match repetition {
            Some(repetition) => {
                let rtt = self.least_rtt().or(one_way.least_loop);
                let usually = self.copies * USUALLY >= self.packets;
                rules.is_copy(seen, repetition, rtt, if usually { self.times } else { 1 })
            }
            None => seen.len > 0 && one_way.has_sent(seen.seq) && rules.is_cut(seen),
        };
        if copy {
            self.copies += 1;
            self.times = self.times.max(self.packets.div_ceil((self.packets - self.copies).max(1)));
        } else {
            self.copy_rules[seen.from].see(seen, seen.len > ETHERNET_SEGMENT);
        }
        copy
    }

    /// Forgets the times of packets that have not been answered yet, because the clock has been set since
    /// these packets passed.
    pub(super) fn forget_times(&mut self) {
        self.directions.iter_mut().for_each(OneWay::forget_times);
        self.answers = Default::default();
        self.last_ack = Default::default();
        for end in &mut self.ends {
            (end.awaits_echo, end.syn_at) = (None, None);
        }
    }

    pub(super) fn see(&mut self, seen: &PacketView<'_>, room: Room) {
        let (from, to) = (seen.from, 1 - seen.from);
        self.measure_loops(seen);
        if let Some(syn) = seen.syn {
            self.ends[from].syn = Some(syn);
            self.ends[from].syn_at.get_or_insert(seen.at);
            self.directions[from].on_syn(seen.seq);
        }
        if seen.flags.has(Flags::ACK) && !seen.flags.has(Flags::RST) {
            self.see_ack(seen, to, room);
        }
        if seen.len > 0 {
            self.see_data(seen, from, room);
        }
        if seen.flags.has(Flags::FIN) {
            self.directions[from].on_fin(seen.seq.plus(seen.len));
        }
    }

    /// Returns whether a packet shows that the pause before it did not take place: the clock of the capturing
    /// host was set forward. Either the timestamps of an endpoint hardly advanced, or data that was in flight
    /// before the pause is acknowledged after it without a retransmission.
    pub(super) fn shows_no_pause(&self, seen: &PacketView<'_>, pause: Duration) -> bool {
        let (from, to) = (seen.from, 1 - seen.from);
        let value = seen.timestamps.map(|(value, _)| value);
        if let Some(passed) = value.and_then(|value| self.ends[from].passed_until(value)) {
            return passed < pause / 2;
        }
        if pause < SILENT || seen.flags.has(Flags::RST) {
            return false;
        }
        let answers_syn = !self.handshake_done && self.ends[to].syn_at.is_some();
        let goes_on = seen.len > 0
            && self.directions[from].waits_for_ack()
            && !self.directions[from].has_sent(seen.seq);
        seen.flags.has(Flags::ACK) && (answers_syn || self.directions[to].is_acknowledged_by(seen.ack))
            || goes_on
    }

    /// Processes an ACK of data sent by endpoint `of`.
    fn see_ack(&mut self, seen: &PacketView<'_>, of: usize, room: Room) {
        let scale = if seen.syn.is_some() { 0 } else { self.window_scale(seen.from) };
        let window = u64::from(seen.window) << scale;
        let duplicates = duplicate_segments(seen.sack, seen.ack, self.mss());
        let one_way = &mut self.directions[of];
        let bare = seen.len == 0 && !seen.flags.has(Flags::FIN) && seen.syn.is_none();
        let ack = Ack { at: seen.at, ack: seen.ack, sack: seen.sack, window, bare };
        let repeated = one_way.counts.duplicate_acks;
        let acked = one_way.on_ack(&ack, room.memory);
        if !seen.sack.is_empty() || one_way.counts.duplicate_acks > repeated {
            self.copy_rules[of].gap_reported = Some(seen.captured);
        }
        if one_way.counts.data_segments == 0 {
            return;
        }
        let una = one_way.una();
        let told = AckInfo {
            at: seen.at,
            value: seen.timestamps.map(|(value, _)| value),
            una,
            sacked: one_way.sacked(),
            edge: una + window,
        };
        self.answers[of].passes(told, room.memory.0);
        self.last_ack[of] = Some(seen.at);
        // Without the handshake the window scale is unknown.
        let known = self.ends.iter().all(|end| end.syn.is_some());
        self.widest[of] = self.widest[of].max(window);
        let timeline = &mut self.timelines[of];
        let flight_size = one_way.flight_size();
        let rests = (flight_size, flight_size.saturating_sub(one_way.sacked()));
        let span = timeline.passes(seen.at, rests, room.spans);
        span.delivered = one_way.delivered();
        span.missed += acked.missed;
        span.duplicates += duplicates;
        span.window = known.then_some(window);
        span.acks = span.acks.saturating_add(1);
        if let Some(took) = acked.rtt {
            timeline.far_sample(seen.at, took, room.spans);
            self.ends[seen.from].took(took);
        }
    }

    /// Processes data sent by endpoint `from`.
    fn see_data(&mut self, seen: &PacketView<'_>, from: usize, room: Room) {
        let (mss, rtt) = (self.mss(), self.least_rtt());
        let away = self.ends[from].least_loop.unwrap_or_default();
        let known = self.ends.iter().all(|end| end.syn.is_some());
        let one_way = &mut self.directions[from];
        let again = one_way.counts.retransmits;
        let stamp = seen.timestamps.map(|(value, _)| value);
        let data = Data { at: seen.at, seq: seen.seq, len: seen.len, mss, stamp, rtt };
        let sent = one_way.on_data(data, room.memory);
        let echo = seen.timestamps.map(|(_, echo)| echo);
        let told = self.answers[from].known(seen.at, echo, away);
        let full = one_way.look_at_window(told.filter(|_| known).map(|(told, _)| told.edge), mss);
        let timeline = &mut self.timelines[from];
        let (una, sacked) = told.map_or((one_way.una(), 0), |(told, _)| (told.una, told.sacked));
        // Missing ACKs in the capture would make data in flight larger than any window allows.
        let most = if known { self.widest[from].max(mss) } else { u64::MAX };
        let flight_size = one_way.top().saturating_sub(una).min(most);
        let rests = one_way.flight_size().min(most);
        let rests = (rests, rests.saturating_sub(one_way.sacked()));
        let span = timeline.passes(seen.at, rests, room.spans);
        span.sent_to = one_way.sent();
        span.flight_size = span.flight_size.max(flight_size);
        span.inflight = span.inflight.max(flight_size.saturating_sub(sacked));
        match sent {
            Some(SegmentKind::New) => {
                span.sent = span.sent.saturating_add(1);
                span.full = span.full.saturating_add(full.into());
                let ends = seen.flags.has(Flags::FIN) || seen.len.is_multiple_of(mss) || full;
                span.short = span.short.saturating_add((!ends).into());
                let departure = Departure::after(self.last_ack[from], self.last_new[from], seen.at);
                span.prompt = span.prompt.saturating_add(departure.prompt.into());
                self.last_new[from] = Some(departure);
                // Without timestamps only the smallest near-side time is known, not the current one.
                if let Some((told, true)) = told.filter(|_| echo.is_some()) {
                    timeline.near_sample(seen.at, seen.at.saturating_since(told.at), room.spans);
                }
            }
            Some(SegmentKind::Again) => span.retransmits += one_way.counts.retransmits - again,
            _ => {}
        }
    }

    /// Reduces the memory of this connection to `room`.
    pub(super) fn shrink(&mut self, room: Room) {
        self.timelines.iter_mut().for_each(|timeline| timeline.shrink(room.spans));
    }

    /// Measures times from the tap to an endpoint and back, based on the handshake, on timestamps, and on
    /// data and its ACK.
    fn measure_loops(&mut self, seen: &PacketView<'_>) {
        let (from, to) = (seen.from, 1 - seen.from);
        if !self.handshake_done && seen.flags.has(Flags::ACK) {
            if let Some(asked) = self.ends[to].syn_at {
                // This packet answers a SYN or a SYN-ACK. The answer to a retransmitted SYN is ambiguous.
                self.ends[from].took(seen.at.saturating_since(asked));
            }
            self.handshake_done = seen.syn.is_none();
        }
        let Some((value, echo)) = seen.timestamps else { return };
        self.timestamps = true;
        // Timestamps wrap: half of their range counts as earlier. Once a later timestamp has been echoed, the
        // awaited one will not be echoed any more.
        let reached = |awaited: &mut (u32, Instant)| echo.wrapping_sub(awaited.0) as i32 >= 0;
        if let Some((_, since)) =
            self.ends[from].awaits_echo.take_if(reached).filter(|(value, _)| *value == echo)
        {
            self.ends[from].took(seen.at.saturating_since(since));
        }
        // Of the packets with the same timestamp, the other endpoint echoes the first. Only one echo is
        // awaited at a time, because many timestamps are in flight on a long path.
        if self.ends[from].last_timestamp != Some(value) {
            self.ends[from].last_timestamp = Some(value);
            self.ends[from].last_timestamp_at = seen.at;
            self.ends[from].first_timestamp.get_or_insert((value, seen.at));
            self.ends[to].awaits_echo.get_or_insert((value, seen.at));
        }
    }

    /// Returns the window scale of an endpoint. Both endpoints must offer scaling in a SYN (RFC 7323 section
    /// 2.2); without the handshake the scale is 0.
    fn window_scale(&self, end: usize) -> u8 {
        let scale = |end: usize| self.ends[end].syn.and_then(|syn| syn.window_scale);
        scale(1 - end).and(scale(end)).unwrap_or(0).min(14)
    }

    /// Returns the payload length of a full-sized segment, in bytes.
    fn mss(&self) -> u64 {
        let told = self
            .ends
            .iter()
            .filter_map(|end| end.syn)
            .map(|syn| u64::from(syn.mss))
            .filter(|&mss| mss > 0)
            .min();
        match told {
            Some(mss) => mss.saturating_sub(if self.timestamps { TIMESTAMPS } else { 0 }).max(1),
            // If the MSS is unknown, the largest captured segment counts as a full one, unless it
            // is below `LEAST_MSS`.
            None => match self.directions.iter().map(OneWay::largest_segment).max() {
                Some(largest @ LEAST_MSS..) => largest,
                _ => USUAL_MSS,
            },
        }
    }

    fn least_rtt(&self) -> Option<Duration> {
        let [near, far] = self.ends.map(|end| end.least_loop);
        Some(near? + far?)
    }

    /// Returns the endpoint that sent more data.
    pub(super) fn sender(&self) -> usize {
        usize::from(self.directions[1].counts.data_bytes > self.directions[0].counts.data_bytes)
    }

    pub(super) fn timeline(&self, end: usize) -> &Timeline {
        &self.timelines[end]
    }

    /// Returns the shortest times from the tap to `sender` and back, and to the other endpoint and back.
    pub(super) fn loops(&self, sender: usize) -> Loops {
        let least = |end: usize| self.ends[end].least_loop;
        let far = least(1 - sender).or(self.directions[sender].least_loop);
        Loops { near: least(sender).unwrap_or_default(), far: far.unwrap_or_default() }
    }

    /// Returns samples over time of the data that `sender` sent and of its ACKs, as seen from `side`.
    pub(super) fn samples(&self, sender: usize, side: Side) -> Vec<Sample> {
        // Without ACKs neither the window nor data in flight is known, so no limit can be inferred.
        if !self.directions[sender].acknowledged() {
            return Vec::new();
        }
        self.timelines[sender].samples(side, self.loops(sender))
    }

    /// Completes both directions after the last packet.
    pub(super) fn finish(&mut self) {
        for (one_way, timeline) in self.directions.iter().zip(&mut self.timelines) {
            if !one_way.acknowledged() {
                timeline.take_sent_as_delivered();
            }
        }
    }

    /// Returns whether the capture contains only ACKs and none of the acknowledged data.
    pub(super) fn acks_alone(&self) -> bool {
        self.directions.iter().any(|one_way| one_way.counts.data_segments == 0 && one_way.acknowledged())
    }

    /// Returns the number of packets, including copies.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the number of gaps that were dropped because too many were open.
    pub(super) fn forgotten(&self) -> u64 {
        self.directions.iter().map(|one_way| one_way.forgotten).sum()
    }

    /// Returns the number of SACK blocks that were ignored because too many ranges were reported as received.
    pub(super) fn forgotten_blocks(&self) -> u64 {
        self.directions.iter().map(|one_way| one_way.forgotten_blocks).sum()
    }

    /// Returns a summary of the data sent by `sender`, after the last packet.
    pub(super) fn summary(&self, ends: [SocketAddr; 2], sender: usize) -> Connection {
        let near = self.ends[sender].least_loop;
        let far = self.ends[1 - sender].least_loop;
        let side = match (near, far) {
            (Some(near), Some(far)) if near <= far / NEAR => Side::Sender,
            (Some(near), Some(far)) if far <= near / NEAR => Side::Receiver,
            (Some(_), Some(_)) => Side::Between,
            _ => Side::Unknown,
        };
        let one_way = &self.directions[sender];
        let handshake = self.ends.iter().all(|end| end.syn.is_some());
        Connection {
            from: ends[sender],
            to: ends[1 - sender],
            side,
            counts: one_way.counts,
            opposite_bytes: Bytes::new(self.directions[1 - sender].counts.data_bytes),
            handshake,
            scaled: self.window_scale(0) > 0 || self.window_scale(1) > 0,
            mss: Bytes::new(self.mss()),
            super_segments: one_way.largest() > self.mss(),
            least_rtt: self.least_rtt().or(one_way.least_loop.filter(|_| side != Side::Unknown)),
            length: self.timelines[sender].length(),
            most_in_flight: one_way.acknowledged().then(|| self.timelines[sender].most_in_flight()),
            acknowledged: one_way.acknowledged(),
            last_window: one_way.window().filter(|_| handshake),
            copies: self.copies,
        }
    }
}
