//! Statistics of the rows in a short span of time.

use std::cell::OnceCell;
use std::ops::Range;

use fullpipe_lab::stats::{self, upper_median};
use fullpipe_lab::trace::Row;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Rate};

use super::losses::Losses;
use super::spans::{around, round_trip};
use super::{Past, SocketFacts};
use crate::segment::HEADERS;
use crate::thresholds::queue;

/// Pacing rate in windows per round trip below which a sender is rate-based. The kernel also computes a
/// pacing rate for loss-based senders: 1.2 windows per round trip, and 2 in slow start. BBR paces at half a
/// window per round trip, and at a whole one in Startup.
const PACED_BY_WINDOW: f64 = 1.1;
/// A condition holds for most rows if it holds for at least this share of them.
const MOSTLY: f64 = 0.5;

/// One flow with the properties that apply to it as a whole.
pub(super) struct Flow<'a> {
    pub(super) rows: &'a [Row],
    pub(super) host: &'a SocketFacts,
    /// Whether the sender paces at a rate that it measures, as BBR does: its window is then only an upper
    /// bound, and its slow-start threshold has no meaning.
    pub(super) by_rate: bool,
    past: &'a Past,
    /// Losses, computed when a rule first needs them; a flow that its application limits never needs them.
    losses: OnceCell<Losses>,
    /// Median RTT as a multiple of the smallest RTT, computed when a rule first needs it.
    typical_stretch: OnceCell<Option<f64>>,
    /// History of the receive window at each row.
    offered: OnceCell<Vec<WindowHistory>>,
    /// Row at which a rate-based sender left Startup.
    startup_until: OnceCell<usize>,
}

/// History of the receive window up to a row.
#[derive(Clone, Copy)]
struct WindowHistory {
    /// Largest receive window so far, in bytes.
    largest: f64,
    /// Sum over the rows so far: the share, 0 to 1, by which the window of each row is smaller than the
    /// largest window up to that row.
    not_offered: f64,
}

impl<'a> Flow<'a> {
    /// Creates the flow of `rows`, which follow `past`.
    pub(super) fn after(past: &'a Past, rows: &'a [Row], host: &'a SocketFacts) -> Self {
        let named = host.cc.or_else(|| rows.iter().find_map(|row| row.sender.cc));
        let by_rate = named.map_or_else(|| is_rate_based(rows), Algorithm::is_rate_based);
        Self {
            rows,
            host,
            by_rate,
            past,
            losses: OnceCell::new(),
            typical_stretch: OnceCell::new(),
            offered: OnceCell::new(),
            startup_until: OnceCell::new(),
        }
    }

    /// Returns whether the sender is rate-based and was in Startup at row `at`.
    pub(super) fn in_startup(&self, at: usize) -> bool {
        let is = self.by_rate && !self.past.started;
        is && at < *self.startup_until.get_or_init(|| startup(self.rows))
    }

    /// Returns the losses, including those before the kept rows.
    pub(super) fn losses(&self) -> &Losses {
        self.losses.get_or_init(|| Losses::after(&self.past.rows, self.rows))
    }

    /// Returns the median RTT of the flow as a multiple of its smallest RTT. A standing queue raises it; a
    /// burst or a probe does not.
    pub(super) fn typical_stretch(&self) -> Option<f64> {
        *self.typical_stretch.get_or_init(|| Window { rows: self.rows }.median(stretch))
    }

    /// Returns the largest receive window up to row `at`, in bytes.
    pub(super) fn largest_window(&self, at: usize) -> f64 {
        self.offered()[at].largest
    }

    /// Returns the share of the largest window so far, 0 to 1, that the rows in `range` do not advertise on
    /// average.
    pub(super) fn not_offered(&self, range: Range<usize>) -> f64 {
        let up_to = |end: usize| end.checked_sub(1).map_or(0.0, |last| self.offered()[last].not_offered);
        let count = range.len().max(1) as f64;
        (up_to(range.end) - up_to(range.start)) / count
    }

    fn offered(&self) -> &[WindowHistory] {
        let before = WindowHistory { largest: self.past.largest_window.get() as f64, not_offered: 0.0 };
        let next = |so_far: &mut WindowHistory, row: &Row| {
            let window = row.sender.rwnd.get() as f64;
            so_far.largest = so_far.largest.max(window);
            if so_far.largest > 0.0 {
                so_far.not_offered += 1.0 - window / so_far.largest;
            }
            Some(*so_far)
        };
        self.offered.get_or_init(|| self.rows.iter().scan(before, next).collect())
    }

    /// Returns the data delivered per minimum RTT at the rate of `window`, as a share of the largest receive
    /// window up to row `at`; `None` without an RTT.
    pub(super) fn carried(&self, at: usize, window: &Window<'_>) -> Option<f64> {
        let min_rtt = self.rows[at].sender.min_rtt?.as_secs_f64();
        Some(window.rate() * min_rtt / (8.0 * self.largest_window(at).max(1.0)))
    }

    /// Returns whether the largest receive window grows by a quarter within the next two round trips. A
    /// window that a slow reader reopens does not grow, nor does one whose buffer is at its limit.
    pub(super) fn window_still_grows(&self, at: usize) -> bool {
        /// A window is still growing if two round trips later the largest window is at least this multiple of
        /// the largest so far.
        const LARGER: f64 = 1.25;
        let later = around(self.rows, at, 2, 1).end - 1;
        self.largest_window(later) >= LARGER * self.largest_window(at)
    }

    /// Returns the rows within `round_trips` of row `at`, and at least `least` rows on either side.
    pub(super) fn window(&self, at: usize, round_trips: u64, least: usize) -> Window<'a> {
        Window { rows: &self.rows[around(self.rows, at, round_trips, least)] }
    }

    /// Returns the number of full segments per minimum RTT at `rate` bit/s.
    pub(super) fn segments_a_round_trip(&self, at: usize, rate: f64) -> f64 {
        let sender = &self.rows[at].sender;
        let rtt = sender.min_rtt.unwrap_or_default().as_secs_f64();
        rate * rtt / (8.0 * sender.mss.get().max(1) as f64)
    }

    /// Returns the payload rate of the link in bit/s, if the link rate is known.
    pub(super) fn line_payload(&self, mss: Bytes) -> Option<f64> {
        self.host.link.map(|line| payload(line, mss))
    }
}

/// Returns the payload rate of `line` with segments of `mss`, in bit/s.
pub(super) fn payload(line: Rate, mss: Bytes) -> f64 {
    let mss = mss.get().max(1) as f64;
    line.as_bps() as f64 * mss / (mss + HEADERS as f64)
}

/// Returns whether a sender with an unnamed congestion control is rate-based.
fn is_rate_based(rows: &[Row]) -> bool {
    let per_round_trip = |row: &Row| {
        let sender = &row.sender;
        let pacing =
            sender.pacing_rate.filter(|rate| sender.max_pacing_rate.is_none_or(|most| *rate < most))?;
        let (srtt, min_rtt) = (sender.srtt?, sender.min_rtt?);
        // The kernel derives a window-based sender's pacing rate from the smoothed RTT, which
        // includes a standing queue. BBR derives its window from the minimum RTT.
        let rtt = if sender.ssthresh.is_some() { srtt } else { min_rtt };
        let window = sender.cwnd.get().max(1) as f64;
        Some(pacing.as_bps() as f64 / 8.0 * rtt.as_secs_f64() / window)
    };
    let ratios: Vec<f64> = rows.iter().filter_map(per_round_trip).collect();
    upper_median(ratios, f64::total_cmp).is_some_and(|ratio| ratio < PACED_BY_WINDOW)
}

/// Returns the number of rows until BBR leaves Startup, during which it paces at 2.89 times the delivered
/// rate. BBR leaves Startup once, when the rate stops growing. Later losses can raise the ratio of the two
/// rates again, so only the first rows count.
fn startup(rows: &[Row]) -> usize {
    /// BBR is in Startup while its pacing rate is at least this multiple of the delivered rate.
    /// Source: its gains are 2.89 in Startup and at most 1.25 later; the value between them is chosen.
    const GAIN: f64 = 2.0;
    const GAIN_PERCENT: u32 = 200;
    let starting = |row: &&Row| {
        let sender = &row.sender;
        // If the kernel reports the pacing gain, no inference is necessary.
        if let Some(bbr) = sender.bbr {
            return bbr.pacing_gain_percent >= GAIN_PERCENT;
        }
        match (sender.pacing_rate, sender.delivery_rate) {
            (Some(pacing), Some(delivered)) => pacing.as_bps() as f64 >= GAIN * delivered.as_bps() as f64,
            _ => true,
        }
    };
    rows.iter().take_while(starting).count()
}

/// Statistics of the rates of several round trips, in bit/s.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) median: f64,
    /// Interquartile range.
    pub(super) middle_half: f64,
}

impl Rates {
    /// Returns the interquartile range divided by the median.
    pub(super) fn spread(self) -> f64 {
        if self.median > 0.0 { self.middle_half / self.median } else { f64::INFINITY }
    }
}

/// Consecutive rows.
#[derive(Clone, Copy)]
pub(super) struct Window<'a> {
    pub(super) rows: &'a [Row],
}

impl Window<'_> {
    /// Returns the share of rows for which `holds` is true.
    pub(super) fn share(&self, holds: impl Fn(&Row) -> bool) -> f64 {
        let count = self.rows.iter().filter(|row| holds(row)).count();
        count as f64 / self.rows.len().max(1) as f64
    }

    /// Returns whether `holds` is true for most rows.
    pub(super) fn mostly(&self, holds: impl Fn(&Row) -> bool) -> bool {
        self.share(holds) >= MOSTLY
    }

    /// Returns the median of `value` over the rows that have one. It is a value that one of the rows has.
    pub(super) fn median(&self, value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        upper_median(self.rows.iter().filter_map(value).collect(), f64::total_cmp)
    }

    /// Returns whether there is a standing queue in these rows.
    pub(super) fn has_standing_queue(&self) -> bool {
        self.median(stretch).is_some_and(|stretch| stretch >= queue::STANDS)
    }

    pub(super) fn mean(&self, value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        stats::mean(self.rows.iter().filter_map(value))
    }

    pub(super) fn least(&self, value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        self.rows.iter().filter_map(value).min_by(f64::total_cmp)
    }

    pub(super) fn most(&self, value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        self.rows.iter().filter_map(value).max_by(f64::total_cmp)
    }

    /// Returns the rate delivered between the first and the last row in bit/s, or zero for a single row.
    pub(super) fn rate(&self) -> f64 {
        let (Some(first), Some(last)) = (self.rows.first(), self.rows.last()) else { return 0.0 };
        let time = last.at.saturating_since(first.at).as_secs_f64();
        let bytes = last.sender.delivered.saturating_sub(first.sender.delivered).get() as f64;
        if time > 0.0 { 8.0 * bytes / time } else { 0.0 }
    }

    /// Returns the rates of single round trips, or `None` for fewer than four. A rate between two rows is not
    /// meaningful, because a window leaves in bursts. A round trip in which `pauses` is true is ignored, and
    /// so is the round trip after it, in which the path fills again.
    pub(super) fn rates(&self, pauses: impl Fn(&Row) -> bool) -> Option<Rates> {
        let mut rates: Vec<f64> = Vec::new();
        let (mut begin, mut paused) = (0, false);
        for (i, row) in self.rows.iter().enumerate() {
            let reach = round_trip(&self.rows[begin]);
            if i > begin && row.at.saturating_since(self.rows[begin].at) >= reach {
                let trip = &self.rows[begin..=i];
                let pause = trip.iter().any(&pauses);
                if !pause && !paused {
                    rates.push(Window { rows: trip }.rate());
                }
                (begin, paused) = (i, pause);
            }
        }
        rates.sort_by(f64::total_cmp);
        let at = |share| stats::nearest(&rates, share);
        if rates.len() < 4 {
            return None;
        }
        Some(Rates { median: at(0.5)?, middle_half: at(0.75)? - at(0.25)? })
    }

    /// Returns the share of retransmissions among the segments sent between the first and the last row, from
    /// 0 to 1.
    pub(super) fn repeated(&self) -> f64 {
        let (Some(first), Some(last)) = (self.rows.first(), self.rows.last()) else { return 0.0 };
        let (first, last) = (&first.sender, &last.sender);
        let again = last.retransmits.saturating_sub(first.retransmits) as f64;
        let mss = last.mss.get().max(1) as f64;
        let delivered = last.delivered.saturating_sub(first.delivered).get() as f64 / mss;
        if again > 0.0 { again / (again + delivered) } else { 0.0 }
    }
}

/// Returns the ratio of the smoothed RTT to the minimum RTT.
pub(super) fn stretch(row: &Row) -> Option<f64> {
    let (srtt, min_rtt) = (row.sender.srtt?, row.sender.min_rtt.filter(|min| !min.is_zero())?);
    Some(srtt.as_secs_f64() / min_rtt.as_secs_f64())
}

/// Returns the ratio of two amounts, or `None` if `whole` is zero.
pub(super) fn over(part: Bytes, whole: Bytes) -> Option<f64> {
    (!whole.is_zero()).then(|| part.get() as f64 / whole.get() as f64)
}

pub(super) fn bps(rate: Option<Rate>) -> Option<f64> {
    rate.map(|rate| rate.as_bps() as f64)
}

/// Returns the standard deviation divided by the mean, or infinity if the mean is zero.
pub(super) fn spread(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    if mean > 0.0 { variance.sqrt() / mean } else { f64::INFINITY }
}
