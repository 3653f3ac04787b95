//! Data of a run for the charts, from a log, a capture or the simulator.

use std::num::NonZeroUsize;

use fullpipe_lab::campaign::{self, Job, JobWatch, RunPanicked};
use fullpipe_lab::scenario::{PathSpec, Scenario};
use fullpipe_lab::sim;
use fullpipe_lab::trace::{Row, Sink};
use fullpipe_measurement::measurement::packets::Sample;
use fullpipe_measurement::measurement::{Interval, Transfer};
use fullpipe_measurement::segment::HEADERS;
use fullpipe_tcp::SendLimit;
use fullpipe_units::{Bytes, Duration, Rate};

use super::curve::{Curve, short};
use crate::diagnosis::PathSummary;
use crate::explain::RttSource;

/// Number of rows of a run that is repeated for the charts, before thinning.
const ROWS: u64 = 1_500;
/// Minimum interval between rows. On a slow path, packets are further apart, so a shorter interval adds
/// nothing.
const FINEST: Duration = Duration::from_millis(1);
/// Number of slices of a run; each shows the limit that applied for most of it.
const BAND_SLICES: usize = 150;
/// Number of mean rates over a run: one per second for a run of one minute.
const MEANS: usize = 60;
/// Number of dots in the phase plot: more than a few hundred would cover each other.
const DOTS: usize = 350;

/// One run, or one flow of a run, in the base units named in the keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// Label that distinguishes this scene from the others.
    pub(super) label: String,
    /// Origin of the data, as a sentence.
    pub(super) note: String,
    /// Payload rate, over the last round trip or the interval of the log.
    pub(super) rate_bps: Option<Curve>,
    /// Payload rate over intervals as long as those of a log, to compare runs.
    pub(super) mean_bps: Option<Curve>,
    /// Rate that the sender's pacing allows.
    pub(super) pacing_bps: Option<Curve>,
    pub(super) cwnd_bytes: Option<Curve>,
    pub(super) inflight_bytes: Option<Curve>,
    pub(super) rwnd_bytes: Option<Curve>,
    pub(super) rtt_ms: Option<Curve>,
    pub(super) queue_bytes: Option<Curve>,
    /// Retransmitted segments, if there are any.
    pub(super) retransmits: Option<Curve>,
    pub(super) band: Vec<LimitSpan>,
    pub(super) phase: Option<Phase>,
    pub(super) path: Lines,
}

/// Limit that applied for a span of time.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitSpan {
    /// Start of the span, in seconds from the start of the run.
    pub from_s: f64,
    /// End of the span, in seconds from the start of the run.
    pub to_s: f64,
    /// Name of the limit.
    pub limit: &'static str,
}

/// Points of a run: RTT and rate against data in flight.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Phase {
    pub(super) t: Vec<f64>,
    pub(super) inflight_bytes: Vec<f64>,
    pub(super) rtt_ms: Vec<f64>,
    pub(super) rate_bps: Vec<f64>,
}

/// Straight lines in the charts: what the path allows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lines {
    /// Maximum payload rate.
    pub(super) line_bps: Option<f64>,
    /// RTT without a queue.
    pub(super) rtt_ms: Option<f64>,
    pub(super) bdp_bytes: Option<f64>,
    /// Capacity of the bottleneck queue.
    pub(super) buffer_bytes: Option<f64>,
}

impl Scene {
    /// Creates the scene of a log. Only a JSON log contains RTTs. Without them, data in flight is the rate
    /// times a constant RTT, and a phase plot would show nothing but this product.
    pub(super) fn of_log(log: &Transfer, path: &PathSummary) -> Self {
        let known = path.rtt_source != RttSource::Unknown;
        let mut moments = Vec::new();
        let mut sampled = true;
        for interval in &log.intervals {
            let end = interval.end.as_secs_f64();
            let rtt = interval.rtt.filter(|rtt| !rtt.is_zero());
            sampled &= rtt.is_some();
            let rate = interval.rate.as_bps() as f64;
            let ms = rtt.map_or(path.rtt_ms, Duration::as_millis_f64);
            moments.push((interval, end, rate, rtt.map(Duration::as_millis_f64), rate * ms / 8e3));
        }
        let bytes = |of: fn(&Interval) -> Option<Bytes>| {
            let points: Vec<_> =
                moments.iter().filter_map(|(i, t, ..)| Some((*t, of(i)?.get() as f64))).collect();
            // Kernels that do not report a window print zeros.
            points.iter().any(|(_, v)| *v > 0.0).then_some(points)
        };
        let middle = |i: &Interval| 0.5 * (i.start.as_secs_f64() + i.end.as_secs_f64());
        let inflight: Vec<_> = moments.iter().map(|(i, .., inflight)| (middle(i), *inflight)).collect();
        let rates: Vec<_> = moments.iter().map(|(i, _, rate, ..)| (middle(i), *rate)).collect();
        let rtts: Vec<_> = moments.iter().filter_map(|(_, t, _, rtt, _)| Some((*t, (*rtt)?))).collect();
        let resent: Vec<_> = moments
            .iter()
            .filter_map(|(i, ..)| Some((middle(i), i.retransmits.filter(|n| *n > 0)? as f64)))
            .collect();
        let mut phase = Phase::default();
        if known && sampled {
            let step = moments.len().div_ceil(DOTS).max(1);
            for (_, t, rate, rtt, inflight) in moments.iter().step_by(step) {
                phase.push(*t, *inflight, rtt.unwrap_or_default(), *rate);
            }
        }
        Self {
            label: "Measured: the log".into(),
            note: format!(
                "These are the reports in the log. {}A log does not show the limit over time, so the \
                 findings apply to the whole test.",
                match (known, sampled) {
                    (true, true) => "The data in flight is rate x RTT of each report. ",
                    (true, false) =>
                        "The log has no RTT, so the data in flight is the rate times the RTT of the path. ",
                    (false, _) => "",
                }
            ),
            rate_bps: Curve::thinned(&rates),
            mean_bps: Curve::thinned(&rates),
            pacing_bps: None,
            cwnd_bytes: bytes(|i| i.cwnd).and_then(|points| Curve::thinned(&points)),
            inflight_bytes: Curve::thinned(&inflight).filter(|_| known),
            rwnd_bytes: bytes(|i| i.snd_wnd).and_then(|points| Curve::thinned(&points)),
            rtt_ms: Curve::thinned(&rtts),
            queue_bytes: None,
            retransmits: Curve::thinned(&resent),
            band: Vec::new(),
            phase: (!phase.t.is_empty()).then_some(phase),
            path: Lines::measured(path),
        }
    }

    /// Creates the scene of a capture, which has no Cwnd.
    pub(super) fn of_capture(samples: &[Sample], path: &PathSummary) -> Self {
        let moment = |sample: &Sample| Moment {
            t: sample.at.as_secs_f64(),
            inflight: sample.flight_size.get() as f64,
            rwnd: sample.rwnd.map_or(0.0, |rwnd| rwnd.get() as f64),
            delivered: sample.delivered.get() as f64,
            retransmits: sample.retransmits,
            rtts: sample.rtt.map_or((0.0, 0), |rtt| (rtt.as_millis_f64(), 1)),
            ..Moment::default()
        };
        let moments: Vec<Moment> = samples.iter().map(moment).collect();
        let rates = rates(&moments, path.rtt_ms / 1e3);
        let curve = |of: &dyn Fn(&Moment) -> Option<f64>| {
            let points: Vec<_> = moments.iter().filter_map(|m| Some((m.t, of(m)?))).collect();
            Curve::thinned(&points)
        };
        Self {
            label: "Measured: the capture".into(),
            note: "These are the packets of the capture, which shows neither Cwnd nor the send buffer. The \
                   data in flight is the data that the sender had sent and for which it had received no \
                   ACK. The rate is the mean over the last round trip."
                .into(),
            rate_bps: Curve::thinned(&rates),
            mean_bps: Curve::thinned(&means(&moments)),
            pacing_bps: None,
            cwnd_bytes: None,
            inflight_bytes: curve(&|m| Some(m.inflight)),
            rwnd_bytes: curve(&|m| (m.rwnd > 0.0).then_some(m.rwnd)),
            rtt_ms: curve(&Moment::rtt_ms),
            queue_bytes: None,
            retransmits: Curve::thinned(&resent(&moments)),
            band: Vec::new(),
            phase: phase(&moments, &rates, path.rtt_ms / 1e3),
            path: Lines::measured(path),
        }
    }

    /// Creates the scene of a simulated run across `path`; `rtt` is the RTT of its flows on the idle path.
    fn of_moments(label: String, note: String, moments: &[Moment], path: &PathSpec, rtt: Duration) -> Self {
        let lines = Lines::of(path, rtt);
        let started = moments.iter().position(|m| m.cwnd > 0.0).unwrap_or(moments.len());
        let moments = &moments[started..];
        let curve = |of: &dyn Fn(&Moment) -> Option<f64>| {
            let points: Vec<_> = moments.iter().filter_map(|m| Some((m.t, of(m)?))).collect();
            Curve::thinned(&points)
        };
        let rates = rates(moments, rtt.as_secs_f64());
        Self {
            label,
            note,
            rate_bps: Curve::thinned(&rates),
            mean_bps: Curve::thinned(&means(moments)),
            pacing_bps: curve(&|m| m.pacing),
            cwnd_bytes: curve(&|m| Some(m.cwnd)),
            inflight_bytes: curve(&|m| Some(m.inflight)),
            rwnd_bytes: curve(&|m| Some(m.rwnd)),
            rtt_ms: curve(&Moment::rtt_ms),
            queue_bytes: curve(&|m| m.queue),
            retransmits: Curve::thinned(&resent(moments)),
            band: band(moments),
            phase: phase(moments, &rates, rtt.as_secs_f64()),
            path: lines,
        }
    }

    /// Replaces the band of limits, for callers that classify limits in another way.
    #[must_use]
    pub fn with_band(self, band: Vec<LimitSpan>) -> Self {
        Self { band, ..self }
    }
}

impl Phase {
    fn push(&mut self, t: f64, inflight: f64, rtt_ms: f64, rate: f64) {
        self.t.push(short(t, 4));
        self.inflight_bytes.push(short(inflight, 5));
        self.rtt_ms.push(short(rtt_ms, 5));
        self.rate_bps.push(short(rate, 5));
    }
}

impl Lines {
    /// Returns the lines that are known for a measured path.
    fn measured(path: &PathSummary) -> Self {
        let known = path.rtt_source != RttSource::Unknown;
        Self {
            line_bps: path.link.map(|link| link.as_bps() as f64),
            rtt_ms: known.then_some(path.rtt_ms),
            bdp_bytes: path.bdp_bytes.map(|bdp| bdp as f64),
            buffer_bytes: None,
        }
    }

    fn of(path: &PathSpec, rtt: Duration) -> Self {
        let forward = &path.forward;
        let limiters = forward.policer.iter().chain(&forward.shaper);
        let rate = limiters.map(|limiter| limiter.rate).fold(forward.rate, Rate::min);
        let known = rate < Rate::MAX;
        let payload = rate.mul_div(path.mtu.saturating_sub(HEADERS), path.mtu);
        let buffer = forward.shaper.as_ref().map_or(forward.queue, |shaper| shaper.queue);
        Self {
            line_bps: known.then_some(payload.as_bps() as f64),
            rtt_ms: Some(rtt.as_millis_f64()),
            bdp_bytes: known.then(|| (rate * rtt).get() as f64),
            buffer_bytes: (known && buffer < Bytes::MAX).then_some(buffer.get() as f64),
        }
    }
}

/// Sum of all plotted flows at one instant.
#[derive(Clone, Debug, Default)]
struct Moment {
    t: f64,
    cwnd: f64,
    inflight: f64,
    rwnd: f64,
    pacing: Option<f64>,
    queue: Option<f64>,
    delivered: f64,
    retransmits: u64,
    /// Sum of the flows' RTTs in milliseconds, and the number of flows with an RTT.
    rtts: (f64, u32),
    /// Seconds per limit, in the order of [`SendLimit::ALL`].
    limit_times: Option<[f64; SendLimit::ALL.len()]>,
}

impl Moment {
    fn rtt_ms(&self) -> Option<f64> {
        (self.rtts.1 > 0).then(|| self.rtts.0 / f64::from(self.rtts.1))
    }

    fn add(&mut self, row: &Row) {
        let sender = &row.sender;
        // A flow that has not sent data yet is excluded from all sums.
        if sender.srtt.is_none() && sender.delivered.is_zero() && sender.inflight.is_zero() {
            return;
        }
        self.cwnd += sender.cwnd.get() as f64;
        self.inflight += sender.inflight.get() as f64;
        self.rwnd += sender.rwnd.get() as f64;
        if let Some(rate) = sender.pacing_rate {
            *self.pacing.get_or_insert_default() += rate.as_bps() as f64;
        }
        self.queue = row.path.map(|path| path.queue.get() as f64);
        self.delivered += sender.delivered.get() as f64;
        self.retransmits += sender.retransmits;
        if let Some(srtt) = sender.srtt {
            self.rtts = (self.rtts.0 + srtt.as_millis_f64(), self.rtts.1 + 1);
        }
        if let Some(truth) = &row.truth {
            let times = self.limit_times.get_or_insert_default();
            times.iter_mut().zip(truth.limit_times).for_each(|(sum, time)| *sum += time.as_secs_f64());
        }
    }
}

/// Data for the charts of one flow, or of all flows together.
struct Watch {
    flow: Option<u32>,
    moments: Vec<Moment>,
}

struct Watches<'w> {
    watches: Vec<Watch>,
    jobs: &'w dyn JobWatch,
}

impl Sink for Watches<'_> {
    fn goes_on(&self) -> bool {
        !self.jobs.abandons()
    }

    fn row(&mut self, row: &Row) {
        let t = row.at.as_secs_f64();
        for watch in &mut self.watches {
            if watch.flow.is_some_and(|flow| flow != row.flow) {
                continue;
            }
            if watch.moments.last().is_none_or(|moment| moment.t != t) {
                watch.moments.push(Moment { t, ..Moment::default() });
            }
            if let Some(moment) = watch.moments.last_mut() {
                moment.add(row);
            }
        }
    }
}

/// Repeats runs on all cores, with rows that are dense enough for a chart. The first scene of a run shows all of its
/// flows together; if a run has two to `each` flows, every flow also gets a separate scene. Returns `None` if `watch`
/// abandons the runs.
///
/// # Errors
/// Returns an error if a simulated run panicked.
pub(super) fn replay(
    jobs: &[Job],
    note: &str,
    each: usize,
    watch: &dyn JobWatch,
) -> Result<Option<Vec<Scene>>, RunPanicked> {
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let run = |scenario: &Scenario| watched(scenario, each, watch);
    let Some(runs) = campaign::run_watched_jobs(threads, jobs, run, watch)? else { return Ok(None) };
    let scene = |job: &Job, watch: Watch| {
        let flows = &job.scenario.flows;
        let label = match watch.flow {
            None if flows.len() > 1 => format!("{}: all {} flows", job.label, flows.len()),
            None => job.label.clone(),
            Some(flow) => format!("{}: flow {} ({})", job.label, flow + 1, flows[flow as usize].cc),
        };
        let rtt = match watch.flow {
            None => job.scenario.longest_rtt(),
            Some(flow) => job.scenario.rtt_of(&flows[flow as usize]),
        };
        Scene::of_moments(label, note.to_owned(), &watch.moments, &job.scenario.path, rtt)
    };
    let scenes = jobs
        .iter()
        .zip(runs)
        .flat_map(|(job, watches)| watches.into_iter().map(|watch| scene(job, watch)).collect::<Vec<_>>());
    Ok(Some(scenes.collect()))
}

fn watched(scenario: &Scenario, each: usize, jobs: &dyn JobWatch) -> Vec<Watch> {
    let flows = scenario.flows.len();
    let single = if (2..=each).contains(&flows) { 0..flows as u32 } else { 0..0 };
    let watch = |flow| Watch { flow, moments: Vec::new() };
    let watches = std::iter::once(None).chain(single.map(Some)).map(watch).collect();
    let mut watches = Watches { watches, jobs };
    let sample_every = (scenario.duration / ROWS).max(FINEST);
    sim::run_traced(&Scenario { sample_every, ..scenario.clone() }, &mut watches);
    watches.watches
}

/// Returns the times and numbers of retransmitted segments.
fn resent(moments: &[Moment]) -> Vec<(f64, f64)> {
    let more = |pair: &[Moment]| {
        let more = pair[1].retransmits - pair[0].retransmits;
        (more > 0).then_some((pair[1].t, more as f64))
    };
    moments.windows(2).filter_map(more).collect()
}

/// Returns RTT and rate against data in flight.
fn phase(moments: &[Moment], rates: &[(f64, f64)], rtt: f64) -> Option<Phase> {
    let mut phase = Phase::default();
    let step = moments.len().div_ceil(DOTS).max(1);
    // Data in flight is acknowledged one round trip later, so it is paired with the RTT at that later
    // time.
    let since = round_trips(moments, rtt);
    for (i, moment) in moments.iter().enumerate().step_by(step) {
        if let Some(rtt) = moment.rtt_ms() {
            phase.push(moment.t, moments[since[i]].inflight, rtt, rates[i].1);
        }
    }
    (!phase.t.is_empty()).then_some(phase)
}

/// Returns for each moment the index of the moment one round trip earlier, or of the first moment.
fn round_trips(moments: &[Moment], rtt: f64) -> Vec<usize> {
    let mut since = 0;
    let before = |(i, moment): (usize, &Moment)| {
        while since + 1 < i && moments[since + 1].t <= moment.t - rtt {
            since += 1;
        }
        since
    };
    moments.iter().enumerate().map(before).collect()
}

/// Returns the delivered rate at each moment, over the last round trip: within a round trip, data arrives in
/// bursts.
fn rates(moments: &[Moment], rtt: f64) -> Vec<(f64, f64)> {
    let rate = |(moment, since): (&Moment, usize)| {
        let before = &moments[since];
        let (time, bits) = (moment.t - before.t, 8.0 * (moment.delivered - before.delivered));
        (moment.t, if time > 0.0 { (bits / time).max(0.0) } else { 0.0 })
    };
    moments.iter().zip(round_trips(moments, rtt)).map(rate).collect()
}

/// Returns the mean delivered rate of each of [`MEANS`] equal parts, at its middle.
fn means(moments: &[Moment]) -> Vec<(f64, f64)> {
    let step = moments.len().div_ceil(MEANS).max(1);
    let marks: Vec<&Moment> = moments.iter().step_by(step).collect();
    let mean = |pair: &[&Moment]| {
        let (before, after) = (pair[0], pair[1]);
        let time = after.t - before.t;
        (0.5 * (before.t + after.t), 8.0 * (after.delivered - before.delivered) / time)
    };
    marks.windows(2).map(mean).collect()
}

/// Returns for each slice the limit that stopped the sender for most of it.
fn band(moments: &[Moment]) -> Vec<LimitSpan> {
    let mut band: Vec<LimitSpan> = Vec::new();
    let step = moments.len().div_ceil(BAND_SLICES).max(1);
    let marks: Vec<&Moment> = moments.iter().step_by(step).chain(moments.last()).collect();
    for pair in marks.windows(2) {
        let (Some(before), Some(after)) = (pair[0].limit_times, pair[1].limit_times) else { continue };
        let spent = |limit: &SendLimit| after[*limit as usize] - before[*limit as usize];
        let most = SendLimit::ALL.into_iter().max_by(|a, b| spent(a).total_cmp(&spent(b)));
        let Some(limit) = most.filter(|limit| spent(limit) > 0.0) else { continue };
        let (from, to) = (short(pair[0].t, 6), short(pair[1].t, 6));
        match band.last_mut() {
            Some(held) if held.limit == limit.name() && held.to_s == from => held.to_s = to,
            _ => band.push(LimitSpan { from_s: from, to_s: to, limit: limit.name() }),
        }
    }
    band
}
