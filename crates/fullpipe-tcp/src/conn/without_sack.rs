//! The sending half where the peer does not report selectively: what an ACK says, and what it marks lost (`recovery/newreno.rs`).

use fullpipe_units::Instant;

use super::input::{Delivery, lost_record};
use super::{Connection, Phase};
use crate::cc::LossCause;
use crate::recovery::newreno::NewReno;
use crate::wire::{Flags, Segment};

impl Connection {
    /// Reads an ACK that has `advanced` or not, as one that reports selectively would be read: a duplicate as the delivery of a
    /// segment, and progress as that of the hole and of what was not counted yet.
    pub(super) fn hear_without_sack(
        &mut self,
        segment: &Segment,
        advanced: bool,
        window_changed: bool,
        delivery: &mut Delivery,
    ) {
        if advanced {
            // Below the last, only what is repaired now can be told from what waited for it.
            let partial = matches!(self.phase, Phase::Recovery { until } if self.snd_una < until);
            let counted = self.newreno.on_advance(&mut self.board, self.mss, delivery.segments, partial);
            delivery.segments -= counted;
            delivery.cum_acked -= (counted * self.mss).min(delivery.cum_acked.saturating_sub(1));
            // What arrived with a retransmission may have waited for it at the peer, however late the timeout was.
            delivery.spurious_timeout &= !delivery.ambiguous;
        } else if self.is_duplicate(segment, window_changed)
            && self.counts_duplicates()
            && self.newreno.on_duplicate(&mut self.board, self.mss)
        {
            delivery.segments += 1;
            delivery.sacked += self.mss;
        }
    }

    /// FR-6 (RFC 5681 section 2): the same acknowledgement and window once more, without data, SYN or FIN, while something is
    /// outstanding.
    fn is_duplicate(&self, segment: &Segment, window_changed: bool) -> bool {
        segment.ack == self.iss.plus(1).plus(self.snd_una)
            && segment.seq_len() == 0
            && !segment.flags.has(Flags::SYN)
            && !window_changed
            && !self.board.is_empty()
    }

    /// Duplicates mean something before a recovery and in it. After a timeout they do once there is new data, such as that which
    /// asks whether it was needed (RFC 5682), and else are echoes.
    fn counts_duplicates(&self) -> bool {
        match self.phase {
            Phase::Open => self.newreno.listens(self.snd_una),
            Phase::Recovery { .. } => true,
            Phase::Loss => self.newreno.listens(self.snd_nxt),
        }
    }

    /// What [`Connection::detect_losses`] does by RACK.
    pub(super) fn detect_without_sack(&mut self, now: Instant, advanced: bool) {
        let lost_before = self.board.lost_total();
        let recovery = matches!(self.phase, Phase::Recovery { .. });
        let open = self.phase == Phase::Open && self.newreno.listens(self.snd_una);
        let Self { newreno, board, lost_scratch, .. } = self;
        newreno.detect(board, open, recovery && advanced, |number, record| {
            lost_scratch.push(lost_record(number, record, LossCause::DupAck));
        });
        if !self.lost_scratch.is_empty() {
            self.on_losses(now, lost_before);
        }
    }

    /// What a timeout marks.
    pub(super) fn mark_on_timeout_without_sack(&mut self) {
        let Self { newreno, board, lost_scratch, .. } = self;
        newreno.forget(board);
        NewReno::mark_on_timeout(board, |number, record| {
            lost_scratch.push(lost_record(number, record, LossCause::Rto));
        });
    }
}
