//! Header prediction (Van Jacobson): nearly every segment is the one that was expected.
//!
//! ```text
//!   to a receiver   the next octets of the stream, and no news for a side that has sent nothing
//!   to a sender     an ACK of something that was sent once and in order, and nothing else
//! ```
//!
//! Both are recognised at once, and take the same steps as any segment (`input.rs`); the steps that could do nothing for
//! them are left out. A segment that is not recognised has changed nothing.

use fullpipe_units::Instant;

use super::input::{Before, Delivery, clock};
use super::{Accepted, Connection, Event, Phase, State};
use crate::wire::{Flags, Segment, Timestamps};

impl Connection {
    /// Handles a segment that was expected. False, and nothing has happened, if it was not.
    #[inline]
    pub(super) fn handle_predicted(&mut self, now: Instant, segment: &Segment) -> bool {
        let rcv_nxt = self.reassembly.rcv_nxt();
        let expected = self.state == State::Established
            && self.phase == Phase::Open
            && segment.flags.without(Flags::PSH).bits() == Flags::ACK.bits()
            && segment.seq == self.irs.plus(1).plus(rcv_nxt)
            && segment.sack.is_empty()
            && !self.probe.is_outstanding();
        let Some(timestamps) = self.timestamps_of(segment).filter(|_| expected) else { return false };
        // What an old clock says is for PAWS.
        if (timestamps.value.wrapping_sub(self.ts_recent) as i32) < 0 {
            return false;
        }
        if segment.len > 0 {
            self.takes_next(now, segment, timestamps, rcv_nxt)
        } else {
            self.takes_ack(now, segment, timestamps, rcv_nxt)
        }
    }

    /// The next octets of the stream.
    #[inline(never)]
    fn takes_next(&mut self, now: Instant, segment: &Segment, timestamps: Timestamps, start: u64) -> bool {
        let len = u64::from(segment.len);
        let end = start + len;
        let expected = self.board.is_empty()
            && segment.ack == self.iss.plus(1).plus(self.snd_una)
            && self.retransmit_timer.is_none()
            && !self.reassembly.has_holes()
            && self.fin_at.is_none()
            && end <= self.window.edge()
            && len.min(self.mss) <= self.rcv_mss
            && !segment.ecn.is_marked();
        if !expected {
            return false;
        }
        self.note_timestamp(now, timestamps, start);
        if self.window.is_new_echo(timestamps.echo) {
            self.window.on_echo(timestamps.echo, clock(now), self.readable());
        }
        self.unanswered_probes = 0;
        // Nothing is in flight, and every window is larger than that.
        if self.unsent() < self.mss {
            self.rate.mark_app_limited(0);
        }
        self.update_send_window(now, segment, start, self.snd_una);
        let arrival = self.reassembly.insert(start, end);
        self.accepted = Accepted { start, range: start..end };
        self.owe_ack(now, len, arrival, false);
        self.events.add(Event::Readable);
        true
    }

    /// An ACK of segments that were sent once and in order, and of nothing else.
    #[inline(never)]
    fn takes_ack(&mut self, now: Instant, segment: &Segment, timestamps: Timestamps, start: u64) -> bool {
        let ack = segment.ack.offset_near(self.iss.plus(1).plus(self.snd_una), self.snd_una);
        let Some(ack) = ack.filter(|ack| (self.snd_una + 1..=self.snd_nxt).contains(ack)) else {
            return false;
        };
        if !(self.has_sack && self.board.is_fresh()) || self.still_lost || self.is_reducing() {
            return false;
        }
        let before = Before { prior_inflight: self.board.inflight(), lost: self.board.lost_total() };
        let min_rtt = self.rtt.min_rtt();
        // Of what is outstanding before this ACK; twice is once.
        self.check_app_limited();
        let Self { board, rack, .. } = self;
        let mut delivery = None;
        let whole = board.acknowledge_fresh(ack, |run| {
            rack.on_delivered(now, run, min_rtt);
            delivery = Some(Delivery::of_run(now, min_rtt, run));
        });
        let Some(delivery) = delivery.filter(|_| whole) else { return false };
        self.note_timestamp(now, timestamps, start);
        self.unanswered_probes = 0;
        self.update_send_window(now, segment, start, ack);
        self.probe_armed_at = None;
        self.snd_una = ack;
        self.rate.on_delivered(now, delivery.cum_acked);
        self.heard_at = now;
        self.stats.acks += 1;
        self.take_rtt(&delivery, None);
        self.note_progress(now, true);
        let look_again = self.detect_losses(now);
        self.conclude_ack(now, &delivery, before, true, false, look_again);
        true
    }
}
