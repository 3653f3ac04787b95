//! The receiving half of a connection: reassembly, reading, ACKs, and the advertised window.
//!
//! ```text
//!   segment ─► timestamps (PAWS) ─► reassembly ─► window ─► ACK policy ─► `acknowledge`, in all segments
//! ```
//!
//! The receiving half does not access the sending half. The caller passes the values of the sending half that
//! it needs: the segment size and the RTT.

use core::ops::Range;

use fullpipe_units::{Duration, Instant};

use super::Accepted;
use super::config::Config;
use super::ecn::Echo;
use super::handshake::Agreed;
use crate::buffers::PACKET_BUFFER_MEMORY;
use crate::estimate::RttEstimator;
use crate::rx::ack::{AckPolicy, Received};
use crate::rx::rcv_mss::{EndOfWrite, RcvMss};
use crate::rx::reassembly::{Arrival, Reassembly};
use crate::rx::window::ReceiveWindow;
use crate::tx::Transmit;
use crate::wire::{Flags, SackBlocks, Segment, SeqNum, Timestamps};

/// Minimum interval between two ACKs in response to unacceptable segments (Linux: `tcp_invalid_ratelimit`).
pub(super) const CHALLENGE_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum age of a peer timestamp that can still be compared (RFC 7323 section 5.5).
const TIMESTAMP_VALID_FOR: Duration = Duration::from_secs(24 * 86_400);

/// Number of out-of-order ranges that even the smallest receive buffer can hold.
const LEAST_RANGES: usize = 64;

/// Receiving half of a connection.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The peer's initial sequence number (IRS). Offset 0 is the octet after the peer's SYN.
    pub(super) irs: SeqNum,
    pub(super) agreed: Agreed,
    pub(super) reassembly: Reassembly,
    /// Range accepted from the most recently handled segment.
    pub(super) accepted: Accepted,
    pub(super) acks: AckPolicy,
    pub(super) window: ReceiveWindow,
    pub(super) rcv_mss: RcvMss,
    /// Stream offset of the peer's FIN.
    pub(super) fin_at: Option<u64>,
    /// Number of bytes read by the application.
    pub(super) copied: u64,
    pub(super) ts_recent: u32,
    /// Arrival time of the segment that carried `ts_recent`.
    pub(super) ts_recent_at: Instant,
    pub(super) last_ack_sent: u64,
    /// Time of the last ACK sent in response to an unacceptable segment.
    pub(super) challenged_at: Option<Instant>,
    pub(super) ecn: Echo,
}

/// Result of handling an arriving data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Whether the application can read more data, or the stream has ended.
    pub(super) readable: bool,
    /// Whether the peer's FIN and all data before it have been received.
    pub(super) closed: bool,
}

/// Effect of a FIN on the acknowledgement of the arriving segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fin {
    /// The segment has no FIN.
    Absent,
    /// The ACK of the FIN may be delayed.
    Delayed,
    /// The FIN is acknowledged at once.
    Urgent,
}

impl Receiver {
    /// Creates the receiving half of a connection. `listens` indicates whether the connection is passive.
    pub(super) fn new(config: &Config, listens: bool, mss: u64) -> Self {
        let rules = (config.window_rule, config.drs_rule);
        let mut window = ReceiveWindow::new(rules, config.rcvbuf, config.window_clamp, mss);
        if listens {
            window.listen(mss);
        } else {
            window.start_with(config.mtu.saturating_sub(config.ip.headers()).max(48));
        }
        // In Linux each out-of-order segment occupies an skb, so memory limits the number of segments. In
        // this engine, memory limits the number of out-of-order ranges instead.
        let most_ranges = usize::try_from(config.rcvbuf.limit().get() / PACKET_BUFFER_MEMORY)
            .unwrap_or(usize::MAX)
            .max(LEAST_RANGES);
        Self {
            irs: SeqNum::default(),
            agreed: Agreed { sack: config.sack, timestamps: true },
            reassembly: Reassembly::new(most_ranges),
            accepted: Accepted::default(),
            acks: AckPolicy::default(),
            window,
            rcv_mss: RcvMss::new(mss),
            fin_at: None,
            copied: 0,
            ts_recent: 0,
            ts_recent_at: Instant::ZERO,
            last_ack_sent: 0,
            challenged_at: None,
            ecn: Echo::default(),
        }
    }

    /// Applies the negotiated options: `scales` indicates whether the peer scales its windows, and
    /// `timestamp` is the timestamp of the peer's SYN.
    pub(super) fn agree(&mut self, now: Instant, agreed: Agreed, scales: bool, timestamp: Option<u32>) {
        self.agreed = agreed;
        if !scales {
            self.window.disable_scaling();
        }
        if let Some(value) = timestamp {
            self.ts_recent = value;
            self.ts_recent_at = now;
        }
    }

    /// Returns the offset of the next expected octet (RCV.NXT).
    #[inline(always)]
    pub(super) fn rcv_nxt(&self) -> u64 {
        self.reassembly.rcv_nxt()
    }

    /// Returns RCV.NXT as a sequence number.
    pub(super) fn rcv_nxt_on_wire(&self) -> SeqNum {
        self.irs.plus(1).plus(self.rcv_nxt())
    }

    /// Returns the number of octets of sequence space received in order since the last ACK. The FIN counts as
    /// one octet.
    fn unacked(&self) -> u64 {
        self.rcv_nxt() - self.last_ack_sent
    }

    /// Returns the number of in-order payload bytes received, excluding the FIN.
    #[inline]
    pub(super) fn received(&self) -> u64 {
        let next = self.rcv_nxt();
        self.fin_at.map_or(next, |fin| next.min(fin))
    }

    /// Returns the number of in-order bytes that the application can read.
    #[inline]
    pub(super) fn readable(&self) -> u64 {
        self.received() - self.copied
    }

    /// Returns whether the peer's FIN and all data before it have been received.
    pub(super) fn is_peer_closed(&self) -> bool {
        self.fin_at.is_some_and(|fin| self.rcv_nxt() > fin)
    }

    /// Returns the segment's timestamps, or `None` if the segment carries none or timestamps were not
    /// negotiated (RFC 7323 section 3.2).
    #[inline]
    pub(super) fn timestamps_of(&self, segment: &Segment) -> Option<Timestamps> {
        segment.timestamps.filter(|_| self.agreed.timestamps)
    }

    /// Returns whether `value` is older than the peer's last timestamp. If the last timestamp is more than 24
    /// days old, no comparison is made, because the peer's clock may have advanced by half of its range (RFC
    /// 7323 section 5.5, PAWS-3). The same applies to a last timestamp of zero, because some hosts put zero
    /// into their SYN, and their real clock may look older.
    pub(super) fn is_older(&self, now: Instant, value: u32) -> bool {
        (value.wrapping_sub(self.ts_recent) as i32) < 0
            && self.ts_recent != 0
            && now.saturating_since(self.ts_recent_at) < TIMESTAMP_VALID_FOR
    }

    /// Returns the age of `value` relative to the peer's last timestamp.
    pub(super) fn age_of(&self, value: u32) -> Duration {
        Duration::from_millis(u64::from(self.ts_recent.wrapping_sub(value)))
    }

    /// Stores the timestamp of a segment that starts at `start` as the next timestamp to echo. The timestamp
    /// must not be older than the last stored timestamp.
    #[inline]
    pub(super) fn note_timestamp(&mut self, now: Instant, timestamps: Timestamps, start: u64) {
        // An unchanged timestamp, as in a delayed copy of a segment, does not prove that the peer's clock
        // advances.
        if timestamps.value != self.ts_recent && start <= self.last_ack_sent {
            self.ts_recent = timestamps.value;
            // A repetition of received data may have been delayed for weeks, so it does not make the
            // timestamp recent.
            if start >= self.rcv_nxt() {
                self.ts_recent_at = now;
            }
        }
    }

    /// Takes an RTT sample at the receiver, from the timestamp that a data segment echoes.
    #[inline]
    pub(super) fn note_rtt(&mut self, now: Instant, timestamps: Timestamps) {
        if self.window.is_new_echo(timestamps.echo) {
            self.window.on_echo(timestamps.echo, Timestamps::clock(now), self.readable());
        }
    }

    /// Requests a challenge ACK, at most once per half second. The limit prevents two connections from
    /// answering each other endlessly (RFC 5961 section 7, CH-5).
    pub(super) fn challenge(&mut self, now: Instant) {
        if self.may_answer(now) {
            self.acks.demand();
        }
    }

    /// Returns true if no ACK was sent in response to an unacceptable segment within the last half second.
    /// The caller must then send such an ACK.
    pub(super) fn may_answer(&mut self, now: Instant) -> bool {
        let recently = self.challenged_at.is_some_and(|at| now.saturating_since(at) < CHALLENGE_INTERVAL);
        if !recently {
            self.challenged_at = Some(now);
        }
        !recently
    }

    /// Returns true if the payload of a segment at `start` ends beyond the window while data waits to be
    /// read. Linux drops such a segment whole (`tcp_sequence`, since 6.17). If there is nothing to read,
    /// Linux accepts the segment, so that a sender that overruns the window still makes progress. The FIN is
    /// not included, because some peers send it beyond the window.
    pub(super) fn overruns(&self, segment: &Segment, start: u64) -> bool {
        start + u64::from(segment.len) > self.window_end() && self.readable() > 0
    }

    /// Returns the stream offset at which the receive window ends. A segment that overruns the window is
    /// accepted whole, so the next expected octet may lie beyond the advertised edge.
    pub(super) fn window_end(&self) -> u64 {
        self.window.edge().max(self.rcv_nxt())
    }

    /// Answers an unacceptable segment with an ACK and accepts nothing from the segment. Octets that were
    /// already received are reported as a duplicate (RFC 2883). A segment with data is always answered,
    /// because it cannot be part of an ACK loop.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        now: Instant,
        segment: &Segment,
        start: u64,
        end: u64,
        rtt: &RttEstimator,
    ) {
        let old = start..end.min(self.rcv_nxt());
        if end == start {
            self.challenge(now);
        } else if old.is_empty() {
            self.acks.demand();
        } else {
            let arrival = self.reassembly.insert(old.start, old.end);
            self.owe_ack(now, u64::from(segment.len), EndOfWrite::No, arrival, Fin::Absent, rtt);
        }
    }

    /// Accepts the data and the FIN of a segment with the offsets `range`. `mss` is the payload length of a
    /// full-sized segment, in bytes. `open` is true while neither side has closed the connection (state
    /// ESTABLISHED).
    pub(super) fn on_data(
        &mut self,
        now: Instant,
        segment: &Segment,
        range: Range<u64>,
        mss: u64,
        open: bool,
        rtt: &RttEstimator,
    ) -> Progress {
        let Range { start, end } = range;
        let len = u64::from(segment.len);
        let before = self.rcv_nxt();
        // A segment that overruns an open window is accepted whole (see `overruns`). A closed window accepts
        // no data, only the next FIN, which needs no room.
        let fits = before.max(start) < self.window.edge();
        let end_of_write =
            if len > 0 && fits && end > before { self.measure(segment, mss) } else { EndOfWrite::No };
        let acceptable = if fits { end } else { end.min(before + u64::from(start + len == before)) };
        // A stream has only one end, so a FIN below the data received, or after another FIN, is ignored.
        if segment.flags.has(Flags::FIN) && self.fin_at.is_none() && end > before && end <= acceptable {
            self.fin_at = Some(end - 1);
        }
        // Octets after the FIN are not data (RFC 9293 section 3.10.7.4).
        let limit = self.fin_at.map_or(u64::MAX, |fin| fin + 1).min(acceptable);
        let arrival = self.reassembly.insert(start, end.min(limit));
        self.accepted = Accepted { start, range: before.max(start)..end.min(limit) };
        if arrival.out_of_order {
            self.window.on_out_of_order(self.reassembly.highest() - self.rcv_nxt());
        }
        let fin = match segment.flags.has(Flags::FIN) {
            // If the stream has no holes, the ACK of the FIN may wait for this side's own FIN.
            true if open && self.is_peer_closed() && arrival.advanced => Fin::Delayed,
            true => Fin::Urgent,
            false => Fin::Absent,
        };
        self.owe_ack(now, len, end_of_write, arrival, fin, rtt);
        let after = self.rcv_nxt();
        let closed = self.fin_at.is_some_and(|fin| after > fin && before <= fin);
        Progress { readable: after > before, closed }
    }

    /// Returns whether the segment continues a stream without holes, so that [`Self::on_data`] would accept
    /// all of it.
    #[inline(always)]
    pub(super) fn expects(&self, segment: &Segment, end: u64) -> bool {
        !self.reassembly.has_holes()
            && self.fin_at.is_none()
            && end <= self.window.edge()
            && !segment.ecn.is_marked()
    }

    /// Handles a segment for which [`expects`](Self::expects) returned true, with the same result as
    /// [`Self::on_data`].
    #[inline(always)]
    pub(super) fn on_expected_data(
        &mut self,
        now: Instant,
        segment: &Segment,
        timestamps: Timestamps,
        Range { start, end }: Range<u64>,
        mss: u64,
        rtt: &RttEstimator,
    ) {
        self.note_timestamp(now, timestamps, start);
        self.note_rtt(now, timestamps);
        let end_of_write = self.measure(segment, mss);
        let arrival = self.reassembly.insert(start, end);
        self.accepted = Accepted { start, range: start..end };
        self.owe_ack(now, end - start, end_of_write, arrival, Fin::Absent, rtt);
    }

    /// Measures the peer's segment size. A full-sized segment carries at most `mss` bytes.
    #[inline(always)]
    fn measure(&mut self, segment: &Segment, mss: u64) -> EndOfWrite {
        let before = self.rcv_mss.get();
        let end_of_write = self.rcv_mss.measure(segment, mss, self.agreed.timestamps);
        if self.rcv_mss.get() > before {
            self.window.on_larger_segment(self.rcv_mss.get());
        }
        end_of_write
    }

    /// Opens the window for `len` accepted octets, and determines when the ACK for them is due.
    #[inline(always)]
    fn owe_ack(
        &mut self,
        now: Instant,
        len: u64,
        end_of_write: EndOfWrite,
        arrival: Arrival,
        fin: Fin,
        rtt: &RttEstimator,
    ) {
        let occupied = self.reassembly.held_bytes() + self.readable();
        let mss = self.rcv_mss.get();
        if arrival.advanced {
            self.window.on_in_order(now, self.reassembly.rcv_nxt());
        }
        let window_opened = arrival.new > 0 && self.window.on_accepted(len, mss, occupied);
        let unacked = self.unacked();
        let window_shrinks = unacked > mss && self.window.shrinks(occupied, self.last_ack_sent);
        let Self { acks, window, reassembly, .. } = self;
        acks.on_data(
            now,
            Received {
                len,
                mss,
                in_order: arrival.advanced,
                end_of_write,
                disorder: arrival.out_of_order || reassembly.has_holes(),
                // Without SACK, the sender counts duplicate ACKs, so they must not be combined.
                crowded: arrival.crowded || !self.agreed.sack,
                urgent: arrival.filled_last_hole || arrival.new == 0 || fin == Fin::Urgent,
                closes: fin == Fin::Delayed,
                rcv_nxt: reassembly.rcv_nxt(),
                unacked,
                window_opened,
                window_shrinks,
                window: window.remaining(reassembly.rcv_nxt()),
                rtt: window.rtt().or(rtt.srtt()),
                srtt: rtt.srtt(),
            },
            || rtt.rto(),
        );
    }

    /// Passes up to `len` in-order bytes to the application and returns their number. Reading may open the
    /// window.
    #[inline]
    pub(super) fn read(&mut self, now: Instant, len: u64) -> u64 {
        let taken = len.min(self.readable());
        let span = if self.reassembly.has_holes() { self.reassembly.highest() - self.rcv_nxt() } else { 0 };
        // In Linux, a read copies one skb after another, and dynamic right-sizing runs after each of them. A
        // measurement that is due therefore ends with the first skb. Data released by a filled hole belongs
        // to the next measurement.
        let first = taken.min(self.rcv_mss.get());
        self.window.on_read(now, self.copied + first, self.readable() - first, span);
        self.copied += taken;
        // An ACK that is already due carries the new window, so the read needs no other ACK.
        if taken > 0 && !self.acks.is_due() && self.is_read_acknowledged() {
            self.acks.demand();
        }
        taken
    }

    /// Returns whether a read causes an ACK at once (Linux: `tcp_cleanup_rbuf`).
    fn is_read_acknowledged(&self) -> bool {
        let (rcv_nxt, mss) = (self.rcv_nxt(), self.rcv_mss.get());
        let occupied = self.reassembly.held_bytes() + self.readable();
        // More than one segment is unacknowledged (G-9), or the application has read all that the peer wrote.
        self.unacked() > mss
            || (occupied == 0 && self.acks.is_pushed())
            // A peer that has sent its FIN needs no window update.
            || (!self.is_peer_closed() && self.window.would_open(rcv_nxt, occupied, mss))
    }

    /// Returns the stream position of the payload of the most recently handled segment.
    pub(super) fn take_accepted(&mut self) -> Option<Accepted> {
        let accepted = core::mem::take(&mut self.accepted);
        let data_end = self.fin_at.map_or(u64::MAX, |fin| fin);
        let range = accepted.range.start..accepted.range.end.min(data_end);
        (!range.is_empty()).then_some(Accepted { range, ..accepted })
    }

    /// Advertises the free part of the receive window and returns the window field of the header.
    #[inline(always)]
    pub(super) fn offer_window(&mut self) -> u16 {
        let mss = self.rcv_mss.get();
        self.window.offer(self.rcv_nxt(), self.reassembly.held_bytes(), self.readable(), mss)
    }

    /// Returns the timestamps for a segment that leaves at `now`, if timestamps were negotiated.
    #[inline(always)]
    pub(super) fn timestamps(&self, now: Instant) -> Option<Timestamps> {
        self.agreed.timestamps.then(|| Timestamps { value: Timestamps::clock(now), echo: self.ts_recent })
    }

    /// Adds the receiving half's header fields to a transmission: the ACK, the window, timestamps and SACK
    /// blocks.
    #[inline(always)]
    pub(super) fn acknowledge(&mut self, now: Instant, transmit: &mut Transmit) {
        let window = self.offer_window();
        let timestamps = self.timestamps(now);
        transmit.acknowledge(self.rcv_nxt_on_wire(), window, self.ecn.of_ack(), timestamps);
        if self.agreed.sack && self.reassembly.has_reports() {
            transmit.report(self.sack_blocks());
        }
        self.last_ack_sent = self.rcv_nxt();
        if transmit.segment().len > 0 {
            self.acks.on_data_sent(now);
        }
        self.acks.on_ack_sent();
    }

    /// Builds the SACK blocks: first a pending duplicate, then the out-of-order ranges, most recently changed
    /// first.
    #[cold]
    fn sack_blocks(&mut self) -> SackBlocks {
        let origin = self.irs.plus(1);
        let mut sack = SackBlocks::default();
        let most = if self.agreed.timestamps { 3 } else { 4 };
        let duplicate = self.reassembly.take_duplicate();
        let blocks = duplicate.iter().chain(self.reassembly.recent());
        for &(start, end) in blocks.take(most) {
            sack.push(origin.plus(start), origin.plus(end));
        }
        sack
    }
}
