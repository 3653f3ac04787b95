//! Classifies the limits of a flow over time from its packets, for captures.
//!
//! A capture contains neither `Cwnd` nor the send buffer, and does not show whether data is waiting to be
//! sent. Packets provide the inputs of the socket rules indirectly, and with less confidence:
//!
//! ```text
//!   nothing in flight                                                     app; receiver_app if the window is closed
//!   sent data filled the receive window known to the sender               rwnd, receiver_app
//!   data in flight still doubles                                          slow_start
//!   the receive window is small, and occasionally full                    receiver_app
//!   path rules: full link, standing queue, losses at a fixed rate         link, cap, policer
//!   losses                                                                cwnd
//!   neither losses nor a queue:
//!     ACKs release nothing, or packets are shorter than a segment,
//!     because the sender has no more data                                 app; sndbuf if ACK-clocked
//!     full segments that are not ACK-clocked                              pacing
//!     full segments; data in flight grows                                 cwnd
//!     full segments; data in flight stays constant                        sndbuf
//! ```
//!
//! Where ACK clocking is not observable, as at the receiver, the last four verdicts are low-confidence
//! guesses.

mod evidence;

use fullpipe_lab::stats::nearest;
use fullpipe_lab::trace::{Row, TcpInfo};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Instant, Rate};

use super::reader::{by_reader_or_path, whose_window};
use super::rules::{WIDE, WIDE_ROWS, by_path, without_blips};
use super::spans::{self, Verdict, around, round_trip};
use super::window::{Flow, Window, stretch};
use super::{Basis, Classification, Confidence, Limit, Past, SocketFacts, losses};
use crate::measurement::packets::{self, Sample, Side};
use crate::thresholds::queue;

/// Round trips on either side over which packets are counted.
const NEAR: u64 = 1;
/// Round trips on either side over which data in flight is checked for growth.
const COURSE: u64 = 8;
/// Value that replaces `COURSE` near losses, because CUBIC's plateau may last longer than `COURSE` round
/// trips.
const PLATEAU: u64 = 32;
/// Round trips on either side within which a loss explains a varying window.
const LOSSY: u64 = 64;
/// The window is doubling if data in flight grows by at least this factor per round trip; delayed ACKs halve
/// the growth.
const DOUBLES: f64 = 1.2;
/// Number of round trips without growth after which the doubling has ended.
const PATIENCE: u64 = 2;
/// Round trips on either side within which a short packet shows that the sender ran out of data.
const SHORT: u64 = 16;
/// Share of the window in flight below which ACKs that release no data show that the sender has no data to send. The
/// window is the maximum data in flight of the last round trip. The kernel wakes a blocked writer once no more than two
/// thirds of the send buffer is in use.
const DRAINED: f64 = 0.75;
/// The sender waits for its application if it has no data to send in at least this share of the samples.
const STARVED: f64 = 0.1;
/// Data in flight does not follow the congestion window if it falls by a quarter in at least this share of the round
/// trips without losses.
const UNEVEN: f64 = 0.05;
/// Round trips on either side within which a loss explains why ACKs release no data: one for the recovery,
/// and one until the window is filled again.
const REPAIR: u64 = 2;
/// Transmission is ACK-clocked if at least this share of the packets leaves immediately after an ACK.
const CLOCKED: f64 = 0.6;
/// Transmission is independent of ACKs, because an application determines it, if less than this share of the packets
/// leaves immediately after an ACK. With a send buffer that is written in bursts, the share is between this value and
/// `CLOCKED`.
const FREE: f64 = 0.25;
/// Minimum mean spacing of ACKs for which an ACK just before a packet is not a coincidence: three times the delay that
/// counts as immediate.
/// Unit: seconds
const CLOSEST: f64 = 150e-6;
/// A sender tolerates losses, as BBR does, if data in flight after a loss is at least this share of the data
/// in flight before.
const BEARS: f64 = 0.9;
/// Data in flight is constant if it varies by less than this share of its median.
const FLAT: f64 = 0.08;
/// Quantiles between which the variation of the data in flight is measured.
const MIDDLE: (f64, f64) = (0.1, 0.9);

/// Properties of the captured flow as a whole.
struct Course<'f, 'r> {
    /// The flow, with its sender classified as loss-based or rate-based.
    flow: &'f Flow<'r>,
    /// The same flow, with its sender treated as rate-based.
    rated: &'f Flow<'r>,
    /// Row after which the data in flight no longer doubles.
    start: usize,
    /// False if data in flight often falls without a loss after the start.
    held_by_cwnd: bool,
}

/// Classifies the limits over time of the captured connection, from its packets; `line` is the link rate, if
/// known.
pub fn classify_capture(capture: &packets::Packets, line: Option<Rate>) -> Classification {
    let connection = &capture.connection;
    let packets = Packets::new(&capture.samples, connection.side, connection.mss, line);
    if connection.handshake { packets.classify() } else { packets.begun_before().classify() }
}

/// A flow as seen in its packets.
struct Packets<'a> {
    samples: &'a [Sample],
    side: Side,
    /// Samples as rows. Values that packets do not show are zero; no rule used here reads them.
    rows: Vec<Row>,
    line: Option<Rate>,
    /// Whether the flow began before its samples.
    began_before: bool,
}

impl<'a> Packets<'a> {
    fn new(samples: &'a [Sample], side: Side, mss: Bytes, line: Option<Rate>) -> Self {
        Self { samples, side, rows: rows(samples, mss), line, began_before: false }
    }

    /// Marks the flow as already running when the capture began.
    fn begun_before(self) -> Self {
        Self { began_before: true, ..self }
    }

    /// Returns the limits over time, with evidence.
    fn classify(&self) -> Classification {
        let is_rate_based = bears_loss(&self.rows);
        let host = |by_rate: bool| SocketFacts {
            link: self.line,
            cc: by_rate.then_some(Algorithm::Bbr1),
            ..SocketFacts::default()
        };
        let (window, rate, past) = (host(false), host(true), Past::default());
        let flows = [Flow::after(&past, &self.rows, &window), Flow::after(&past, &self.rows, &rate)];
        let flow = &flows[usize::from(is_rate_based)];
        let start = self.start(flow);
        let end = self.end();
        let rows = self.rows.get(start.min(end)..=end).unwrap_or_default();
        let held_by_cwnd = is_rate_based || !shrinks_without_losses(rows);
        let course = Course { flow, rated: &flows[1], start, held_by_cwnd };
        let verdict = |at: usize| match at {
            at if at > end => Verdict { limit: Limit::App, confidence: Confidence::High },
            at => self.verdict(&course, at),
        };
        let mut verdicts: Vec<Verdict> = (1..self.rows.len()).map(verdict).collect();
        // The limit during a gap in the capture is unknown. Assume the limit before the gap, which is the most likely
        // one.
        for at in 1..verdicts.len() {
            if self.samples[at + 1].unseen {
                verdicts[at] = Verdict { limit: verdicts[at - 1].limit, confidence: Confidence::Low };
            }
        }
        without_blips(&self.rows, &mut verdicts);
        let intervals = spans::merged(&self.rows, &verdicts, Basis::Inferred);
        let findings = evidence::findings(self, &intervals, flow.losses());
        let loss = losses::of_path(flow, findings.first().map(|finding| finding.limit));
        let notes = Vec::from_iter(is_rate_based.then(|| {
            "the sender is rate-based, as BBR is, because the data in flight does not fall when segments are lost"
                .to_owned()
        }));
        Classification { intervals, findings, is_rate_based, loss, notes }
    }

    /// Returns the samples within `round_trips` of sample `at`.
    fn near(&self, at: usize, round_trips: u64) -> &[Sample] {
        &self.samples[around(&self.rows, at, round_trips, 1)]
    }

    /// Returns the last sample in which data was sent; after this sample the flow only waits for ACKs.
    fn end(&self) -> usize {
        self.samples.iter().rposition(|sample| sample.sent > 0).unwrap_or(0)
    }

    /// Returns the limit at sample `at`.
    fn verdict(&self, course: &Course<'_, '_>, at: usize) -> Verdict {
        use Confidence::{Certain, High, Low};
        let &Course { flow, start, held_by_cwnd, .. } = course;
        let near = flow.window(at, NEAR, 1);
        let sample = &self.samples[at];
        let mss = flow.rows[at].sender.mss;
        let (limit, confidence) = if self.idle(at) {
            match sample.rwnd {
                Some(window) if window < mss => (Limit::ReceiverApp, Certain),
                Some(_) => (Limit::App, High),
                None => (Limit::App, Low),
            }
        } else if self.fills_window(at) {
            let (limit, confidence) = whose_window(flow, at, &near);
            let closed = self.near(at, NEAR).iter().any(|sample| sample.rwnd.is_some_and(|rwnd| rwnd < mss));
            if closed { (Limit::ReceiverApp, High) } else { (limit, confidence) }
        } else if at < start {
            (Limit::SlowStart, High)
        } else if self.looks_for_min_rtt(flow, at) {
            (Limit::Cwnd, High)
        } else {
            match by_reader_or_path(flow, at) {
                reader @ (Limit::ReceiverApp, _) => reader,
                (Limit::Cwnd, confidence) if flow.by_rate => (Limit::Cwnd, confidence),
                (Limit::Cwnd, _) => self.by_clock(course, at),
                // A cap that drops packets limits a flow only by shrinking its congestion window. If the
                // congestion window does not bound the data in flight, the drops were isolated bursts and
                // the cap is not the limit.
                (Limit::Cap | Limit::Policer, _)
                    if !held_by_cwnd && !flow.window(at, WIDE, WIDE_ROWS).has_standing_queue() =>
                {
                    self.by_clock(course, at)
                }
                (limit, confidence) => (limit, if self.line.is_some() { confidence } else { Low }),
            }
        };
        Verdict { limit, confidence }
    }

    /// Returns whether nothing is in flight. Away from the sender, this is certain only after several round
    /// trips without a packet.
    fn idle(&self, at: usize) -> bool {
        let quiet = |sample: &Sample| sample.sent == 0 && sample.flight_size.is_zero();
        quiet(&self.samples[at]) && (self.side == Side::Sender || self.near(at, NEAR).iter().all(quiet))
    }

    /// Returns whether most samples with data reached the end of the window, or stalled because it was full.
    fn fills_window(&self, at: usize) -> bool {
        let (mut told, mut full) = (0, 0);
        for sample in self.near(at, NEAR) {
            let Some(window) = sample.rwnd else { continue };
            let stuck = sample.sent == 0 && window.get() < sample.flight_size.get() + self.mss();
            told += usize::from(sample.sent > 0 || stuck);
            full += usize::from(sample.full > 0 || stuck);
        }
        told > 0 && 2 * full >= told
    }

    /// Returns whether data in flight suddenly falls to four segments, the amount that BBR keeps in flight in
    /// ProbeRTT.
    fn looks_for_min_rtt(&self, flow: &Flow<'_>, at: usize) -> bool {
        let usual = flow.window(at, WIDE, WIDE_ROWS).median(|row| Some(row.sender.cwnd.get() as f64));
        // Away from the sender, the data in flight is known only at samples in which data passed.
        let passed = |sample: &&Sample| sample.sent > 0 || self.side == Side::Sender;
        let now = self.samples[..=at].iter().rev().find(passed).map_or(0, |sample| sample.inflight.get());
        now <= 4 * self.mss() && usual.is_some_and(|usual| usual > (40 * self.mss()) as f64)
    }

    fn mss(&self) -> u64 {
        self.rows.first().map_or(1, |row| row.sender.mss.get())
    }

    /// Returns the limit on a path without a standing queue, from the events that trigger transmissions.
    fn by_clock(&self, course: &Course<'_, '_>, at: usize) -> (Limit, Confidence) {
        use Confidence::{High, Low};
        let &Course { flow, rated, held_by_cwnd, .. } = course;
        let lossy = |round_trips| flow.window(at, round_trips, 1).repeated() > 0.0;
        // If the congestion window has room, each ACK releases data, unless no data is waiting to be sent.
        let starved = !lossy(REPAIR) && self.starved(at);
        // CUBIC, too, stays for some time near the window at which it lost packets.
        let after_loss = lossy(LOSSY);
        let flat = is_flat(flow.window(at, if after_loss { PLATEAU } else { COURSE }, WIDE_ROWS), self.mss());
        if held_by_cwnd && !starved && (lossy(COURSE) || after_loss && !flat) {
            return (Limit::Cwnd, if flow.losses().may_come_from_a_rate() { Low } else { High });
        }
        // If only isolated bursts lose packets, their losses limit the flow only until they are
        // repaired.
        if !held_by_cwnd && lossy(REPAIR) {
            return (Limit::Cwnd, Low);
        }
        let flat = flat || !held_by_cwnd;
        let out_of_data = starved || self.near(at, SHORT).iter().any(|sample| sample.short > 0);
        match self.clocked(at) {
            Some(share) if share >= CLOCKED && (out_of_data || flat) => (Limit::Sndbuf, Low),
            Some(share) if share >= CLOCKED => (Limit::Cwnd, Low),
            told if out_of_data => {
                (Limit::App, if told.is_some_and(|share| share < FREE) { High } else { Low })
            }
            // If the path limits BBR, BBR's probes raise the RTT.
            told => match flow.window(at, WIDE, WIDE_ROWS).most(stretch) {
                Some(most) if most >= queue::PROBED => by_path(rated, at),
                _ if told.is_some() => (Limit::Pacing, Low),
                _ if flat => (Limit::Sndbuf, Low),
                _ => (Limit::Cwnd, Low),
            },
        }
    }

    /// Returns whether the sender is regularly out of data: ACKs arrive and release nothing, although much
    /// less is in flight than in the round trip before.
    fn starved(&self, at: usize) -> bool {
        let near = around(&self.rows, at, 2 * NEAR, 1);
        let drained = |at: usize| {
            let (sample, row) = (&self.samples[at], &self.rows[at]);
            let limit = DRAINED * row.sender.cwnd.get() as f64;
            sample.sent == 0 && sample.acks > 0 && (sample.inflight.get() as f64) < limit
        };
        let count = near.len();
        near.filter(|at| drained(*at)).count() as f64 >= STARVED * count as f64
    }

    /// Returns the share of the packets that leave immediately after an ACK, or `None` if that is not
    /// observable.
    fn clocked(&self, at: usize) -> Option<f64> {
        let near = self.near(at, 2 * NEAR);
        let (first, last) = (near.first()?, near.last()?);
        let time = last.at.saturating_since(first.at).as_secs_f64();
        let (mut sent, mut acks, mut prompt) = (0.0, 0.0, 0.0);
        for sample in near {
            sent += f64::from(sample.sent);
            acks += f64::from(sample.acks);
            prompt += f64::from(sample.prompt);
        }
        let seen = self.side == Side::Sender && sent > 0.0 && acks * CLOSEST < time;
        seen.then(|| prompt / sent)
    }

    /// Returns the row up to which data in flight doubles each round trip.
    fn start(&self, flow: &Flow<'_>) -> usize {
        let rows = flow.rows;
        let first = rows.iter().position(|row| !row.sender.flight_size.is_zero()).unwrap_or(0);
        let (mut before, mut since) = (0.0, rows.get(first).map_or(Instant::ZERO, |row| row.at));
        let mut grew = since;
        for (at, row) in rows.iter().enumerate().skip(first) {
            if row.sender.retransmits > 0 && !flow.by_rate {
                return at;
            }
            let trip = round_trip(row);
            if row.at.saturating_since(since) >= trip {
                let now = row.sender.cwnd.get() as f64;
                if before == 0.0 && self.began_before {
                    // The capture does not show how the data in flight grew before the first sample.
                } else if now >= DOUBLES * before {
                    grew = row.at;
                } else if row.at.saturating_since(grew) >= trip * PATIENCE {
                    return rows.partition_point(|row| row.at <= grew);
                }
                (before, since) = (now, row.at);
            }
        }
        rows.len()
    }
}

/// Converts the samples to rows; `cwnd` is the maximum data in flight during the last round trip, a lower
/// bound of the real window. `srtt` is the minimum RTT during the last round trip. A mean would be too long
/// for a sender that sends each window in one burst: the burst builds a queue, which drains before the next
/// burst. There is a standing queue only if no packet of a round trip finds the queue empty.
fn rows(samples: &[Sample], mss: Bytes) -> Vec<Row> {
    let (mut min_rtt, mut rtt) = (None, None);
    // Before the receive window is known, its first known value is used.
    let first = samples.iter().find_map(|sample| sample.rwnd).unwrap_or(Bytes::MAX);
    let first_rtt = samples.iter().find_map(|sample| sample.rtt);
    let mut rows: Vec<Row> = Vec::with_capacity(samples.len());
    let mut oldest = 0;
    for (number, sample) in samples.iter().enumerate() {
        rtt = sample.rtt.or(rtt).or(first_rtt);
        let within = |old: &Sample| sample.at.saturating_since(old.at) <= rtt.unwrap_or_default();
        while !within(&samples[oldest]) {
            oldest += 1;
        }
        let least = samples[oldest..=number].iter().filter_map(|sample| sample.least_rtt).min();
        let srtt = least.or(rtt);
        min_rtt = [min_rtt, srtt].into_iter().flatten().min();
        rows.push(Row {
            at: sample.at,
            flow: 0,
            sender: TcpInfo {
                cc: None,
                mss: mss.max(Bytes::new(1)),
                cwnd: sample.inflight,
                ssthresh: None,
                inflight: sample.inflight,
                flight_size: sample.flight_size,
                rwnd: sample.rwnd.unwrap_or(first),
                pacing_rate: None,
                max_pacing_rate: None,
                delivery_rate: None,
                app_limited: false,
                srtt,
                min_rtt,
                delivered: sample.delivered,
                retransmits: sample.retransmits,
                dsack_dups: sample.dsack_dups,
                recovering: false,
                notsent: Bytes::ZERO,
                sndbuf: Bytes::ZERO,
                sndbuf_used: Bytes::ZERO,
                bbr: None,
            },
            receiver: None,
            path: None,
            truth: None,
        });
    }
    let mut oldest = 0;
    for at in 0..rows.len() {
        let trip = round_trip(&rows[at]);
        while rows[at].at.saturating_since(rows[oldest].at) > trip {
            oldest += 1;
        }
        let most = rows[oldest..=at].iter().map(|row| row.sender.inflight).max();
        rows[at].sender.cwnd = most.unwrap_or_default();
    }
    rows
}

/// Returns whether most losses leave the data in flight nearly unchanged.
fn bears_loss(rows: &[Row]) -> bool {
    let mut ratios: Vec<f64> = Vec::new();
    let mut last: Option<Instant> = None;
    for (at, pair) in rows.windows(2).enumerate() {
        if pair[1].sender.retransmits == pair[0].sender.retransmits {
            continue;
        }
        let trip = round_trip(&pair[1]);
        let new = last.is_none_or(|last| pair[1].at.saturating_since(last) > trip * 2);
        last = Some(pair[1].at);
        if !new || ratios.is_empty() && at == 0 {
            continue;
        }
        let later = rows.partition_point(|row| row.at <= pair[1].at + trip * 3);
        let before = pair[0].sender.cwnd.get() as f64;
        if let Some(row) = rows.get(later).filter(|_| before > 0.0) {
            ratios.push(row.sender.cwnd.get() as f64 / before);
        }
    }
    let bearing = ratios.iter().filter(|ratio| **ratio >= BEARS).count();
    ratios.len() > 1 && 2 * bearing > ratios.len()
}

/// Returns whether the data in flight often falls although nothing was lost. A congestion window does not
/// fall without a loss. The amount that a full send buffer releases does fall, from one burst to the next.
fn shrinks_without_losses(rows: &[Row]) -> bool {
    let Some(first) = rows.first() else { return false };
    let (mut since, mut lost_at, mut falls, mut steps) = (first, None, 0usize, 0u32);
    for pair in rows.windows(2) {
        let row = &pair[1];
        if row.sender.retransmits > pair[0].sender.retransmits {
            lost_at = Some(row.at);
        }
        let trip = round_trip(row);
        if row.at.saturating_since(since.at) < trip {
            continue;
        }
        // The window falls at the loss, and again when the loss has been repaired.
        if lost_at.is_none_or(|at| row.at.saturating_since(at) > trip * REPAIR * 2) {
            steps += 1;
            falls += usize::from((row.sender.cwnd.get() as f64) < DRAINED * since.sender.cwnd.get() as f64);
        }
        since = row;
    }
    falls as f64 >= UNEVEN * f64::from(steps) && falls > 0
}

/// Returns whether the data in flight is constant.
fn is_flat(window: Window<'_>, mss: u64) -> bool {
    let mut values: Vec<f64> = window.rows.iter().map(|row| row.sender.cwnd.get() as f64).collect();
    values.sort_by(f64::total_cmp);
    let at = |share| nearest(&values, share).unwrap_or(0.0);
    !values.is_empty() && at(MIDDLE.1) - at(MIDDLE.0) <= (FLAT * at(0.5)).max((2 * mss) as f64)
}

#[cfg(test)]
mod tests {
    use fullpipe_units::Duration;

    use super::*;
    use crate::classify::samples::{MSS, row};
    use crate::input::capture::{self, made::spoilt};

    /// A single low sample among ten does not make a window vary, nor does a single high one. The measure once ignored
    /// only the high one.
    #[test]
    fn one_sample_in_ten_does_not_make_a_window_vary() {
        for outlier in [50, 150] {
            let mut rows: Vec<Row> = (1..=10).map(row).collect();
            rows[4].sender.cwnd = Bytes::new(outlier * MSS);
            assert!(is_flat(Window { rows: &rows }, MSS), "{outlier} segments among 100");
        }
    }

    /// Corrupted captures that are still readable are classified without a panic.
    #[test]
    fn any_capture_is_classified() {
        for octets in spoilt() {
            let read = capture::read(&octets[..], None);
            let _ = read.map(|read| read.packets().map(|packets| classify_capture(packets, None)));
        }
    }

    /// The reader frees 128 KiB at a time, and a sender with a small `Cwnd` refills this space with one flight every 44
    /// ms, because ACKs are late while the window does not advance. The long round trips could be mistaken for a queue,
    /// and the steady rate for a shaper.
    #[test]
    fn a_window_that_is_full_by_turns_is_its_readers() {
        const FREED: u64 = 131_072;
        const FLIGHT: u64 = 16 * MSS;
        let sample = |nth: u64, reader_rests: bool| {
            let millis = 20 * nth;
            let (cycle, phase) = (millis / 330, millis % 330);
            let filled = (FLIGHT * (phase / 44)).min(FREED);
            let room = if cycle == 0 || !reader_rests { 188_928 } else { FREED - filled };
            let in_flight = FLIGHT.min(room);
            let sent = if in_flight < MSS { 0 } else { (in_flight / MSS) as u32 };
            Sample {
                at: Instant::ZERO + Duration::from_millis(millis),
                flight_size: Bytes::new(in_flight),
                inflight: Bytes::new(in_flight),
                rwnd: Some(Bytes::new(room)),
                rtt: Some(Duration::from_millis(if nth < 4 { 10 } else { 44 })),
                least_rtt: Some(Duration::from_millis(if nth < 4 { 10 } else { 44 })),
                delivered: Bytes::new(FREED * cycle + filled),
                retransmits: 0,
                dsack_dups: 0,
                sent,
                full: if in_flight + MSS > room { sent } else { 0 },
                short: 0,
                prompt: sent,
                acks: 1,
                unseen: false,
            }
        };
        let main = |reader_rests| {
            let samples: Vec<Sample> = (1..=500).map(|nth| sample(nth, reader_rests)).collect();
            let line = Some(Rate::from_bps(20_000_000));
            let packets = Packets::new(&samples, Side::Sender, Bytes::new(MSS), line);
            packets.classify().findings[0].limit
        };
        assert_eq!(main(true), Limit::ReceiverApp);
        assert_ne!(main(false), Limit::ReceiverApp);
    }
}
