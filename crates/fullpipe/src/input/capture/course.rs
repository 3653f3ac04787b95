//! What a direction does over time, in spans that grow with the capture: a day takes no more room than a minute.

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::input::iperf3::Interval;

/// Length of a span at first.
const SPAN: Duration = Duration::from_millis(50);
/// Most spans: then two become one.
const MOST_SPANS: usize = 4_096;
/// Length of an interval of the log that is made of them, unless there would be few.
const INTERVAL: Duration = Duration::from_secs(1);
/// Intervals that a log has at least, if there are as many spans.
const FEWEST: usize = 10;

/// What happened in a span of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    /// Octets acknowledged.
    pub(super) acked: u64,
    /// Segments sent again.
    pub(super) retransmits: u64,
    /// Most octets in flight.
    pub(super) flight_size: u64,
    /// The receiver's window at the end.
    pub(super) window: Option<u64>,
    rtts: u64,
    rtt_sum: Duration,
}

impl Span {
    fn rtt(&self) -> Option<Duration> {
        (self.rtts > 0).then(|| self.rtt_sum / self.rtts)
    }

    fn with(self, later: Self) -> Self {
        Self {
            acked: self.acked + later.acked,
            retransmits: self.retransmits + later.retransmits,
            flight_size: self.flight_size.max(later.flight_size),
            window: later.window.or(self.window),
            rtts: self.rtts + later.rtts,
            rtt_sum: self.rtt_sum + later.rtt_sum,
        }
    }
}

/// The spans of one direction.
#[derive(Clone, Debug)]
pub(super) struct Course {
    begin: Instant,
    width: Duration,
    spans: Vec<Span>,
}

impl Course {
    pub(super) fn new(begin: Instant) -> Self {
        Self { begin, width: SPAN, spans: Vec::new() }
    }

    /// The span of `now`; that of the first moment for what the file has out of order before it.
    pub(super) fn at(&mut self, now: Instant) -> &mut Span {
        let since = now.saturating_since(self.begin);
        while since.as_nanos() / self.width.as_nanos() >= MOST_SPANS as u64 {
            self.spans = self
                .spans
                .chunks(2)
                .map(|pair| pair.iter().fold(Span::default(), |a, &b| a.with(b)))
                .collect();
            self.width = self.width * 2;
        }
        let number = (since.as_nanos() / self.width.as_nanos()) as usize;
        if self.spans.len() <= number {
            self.spans.resize(number + 1, Span::default());
        }
        &mut self.spans[number]
    }

    pub(super) fn rtt_sample(&mut self, now: Instant, rtt: Duration) {
        let span = self.at(now);
        span.rtts += 1;
        span.rtt_sum += rtt;
    }

    /// Most octets in flight at once.
    pub(super) fn most_in_flight(&self) -> Bytes {
        Bytes::new(self.spans.iter().map(|span| span.flight_size).max().unwrap_or(0))
    }

    /// The time from its begin to the end of the last span in which something was acknowledged.
    pub(super) fn length(&self) -> Duration {
        self.width * self.moving() as u64
    }

    fn moving(&self) -> usize {
        self.spans.iter().rposition(|span| span.acked > 0).map_or(0, |last| last + 1)
    }

    /// Mean of all RTT samples, and the largest of a span's means.
    pub(super) fn rtts(&self) -> Option<(Duration, Duration)> {
        let all = self.spans.iter().fold(Span::default(), |a, &b| a.with(b));
        Some((all.rtt()?, self.spans.iter().filter_map(Span::rtt).max()?))
    }

    /// The spans as a log's intervals; `beyond` is the part of the round trip that samples lack.
    pub(super) fn intervals(&self, beyond: Duration) -> Vec<Interval> {
        let spans = &self.spans[..self.moving()];
        let fit = (INTERVAL.as_nanos() / self.width.as_nanos()).max(1) as usize;
        let size = fit.min((spans.len() / FEWEST).max(1));
        let mut window = None;
        spans
            .chunks(size)
            .enumerate()
            .map(|(number, chunk)| {
                let start = Instant::ZERO + self.width * (number * size) as u64;
                let length = self.width * chunk.len() as u64;
                let sum = chunk.iter().fold(Span { window, ..Span::default() }, |a, &b| a.with(b));
                window = sum.window;
                Interval {
                    start,
                    end: start + length,
                    bytes: Bytes::new(sum.acked),
                    rate: Rate::of(Bytes::new(sum.acked), length),
                    retransmits: Some(sum.retransmits),
                    lossy_streams: u64::from(sum.retransmits > 0),
                    cwnd: None,
                    snd_wnd: sum.window.map(Bytes::new),
                    rtt: sum.rtt().map(|rtt| rtt + beyond),
                    datagrams: None,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the length of a capture, its sums stay and its room is bounded.
    #[test]
    fn a_day_takes_no_more_room_than_a_minute() {
        let mut course = Course::new(Instant::ZERO);
        for second in 0..86_400 {
            course.at(Instant::from_nanos(second * 1_000_000_000)).acked += 1_000;
        }
        assert!(course.spans.len() <= MOST_SPANS);
        let intervals = course.intervals(Duration::ZERO);
        assert_eq!(intervals.iter().map(|interval| interval.bytes.get()).sum::<u64>(), 86_400_000);
        assert!(intervals.windows(2).all(|pair| pair[0].end == pair[1].start));
    }
}
