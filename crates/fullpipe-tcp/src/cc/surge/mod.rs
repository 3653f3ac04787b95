//! Surge: the cruise of BBRv1 after a faster start, without packet conservation for random loss, and with a bound after
//! congestive loss.
//!
//! BBRv1 doubles its rate every round trip, and detects a full pipe only three round trips after it has filled. By then
//! the queue has overflowed. Surge instead triples its window, as fast as a Linux client opens its receive window. It
//! measures the rate of the bottleneck from the dispersion of the ACKs within a flight.
//!
//! ```text
//!            ┌────────┐ flight   ┌───────┐ ACKs are dispersed ┌────────┐ bandwidth ┌────────┐
//!   start ──►│ Launch │─────────►│ Climb │───────────────────►│ Settle │──────────►│ Cruise │
//!            │ 44 seg │ ACKed    │  x 3  │                    │ rate of│ measured  │ BBRv1  │
//!            └────────┘          └───────┘                    │ ACKs   │           └────────┘
//!                │                   │                        └────────┘                ▲
//!                │ congestive loss   │                             ▲ ACKs are dispersed │
//!                ▼                   ▼                             │                    │
//!            ┌─────────────────────────────────────────────────────────┐  no growth     │
//!            │ Retreat: 5/4 of the rate that the ACKs show             │────────────────┘
//!            └─────────────────────────────────────────────────────────┘
//! ```
//!
//! In every state, the start ends if a timeout expires or the bandwidth does not grow. Cruise is BBRv1 ([`Bbr1`]),
//! which includes Startup if Climb ends without a measurement. [`bound`] limits its window after congestive losses.
//! [`share`] lowers the bandwidth estimate of BBRv1 if other flows use the bottleneck, and [`collapse`] replaces it when
//! the path has become much slower. In all states, BBRv1 keeps its path model up to date, and [`loss`] decides whether
//! packet conservation follows a loss. [`train`] measures the dispersion of ACKs.

use std::mem;

use fullpipe_units::{Duration, Rate};

use self::bound::{Bound, QueueSigns};
use self::collapse::Collapse;
use self::launch::FirstFlight;
use self::loss::{LossJudge, LossVerdict};
use self::repair::RepairPolicy;
use self::settle::Settle;
use self::share::{Model, Share};
use self::train::{Train, TrainRate};
use super::gain::rate_of;
use super::{
    AckSample, Assessment, Bbr1, CongestionControl, Context, Control, Hints, Lost, Sent, Signal, Status,
};

mod bound;
mod climb;
mod collapse;
mod launch;
mod loss;
mod repair;
mod retreat;
mod settle;
mod share;
mod train;

/// Divisor of the minimum RTT: a queueing delay above an eighth of the minimum RTT shows a queue. A probe of BBRv1 adds
/// a quarter of the RTT, and a queue that overflows holds at least an eighth of a BDP in practice.
const QUEUE_SHARE: u64 = 8;

/// Queueing delay that is considered measurement noise at any RTT.
const LEAST_QUEUE: Duration = Duration::from_millis(1);

/// Minimum of four times the RTT variation in the retransmission timeout, for a client that acknowledges promptly. It is
/// twice the largest ACK delay of such a client.
pub(super) const RTO_PROMPT: Duration = Duration::from_millis(100);

/// State of the start of a connection, or the cruise that follows it.
#[derive(Debug)]
enum State {
    Launch(FirstFlight),
    Climb,
    Settle(Settle),
    Retreat,
    Cruise,
}

/// Measurements of one ACK, for the states before Cruise.
#[derive(Debug)]
struct Observation<'a> {
    cx: &'a Context,
    sample: &'a AckSample,
    /// Congestion window in segments, and pacing rate, before this ACK.
    window: u64,
    rate: Rate,
    /// Rate and dispersion of the last ACKs, if there are enough of them.
    train: Option<TrainRate>,
    /// Rate that the path has shown: the rate of the fastest train so far or half of the rate that an earlier
    /// connection reached, whichever is higher.
    shown: Rate,
    /// Bound of the pacing rate that follows from a remembered bottleneck.
    bound: Rate,
    /// Estimated delay in the queue.
    queueing: Duration,
    /// Segments lost in this round trip.
    lost: u64,
    /// Whether this ACK reported a congestive loss or mark.
    congestion: bool,
}

/// State of surge for one connection.
#[derive(Debug)]
pub struct Surge {
    state: State,
    path: Bbr1,
    train: Train,
    losses: LossJudge,
    collapse: Collapse,
    share: Share,
    bound: Bound,
    repair: RepairPolicy,
    /// Whether the peer has echoed an ECN mark since the last ACK.
    marked: bool,
    /// Half of the rate that an earlier connection reached on this path, or zero. As with a resumed window (RFC 9959
    /// section 3.3), only half of an earlier measurement is used before ACKs confirm it.
    remembered: Rate,
    /// Rate of the bottleneck that an earlier connection measured; `Rate::MAX` if the rate is not known or has been
    /// disproved.
    known_bottleneck: Rate,
    /// Stream offset at which the first flight ends. Losses below this offset determine the judgement of the launch.
    first_flight: u64,
    /// Whether a part of the first flight has been lost since the last judgement.
    first_flight_lost: bool,
    /// Whether the first flight encountered congestion.
    launch_congested: bool,
    /// Rate of the train that ended Climb.
    bottleneck: Option<Rate>,
}

impl Surge {
    /// Returns a controller for a new connection.
    pub fn new(cx: &Context, hints: &Hints) -> Self {
        let path = Bbr1::new(cx, hints);
        Self {
            state: State::Launch(FirstFlight::new(cx, path.window())),
            path,
            train: Train::default(),
            losses: LossJudge::default(),
            collapse: Collapse::default(),
            share: Share::default(),
            bound: Bound::default(),
            repair: RepairPolicy::new(hints.loss, hints.copies),
            marked: false,
            remembered: hints.rate.map_or(Rate::ZERO, |rate| rate.mul_div(1, 2)),
            known_bottleneck: hints.bottleneck.unwrap_or(Rate::MAX),
            first_flight: cx.snd_nxt + hints.initial_cwnd.unwrap_or_default(),
            first_flight_lost: false,
            launch_congested: false,
            bottleneck: None,
        }
    }

    /// Controls the window and the rate during the start, after the path model has handled the ACK.
    fn start(&mut self, cx: &Context, sample: &AckSample, before: (u64, Rate), congestion: bool) {
        if !self.path.is_in_startup() {
            self.state = State::Cruise;
            return;
        }
        if cx.in_loss {
            self.fall_back();
            return;
        }
        let min_rtt = self.path.path_rtt();
        let train = self.train.on_ack(cx, sample, min_rtt);
        if self.train.fastest() > self.known_bottleneck {
            self.known_bottleneck = Rate::MAX;
        }
        let seen = Observation {
            cx,
            sample,
            window: before.0,
            rate: before.1,
            train,
            shown: self.train.fastest().max(self.remembered),
            bound: climb::bound(self.known_bottleneck),
            queueing: self.losses.queueing(min_rtt),
            lost: self.losses.lost_segments(cx.mss),
            congestion,
        };
        let next = match &mut self.state {
            State::Launch(flight) => flight.on_ack(&mut self.path, &seen),
            State::Climb => climb::on_ack(&mut self.path, &seen),
            State::Settle(settle) => settle.on_ack(&mut self.path, &seen),
            State::Retreat => retreat::on_ack(&mut self.path, &seen),
            State::Cruise => None,
        };
        if matches!(next, Some(State::Settle(_) | State::Cruise)) {
            // The train that ends Climb or Retreat shows the rate of the bottleneck.
            self.bottleneck = self.bottleneck.or(train.map(|train| train.rate));
        }
        match next {
            None => {}
            Some(State::Cruise) if self.path.is_in_startup() => self.fall_back(),
            Some(state) => self.state = state,
        }
    }

    /// Continues with BBRv1's Startup, at a rate that is at most the current one.
    fn fall_back(&mut self) {
        self.state = State::Cruise;
        let rate = self.path.startup_rate();
        if !rate.is_zero() && rate < self.path.rate() {
            self.path.set_control(self.path.window(), rate);
        }
    }
}

impl CongestionControl for Surge {
    fn on_send(&mut self, cx: &Context, sent: &Sent) {
        self.path.on_send(cx, sent);
        self.bound.on_send(cx, sent);
    }

    fn on_lost(&mut self, _: &Context, lost: &Lost) {
        self.losses.on_lost(lost);
        self.first_flight_lost |= lost.offset < self.first_flight;
    }

    fn on_signal(&mut self, cx: &Context, signal: Signal) {
        match signal {
            Signal::EcnEcho => self.marked = true,
            Signal::Timeout { .. } if !matches!(self.state, State::Cruise) => self.fall_back(),
            _ => {}
        }
        self.path.on_signal(cx, signal);
    }

    fn on_ack(&mut self, cx: &Context, sample: &AckSample) {
        let marked = mem::take(&mut self.marked);
        let verdict = self.losses.on_ack(cx, sample, self.path.path_rtt(), marked);
        let congestion = verdict == Some(LossVerdict::Congestion);
        self.repair.on_ack(cx, sample.newly_lost, verdict);
        if verdict.is_some() {
            let of_launch = self.first_flight_lost || matches!(self.state, State::Launch(_));
            self.launch_congested |= congestion && of_launch;
            self.first_flight_lost = false;
            if congestion {
                // RFC 9959 section 3.4: the remembered values are not valid.
                (self.remembered, self.known_bottleneck) = (Rate::ZERO, Rate::MAX);
            }
            self.path.set_conserves(congestion);
        }
        let cruises = matches!(self.state, State::Cruise);
        let queueing = self.losses.queueing(self.path.path_rtt());
        let queue = QueueSigns { delay: queueing, is_held: self.share.is_queue_held(), is_marked: marked };
        if let Some(bound) = self.bound.on_ack(cx, sample, &self.path, queue, cruises) {
            self.path.set_bound(bound);
        }
        if cruises {
            let model = Model::of(&self.path, sample.round_start);
            let mut rate = self.collapse.on_ack(cx, sample, model, &mut self.train);
            if !self.path.is_in_startup() {
                rate = rate.or(self.share.on_ack(cx, sample, model, queueing));
            }
            if let Some(rate) = rate {
                self.path.restart_bandwidth(cx, rate);
            }
            if self.collapse.is_outdated(sample) {
                self.path.on_ack(cx, &AckSample { interval: None, ..*sample });
            } else {
                self.path.on_ack(cx, sample);
            }
            return;
        }
        if waits_behind_a_hole(cx, sample) {
            self.path.forget_growth();
        }
        let before = (self.path.window(), self.path.rate());
        self.path.on_ack(cx, sample);
        self.start(cx, sample, before, congestion);
        if congestion {
            self.path.set_control(self.path.window().min(before.0), self.path.rate().min(before.1));
        }
    }

    fn control(&self) -> Control {
        Control { repair: self.repair.repair(), ..self.path.control() }
    }

    fn status(&self) -> Status {
        let status = self.path.status();
        let phase = match self.state {
            State::Launch(_) => "Launch",
            State::Climb => "Climb",
            State::Settle(_) => "Settle",
            State::Retreat => "Retreat",
            State::Cruise => status.phase,
        };
        Status { phase, ..status }
    }

    fn assessment(&self) -> Assessment {
        let measured = match self.state {
            State::Cruise => Some(self.path.path_rate()),
            _ => self.bottleneck,
        };
        Assessment {
            bottleneck: self.bottleneck.and(measured).filter(|rate| !rate.is_zero()),
            launch_congested: self.launch_congested,
        }
    }
}

/// Returns whether the data in flight fills the receive window behind a hole. The client opens its window only for data
/// in order, so the bandwidth does not grow, although the path is not full.
fn waits_behind_a_hole(cx: &Context, sample: &AckSample) -> bool {
    // The segments that this ACK releases have not been sent yet.
    let released = (climb::GROWTH + 1) * sample.acked_segments.max(1) + 1;
    cx.in_recovery && cx.flight_size + released * cx.mss > cx.rwnd
}

/// Returns the queueing delay above which surge assumes a queue, on a path with the given minimum RTT.
fn queue_threshold(min_rtt: Duration) -> Duration {
    (min_rtt / QUEUE_SHARE).max(LEAST_QUEUE)
}

/// Returns the rate that sends `segments` in `num / den` round trips.
fn spread(cx: &Context, segments: u64, num: u64, den: u64) -> Option<Rate> {
    let time = cx.srtt? * num / den;
    (!time.is_zero()).then(|| rate_of(segments.saturating_mul(cx.mss), time))
}

#[cfg(test)]
mod tests;
