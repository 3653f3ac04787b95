//! Exact limits, from columns that only a simulation records.
//!
//! | what stopped the sender most, within a round trip on either side | further condition | limit |
//! |---|---|---|
//! | the application | | `app` |
//! | the send buffer | | `sndbuf` |
//! | the receiver's window | the receiver's queue was never empty: its reader is too slow | `receiver_app` |
//! | the receiver's window | else | `rwnd` |
//! | the window in slow start; the pacer or the window in BBR's Startup | | `slow_start` |
//! | BBR's ProbeRTT, whatever stops it | | `cwnd` |
//! | the pacer | it runs at the socket's maximum rate | `pacing` |
//! | window, recovery, or a pacer at a measured rate | the link was nearly always busy | `link` |
//! | the same | a shaper delayed this flow's packets nearly always | `cap` |
//! | the same | a policer made the latest drops | `policer` |
//! | the same | else | `cwnd` |
//!
//! The first column is certain, because the simulator records every change of the reason for which the sender
//! stops. Stops are summed over round trips, because different stops alternate within a single round trip. If
//! the path was busy, the path is the limit, for every kind of congestion control: a larger window would not
//! have delivered more. If the path was not busy, the congestion control itself is the limit, unless a
//! policer's drops slowed it down. BBR is a special case if a receive window or send buffer is the limit: BBR
//! measures the resulting rate and paces at it, so the record attributes most of the time to the pacer. A
//! window or buffer that stopped BBR for a fifth of the time is therefore the limit.

use fullpipe_lab::trace::Row;
use fullpipe_tcp::SendLimit;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::Duration;

use super::spans::{self, Verdict, around};
use super::{Basis, Confidence, Limit, LimitPeriod};
use crate::thresholds::{pacing, time};

/// Round trips on either side over which the sender's stops are counted.
const STOPS: u64 = 1;
/// Round trips on either side over which the busy time of the path is measured: BBR leaves the path idle in
/// one round trip of eight.
const WORK: u64 = 2;
/// Round trips on either side over which BBR's stops at a window or buffer are counted; both sides together
/// are one gain cycle.
const CYCLE: u64 = 4;
/// The path is busy when the link transmits for at least this share of the time. BBR keeps a link about this
/// busy while it drains its queue, and while it repairs a few percent of loss.
const BUSY: f64 = 0.8;

/// Returns the limits over time of the flow in `rows`, which must belong to one flow and be in chronological
/// order; `None` if the rows lack the columns of the path or of the simulator's record.
pub fn exact(rows: &[Row]) -> Option<Vec<LimitPeriod>> {
    let rows = spans::lifetime(rows);
    let policed = policed_last(rows);
    let limits = (1..rows.len()).map(|at| limit(rows, at, policed[at])).collect::<Option<Vec<_>>>()?;
    let certain = |limit| Verdict { limit, confidence: Confidence::Certain };
    let verdicts: Vec<Verdict> = limits.into_iter().map(certain).collect();
    Some(spans::merged(rows, &verdicts, Basis::Exact))
}

/// Returns the limit between row `at` and the previous row.
fn limit(rows: &[Row], at: usize, policed: bool) -> Option<Limit> {
    let near = &rows[around(rows, at, STOPS, 1)];
    let stops = Stops::of(near)?;
    let spent = |limit: SendLimit| stops.0[limit as usize];
    let truth = rows[at].truth.as_ref()?;
    let sender = &rows[at].sender;
    if truth.status.phase == "ProbeRTT" {
        return Some(Limit::Cwnd);
    }
    let by_rate = sender.cc.is_some_and(Algorithm::is_rate_based);
    let (window, slow_start) =
        (spent(SendLimit::Cwnd) + spent(SendLimit::Recovery), spent(SendLimit::SlowStart));
    let pacing = spent(SendLimit::Pacing);
    let capped = sender
        .max_pacing_rate
        .is_some_and(|most| sender.pacing_rate >= Some(most.mul_div(pacing::AT_MOST, 100)));
    // BBR has no slow-start threshold, so a window below the threshold means nothing.
    let (control, starting) = match (by_rate, truth.status.phase) {
        (true, "Startup") => (0.0, slow_start + window + if capped { 0.0 } else { pacing }),
        (true, _) => (slow_start + window + if capped { 0.0 } else { pacing }, 0.0),
        (false, _) => (window + if capped { 0.0 } else { pacing }, slow_start),
    };
    let paced = if capped { pacing } else { 0.0 };
    let (sndbuf, rwnd) = (spent(SendLimit::Sndbuf), spent(SendLimit::Rwnd));
    if by_rate && !capped && truth.status.phase != "Startup" {
        let cycle = Stops::of(&rows[around(rows, at, CYCLE, 1)])?;
        if let Some(followed) = cycle.followed() {
            return Some(if followed == SendLimit::Sndbuf { Limit::Sndbuf } else { window_limit(near) });
        }
    }
    let candidates = [
        (spent(SendLimit::App), SendLimit::App),
        (sndbuf, SendLimit::Sndbuf),
        (rwnd, SendLimit::Rwnd),
        (starting, SendLimit::SlowStart),
        (paced, SendLimit::Pacing),
        (control, SendLimit::Cwnd),
    ];
    let (_, most) = candidates.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(match most {
        SendLimit::App => Limit::App,
        SendLimit::Sndbuf => Limit::Sndbuf,
        SendLimit::Rwnd => window_limit(near),
        SendLimit::SlowStart => Limit::SlowStart,
        SendLimit::Pacing => Limit::Pacing,
        SendLimit::Cwnd | SendLimit::Recovery => by_path(rows, at, policed)?,
    })
}

/// Seconds for which each limit stopped the sender, in the order of [`SendLimit::ALL`].
struct Stops([f64; SendLimit::ALL.len()]);

impl Stops {
    /// Returns the time of each stop between the first and the last of `rows`.
    fn of(rows: &[Row]) -> Option<Self> {
        let (first, last) = (rows.first()?.truth.as_ref()?, rows.last()?.truth.as_ref()?);
        let spent = |i: usize| last.limit_times[i].saturating_sub(first.limit_times[i]).as_secs_f64();
        Some(Self(std::array::from_fn(spent)))
    }

    /// Returns the receive window or send buffer that determines BBR's pacing rate, if any.
    fn followed(&self) -> Option<SendLimit> {
        let all: f64 = self.0.iter().sum();
        let most = |a: SendLimit, b| if self.0[a as usize] >= self.0[b as usize] { a } else { b };
        let fuller = most(SendLimit::Rwnd, SendLimit::Sndbuf);
        (self.0[fuller as usize] >= time::FOLLOWED * all).then_some(fuller)
    }
}

/// Returns the limit behind a full receive window: the buffer, or a reader that always leaves data unread.
fn window_limit(near: &[Row]) -> Limit {
    let behind = near.iter().all(|row| row.receiver.is_some_and(|receiver| !receiver.unread.is_zero()));
    if behind { Limit::ReceiverApp } else { Limit::Rwnd }
}

/// Returns the limit behind the congestion control: the link, a policer or shaper, or Cwnd itself.
fn by_path(rows: &[Row], at: usize, policed: bool) -> Option<Limit> {
    let wide = &rows[around(rows, at, WORK, 1)];
    let (first, last) = (wide.first()?, wide.last()?);
    let (before, after) = (first.path?, last.path?);
    let time = last.at.saturating_since(first.at).as_secs_f64();
    let busy = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64() >= BUSY * time;
    Some(if busy(before.link_busy, after.link_busy) {
        Limit::Link
    } else if busy(before.shaper_busy, after.shaper_busy) {
        Limit::Cap
    } else if policed {
        Limit::Policer
    } else {
        Limit::Cwnd
    })
}

/// Returns for each row whether a policer caused most of the latest drops.
fn policed_last(rows: &[Row]) -> Vec<bool> {
    let (mut before, mut policed) = ((0, 0), false);
    let step = |row: &Row| {
        if let Some(path) = row.path {
            let now = (path.policed, path.queue_drops.saturating_add(path.random_drops));
            if now != before {
                policed = now.0.saturating_sub(before.0) > now.1.saturating_sub(before.1);
                before = now;
            }
        }
        policed
    };
    rows.iter().map(step).collect()
}
