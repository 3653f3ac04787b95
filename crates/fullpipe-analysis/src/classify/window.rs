//! What the rows of a short time say together.

use std::cell::OnceCell;
use std::ops::Range;

use fullpipe_lab::trace::Row;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Rate};

use super::losses::Losses;
use super::spans::{around, round_trip};
use super::{Past, SocketFacts};
use crate::segment::HEADERS;

/// The kernel computes a pacing rate for a loss-based sender too: 1.2 windows a round trip, 2 in slow start.
/// BBR's is half a window, a whole one in Startup.
const PACED_BY_WINDOW: f64 = 1.1;
/// Share of the rows: from this on, something holds for most of them.
const MOSTLY: f64 = 0.5;

/// One flow, and what is known of it as a whole.
pub(super) struct Flow<'a> {
    pub(super) rows: &'a [Row],
    pub(super) host: &'a SocketFacts,
    /// The sender paces at a rate that it measures, as BBR does: its window is no limit but a reserve, and
    /// its slow-start threshold says nothing.
    pub(super) by_rate: bool,
    past: &'a Past,
    /// Made when a rule asks for them: an application that writes little needs none.
    losses: OnceCell<Losses>,
    /// Of the receive windows up to each row.
    offered: OnceCell<Vec<WindowHistory>>,
    /// The row up to which a sender that is rate-based was in its Startup.
    startup_until: OnceCell<usize>,
}

/// The receive windows up to a row.
#[derive(Clone, Copy)]
struct WindowHistory {
    /// The largest, in bytes.
    largest: f64,
    /// The sum over the rows of the part of the largest window, up to then, that was not offered.
    not_offered: f64,
}

impl<'a> Flow<'a> {
    /// Of `rows` that come after `past`.
    pub(super) fn after(past: &'a Past, rows: &'a [Row], host: &'a SocketFacts) -> Self {
        let named = host.cc.or_else(|| rows.iter().find_map(|row| row.sender.cc));
        let by_rate = named.map_or_else(|| is_rate_based(rows), Algorithm::is_rate_based);
        Self {
            rows,
            host,
            by_rate,
            past,
            losses: OnceCell::new(),
            offered: OnceCell::new(),
            startup_until: OnceCell::new(),
        }
    }

    /// Whether it is rate-based, and was in its Startup at row `at`.
    pub(super) fn in_startup(&self, at: usize) -> bool {
        let is = self.by_rate && !self.past.started;
        is && at < *self.startup_until.get_or_init(|| startup(self.rows))
    }

    /// Its losses, those of its past with them.
    pub(super) fn losses(&self) -> &Losses {
        self.losses.get_or_init(|| Losses::after(&self.past.rows, self.rows))
    }

    /// The largest receive window up to row `at`, in bytes.
    pub(super) fn largest_window(&self, at: usize) -> f64 {
        self.offered()[at].largest
    }

    /// Of the largest receive window up to then, the mean part that the rows of `range` do not offer, 0 to 1.
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

    /// Of the largest receive window up to row `at`, the part that a smallest round trip carries at the rate of `window`; `None` without
    /// a round trip.
    pub(super) fn carried(&self, at: usize, window: &Window<'_>) -> Option<f64> {
        let min_rtt = self.rows[at].sender.min_rtt?.as_secs_f64();
        Some(window.rate() * min_rtt / (8.0 * self.largest_window(at).max(1.0)))
    }

    /// Whether the receive window goes on to be larger than it ever was, by a quarter within two round trips: one that a slow reader
    /// opens again does not, nor one whose buffer is at its end.
    pub(super) fn window_still_grows(&self, at: usize) -> bool {
        /// Largest window two round trips later over that so far: above, it still grows.
        const LARGER: f64 = 1.25;
        let later = around(self.rows, at, 2, 1).end - 1;
        self.largest_window(later) >= LARGER * self.largest_window(at)
    }

    /// The rows within so many round trips of row `at`, and at least so many on either side.
    pub(super) fn window(&self, at: usize, round_trips: u64, least: usize) -> Window<'a> {
        Window { rows: &self.rows[around(self.rows, at, round_trips, least)] }
    }

    /// Full segments in a smallest round trip at `rate` bit/s.
    pub(super) fn segments_a_round_trip(&self, at: usize, rate: f64) -> f64 {
        let sender = &self.rows[at].sender;
        let rtt = sender.min_rtt.unwrap_or_default().as_secs_f64();
        rate * rtt / (8.0 * sender.mss.get().max(1) as f64)
    }

    /// What the line carries as payload, if its rate is known.
    pub(super) fn line_payload(&self, mss: Bytes) -> Option<f64> {
        self.host.link.map(|line| payload(line, mss))
    }
}

/// What a `line` carries as payload of segments of `mss`, in bit/s.
pub(super) fn payload(line: Rate, mss: Bytes) -> f64 {
    let mss = mss.get().max(1) as f64;
    line.as_bps() as f64 * mss / (mss + HEADERS as f64)
}

/// Whether a sender whose congestion control nothing names is rate-based.
fn is_rate_based(rows: &[Row]) -> bool {
    let per_round_trip = |row: &Row| {
        let sender = &row.sender;
        let pacing =
            sender.pacing_rate.filter(|rate| sender.max_pacing_rate.is_none_or(|most| *rate < most))?;
        let (srtt, min_rtt) = (sender.srtt?, sender.min_rtt?);
        // A standing queue stretches the round trip of a window, not that of a rate.
        let rtt = if sender.ssthresh.is_some() { srtt } else { min_rtt };
        let window = sender.cwnd.get().max(1) as f64;
        Some(pacing.as_bps() as f64 / 8.0 * rtt.as_secs_f64() / window)
    };
    let ratios: Vec<f64> = rows.iter().filter_map(per_round_trip).collect();
    !ratios.is_empty() && median(ratios) < PACED_BY_WINDOW
}

/// In Startup BBR paces at 2.89 times what was delivered. It leaves it once, when the rate stops
/// growing; losses later can widen the gap again, so only the beginning counts.
fn startup(rows: &[Row]) -> usize {
    /// Pacing rate over what was delivered: above, BBR is in Startup.
    /// Source: its gains are 2.89 there and 1.25 at most later; between them is chosen.
    const GAIN: f64 = 2.0;
    const GAIN_PERCENT: u32 = 200;
    let starting = |row: &&Row| {
        let sender = &row.sender;
        // Who says it need not be guessed at.
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

/// The rates of some round trips, in bit/s.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) median: f64,
    /// Between the quartiles.
    pub(super) middle_half: f64,
}

impl Rates {
    /// Between the quartiles over the median.
    pub(super) fn spread(self) -> f64 {
        if self.median > 0.0 { self.middle_half / self.median } else { f64::INFINITY }
    }
}

/// Rows that stand together.
#[derive(Clone, Copy)]
pub(super) struct Window<'a> {
    pub(super) rows: &'a [Row],
}

impl Window<'_> {
    /// The share of the rows for which `holds`.
    pub(super) fn share(&self, holds: impl Fn(&Row) -> bool) -> f64 {
        let count = self.rows.iter().filter(|row| holds(row)).count();
        count as f64 / self.rows.len().max(1) as f64
    }

    /// Whether `holds` for most rows.
    pub(super) fn mostly(&self, holds: impl Fn(&Row) -> bool) -> bool {
        self.share(holds) >= MOSTLY
    }

    /// The median of a value, over the rows that have it.
    pub(super) fn median(&self, value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.rows.iter().filter_map(value).collect();
        (!values.is_empty()).then(|| median(values))
    }

    pub(super) fn mean(&self, value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.rows.iter().filter_map(value).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    pub(super) fn least(&self, value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        self.rows.iter().filter_map(value).min_by(f64::total_cmp)
    }

    pub(super) fn most(&self, value: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
        self.rows.iter().filter_map(value).max_by(f64::total_cmp)
    }

    /// What was delivered between first and last row, in bit/s; zero where they are one.
    pub(super) fn rate(&self) -> f64 {
        let (Some(first), Some(last)) = (self.rows.first(), self.rows.last()) else { return 0.0 };
        let time = last.at.saturating_since(first.at).as_secs_f64();
        let bytes = last.sender.delivered.saturating_sub(first.sender.delivered).get() as f64;
        if time > 0.0 { 8.0 * bytes / time } else { 0.0 }
    }

    /// The rates of its round trips; single rows tell nothing, for a window leaves in bursts. Round trips in
    /// which `pauses` holds, and those after them, in which the path fills again, do not count. `None` for less
    /// than four that do.
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
        let at = |share: f64| rates[((rates.len() - 1) as f64 * share).round() as usize];
        (rates.len() >= 4).then(|| Rates { median: at(0.5), middle_half: at(0.75) - at(0.25) })
    }

    /// Of the segments sent between first and last row, the share that was retransmitted, 0 to 1.
    pub(super) fn repeated(&self) -> f64 {
        let (Some(first), Some(last)) = (self.rows.first(), self.rows.last()) else { return 0.0 };
        let (first, last) = (&first.sender, &last.sender);
        let again = last.retransmits.saturating_sub(first.retransmits) as f64;
        let mss = last.mss.get().max(1) as f64;
        let delivered = last.delivered.saturating_sub(first.delivered).get() as f64 / mss;
        if again > 0.0 { again / (again + delivered) } else { 0.0 }
    }
}

/// Smoothed over smallest RTT.
pub(super) fn stretch(row: &Row) -> Option<f64> {
    let (srtt, min_rtt) = (row.sender.srtt?, row.sender.min_rtt.filter(|min| !min.is_zero())?);
    Some(srtt.as_secs_f64() / min_rtt.as_secs_f64())
}

/// One amount over another; nothing over nothing is nothing.
pub(super) fn over(part: Bytes, whole: Bytes) -> Option<f64> {
    (!whole.is_zero()).then(|| part.get() as f64 / whole.get() as f64)
}

pub(super) fn bps(rate: Option<Rate>) -> Option<f64> {
    rate.map(|rate| rate.as_bps() as f64)
}

/// Standard deviation over mean; infinite where the mean is zero.
pub(super) fn spread(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    if mean > 0.0 { variance.sqrt() / mean } else { f64::INFINITY }
}

/// The middle value; 0 of nothing.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    if values.is_empty() { 0.0 } else { *values.select_nth_unstable_by(middle, f64::total_cmp).1 }
}
