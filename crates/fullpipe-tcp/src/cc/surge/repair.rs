//! Repair: decides when copies of segments are worth their cost.
//!
//! On a path with a random loss probability p, the same share p of the retransmissions is lost again. A copy
//! saves the round trip that such a loss would cost, or the timeout at the end of the data. Copies increase
//! the traffic by the share p, but are sent only while the congestion window does not limit the sender. After
//! a congestive loss, copies would add to the queue.

use fullpipe_units::Probability;

use super::loss::LossVerdict;
use crate::cc::{Context, Repair};

/// Minimum random loss at which retransmissions get a second copy: 0.5 %.
const SECOND_COPY_LOSS: Probability = Probability::from_ppm(5_000);
/// Minimum loss on the path, as measured by earlier connections, at which the last segments get copies: 1 %.
const TAIL_COPY_LOSS: Probability = Probability::from_ppm(10_000);
/// Minimum denominator of the measured loss ratio, in delivered segments. With fewer delivered segments, the
/// ratio is computed as if this many had been delivered.
const LEAST_SEGMENTS: u64 = 32;

/// Random loss of one connection, and the copies that follow from it.
#[derive(Debug)]
pub(super) struct RepairPolicy {
    /// Random loss that earlier connections have measured.
    known: Probability,
    /// Copies that the connection permits.
    permitted: Repair,
    /// Bytes lost at random since the last congestive loss.
    lost: u64,
    /// Bytes delivered up to the last congestive loss.
    delivered: u64,
    /// Whether the last loss was congestive.
    congested: bool,
    repair: Repair,
}

impl RepairPolicy {
    pub(super) fn new(known: Probability, permitted: Repair) -> Self {
        let repair = Repair::NONE;
        let mut policy = Self { known, permitted, lost: 0, delivered: 0, congested: false, repair };
        policy.repair = policy.decided(Probability::ZERO);
        policy
    }

    /// Returns the copies to send now.
    pub(super) fn repair(&self) -> Repair {
        self.repair
    }

    /// Handles an ACK that reported `lost` bytes as lost, with the judgement of these losses.
    pub(super) fn on_ack(&mut self, cx: &Context, lost: u64, verdict: Option<LossVerdict>) {
        match verdict {
            None => return,
            Some(LossVerdict::Congestion) => {
                (self.congested, self.lost, self.delivered) = (true, 0, cx.delivered);
            }
            Some(LossVerdict::Random) => {
                (self.congested, self.lost) = (false, self.lost + lost);
            }
        }
        let of = (cx.delivered - self.delivered).max(LEAST_SEGMENTS * cx.mss) + self.lost;
        self.repair = self.decided(Probability::from_ratio(self.lost, of));
    }

    fn decided(&self, measured: Probability) -> Repair {
        if self.congested {
            return Repair::NONE;
        }
        let Repair { second_copy, tail_copies } = self.permitted;
        Repair {
            second_copy: second_copy && measured.max(self.known) >= SECOND_COPY_LOSS,
            tail_copies: if self.known >= TAIL_COPY_LOSS { tail_copies } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::testing::{MSS, context};

    /// Returns whether retransmissions are copied after a random loss of `lost` of `segments` segments and,
    /// if `congested`, a congestive loss.
    fn copies(known_ppm: u64, segments: u64, lost: u64, congested: bool) -> bool {
        let mut policy = RepairPolicy::new(Probability::from_ppm(known_ppm), Repair::DEFAULT);
        let cx = Context { delivered: segments * MSS, ..context() };
        if lost > 0 {
            policy.on_ack(&cx, lost * MSS, Some(LossVerdict::Random));
        }
        if congested {
            policy.on_ack(&cx, MSS, Some(LossVerdict::Congestion));
        }
        policy.on_ack(&cx, 0, None);
        policy.repair().second_copy
    }

    #[test]
    fn copies_follow_random_loss() {
        assert_eq!([0, 1, 4, 5].map(|lost| copies(0, 900, lost, false)), [false, false, false, true]);
        assert_eq!([0, 1].map(|lost| copies(0, 1, lost, false)), [false, true], "a short connection");
        assert_eq!([4_999, 5_000].map(|known| copies(known, 0, 0, false)), [false, true], "remembered");
        assert!(!copies(30_000, 900, 50, true), "congestion");
    }

    /// Each kind of copy is a switch. Copies of the last segments require that earlier connections have lost 1 %.
    #[test]
    fn only_permitted_copies_are_requested() {
        for (second_copy, tail_copies) in [(false, 0), (true, 0), (false, 2), (true, 2)] {
            let permitted = Repair { second_copy, tail_copies };
            let requested = |ppm: u64| RepairPolicy::new(Probability::from_ppm(ppm), permitted).repair();
            assert_eq!(requested(10_000), permitted);
            assert_eq!(requested(9_999), Repair { second_copy, tail_copies: 0 });
            assert_eq!(requested(0), Repair::NONE);
        }
        let mut policy =
            RepairPolicy::new(Probability::from_ppm(10_000), Repair { second_copy: true, tail_copies: 2 });
        policy.on_ack(&context(), MSS, Some(LossVerdict::Congestion));
        assert_eq!(policy.repair(), Repair::NONE);
    }

    /// Loss before a congestive loss does not count, but later random loss does.
    #[test]
    fn congestion_begins_a_new_measurement() {
        let mut policy = RepairPolicy::new(Probability::ZERO, Repair::DEFAULT);
        let cx = |segments: u64| Context { delivered: segments * MSS, ..context() };
        policy.on_ack(&cx(100), 50 * MSS, Some(LossVerdict::Random));
        policy.on_ack(&cx(200), MSS, Some(LossVerdict::Congestion));
        policy.on_ack(&cx(1_000), 2 * MSS, Some(LossVerdict::Random));
        assert!(!policy.repair().second_copy);
        policy.on_ack(&cx(1_100), 4 * MSS, Some(LossVerdict::Random));
        assert!(policy.repair().second_copy);
    }
}
