//! Header prediction (Van Jacobson): a fast path for the next expected segment.
//!
//! ```text
//!   to a receiver   the next octets of the stream, while this side has nothing outstanding
//!   to a sender     an ACK of segments that were sent once and in order, and no other information
//! ```
//!
//! The fast path performs the same steps as the general path (`input.rs`), except for steps that would have
//! no effect. A segment that was not predicted changes nothing here.

use fullpipe_units::Instant;

use super::{Connection, Event, State};
use crate::recovery::Phase;
use crate::wire::{Flags, Segment, Timestamps};

impl Connection {
    /// Handles the segment and returns true if it was predicted. Otherwise, returns false and changes
    /// nothing.
    #[inline]
    pub(super) fn handle_predicted(&mut self, now: Instant, segment: &Segment) -> bool {
        let rcv_nxt = self.receiver.rcv_nxt();
        let expected = self.lifecycle.state == State::Established
            && self.sender.recovery.phase == Phase::Open
            && segment.flags.without(Flags::PSH).bits() == Flags::ACK.bits()
            && segment.seq == self.receiver.irs.plus(1).plus(rcv_nxt)
            && segment.sack.is_empty()
            && !self.sender.recovery.probe.is_outstanding();
        let Some(timestamps) = self.receiver.timestamps_of(segment).filter(|_| expected) else {
            return false;
        };
        // PAWS on the general path handles an older timestamp.
        if (timestamps.value.wrapping_sub(self.receiver.ts_recent) as i32) < 0 {
            return false;
        }
        if segment.len > 0 {
            self.takes_next(now, segment, timestamps, rcv_nxt)
        } else {
            self.takes_ack(now, segment, timestamps, rcv_nxt)
        }
    }

    /// Handles the segment if it carries the next octets of the stream.
    #[inline(never)]
    fn takes_next(&mut self, now: Instant, segment: &Segment, timestamps: Timestamps, start: u64) -> bool {
        let end = start + u64::from(segment.len);
        let Self { sender, receiver, .. } = self;
        let expected = sender.recovery.board.is_empty()
            && segment.ack == sender.iss.plus(1).plus(sender.snd_una)
            && sender.timer.is_none()
            && receiver.expects(segment, end);
        if !expected {
            return false;
        }
        sender.on_predicted_data(now, segment, start);
        receiver.on_expected_data(now, segment, timestamps, start..end, sender.mss, &sender.rtt);
        self.events.add(Event::Readable);
        true
    }

    /// Handles the segment if it acknowledges only segments that were sent once and in order.
    #[inline(never)]
    fn takes_ack(&mut self, now: Instant, segment: &Segment, timestamps: Timestamps, start: u64) -> bool {
        let Self { sender, .. } = self;
        let ack = segment.ack.offset_near(sender.iss.plus(1).plus(sender.snd_una), sender.snd_una);
        let Some(ack) = ack.filter(|ack| (sender.snd_una + 1..=sender.snd_nxt()).contains(ack)) else {
            return false;
        };
        let Some(writable) = sender.on_predicted_ack(now, segment, start, ack) else { return false };
        self.receiver.note_timestamp(now, timestamps, start);
        self.after_ack(now, writable);
        true
    }
}
