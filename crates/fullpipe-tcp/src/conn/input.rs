//! Handling of an arriving segment (RFC 9293 section 3.10.7, in its order).

use fullpipe_units::Instant;

use super::{Connection, Event, State};
use crate::wire::{Flags, Segment};

impl Connection {
    /// Handles a segment. Call `poll_transmit`, `poll_event` and `poll_timeout` afterwards.
    #[inline]
    pub fn handle_segment(&mut self, now: Instant, segment: &Segment) {
        if !self.handle_predicted(now, segment) {
            self.handle_any(now, segment);
        }
    }

    /// Handles any segment, in the order of RFC 9293 section 3.10.7.4. A step that drops the segment returns
    /// before a later step has changed anything:
    ///
    /// ```text
    ///   no ACK, RST or SYN ── dropped            an old timestamp ──────── ACK, dropped      (PAWS, R1)
    ///   RST ───────────────── reset or dropped   outside the window ────── ACK, dropped      (R2)
    ///   SYN ───────────────── challenge ACK      overrunning the window ── ACK, dropped      (Linux 6.17)
    ///                                            an ACK out of range ───── challenge ACK     (RFC 5961)
    ///                                            else: timestamp (R3), ACK and window, data, FIN
    /// ```
    ///
    /// R1 to R3 are the rules of RFC 7323 section 5.3.
    #[inline(never)]
    pub(super) fn handle_any(&mut self, now: Instant, segment: &Segment) {
        // The check of RFC 5961 section 5 needs an ACK. If a segment without an ACK were accepted, a blind
        // attacker would only have to guess its sequence number. Linux drops such a segment in the first step of
        // its checks, whereas RFC 9293 drops it in the fifth step. A closed port answers the segment with a reset.
        if !segment.flags.may_be_handled() && self.lifecycle.state != State::Closed {
            return;
        }
        if !self.lifecycle.state.carries_data() && !self.on_segment_without_data(now, segment) {
            return;
        }
        let rcv_nxt = self.receiver.rcv_nxt();
        let start = segment.seq.offset_near(self.receiver.rcv_nxt_on_wire(), rcv_nxt);
        let beyond = start.is_some_and(|start| start > self.receiver.window_end());
        if segment.flags.has(Flags::RST) {
            self.on_reset(now, start.filter(|_| !beyond), rcv_nxt);
            return;
        }
        let Some(start) = start.filter(|_| !segment.flags.has(Flags::SYN)) else {
            self.receiver.challenge(now);
            return;
        };
        let end = start + segment.seq_len();
        if self.is_stale(now, segment, start) {
            // An ACK overtaken by newer segments is common and needs no reply (Linux since 6.14).
            if end > start || start >= rcv_nxt {
                self.receiver.refuse(now, segment, start, end, &self.sender.rtt);
            }
            return;
        }
        // A segment that ends below the last ACK sent is old. As in Linux (`rcv_wup`), a segment that repeats
        // octets received since that ACK is still accepted.
        if end < self.receiver.last_ack_sent || beyond || self.receiver.overruns(segment, start) {
            self.receiver.refuse(now, segment, start, end, &self.sender.rtt);
            return;
        }
        if !self.on_ack(now, segment, start) {
            return;
        }
        if let Some(timestamps) = self.receiver.timestamps_of(segment)
            && segment.len > 0
        {
            self.receiver.note_rtt(now, timestamps);
        }
        if end > start && !(self.lifecycle.detached && self.refuses_data(now, segment, start)) {
            self.on_data(now, segment, start, end);
        }
    }

    /// Handles a reset (RFC 5961 section 3.2, CH-2). The connection accepts the reset only at the next
    /// expected octet. It answers a reset elsewhere in the window with a challenge ACK, and ignores a reset
    /// outside the window.
    ///
    /// A peer that has lost its state may send the reset at another octet. As in Linux, the connection
    /// therefore also accepts a reset at the end of the highest SACKed range, and one octet early if the peer
    /// did not count its FIN (CH-3).
    fn on_reset(&mut self, now: Instant, in_window: Option<u64>, rcv_nxt: u64) {
        let Some(start) = in_window else { return };
        let reported = self.receiver.reassembly.recent().iter().map(|&(_, end)| end).max();
        let behind_fin = matches!(self.lifecycle.state, State::CloseWait | State::Closing | State::LastAck);
        if start == rcv_nxt || reported == Some(start) || (behind_fin && start + 1 == rcv_nxt) {
            self.on_valid_reset(now);
        } else if start > rcv_nxt {
            self.receiver.challenge(now);
        }
    }

    /// Returns true if PAWS rejects the segment because of its old timestamp (RFC 7323 section 5.3, R1): the
    /// segment may have been sent before the sequence numbers wrapped.
    pub(super) fn is_stale(&self, now: Instant, segment: &Segment, start: u64) -> bool {
        self.receiver.timestamps_of(segment).is_some_and(|timestamps| {
            self.receiver.is_older(now, timestamps.value)
                && !self.is_overtaken_ack(segment, start, timestamps.value)
        })
    }

    /// Returns true for a duplicate ACK that does not change the window and whose timestamp is at most one
    /// RTO older than the last timestamp (PAWS-5). Such an ACK carries no data that could be misplaced, and
    /// its SACK blocks are still useful (Linux: `tcp_disordered_ack_check`).
    fn is_overtaken_ack(&self, segment: &Segment, start: u64, value: u32) -> bool {
        segment.seq_len() == 0
            && start == self.receiver.rcv_nxt()
            && self.sender.repeats_last_ack(segment, start)
            && self.receiver.age_of(value) <= self.sender.rtt.rto()
    }

    /// Handles the ACK of a segment. Returns false if the ACK is not acceptable and the segment is dropped.
    fn on_ack(&mut self, now: Instant, segment: &Segment, start: u64) -> bool {
        let Some(ack) = self.sender.acceptable_ack(segment) else {
            self.receiver.challenge(now);
            return false;
        };
        // R3 is applied only after R2 and the check above; otherwise a forged segment could store a timestamp
        // that makes PAWS drop the peer's segments. As on Linux's slow path, an old ACK does not update the
        // timestamp, so with no data in flight a forger has to know SND.UNA.
        if let Some(timestamps) = self.receiver.timestamps_of(segment)
            && ack >= self.sender.snd_una
            && !self.receiver.is_older(now, timestamps.value)
        {
            self.receiver.note_timestamp(now, timestamps, start);
        }
        let writable = self.sender.on_ack(now, segment, start, ack);
        self.after_ack(now, writable);
        true
    }

    /// Concludes the handling of an ACK: reports a writable socket, arms the keep-alive timer if nothing is
    /// outstanding, and reports an acknowledged FIN.
    #[inline(always)]
    pub(super) fn after_ack(&mut self, now: Instant, writable: bool) {
        if writable {
            self.events.add(Event::Writable);
        }
        self.watch_silence();
        self.finish_if_done(now);
    }

    fn on_data(&mut self, now: Instant, segment: &Segment, start: u64, end: u64) {
        self.receiver.note_mark(segment);
        let open = self.lifecycle.state == State::Established;
        let progress =
            self.receiver.on_data(now, segment, start..end, self.sender.mss, open, &self.sender.rtt);
        if progress.readable {
            self.events.add(Event::Readable);
        }
        if progress.closed {
            self.on_peer_closed(now);
        }
    }
}
