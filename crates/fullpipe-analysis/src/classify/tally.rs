//! The time of one limit: how long it held, how sure that is, and what was delivered meanwhile. Rows of a sender and samples
//! of a capture are counted the same, and what can be said of both is said in the same words.

use fullpipe_units::{Duration, Rate};

use super::losses::Losses;
use super::window::median;
use super::{Confidence, Limit};

/// What held at some of the rows `R`.
pub(super) struct Tally<'a, R> {
    pub(super) limit: Limit,
    pub(super) rows: Vec<&'a R>,
    length: Duration,
    /// In bytes.
    delivered: f64,
    /// Time by confidence, the least sure first.
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

    /// That of `limit` among `tallies`, which gets one if it has none.
    pub(super) fn among(tallies: &mut Vec<Self>, limit: Limit) -> &mut Self {
        let known = tallies.iter().position(|tally| tally.limit == limit);
        let index = known.unwrap_or_else(|| {
            tallies.push(Self::of(limit));
            tallies.len() - 1
        });
        &mut tallies[index]
    }

    /// The longest first; and the seconds of all.
    pub(super) fn longest_first(tallies: &mut [Self]) -> f64 {
        tallies.sort_by_key(|tally| std::cmp::Reverse(tally.length));
        tallies.iter().map(|tally| tally.length.as_secs_f64()).sum()
    }

    /// It held for `length` more, in which so many bytes were `delivered`.
    pub(super) fn add(&mut self, length: Duration, confidence: Confidence, delivered: f64) {
        self.length += length;
        self.confidence[confidence as usize] += length;
        self.delivered += delivered;
    }

    /// Its part of `all` seconds.
    pub(super) fn share(&self, all: f64) -> f64 {
        if all > 0.0 { self.length.as_secs_f64() / all } else { 0.0 }
    }

    /// That of the most time.
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

    /// What was delivered while it held.
    pub(super) fn rate(&self) -> Rate {
        let seconds = self.length.as_secs_f64();
        Rate::from_bps(if seconds > 0.0 { (8.0 * self.delivered / seconds) as u64 } else { 0 })
    }

    /// What was delivered at a limit is what it allows; a window in growth allows nothing in particular.
    pub(super) fn ceiling(&self) -> Option<Rate> {
        (!matches!(self.limit, Limit::Cwnd | Limit::SlowStart)).then(|| self.rate())
    }

    pub(super) fn median(&self, value: impl Fn(&R) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.rows.iter().filter_map(|row| value(row)).collect();
        (!values.is_empty()).then(|| median(values))
    }

    /// The limit in a sentence. With a queue a shaper is meant, without one a policer. Either question is asked where it matters.
    pub(super) fn what(&self, lossy: impl FnOnce() -> bool, queued: impl FnOnce() -> bool) -> &'static str {
        match self.limit {
            Limit::App => "the sending application offers no more",
            Limit::ReceiverApp => "the receiving application reads no faster",
            Limit::Rwnd => "the receiver's window is full",
            Limit::Sndbuf => "the send buffer is full of data in flight",
            Limit::Cwnd if lossy() => "loss holds cwnd down",
            Limit::Cwnd => "the congestion window grows too slowly",
            Limit::SlowStart => "the start: the window still doubles",
            Limit::Pacing => "the socket may send no faster (SO_MAX_PACING_RATE)",
            Limit::Policer if queued() => "something delays this flow at a rate below the line's",
            Limit::Policer => "something lets this flow pass no faster, below the line's rate",
            Limit::Link => "the line is full",
        }
    }

    /// What would tell more, whatever it was seen by.
    pub(super) fn next_test(&self, line_is_known: bool) -> Option<&'static str> {
        match self.limit {
            Limit::Rwnd | Limit::ReceiverApp => Some("look at Recv-Q on the receiving host: ss -tn"),
            Limit::Policer | Limit::Link if !line_is_known => Some(
                "give the line's rate with --link, or send a second flow beside: what limits each alone adds up",
            ),
            Limit::Policer => Some("send a second flow beside: what limits each alone adds up"),
            Limit::Cwnd => {
                Some("repeat with BBR on the sender: a higher rate shows that loss held cwnd down")
            }
            _ => None,
        }
    }
}

/// To a tenth of a millisecond.
pub(super) fn rounded(seconds: f64) -> Duration {
    Duration::from_secs_f64((seconds * 1e4).round() / 1e4)
}

/// What the round trip says of a queue.
pub(super) fn round_trip(usual: Duration, least: Duration, queued: bool) -> String {
    let queue = if queued { "a queue stands" } else { "no queue stands" };
    format!("the round trip takes {usual} against {least} at least: {queue}")
}

/// What the window alone says of a receiver whose Recv-Q is `not_known` how.
pub(super) fn whose_window(limit: Limit, not_known: &str) -> String {
    let pattern = if limit == Limit::ReceiverApp {
        "it fell, as a slow reader's does"
    } else {
        "it hardly ever fell, as a buffer's does not"
    };
    format!(
        "whether the receiver's buffer is small or its application slow: its Recv-Q is {not_known}; the window alone says \
         that {pattern}"
    )
}

/// Too few losses to say why they come.
pub(super) fn few_losses(losses: &Losses) -> String {
    format!("what causes the losses: {} tell nothing of whether they come at random", losses.episodes)
}

/// The line's rate is missing.
pub(super) const WHICH_LINE: &str =
    "whether it is the line itself or something that limits this flow alone: the line's rate is not known";
