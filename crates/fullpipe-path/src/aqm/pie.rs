//! PIE (RFC 8033): controls the queue delay with the drop probability.
//!
//! ```text
//!   every 15 ms: p += alpha (delay - target) + beta (delay - last delay), the step scaled down while p is small
//!   arrival:     dropped with probability p, except in an allowed burst or with a nearly empty queue
//! ```
//!
//! The delay is the sojourn time of the most recently dequeued packet, as in Linux. RFC 8033 section 4.3
//! allows this measurement instead of an estimate from the departure rate.

use fullpipe_units::{Duration, Instant, Probability};

use super::Decision;
use crate::chance::Streams;
use crate::packet::PacketInfo;

/// The parameters of PIE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieConfig {
    /// Target queue delay (`QDELAY_REF`; RFC 8033 section 4.2: 15 ms).
    pub target: Duration,
    /// Interval between updates of the drop probability (`T_UPDATE` in RFC 8033: 15 ms).
    pub update: Duration,
    /// Duration of a burst that passes without drops after an idle period (`MAX_BURST` in RFC 8033: 150 ms).
    pub burst: Duration,
    /// Whether PIE marks ECN-capable packets instead of dropping them while the drop probability is below 10
    /// % (RFC 8033 section 5.1).
    pub ecn: bool,
}

impl PieConfig {
    /// The default PIE parameters of RFC 8033.
    pub const RFC8033: Self = Self {
        target: Duration::from_millis(15),
        update: Duration::from_millis(15),
        burst: Duration::from_millis(150),
        ecn: false,
    };
}

/// Fixed-point representation of a probability of 1.
const ONE: i64 = 1 << 52;
const NANOS_PER_SECOND: i128 = 1_000_000_000;
/// Gains of the PIE controller in eighths per second of delay: `alpha` = 1/8 and `beta` = 5/4 (RFC 8033
/// section 4.2).
const ALPHA: i128 = 1;
const BETA: i128 = 10;
/// Auto-tuning table: upper bounds of the drop probability, and the divisor of the update step below each
/// bound (RFC 8033 section 4.2).
const SCALES: [(i64, i64); 6] = [
    (ONE / 1_000_000, 2_048),
    (ONE / 100_000, 512),
    (ONE / 10_000, 128),
    (ONE / 1_000, 32),
    (ONE / 100, 8),
    (ONE / 10, 2),
];
/// Drop probability at and above which each update adds at most 0.02 (RFC 8033 section 5.5).
const LARGE: i64 = ONE / 10;
const MOST_GROWTH: i64 = ONE / 50;
/// Drop probability at and above which packets are dropped instead of marked (`mark_ecnth`, RFC 8033 section
/// 5.1).
const MARKS_BELOW: i64 = ONE / 10;
/// Drop probability below which no packet is dropped while the delay is below half of the target (RFC 8033
/// section 4.1).
const HARMLESS: i64 = ONE / 5;
/// Queue size in bytes up to which no packet is dropped (`2 * MEAN_PKTSIZE`, RFC 8033 section 4.1): two
/// full-size packets, as in Linux.
const ALWAYS_ADMITTED: u64 = 2 * 1_500;
/// Bounds on the drop probability accumulated since the last drop (RFC 8033 section 5.4). Below `NOT_YET`
/// every packet passes, and from `AT_LAST` on every packet is dropped. Between the two bounds, a random draw
/// decides.
const NOT_YET: i64 = ONE / 20 * 17;
const AT_LAST: i64 = ONE / 2 * 17;

/// PIE controller state; field names are those of RFC 8033.
#[derive(Clone, Debug)]
pub(super) struct Pie {
    config: PieConfig,
    drop_prob: i64,
    accu_prob: i64,
    current_qdelay: Duration,
    qdelay_old: Duration,
    burst_allowance: Duration,
    next_update: Instant,
    chance: Streams<()>,
}

impl Pie {
    pub(super) fn new(config: PieConfig, seed: u64, element: u64) -> Self {
        Self {
            config,
            drop_prob: 0,
            accu_prob: 0,
            current_qdelay: Duration::ZERO,
            qdelay_old: Duration::ZERO,
            burst_allowance: config.burst,
            next_update: Instant::ZERO + config.update,
            chance: Streams::new(seed, element),
        }
    }

    /// Runs all updates of the drop probability that are due by `now`. All of these updates read the same
    /// queue delay, because no packet was dequeued since the last update.
    pub(super) fn run_until(&mut self, now: Instant) {
        while self.next_update <= now {
            if self.is_at_rest() {
                // With no queue delay, a drop probability of zero and a full burst allowance, updates have no
                // effect and are skipped.
                let step = self.config.update.as_nanos().max(1);
                let due = now.saturating_since(self.next_update).as_nanos() / step + 1;
                self.next_update += Duration::from_nanos(due * step);
                return;
            }
            self.update();
            self.next_update += self.config.update;
        }
    }

    fn is_at_rest(&self) -> bool {
        self.drop_prob == 0
            && self.current_qdelay.is_zero()
            && self.qdelay_old.is_zero()
            && self.burst_allowance == self.config.burst
    }

    fn update(&mut self) {
        let (now, before, target) =
            (nanos(self.current_qdelay), nanos(self.qdelay_old), nanos(self.config.target));
        let seconds = ALPHA * (now - target) + BETA * (now - before);
        // `seconds` is eight times the weighted delay, in nanoseconds; even for a delay of hours, the
        // quotient fits into 64 bits.
        let step = seconds * i128::from(ONE) / (8 * NANOS_PER_SECOND);
        let step = step.clamp(-i128::from(ONE), i128::from(ONE)) as i64;
        let scale = SCALES.iter().find(|(below, _)| self.drop_prob < *below).map_or(1, |&(_, scale)| scale);
        let mut step = step / scale;
        if self.drop_prob >= LARGE {
            step = step.min(MOST_GROWTH);
        }
        self.drop_prob += step;
        if now == 0 && before == 0 {
            // The congestion has ended, so the drop probability decays by 2 % (RFC 8033 section 4.2).
            self.drop_prob -= self.drop_prob.div_euclid(50).max(1);
        }
        self.drop_prob = self.drop_prob.clamp(0, ONE);
        let half = self.config.target / 2;
        let quiet = self.drop_prob == 0 && self.current_qdelay < half && self.qdelay_old < half;
        self.qdelay_old = self.current_qdelay;
        self.burst_allowance = match quiet {
            true => self.config.burst,
            false => self.burst_allowance.saturating_sub(self.config.update),
        };
    }

    /// Records the sojourn time of a dequeued packet, and whether it was the last packet in the queue
    /// (`emptied`).
    pub(super) fn on_dequeue(&mut self, sojourn: Duration, emptied: bool) {
        self.current_qdelay = if emptied { Duration::ZERO } else { sojourn };
    }

    pub(super) fn decide(&mut self, packet: PacketInfo, queue: u64) -> Decision {
        let (draw, ()) = self.chance.next(packet);
        if !self.burst_allowance.is_zero() || !self.drop_early(draw, queue) {
            return Decision::Pass;
        }
        let mark = self.config.ecn && packet.ecn.is_capable() && self.drop_prob < MARKS_BELOW;
        if mark { Decision::Mark } else { Decision::Drop }
    }

    fn drop_early(&mut self, draw: u64, queue: u64) -> bool {
        let harmless = self.qdelay_old < self.config.target / 2 && self.drop_prob < HARMLESS;
        if harmless || queue <= ALWAYS_ADMITTED {
            return false;
        }
        self.accu_prob = if self.drop_prob == 0 { 0 } else { self.accu_prob.saturating_add(self.drop_prob) };
        if self.accu_prob < NOT_YET {
            return false;
        }
        let chosen = Probability::from_ratio(self.drop_prob as u64, ONE as u64).hits(draw);
        let dropped = self.accu_prob >= AT_LAST || chosen;
        if dropped {
            self.accu_prob = 0;
        }
        dropped
    }
}

fn nanos(time: Duration) -> i128 {
    i128::from(time.as_nanos())
}

#[cfg(test)]
mod tests;
