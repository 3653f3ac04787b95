//! Bound: limits the window of Cruise after congestive losses, as CUBIC limits its own.
//!
//! BBRv1 does not slow down for losses, so loss-based flows at the same bottleneck leave it their shares. Surge bounds its
//! window by a window of CUBIC ([`Cubic`]). The first congestive loss in Cruise reduces the data in flight to the first
//! bound, and later ones reduce the bound. In between, the bound grows along CUBIC's curve while it limits the data in
//! flight.
//!
//! ```text
//!   data in flight
//!     │   no bound          loss       loss
//!     │ ────────────────────┐          ┐  ╱     ╱         the bound, in use only where BBRv1's window is larger
//!     │                     │       ╭──│╱      ╱
//!     │                     │   ╭───╯  │     ╱
//!     │                     └───╯      └────╯
//!     └─────────────────────────────────────────────► time
//! ```
//!
//! A loss is congestive for the bound if all of these conditions hold, or if the queue has set an ECN mark:
//!
//! - A queue delays the packets, and by at least half of the longest delay of the last rounds. A full queue drops
//!   packets at its longest delay.
//! - More segments are lost in this round trip than random loss explains. Random loss is measured in round trips without
//!   a queue.
//!
//! How far the bound falls depends on whether other flows use the bottleneck. A flow that is alone fills the queue only in
//! its own probes, so its bound falls to 0.7 as with CUBIC, but no further than the BDP: below it, the link would idle. If
//! other flows hold a queue ([`Share::is_queue_held`](super::share::Share::is_queue_held)), the bound falls to 0.35, because
//! a CUBIC flow in the place of surge would also have taken its share more slowly.

use fullpipe_units::Duration;

use super::queue_threshold;
use crate::cc::cubic::{BETA, Cubic};
use crate::cc::windowed::WindowedMax;
use crate::cc::{AckSample, Bbr1, Context, Sent};

/// Part of the bound that a congestive loss leaves if other flows hold a queue, in units of 1/1024: 0.35. Experiment:
/// decision 0105.
const KEEP_BESIDE_OTHERS: u64 = 360;

/// Number of round trips over which the longest queueing delay is kept: two gain cycles of BBRv1.
const LATELY: u64 = 16;

/// Divisor of the longest queueing delay: losses at less than half of it are random.
const DEEP: u64 = 2;

/// Number of standard deviations by which losses must exceed the random ones.
const DEVIATIONS: u64 = 3;

/// Number of segments after which older measurements of random loss count half.
const REMEMBERED: u64 = 16_384;

/// Divisor of the minimum RTT: if it falls by more than a sixteenth, a queue has been part of it.
const MIN_RTT_SHARE: u64 = 16;

/// Number of segments sent, and how many of them were lost.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    segments: u64,
    lost: u64,
}

impl Tally {
    fn add(&mut self, more: Self) {
        self.segments += more.segments;
        self.lost += more.lost;
    }

    /// Returns whether more segments are lost than the random loss that `quiet` has measured explains, with a margin of
    /// [`DEVIATIONS`] standard deviations and a segment. A standard deviation is subtracted from the losses in `quiet`,
    /// because a few of them do not show random loss. Without random loss, every loss is congestive.
    fn exceeds(self, quiet: Self) -> bool {
        let random = quiet.lost - quiet.lost.isqrt();
        if random == 0 {
            return self.lost > 0;
        }
        // Amounts are multiplied by the number of segments in `quiet`.
        let of = u128::from(quiet.segments);
        let lost = u128::from(self.lost.saturating_sub(1)) * of;
        let expected = u128::from(random) * u128::from(self.segments);
        let variance = expected * of;
        lost > expected && (lost - expected).pow(2) > variance * u128::from(DEVIATIONS).pow(2)
    }
}

/// Bound of the window of one connection.
#[derive(Debug)]
pub(super) struct Bound {
    /// The bound; `None` before the first congestive loss in Cruise.
    window: Option<Cubic>,
    /// Stream offset at which the reduction in progress ends. Losses before it do not reduce the bound again.
    reduced_until: u64,
    /// Longest queueing delay of the last [`LATELY`] round trips.
    lately: WindowedMax<Duration>,
    /// Number of round trips.
    round: u64,
    /// Longest queueing delay in this round trip.
    queueing: Duration,
    /// Segments of this round trip, and of round trips without a queue.
    now: Tally,
    quiet: Tally,
    /// Minimum RTT with which `quiet` was measured.
    min_rtt: Duration,
}

/// Signs of a queue at one ACK.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueSigns {
    /// Delay of the latest packet in queues.
    pub(super) delay: Duration,
    /// Whether other flows hold a queue.
    pub(super) is_held: bool,
    /// Whether the peer has echoed an ECN mark since the last ACK.
    pub(super) is_marked: bool,
}

impl Default for Bound {
    fn default() -> Self {
        Self {
            window: None,
            reduced_until: 0,
            lately: WindowedMax::new(LATELY),
            round: 0,
            queueing: Duration::ZERO,
            now: Tally::default(),
            quiet: Tally::default(),
            min_rtt: Duration::ZERO,
        }
    }
}

impl Bound {
    pub(super) fn on_send(&mut self, cx: &Context, sent: &Sent) {
        if let Some(window) = self.window.as_mut().filter(|_| sent.first_after_idle) {
            window.skip(sent.idle, cx.now);
        }
    }

    /// Handles an ACK in any state; only Cruise (`cruises`) has a bound. Returns the bound in segments.
    pub(super) fn on_ack(
        &mut self,
        cx: &Context,
        sample: &AckSample,
        path: &Bbr1,
        queue: QueueSigns,
        cruises: bool,
    ) -> Option<u64> {
        let congestion = self.is_congested(cx, sample, path.path_rtt()?, queue);
        if !cruises || cx.snd_una < self.reduced_until {
            return self.window.as_ref().map(Cubic::cwnd);
        }
        if congestion {
            let flight = cx.segments(sample.prior_inflight.max(cx.max_inflight));
            let window = self.window.get_or_insert_with(|| Cubic::with_window(cx, flight));
            let (keep, least) = if queue.is_held { (KEEP_BESIDE_OTHERS, 0) } else { (BETA, path.path_bdp()) };
            window.reduce(keep, least);
            self.reduced_until = cx.snd_nxt;
        } else if let Some(window) = &mut self.window
            && cx.segments(cx.max_inflight) + 2 >= window.cwnd()
        {
            window.grow(cx, sample);
        }
        self.window.as_ref().map(Cubic::cwnd)
    }

    /// Measures an ACK, and returns whether it shows a congestive loss or mark.
    fn is_congested(
        &mut self,
        cx: &Context,
        sample: &AckSample,
        min_rtt: Duration,
        queue: QueueSigns,
    ) -> bool {
        if min_rtt + self.min_rtt / MIN_RTT_SHARE < self.min_rtt {
            // Queues were part of the earlier minimum, so no round trip is known to have been without one.
            (self.quiet, self.now) = (Tally::default(), Tally::default());
            self.min_rtt = min_rtt;
        }
        self.min_rtt = self.min_rtt.max(min_rtt);
        let threshold = queue_threshold(min_rtt);
        if sample.round_start {
            self.round += 1;
            if self.queueing <= threshold {
                self.quiet.add(self.now);
            }
            if self.quiet.segments > REMEMBERED {
                self.quiet = Tally { segments: self.quiet.segments / 2, lost: self.quiet.lost / 2 };
            }
            (self.queueing, self.now) = (Duration::ZERO, Tally::default());
        }
        self.queueing = self.queueing.max(queue.delay);
        self.lately.update(self.round, queue.delay);
        let lost = if sample.newly_lost > 0 { sample.newly_lost.div_ceil(cx.mss) } else { 0 };
        self.now.add(Tally { segments: sample.acked_segments + lost, lost });
        let deep = queue.delay > threshold && queue.delay >= self.lately.get() / DEEP;
        queue.is_marked || (lost > 0 && deep && self.now.exceeds(self.quiet))
    }
}
