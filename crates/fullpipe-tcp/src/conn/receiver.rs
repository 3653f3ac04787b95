//! The receiving half of a connection: what has arrived, what of it was read, what is acknowledged and what window is offered.
//!
//! ```text
//!   segment ─► timestamps (PAWS) ─► reassembly ─► window ─► ACK policy ─► `acknowledge`, in every segment that leaves
//! ```
//!
//! It knows nothing of the sending half; what it needs of it (the size of a segment, the RTT) is passed in.

use fullpipe_units::{Duration, Instant};

use super::Accepted;
use super::config::Config;
use super::ecn::Echo;
use super::handshake::Agreed;
use crate::buffers::PACKET_BUFFER_MEMORY;
use crate::estimate::RttEstimator;
use crate::rx::ack::{AckPolicy, Received};
use crate::rx::reassembly::{Arrival, Reassembly};
use crate::rx::window::ReceiveWindow;
use crate::tx::Transmit;
use crate::wire::{Flags, SackBlocks, Segment, SeqNum, Timestamps};

/// Least distance between two answers to segments that are out of place (`tcp_invalid_ratelimit`).
pub(super) const CHALLENGE_INTERVAL: Duration = Duration::from_millis(500);

/// How long a timestamp of the peer is good for comparing, without another (RFC 7323 section 5.5).
const TIMESTAMP_VALID_FOR: Duration = Duration::from_secs(24 * 86_400);

/// Ranges that are held above holes however small the receive buffer is.
const LEAST_RANGES: usize = 64;

/// The receiving half.
#[derive(Debug)]
pub(super) struct Receiver {
    /// The peer's initial sequence number: offset 0 is the octet after its SYN.
    pub(super) irs: SeqNum,
    pub(super) agreed: Agreed,
    pub(super) reassembly: Reassembly,
    /// What was taken of the segment handled last.
    pub(super) accepted: Accepted,
    pub(super) acks: AckPolicy,
    pub(super) window: ReceiveWindow,
    pub(super) rcv_mss: u64,
    /// Where the peer's FIN stands.
    pub(super) fin_at: Option<u64>,
    /// Bytes handed to the application.
    pub(super) copied: u64,
    pub(super) ts_recent: u32,
    /// When it was noted.
    pub(super) ts_recent_at: Instant,
    pub(super) last_ack_sent: u64,
    /// When something out of place was last answered.
    challenged_at: Option<Instant>,
    pub(super) ecn: Echo,
}

/// What an arriving segment with data has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// More can be read, or the end has come.
    pub(super) readable: bool,
    /// All that the peer sent has been received, its FIN included.
    pub(super) closed: bool,
}

impl Receiver {
    /// Of a connection that waits for a SYN, if it `listens`.
    pub(super) fn new(config: &Config, listens: bool, mss: u64) -> Self {
        let window = ReceiveWindow::new(config.window_rule, config.rcvbuf, config.window_clamp, mss);
        let window = if listens {
            window
        } else {
            window.before_timestamps(config.mtu.saturating_sub(config.ip.headers()).max(48))
        };
        // What arrives out of order takes an skb in a kernel, which bounds how much of it there can be; so here.
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
            rcv_mss: mss.min(536),
            fin_at: None,
            copied: 0,
            ts_recent: 0,
            ts_recent_at: Instant::ZERO,
            last_ack_sent: 0,
            challenged_at: None,
            ecn: Echo::default(),
        }
    }

    /// The handshake has agreed on options; the peer scales its windows, or not, and has sent the `timestamp`.
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

    /// Offset of the next octet expected.
    #[inline(always)]
    pub(super) fn rcv_nxt(&self) -> u64 {
        self.reassembly.rcv_nxt()
    }

    /// The same as a sequence number.
    pub(super) fn rcv_nxt_on_wire(&self) -> SeqNum {
        self.irs.plus(1).plus(self.rcv_nxt())
    }

    /// In-order payload bytes received, the FIN not counted.
    pub(super) fn received(&self) -> u64 {
        let next = self.rcv_nxt();
        self.fin_at.map_or(next, |fin| next.min(fin))
    }

    /// Bytes that wait to be read.
    pub(super) fn readable(&self) -> u64 {
        self.received() - self.copied
    }

    /// The peer has sent its FIN, and everything before it is here.
    pub(super) fn is_peer_closed(&self) -> bool {
        self.fin_at.is_some_and(|fin| self.rcv_nxt() > fin)
    }

    /// The segment's timestamps; `None` if it has none, or the handshake agreed on none (RFC 7323 section 3.2).
    #[inline]
    pub(super) fn timestamps_of(&self, segment: &Segment) -> Option<Timestamps> {
        segment.timestamps.filter(|_| self.agreed.timestamps)
    }

    /// `value` is older than the peer's last timestamp; unless that was noted so long ago that the peer's clock has gone
    /// halfway round (PAWS-3, RFC 7323 section 5.5). Zero is no timestamp: some hosts put it into their SYN, and their true
    /// clock may look older than that.
    pub(super) fn is_older(&self, now: Instant, value: u32) -> bool {
        (value.wrapping_sub(self.ts_recent) as i32) < 0
            && self.ts_recent != 0
            && now.saturating_since(self.ts_recent_at) < TIMESTAMP_VALID_FOR
    }

    /// By how much `value` is older than the peer's last timestamp.
    pub(super) fn age_of(&self, value: u32) -> Duration {
        Duration::from_millis(u64::from(self.ts_recent.wrapping_sub(value)))
    }

    /// Takes the timestamp of a segment from `start` on that is not older than the last: the next to be echoed.
    #[inline]
    pub(super) fn note_timestamp(&mut self, now: Instant, timestamps: Timestamps, start: u64) {
        // The same once more, as in a copy that was long on its way, does not show that the peer's clock goes on.
        if timestamps.value != self.ts_recent && start <= self.last_ack_sent {
            self.ts_recent = timestamps.value;
            // What was received before may have been on its way for weeks.
            if start >= self.rcv_nxt() {
                self.ts_recent_at = now;
            }
        }
    }

    /// Takes the receiver's own sample of the RTT from the echo of a segment with data.
    #[inline]
    pub(super) fn note_rtt(&mut self, now: Instant, timestamps: Timestamps) {
        if self.window.is_new_echo(timestamps.echo) {
            self.window.on_echo(timestamps.echo, Timestamps::clock(now), self.readable());
        }
    }

    /// Answers something out of place with an ACK, at most once in half a second, so that two
    /// connections never talk past each other for ever (CH-5).
    pub(super) fn challenge(&mut self, now: Instant) {
        let recently = self.challenged_at.is_some_and(|at| now.saturating_since(at) < CHALLENGE_INTERVAL);
        if !recently {
            self.challenged_at = Some(now);
            self.acks.demand();
        }
    }

    /// Answers a segment that is not acceptable with an ACK, and takes nothing of it. Octets that have been received before are
    /// reported (RFC 2883); a segment with data is no part of a loop of ACKs, so each one is answered.
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
            self.owe_ack(now, u64::from(segment.len), arrival, false, rtt);
        }
    }

    /// Takes the data and the FIN of an acceptable segment that reaches from `start` to `end`; `mss` is the payload of a full one.
    pub(super) fn on_data(
        &mut self,
        now: Instant,
        segment: &Segment,
        start: u64,
        end: u64,
        mss: u64,
        rtt: &RttEstimator,
    ) -> Progress {
        let len = u64::from(segment.len);
        if len.min(mss) > self.rcv_mss {
            self.rcv_mss = len.min(mss);
            self.window.on_larger_segment(self.rcv_mss);
        }
        let before = self.rcv_nxt();
        // A stream ends once: a FIN elsewhere, below what has been received or after another, ends nothing.
        if segment.flags.has(Flags::FIN) && self.fin_at.is_none() && end > before {
            self.fin_at = Some(end - 1);
        }
        // What lies behind the end is no data (RFC 9293 section 3.10.7.4).
        let limit = self.fin_at.map_or(u64::MAX, |fin| fin + 1).min(self.window.edge().max(before));
        let arrival = self.reassembly.insert(start, end.min(limit));
        self.accepted = Accepted { start, range: before.max(start)..end.min(limit) };
        if arrival.out_of_order {
            self.window.on_out_of_order(self.reassembly.highest() - self.rcv_nxt());
        }
        self.owe_ack(now, len, arrival, segment.flags.has(Flags::FIN), rtt);
        let after = self.rcv_nxt();
        let closed = self.fin_at.is_some_and(|fin| after > fin && before <= fin);
        Progress { readable: after > before, closed }
    }

    /// The segment is the next of a stream without holes and of the size that was expected: [`Self::on_data`] would take it whole.
    #[inline(always)]
    pub(super) fn expects(&self, segment: &Segment, end: u64, mss: u64) -> bool {
        !self.reassembly.has_holes()
            && self.fin_at.is_none()
            && end <= self.window.edge()
            && u64::from(segment.len).min(mss) <= self.rcv_mss
            && !segment.ecn.is_marked()
    }

    /// [`Self::on_data`] of a segment that it [`expects`](Self::expects).
    #[inline(always)]
    pub(super) fn on_expected_data(
        &mut self,
        now: Instant,
        timestamps: Timestamps,
        start: u64,
        end: u64,
        rtt: &RttEstimator,
    ) {
        self.note_timestamp(now, timestamps, start);
        self.note_rtt(now, timestamps);
        let arrival = self.reassembly.insert(start, end);
        self.accepted = Accepted { start, range: start..end };
        self.owe_ack(now, end - start, arrival, false, rtt);
    }

    /// Opens the window for `len` octets that have been taken, and decides when to acknowledge them.
    #[inline(always)]
    fn owe_ack(&mut self, now: Instant, len: u64, arrival: Arrival, fin: bool, rtt: &RttEstimator) {
        let occupied = self.reassembly.held_bytes() + self.readable();
        let window_opened = arrival.new > 0 && self.window.on_accepted(len, self.rcv_mss, occupied);
        let window_shrinks =
            self.acks.is_second(len, self.rcv_mss) && self.window.shrinks(occupied, self.last_ack_sent);
        let Self { acks, window, reassembly, .. } = self;
        acks.on_data(
            now,
            Received {
                len,
                mss: self.rcv_mss,
                disorder: arrival.out_of_order || reassembly.has_holes(),
                // Without SACK each ACK is all the news there is, and is not held back.
                crowded: arrival.crowded || !self.agreed.sack,
                urgent: arrival.filled_last_hole || arrival.new == 0 || fin,
                rcv_nxt: reassembly.rcv_nxt(),
                window_opened,
                window_shrinks,
                window: window.remaining(reassembly.rcv_nxt()),
                rtt: window.rtt().or(rtt.srtt()),
            },
            || rtt.rto(),
        );
    }

    /// Hands up to `len` in-order bytes to the application; returns how many. May open the window.
    #[inline]
    pub(super) fn read(&mut self, now: Instant, len: u64) -> u64 {
        let taken = len.min(self.readable());
        let span = if self.reassembly.has_holes() { self.reassembly.highest() - self.rcv_nxt() } else { 0 };
        // A reader takes packet after packet, and right-sizing looks on after each. A measurement that is due
        // therefore ends with the first: what a filled hole has set free belongs to the next one.
        let first = taken.min(self.rcv_mss);
        self.window.on_read(now, self.copied + first, self.readable() - first, span);
        self.copied += taken;
        // An ACK that is due anyway carries the new window.
        if taken > 0 && !self.acks.is_due() {
            let (rcv_nxt, held) = (self.rcv_nxt(), self.reassembly.held_bytes());
            let opens = self.window.would_open(rcv_nxt, held + self.readable(), self.rcv_mss);
            // Who has sent everything needs no window. A second segment waited for a reader (G-9).
            if (opens && !self.is_peer_closed()) || self.acks.is_second(0, self.rcv_mss) {
                self.acks.demand();
            }
        }
        taken
    }

    /// Where the payload of the segment handled last belongs.
    pub(super) fn take_accepted(&mut self) -> Option<Accepted> {
        let accepted = core::mem::take(&mut self.accepted);
        let data_end = self.fin_at.map_or(u64::MAX, |fin| fin);
        let range = accepted.range.start..accepted.range.end.min(data_end);
        (!range.is_empty()).then_some(Accepted { range, ..accepted })
    }

    /// The header's field for the window that is free now, which is thereby offered.
    #[inline(always)]
    pub(super) fn offer_window(&mut self) -> u16 {
        self.window.offer(self.rcv_nxt(), self.reassembly.held_bytes(), self.readable(), self.rcv_mss)
    }

    /// The timestamps of a segment that leaves at `now`, if they were agreed on.
    #[inline(always)]
    pub(super) fn timestamps(&self, now: Instant) -> Option<Timestamps> {
        self.agreed.timestamps.then(|| Timestamps { value: Timestamps::clock(now), echo: self.ts_recent })
    }

    /// Adds to a transmission what every segment says: what has been received, and which window is open.
    #[inline(always)]
    pub(super) fn acknowledge(&mut self, now: Instant, transmit: &mut Transmit) {
        let window = self.offer_window();
        let timestamps = self.timestamps(now);
        transmit.acknowledge(self.rcv_nxt_on_wire(), window, self.ecn.of_ack(), timestamps);
        if self.agreed.sack && self.reassembly.has_reports() {
            transmit.report(self.sack_blocks());
        }
        self.last_ack_sent = self.rcv_nxt();
        self.acks.on_ack_sent();
    }

    /// What arrived out of place, the newest change first, behind a duplicate if there is one to report.
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
