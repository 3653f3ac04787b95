//! Time, confidence and delivered data of one limit. This code, including the report texts, serves both the
//! rows of a sender and the samples of a capture.

use fullpipe_lab::stats::upper_median;
use fullpipe_units::{Duration, Rate};

use super::losses::Losses;
use super::{Confidence, Limit};

/// Rows or samples `R` during which one limit applied.
pub(super) struct Tally<'a, R> {
    pub(super) limit: Limit,
    pub(super) rows: Vec<&'a R>,
    length: Duration,
    /// Bytes delivered while the limit applied.
    delivered: f64,
    /// Time at each confidence, lowest first.
    confidence: [Duration; 3],
}

impl<'a, R> Tally<'a, R> {
    fn of(limit: Limit) -> Self {
        Self {
            limit,
            rows: Vec::new(),
            length: Duration::ZERO,
            delivered: 0.0,
            confidence: Default::default(),
        }
    }

    /// Returns the tally of `limit` among `tallies`, adding one if necessary.
    pub(super) fn among(tallies: &mut Vec<Self>, limit: Limit) -> &mut Self {
        let known = tallies.iter().position(|tally| tally.limit == limit);
        let index = known.unwrap_or_else(|| {
            tallies.push(Self::of(limit));
            tallies.len() - 1
        });
        &mut tallies[index]
    }

    /// Sorts the tallies, longest first, and returns their total time in seconds.
    pub(super) fn longest_first(tallies: &mut [Self]) -> f64 {
        tallies.sort_by_key(|tally| std::cmp::Reverse(tally.length));
        tallies.iter().map(|tally| tally.length.as_secs_f64()).sum()
    }

    /// Adds a span of `length` in which `delivered` bytes were delivered.
    pub(super) fn add(&mut self, length: Duration, confidence: Confidence, delivered: f64) {
        self.length += length;
        self.confidence[confidence as usize] += length;
        self.delivered += delivered;
    }

    /// Returns the limit's share of a total of `all` seconds.
    pub(super) fn share(&self, all: f64) -> f64 {
        if all > 0.0 { self.length.as_secs_f64() / all } else { 0.0 }
    }

    /// Returns the confidence that applied for most of the time of this limit.
    pub(super) fn confidence(&self) -> Confidence {
        let [low, high, certain] = self.confidence;
        if certain >= low.max(high) {
            Confidence::Certain
        } else if high >= low {
            Confidence::High
        } else {
            Confidence::Low
        }
    }

    /// Returns the mean rate delivered while the limit applied.
    pub(super) fn rate(&self) -> Rate {
        let seconds = self.length.as_secs_f64();
        Rate::from_bps(if seconds > 0.0 { (8.0 * self.delivered / seconds) as u64 } else { 0 })
    }

    /// Returns the rate that the limit allows: the rate delivered while the limit applied; `None`
    /// for the congestion window, which has no fixed ceiling.
    pub(super) fn ceiling(&self) -> Option<Rate> {
        (!matches!(self.limit, Limit::Cwnd | Limit::SlowStart)).then(|| self.rate())
    }

    pub(super) fn median(&self, value: impl Fn(&R) -> Option<f64>) -> Option<f64> {
        upper_median(self.rows.iter().filter_map(|row| value(row)).collect(), f64::total_cmp)
    }

    /// Returns a clause that describes the limit. A rate cap with a queue delays packets, whereas a policer
    /// drops them. `lossy` and `queued` are evaluated only for limits that depend on them.
    pub(super) fn what(&self, lossy: impl FnOnce() -> bool, queued: impl FnOnce() -> bool) -> &'static str {
        match self.limit {
            Limit::App => "the sending application offers no more data",
            Limit::ReceiverApp => "the receiving application reads too slowly",
            Limit::Rwnd => "the receiver's window is full",
            Limit::Sndbuf => "the send buffer is full of data in flight",
            Limit::Cwnd if lossy() => "loss holds cwnd down",
            Limit::Cwnd => "the congestion window grows too slowly",
            Limit::SlowStart => "slow start: the window still doubles each round trip",
            Limit::Pacing => "the socket's pacing rate is capped (SO_MAX_PACING_RATE)",
            Limit::Cap if queued() => {
                "something on the path queues this flow and forwards it below the link rate"
            }
            Limit::Cap => "something on the path caps this flow at a rate below that of the link",
            Limit::Policer => "a policer drops the packets that exceed its rate",
            Limit::Cpu => "the processor is busy all the time",
            Limit::Link => "the link is full",
            Limit::Unknown => "the limit is not observable here",
        }
    }

    /// Returns the test that would settle the open question. It is the same for rows and for captures.
    pub(super) fn next_test(&self, line_is_known: bool) -> Option<&'static str> {
        match self.limit {
            Limit::Rwnd | Limit::ReceiverApp => Some("check Recv-Q on the receiving host: ss -tn"),
            Limit::Cap | Limit::Policer | Limit::Link if !line_is_known => Some(
                "give the rate of the link with --link, or run a second flow: if the limit applies to each \
                 flow, the rates add up",
            ),
            Limit::Cap | Limit::Policer => Some(
                "run a second flow: if the limit applies to each flow, the \
                                                 rates add up",
            ),
            Limit::Cwnd => {
                Some("repeat with BBR on the sender: a higher rate shows that loss held cwnd down")
            }
            _ => None,
        }
    }
}

/// Rounds seconds to a tenth of a millisecond.
pub(super) fn rounded(seconds: f64) -> Duration {
    Duration::from_secs_f64((seconds * 1e4).round() / 1e4)
}

/// Returns a sentence that compares the median RTT with the minimum, and concludes whether there is a
/// standing queue.
pub(super) fn round_trip(usual: Duration, least: Duration, queued: bool) -> String {
    let queue = if queued { "there is a standing queue" } else { "there is no standing queue" };
    format!("the median RTT is {usual} and the minimum {least}: {queue}")
}

/// Returns the open question about a receiver without Recv-Q, and the answer that the window alone suggests.
/// `not_known` is the reason why Recv-Q is missing.
pub(super) fn whose_window(limit: Limit, not_known: &str) -> String {
    let pattern = if limit == Limit::ReceiverApp {
        "fell, as it does with a slow application"
    } else {
        "hardly ever fell, as with a small buffer"
    };
    format!(
        "whether the receive buffer is too small or the receiving application too slow, because Recv-Q is \
         {not_known}; the receive window {pattern}"
    )
}

/// Returns the open question about losses that are too few to reveal their cause.
pub(super) fn few_losses(losses: &Losses) -> String {
    format!(
        "what causes the losses, because {} losses are too few to show whether they are random",
        losses.episodes
    )
}

/// Open question about a rate cap.
pub(super) const WHAT_ENFORCES_IT: &str =
    "what enforces the cap, because a policer, a shaper and a slower hop look alike here";

/// Open question if slow start ended with many losses at once.
pub(super) const WHICH_RATE: &str = "whether a policer, a shaper or a short queue causes the losses: so many segments were lost at once when slow \
     start ended that the flow must have exceeded a fixed rate";

/// Open question if the link rate is unknown.
pub(super) const WHICH_LINE: &str =
    "whether the link or a limit on this flow alone is the cause, because the rate of the link is not known";
