//! Samples of receiving sockets, where nobody watches the sender: all that one end of a transfer knows that it receives.
//!
//! A receiver knows its own window, which is the one that the sender is told, how much of it arrives in a round trip, and whether its
//! application keeps up. Of losses it sees the gaps only, and of the sender's windows and buffers nothing. The samples are summed
//! up as the log of a sender would be that has windows and round trips and no Cwnd, so that the same rules explain them.

use fullpipe_lab::trace::Received as Sample;
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::InputError;
use super::iperf3::{FEWEST_INTERVALS, Format, Interval, Iperf3Log, Role, RttRange, Summary};

/// Length of an interval, unless the test is so short that it would have few.
const INTERVAL: Duration = Duration::from_secs(1);
/// A test has at least so many intervals, if it has as many samples.
const FEWEST: u64 = 10;
/// Of what a receive buffer holds and may hold, what is unread while its reader falls behind.
const BEHIND: f64 = 0.25;

/// What receiving sockets told during a test.
#[derive(Clone, Debug)]
pub struct Received {
    log: Iperf3Log,
    behind: f64,
    unread: Bytes,
    rcvbuf: Bytes,
    out_of_order: u64,
    segments: u64,
}

impl Received {
    /// Of the samples of each stream, in order of time; `congestion` names the sender's congestion control, if it told.
    ///
    /// # Errors
    /// When nothing arrived, or there are too few samples to say anything.
    pub fn of(streams: &[Vec<Sample>], congestion: Option<String>) -> Result<Self, InputError> {
        let arrives = |samples: &&Vec<Sample>| {
            let begin = samples.first().map(|sample| sample.receiver.received);
            samples.iter().filter(|sample| Some(sample.receiver.received) > begin).count() >= FEWEST_INTERVALS
        };
        let streams: Vec<&Vec<Sample>> = streams.iter().filter(arrives).collect();
        let Some(longest) = streams.iter().max_by_key(|samples| samples.len()) else {
            return Err(InputError::new(
                "hardly anything arrived: that is no measurement",
                "measure for longer",
            ));
        };
        let all = || streams.iter().copied().flatten();
        let behind = all().filter(|sample| {
            let unread = sample.receiver.unread.get() as f64;
            unread > BEHIND * (unread + sample.window.get() as f64)
        });
        let share = behind.count() as f64 / all().count().max(1) as f64;
        let ends = || streams.iter().filter_map(|samples| Some((samples.first()?, samples.last()?)));
        let bytes = ends().fold(Bytes::ZERO, |sum, (first, last)| sum + arrived(first, last));
        let late = |(first, last): (&Sample, &Sample)| last.out_of_order.saturating_sub(first.out_of_order);
        let mss = all().map(|sample| sample.mss).max().filter(|mss| !mss.is_zero());
        Ok(Self {
            log: log(&streams, longest, bytes, mss, congestion),
            behind: share,
            unread: median(all().map(|sample| sample.receiver.unread).collect()),
            rcvbuf: all().map(|sample| sample.receiver.rcvbuf).max().unwrap_or_default(),
            out_of_order: ends().map(late).fold(0, u64::saturating_add),
            segments: bytes.get() / mss.map_or(1, Bytes::get),
        })
    }

    /// The samples summed up.
    pub const fn log(&self) -> &Iperf3Log {
        &self.log
    }

    /// Of the samples, the share in which the receiving application had fallen behind, 0 to 1.
    pub const fn behind(&self) -> f64 {
        self.behind
    }

    /// What usually waited to be read (`Recv-Q`).
    pub const fn unread(&self) -> Bytes {
        self.unread
    }

    /// The largest receive buffer.
    pub const fn rcvbuf(&self) -> Bytes {
        self.rcvbuf
    }

    /// Segments that came while an earlier one was missing, of all that came.
    pub const fn out_of_order(&self) -> (u64, u64) {
        (self.out_of_order, self.segments)
    }
}

fn log(
    streams: &[&Vec<Sample>],
    longest: &[Sample],
    bytes: Bytes,
    mss: Option<Bytes>,
    congestion_control: Option<String>,
) -> Iperf3Log {
    let (begin, end) =
        longest.first().zip(longest.last()).map_or_else(Default::default, |(a, b)| (a.at, b.at));
    let length = end.saturating_since(begin);
    let width = INTERVAL.min(length / FEWEST).max(Duration::from_millis(1));
    let (mut intervals, mut from) = (Vec::new(), begin);
    for (nth, sample) in longest.iter().enumerate().skip(1) {
        if sample.at.saturating_since(from) >= width || nth + 1 == longest.len() {
            let of_each = streams.iter().map(|samples| interval(begin, from, sample.at, samples));
            intervals.extend(of_each.reduce(Interval::added));
            from = sample.at;
        }
    }
    let rtts: Vec<Duration> = streams.iter().copied().flatten().filter_map(|sample| sample.rtt).collect();
    let mean = rtts.iter().map(|rtt| rtt.as_secs_f64()).sum::<f64>() / rtts.len().max(1) as f64;
    let ends = rtts.iter().min().zip(rtts.iter().max());
    let rtt = ends.map(|(min, max)| RttRange { min: *min, mean: Duration::from_secs_f64(mean), max: *max });
    let rate = if length.is_zero() { Rate::ZERO } else { Rate::of(bytes, length) };
    Iperf3Log {
        format: Format::Sockets,
        role: Role::Receiver,
        reverse: true,
        streams: streams.len(),
        congestion_control,
        mss,
        rtt,
        intervals,
        received: Some(Summary { length, bytes, rate, retransmits: None }),
        ..Iperf3Log::default()
    }
}

/// What arrived on a stream between two moments. The window is that of the middle sample: one of them may be of a moment at which
/// the reader had not come round yet.
fn interval(origin: Instant, from: Instant, to: Instant, samples: &[Sample]) -> Interval {
    let nth = |at: Instant| samples.partition_point(|sample| sample.at <= at).saturating_sub(1);
    let within = &samples[nth(from)..=nth(to)];
    let (first, last) = (&within[0], &within[within.len() - 1]);
    let at = |at: Instant| Instant::ZERO + at.saturating_since(origin);
    let (bytes, length) = (arrived(first, last), to.saturating_since(from));
    let rtts: Vec<Duration> = within.iter().filter_map(|sample| sample.rtt).collect();
    Interval {
        start: at(from),
        end: at(to),
        bytes,
        rate: if length.is_zero() { Rate::ZERO } else { Rate::of(bytes, length) },
        retransmits: None,
        lossy_streams: 0,
        cwnd: None,
        snd_wnd: Some(median(within.iter().map(|sample| sample.window).collect())),
        rtt: (!rtts.is_empty()).then(|| median(rtts)),
        datagrams: None,
    }
}

fn arrived(first: &Sample, last: &Sample) -> Bytes {
    last.receiver.received.saturating_sub(first.receiver.received)
}

fn median<T: Ord + Copy + Default>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
