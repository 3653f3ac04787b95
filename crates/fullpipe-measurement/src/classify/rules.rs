//! Order in which the rules are applied to find a limit.
//!
//! ```text
//!   is data waiting to be sent?
//!     no   the send buffer is full, and neither window is          sndbuf
//!          else                                                    app
//!     yes  paced and delivered at the socket's maximum rate        pacing
//!          data in flight fills the receive window                 rwnd, receiver_app; slow_start while both
//!                                                                  windows still double
//!          cwnd below ssthresh                                     slow_start
//!          the writer often waits for the send buffer              sndbuf
//!          BBR in Startup                                          slow_start
//!          for BBR, the receive window is often full of data
//!          behind lost segments                                    rwnd
//!          else the congestion control is the limit, because:
//!            the delivered rate is the link rate                   link
//!            the receive window is small, and occasionally full    receiver_app
//!            standing queue, and the rate is steady                link; cap (a shaper) where the link has
//!                                                                  room
//!            losses at a fixed rate, no queue                      policer if the delivered rate is fixed, too;
//!                                                                  else cap
//!            else                                                  cwnd
//! ```

use std::ops::Range;

use fullpipe_lab::trace::Row;

use super::reader::{by_reader_or_path, whose_window};
use super::spans::{Verdict, round_trip};
use super::window::{Flow, Window, bps, over, stretch};
use super::{Confidence, Limit};
use crate::thresholds::{link, pacing, queue, send_buffer, time, window};

/// Round trips on either side of a row over which its state is evaluated.
const NEAR: u64 = 1;
/// Round trips on either side over which rates and queues are evaluated; both sides together exceed one BBR
/// gain cycle.
pub(super) const WIDE: u64 = 6;
/// Minimum number of rows on either side over which rates are evaluated, if rows are further apart than round
/// trips.
pub(super) const WIDE_ROWS: usize = 8;
/// Round trips on either side over which the loss rate is evaluated, because losses come in bursts.
pub(super) const LONG: u64 = 32;
/// ACKs are delayed if data stays in flight for more than this multiple of the smoothed RTT. A factor of two
/// leaves room for sampling error, because there are only a few rows.
/// Unit: round trips
const LATE: f64 = 2.0;
/// Minimum duration, in round trips, of a limit between two spans of another limit; a shorter span is noise.
const BLIP: u64 = 2;
/// Maximum number of rows in a span that counts as noise, if rows are further apart than round trips.
const BLIP_ROWS: usize = 2;
/// The send buffer is the limit if the writer waits for space in it in at least this share of the rows. A
/// buffer about as large as cwnd that is written in bursts is full of unsent data only part of the time.
const WAITS: f64 = 0.25;
/// Minimum number of rows on either side over which the share `WAITS` is counted.
const WAITS_ROWS: usize = 3;
/// The pacing cap is the limit if the delivered rate is at least this share of the maximum pacing rate.
const AT_THE_CAP: f64 = 0.85;
/// Round trips on either side over which full windows are counted for BBR: both sides together are one gain
/// cycle.
const CYCLE: u64 = 4;
/// The window has holes if less than this share of the unacknowledged data is still in flight. Without
/// losses, all unacknowledged data is in flight.
const HOLES: f64 = 0.9;
/// BBR itself limits the flow if it delivers less than this share of its typical rate. While BBR drains its
/// queue, it sends at three quarters of the rate.
const BELOW: f64 = 0.7;
/// A rate is steady if its values over single round trips vary by less than this share of their median.
const STEADY: f64 = 0.12;
/// Under loss, a rate is constant if its values over single round trips vary by less than this share of their
/// median. If a fifth of the packets is lost at random, the rate varies by more than this share in every case
/// that is evaluated, that is, with at least [`COUNTED`] segments per round trip.
const CLOCK: f64 = 0.06;
/// Minimum number of segments per round trip at which the rate of a single round trip is statistically
/// meaningful.
/// Unit: segments
const COUNTED: f64 = 10.0;
/// A steady BBR rate is the path's rate if at most this share of the segments is retransmitted; above this
/// share, the rate must be constant.
const BEARABLE: f64 = 0.12;
/// A BBR rate is not the path's rate if more than this share of the segments is retransmitted. Probing at
/// five quarters of the rate then delivers no more than the rate itself, so BBR's bandwidth estimate shrinks.
const COLLAPSE: f64 = 0.2;
/// BBR's window during ProbeRTT, in segments.
const PROBE_RTT_WINDOW: u64 = 4;

/// Returns a verdict for the time between each row of the range and the next.
pub(super) fn verdicts(flow: &Flow<'_>, which: Range<usize>) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = which.clone().skip(1).map(|at| verdict(flow, at)).collect();
    without_blips(&flow.rows[which], &mut verdicts);
    verdicts
}

/// Returns the verdicts if they all name one limit, in which case none of them can be noise.
pub(super) fn of_one_limit(flow: &Flow<'_>, which: Range<usize>) -> Option<Vec<Verdict>> {
    let mut verdicts: Vec<Verdict> = Vec::with_capacity(which.len());
    for at in which.skip(1) {
        let verdict = verdict(flow, at);
        if verdicts.first().is_some_and(|first| first.limit != verdict.limit) {
            return None;
        }
        verdicts.push(verdict);
    }
    Some(verdicts)
}

/// Assigns a span shorter than two round trips, or of at most two rows, to the limit that surrounds it: a
/// short outlier is not a change of the path.
pub(super) fn without_blips(rows: &[Row], verdicts: &mut [Verdict]) {
    let mut begin = 0;
    while begin < verdicts.len() {
        let run = verdicts[begin..].iter().take_while(|v| v.limit == verdicts[begin].limit).count();
        let end = begin + run;
        let length = rows[end].at.saturating_since(rows[begin].at);
        let short = run <= BLIP_ROWS || length < round_trip(&rows[begin]) * BLIP;
        let before = begin.checked_sub(1).map(|before| verdicts[before]);
        if let (Some(before), Some(after)) = (before, verdicts.get(end))
            && short
            && before.limit == after.limit
        {
            verdicts[begin..end].fill(before);
        }
        begin = end;
    }
}

fn verdict(flow: &Flow<'_>, at: usize) -> Verdict {
    use Confidence::{Certain, High};
    let near = flow.window(at, NEAR, 1);
    let (limit, confidence) = if !near.mostly(data_waits) {
        // If the buffer is above its limit, the writer filled it while data was leaving. The writer
        // then waits for the buffer, even if the data in flight fills the congestion window.
        if near.rows.iter().any(buffer_overflows)
            || near.mostly(buffer_is_full) && !near.mostly(congestion_window_is_full)
        {
            (Limit::Sndbuf, Certain)
        } else {
            (Limit::App, High)
        }
    } else if flow.by_rate && flow.rows[at - 1..=at].iter().any(looks_for_min_rtt) {
        (Limit::Cwnd, High)
    } else if at_the_pacing_cap(&near) {
        (Limit::Pacing, Certain)
    } else if near.mostly(receive_window_is_full) {
        // Receive-buffer autotuning doubles the window as the application reads, and may lag behind a Cwnd
        // that doubles too. The transfer is then still starting, and no buffer is at its limit.
        let begins = if flow.by_rate { flow.in_startup(at) } else { near.mostly(in_slow_start) };
        if begins && flow.window_still_grows(at) {
            (Limit::SlowStart, High)
        } else if flow.by_rate && near.mostly(full_of_holes) {
            (Limit::Rwnd, High)
        } else {
            whose_window(flow, at, &near)
        }
    } else if !flow.by_rate && near.mostly(in_slow_start) {
        (Limit::SlowStart, Certain)
    } else if flow.window(at, 2 * NEAR, WAITS_ROWS).share(waits_for_buffer) >= WAITS {
        // While the buffer has no unsent data, the kernel marks BBR's samples as limited by the application, so that BBR
        // stays in Startup.
        (Limit::Sndbuf, High)
    } else if flow.in_startup(at) {
        (Limit::SlowStart, High)
    } else if flow.by_rate && flow.window(at, CYCLE, WIDE_ROWS).share(full_of_holes) >= time::FOLLOWED {
        // BBR measures the rate that the holes allow, and paces at this rate between the holes.
        (Limit::Rwnd, High)
    } else {
        by_reader_or_path(flow, at)
    };
    Verdict { limit, confidence }
}

/// Returns whether at least one full segment is waiting to be sent. A smaller amount may be a partial segment
/// that waits for more data.
fn data_waits(row: &Row) -> bool {
    row.sender.notsent >= row.sender.mss
}

fn buffer_is_full(row: &Row) -> bool {
    over(row.sender.sndbuf_used, row.sender.sndbuf).is_some_and(|share| share >= send_buffer::BLOCKED_IN_ROWS)
}

/// Returns whether the send buffer is at or above its limit. A writer that the kernel wakes may fill the
/// buffer beyond its limit. The kernel wakes a writer once no more than two thirds of the buffer is in use,
/// and the buffer drains further if the writer is slow to write again.
fn buffer_overflows(row: &Row) -> bool {
    over(row.sender.sndbuf_used, row.sender.sndbuf).is_some_and(|share| share >= 1.0)
}

/// Returns whether the sender waits for the application, which in turn waits for send-buffer space.
fn waits_for_buffer(row: &Row) -> bool {
    !data_waits(row) && buffer_is_full(row)
}

pub(super) fn congestion_window_is_full(row: &Row) -> bool {
    let sender = &row.sender;
    over(sender.inflight, sender.cwnd).is_some_and(|share| share >= window::FULL_IN_ROWS)
}

/// Returns whether the receive window is full: closed, or with room for less than a segment.
pub(super) fn receive_window_is_full(row: &Row) -> bool {
    let sender = &row.sender;
    let room = sender.rwnd.saturating_sub(sender.flight_size);
    room < sender.mss
        || over(sender.flight_size, sender.rwnd).is_none_or(|share| share >= window::FULL_IN_ROWS)
}

/// Returns whether the receive window is full of data that arrived after a lost segment: such data is no
/// longer in flight, but it occupies the window until the retransmission arrives.
pub(super) fn full_of_holes(row: &Row) -> bool {
    let sender = &row.sender;
    receive_window_is_full(row)
        && over(sender.inflight, sender.flight_size).is_some_and(|share| share < HOLES)
}

fn in_slow_start(row: &Row) -> bool {
    let sender = &row.sender;
    !sender.recovering && sender.ssthresh.is_none_or(|threshold| sender.cwnd < threshold)
}

/// Returns whether BBR is in ProbeRTT, with a window of four segments.
fn looks_for_min_rtt(row: &Row) -> bool {
    row.sender.cwnd.get() <= row.sender.mss.get().saturating_mul(PROBE_RTT_WINDOW)
}

fn at_the_pacing_cap(near: &Window<'_>) -> bool {
    let capped = |row: &Row| {
        let sender = &row.sender;
        sender.max_pacing_rate.is_some_and(|most| {
            sender
                .pacing_rate
                .is_some_and(|rate| rate.as_bps() >= most.mul_div(pacing::AT_MOST, 100).as_bps())
        })
    };
    let most = near.least(|row| bps(row.sender.max_pacing_rate));
    near.mostly(capped) && most.is_some_and(|most| near.rate() >= AT_THE_CAP * most)
}

/// Returns whether data stays in flight for much longer than the smoothed RTT (Little's law: data in flight
/// equals delivery rate times time in flight). ACKs are then delayed, for example by a receiver whose reader
/// pauses, although no RTT sample shows it.
fn answers_late(wide: &Window<'_>) -> bool {
    let in_flight = wide.mean(|row| Some(row.sender.inflight.get() as f64));
    let round_trip = wide.median(|row| row.sender.srtt.map(|srtt| srtt.as_secs_f64()));
    let (Some(in_flight), Some(round_trip)) = (in_flight, round_trip) else { return false };
    in_flight * 8.0 > LATE * wide.rate() * round_trip
}

/// Returns the limit behind the congestion control.
pub(super) fn by_path(flow: &Flow<'_>, at: usize) -> (Limit, Confidence) {
    use Confidence::{Certain, High, Low};
    let wide = flow.window(at, WIDE, WIDE_ROWS);
    let rates = wide.rates(|row| flow.by_rate && looks_for_min_rtt(row));
    let typical = rates.map_or_else(|| wide.rate(), |rates| rates.median);
    let full = flow.line_payload(flow.rows[at].sender.mss).map(|line| typical / line);
    if full.is_some_and(|full| full >= link::FULL_IN_ROWS) {
        return (Limit::Link, Certain);
    }
    // A constant rate below the link rate comes from a shaper or a policer.
    let (fixed, confidence) = match full {
        Some(full) if full < link::ROOM => (Limit::Cap, High),
        _ => (Limit::Link, if full.is_some() { High } else { Low }),
    };
    let steady = rates.is_some_and(|rates| rates.spread() < STEADY);
    if flow.by_rate {
        // After a pause or a loss, BBR sends less than the path can carry.
        if flow.window(at, NEAR, 1).rate() < BELOW * typical {
            return (Limit::Cwnd, High);
        }
        // If more packets are lost than BBR's probes can cause, BBR underestimates the path. A policer drops
        // the same share during probes, but passes the rest at a constant rate.
        let counted = flow.segments_a_round_trip(at, typical) >= COUNTED;
        let clock = rates.is_some_and(|rates| rates.spread() < CLOCK);
        let bears = |most: f64, round_trips: u64| flow.window(at, round_trips, WIDE_ROWS).repeated() <= most;
        if !(counted && (clock && bears(COLLAPSE, LONG) || steady && bears(BEARABLE, WIDE))) {
            return (Limit::Cwnd, Low);
        }
        // The probes either build a queue, or their excess data is lost.
        let probed = wide.most(stretch).is_some_and(|most| most >= queue::PROBED);
        // A policer's token bucket lets bursts through, and BBR may overestimate its rate for ten seconds:
        // both build a temporary queue. Only a standing queue raises the median RTT of the flow.
        let level = flow.typical_stretch().is_none_or(|stretch| stretch < queue::NONE_IN_LOG);
        let drops = level && (flow.losses().at_one_rate() || obeys_a_policer(flow, at));
        return match (fixed, probed) {
            (Limit::Cap, _) if drops => (Limit::Policer, confidence),
            (_, false) if full.is_none() => (if drops { Limit::Policer } else { Limit::Cap }, Low),
            _ => (fixed, confidence),
        };
    }
    if steady && wide.has_standing_queue() {
        return (fixed, confidence.max(High));
    }
    if flow.losses().at_fixed_rate() {
        // Delayed ACKs make the rate as steady as a policer does, so the losses may have any cause.
        if answers_late(&wide) {
            return (Limit::Cwnd, Low);
        }
        let limit = if flow.losses().at_one_rate() { Limit::Policer } else { Limit::Cap };
        let clear = full.is_some_and(|full| full < link::ROOM) && !flow.losses().are_dense();
        return (limit, if clear { High } else { Low });
    }
    (Limit::Cwnd, if flow.losses().may_come_from_a_rate() { Low } else { High })
}

/// Returns whether BBR has found a policer itself: it then paces at the policer's rate for 48 round trips,
/// without the probes of its gain cycle of eight.
fn obeys_a_policer(flow: &Flow<'_>, at: usize) -> bool {
    /// If BBR's pacing rate varies by at most this share, BBR is not probing; its gain cycle varies the rate
    /// by half.
    const CONSTANT: f64 = 0.01;
    let wide = flow.window(at, 2 * WIDE, WIDE_ROWS);
    let pacing = |row: &Row| bps(row.sender.pacing_rate);
    let range = wide.least(pacing).zip(wide.most(pacing));
    range.is_some_and(|(least, most)| least > 0.0 && most <= (1.0 + CONSTANT) * least)
}

#[cfg(test)]
mod tests {
    use fullpipe_units::Bytes;

    use super::*;
    use crate::classify::samples::{MSS, row};
    use crate::classify::{SocketFacts, classify};

    /// The window grows from 60 to 120 segments and loses one at the top, every three seconds. Behind a
    /// policer each window leaves within one round trip; with delayed ACKs it takes `times` as long, although
    /// no RTT sample shows it.
    #[test]
    fn losses_at_a_fixed_rate_are_no_policers_where_acks_come_late() {
        let told = |times: u64| {
            let mut delivered = 0;
            let sawtooth = |nth: u64| {
                let window = 60 + nth % 60;
                let mut row = row(50 * nth);
                delivered += window * MSS / times;
                let sender = &mut row.sender;
                (sender.cwnd, sender.inflight) = (Bytes::new(window * MSS), Bytes::new(window * MSS));
                sender.flight_size = sender.inflight;
                (sender.delivered, sender.retransmits) = (Bytes::new(delivered), nth / 60);
                row
            };
            let rows: Vec<Row> = (1..=600).map(sawtooth).collect();
            let told = classify(&rows, &SocketFacts::default()).findings;
            (told[0].limit, told[0].confidence)
        };
        assert_eq!(told(1), (Limit::Policer, Confidence::Low));
        assert_eq!(told(4), (Limit::Cwnd, Confidence::Low));
    }
}
