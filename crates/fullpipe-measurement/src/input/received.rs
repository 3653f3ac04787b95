//! Measurements from samples of receiving sockets, where the sender is not sampled.
//!
//! A receiver knows the window that it advertises, how much of this window arrives per round trip, and
//! whether its application keeps up. It observes losses only as gaps, and does not observe the sender's
//! windows and buffers. The samples are summarised like a sender's log with windows and RTTs but without
//! Cwnd, so that the same rules explain them.

use fullpipe_lab::stats::upper_median;
use fullpipe_lab::trace::ReceiverSample as Sample;
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::iperf3::FEWEST_INTERVALS;
use super::{InputError, spans};
use crate::measurement::{
    Detail, Direction, Flow, Format, Hosts, Interval, Measurement, Origin, Protocol, Role, RttRange, Summary,
    Total, Totals,
};

/// Builds a measurement from the samples of each stream, in chronological order; `congestion` is the sender's
/// congestion control, if the sender reported it.
///
/// # Errors
/// Returns an error if nothing arrived, or if there are too few samples.
pub fn of_streams(streams: &[Vec<Sample>], congestion: Option<&str>) -> Result<Measurement, InputError> {
    let arrives = |samples: &&Vec<Sample>| {
        let begin = samples.first().map(|sample| sample.receiver.received);
        samples.iter().filter(|sample| Some(sample.receiver.received) > begin).count() >= FEWEST_INTERVALS
    };
    let streams: Vec<&Vec<Sample>> = streams.iter().filter(arrives).collect();
    let Some(longest) = streams.iter().max_by_key(|samples| samples.len()) else {
        return Err(InputError::new(
            "the receiver got too little data for a measurement",
            "measure for longer",
        ));
    };
    let (begin, end) =
        longest.first().zip(longest.last()).map_or_else(Default::default, |(a, b)| (a.at, b.at));
    let length = end.saturating_since(begin);
    let spans = spans::of_samples(begin, end, longest.iter().map(|sample| sample.at));
    let flows = streams.iter().map(|samples| Flow {
        id: samples.first().map_or(0, |sample| sample.flow),
        direction: Direction::Reverse,
        role: Role::Receiver,
        protocol: Protocol::Tcp,
        congestion_control: congestion.map(str::to_owned),
        mss: samples.iter().map(|sample| sample.mss).max().filter(|mss| !mss.is_zero()),
        offered: None,
        intervals: spans.iter().map(|&(from, to)| interval(begin, from, to, samples)).collect(),
        summary: summary(&[samples], length),
        detail: Some(Detail::ReceiverSamples((*samples).clone())),
    });
    let all: Vec<&[Sample]> = streams.iter().map(|samples| samples.as_slice()).collect();
    let totals = Totals { direction: Direction::Reverse, summary: summary(&all, length), datagrams: None };
    Ok(Measurement {
        origin: Origin { format: Format::Sockets, ..Origin::default() },
        hosts: Hosts::default(),
        flows: flows.collect(),
        totals: vec![totals],
        chosen: None,
    })
}

/// Builds a measurement of one receiving socket, the diagnosed one, from its samples and from those of other
/// sockets that share its path. All of them are sampled on one clock.
///
/// # Errors
/// Fails as [`of_streams`] does for the chosen socket.
pub fn of_one_among<'a>(
    samples: Vec<Sample>,
    others: impl Iterator<Item = &'a [Sample]>,
) -> Result<Measurement, InputError> {
    let begin = samples.first().map_or(Instant::ZERO, |sample| sample.at);
    let mut measurement = of_streams(&[samples], None)?;
    measurement.chosen = Some(0);
    let chosen = &measurement.flows[0];
    let at = |at: Instant| begin + at.saturating_since(Instant::ZERO);
    let companion = |samples: &'a [Sample]| {
        let (first, last) = (samples.first()?, samples.last()?);
        let of_chosen = |own: &Interval| interval(begin, at(own.start), at(own.end), samples);
        let intervals: Vec<Interval> = chosen.intervals.iter().map(of_chosen).collect();
        intervals.iter().any(|interval| !interval.bytes.is_zero()).then(|| Flow {
            id: first.flow,
            congestion_control: None,
            mss: Some(last.mss).filter(|mss| !mss.is_zero()),
            intervals,
            summary: summary(&[samples], last.at.saturating_since(first.at)),
            detail: None,
            ..*chosen
        })
    };
    let others: Vec<Flow> = others.filter_map(companion).collect();
    measurement.flows.extend(others);
    Ok(measurement)
}

/// Returns the sums of the data that arrived on all of `streams` during the test.
fn summary(streams: &[&[Sample]], length: Duration) -> Summary {
    let ends = streams.iter().filter_map(|samples| Some((samples.first()?, samples.last()?)));
    let bytes = ends.fold(Bytes::ZERO, |sum, (first, last)| sum + arrived(first, last));
    let rtts: Vec<Duration> = streams.iter().copied().flatten().filter_map(|sample| sample.rtt).collect();
    let mean = rtts.iter().map(|rtt| rtt.as_secs_f64()).sum::<f64>() / rtts.len().max(1) as f64;
    let least_and_most = rtts.iter().min().zip(rtts.iter().max());
    let rtt = least_and_most.map(|(min, max)| RttRange {
        min: *min,
        mean: Duration::from_secs_f64(mean),
        max: *max,
    });
    Summary { sent: None, received: Some(Total::mean(bytes, length, None)), rtt }
}

/// Returns the interval of a stream between two times. The window is the median of the samples, because at
/// the time of a single sample the reader may not have run yet.
fn interval(origin: Instant, from: Instant, to: Instant, samples: &[Sample]) -> Interval {
    let nth = |at: Instant| samples.partition_point(|sample| sample.at <= at).saturating_sub(1);
    let within = &samples[nth(from)..=nth(to)];
    let (first, last) = (&within[0], &within[within.len() - 1]);
    let at = |at: Instant| Instant::ZERO + at.saturating_since(origin);
    let (bytes, length) = (arrived(first, last), to.saturating_since(from));
    let windows: Vec<Bytes> = within.iter().map(|sample| sample.window).collect();
    let rtts: Vec<Duration> = within.iter().filter_map(|sample| sample.rtt).collect();
    Interval {
        start: at(from),
        end: at(to),
        bytes,
        rate: Rate::mean(bytes, length),
        retransmits: None,
        lossy_streams: 0,
        cwnd: None,
        snd_wnd: upper_median(windows, Ord::cmp),
        rtt: upper_median(rtts, Ord::cmp),
        datagrams: None,
    }
}

fn arrived(first: &Sample, last: &Sample) -> Bytes {
    last.receiver.received.saturating_sub(first.receiver.received)
}
