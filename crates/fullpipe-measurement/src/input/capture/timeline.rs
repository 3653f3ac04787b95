//! Timeline of one direction, in spans that grow with the capture: a day takes no more memory than a minute.

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::measurement::Interval;
use crate::measurement::packets::{Sample, Side};

/// Initial length of a span: a tenth of the RTT of a long path.
const SPAN: Duration = Duration::from_millis(10);
/// Length of an interval of the log that is built from spans, unless there would be too few intervals.
const INTERVAL: Duration = Duration::from_secs(1);
/// Minimum number of intervals of a log, if there are as many spans.
const FEWEST: usize = 10;

/// Minimum time from the tap to the receiver and back at which the RTT is known although the capture point is
/// not. A shorter time may be only the response time of a host.
const TELLING: Duration = Duration::from_millis(1);
/// Minimum silence that counts as a gap in the capture, if ACKs of uncaptured data follow.
const AWAY: Duration = Duration::from_millis(100);

/// Counts of one direction in a span of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    /// Bytes known to have arrived by the end of the span.
    pub(super) delivered: u64,
    /// Bytes sent by the end of the span.
    pub(super) sent_to: u64,
    /// Bytes that were acknowledged but not captured.
    pub(super) missed: u64,
    /// Retransmitted segments.
    pub(super) retransmits: u64,
    /// Segments that the receiver reported as duplicates (D-SACK).
    pub(super) duplicates: u64,
    /// Maximum amount of data sent but not acknowledged; `inflight` excludes SACKed data.
    pub(super) flight_size: u64,
    pub(super) inflight: u64,
    /// Receive window at the end of the span.
    pub(super) window: Option<u64>,
    /// Number of packets with new data; `full` is the number of packets that filled the window, and `short`
    /// is the number of packets after which the sender had no more data.
    pub(super) sent: u32,
    pub(super) full: u32,
    pub(super) short: u32,
    /// Number of packets that left immediately after an ACK; `acks` is the number of ACKs that passed.
    pub(super) prompt: u32,
    pub(super) acks: u32,
    /// Number and sum of the samples of the time from the tap to the receiver and back; the next field is the
    /// shortest sample.
    far: (u32, Duration),
    least_far: Option<Duration>,
    /// Shortest time from the tap to the sender and back.
    near: Option<Duration>,
}

impl Span {
    fn far(&self) -> Option<Duration> {
        (self.far.0 > 0).then(|| self.far.1 / u64::from(self.far.0))
    }

    fn with(self, later: Self) -> Self {
        Self {
            delivered: self.delivered.max(later.delivered),
            sent_to: self.sent_to.max(later.sent_to),
            missed: self.missed + later.missed,
            retransmits: self.retransmits + later.retransmits,
            duplicates: self.duplicates + later.duplicates,
            flight_size: self.flight_size.max(later.flight_size),
            inflight: self.inflight.max(later.inflight),
            window: later.window.or(self.window),
            sent: self.sent.saturating_add(later.sent),
            full: self.full.saturating_add(later.full),
            short: self.short.saturating_add(later.short),
            acks: self.acks.saturating_add(later.acks),
            prompt: self.prompt.saturating_add(later.prompt),
            far: (self.far.0.saturating_add(later.far.0), self.far.1 + later.far.1),
            least_far: self.least_far.into_iter().chain(later.least_far).min(),
            near: self.near.into_iter().chain(later.near).min(),
        }
    }

    /// Returns the mean RTT of the span, or `None` if it is not observable. A part that cannot be measured in
    /// the span takes its value from `least`.
    fn rtt(&self, side: Side, least: Loops) -> Option<Duration> {
        self.rtt_with(self.far(), side, least)
    }

    /// Returns the minimum RTT of the span.
    fn least_rtt(&self, side: Side, least: Loops) -> Option<Duration> {
        self.rtt_with(self.least_far, side, least)
    }

    fn rtt_with(&self, far: Option<Duration>, side: Side, least: Loops) -> Option<Duration> {
        // At the receiver the far part is zero, and an unknown capture point may be at the receiver.
        if side == Side::Unknown && least.far < TELLING {
            return None;
        }
        // The near part is too long if the sender has no data to send. It contains queueing delay only if the
        // tap is not at the sender.
        let near = if side == Side::Sender { least.near } else { self.near.unwrap_or(least.near) };
        let far = if side == Side::Receiver { Some(least.far) } else { far };
        let known = self.far.0 > 0 && (side != Side::Receiver || self.near.is_some());
        far.filter(|_| known).map(|far| near + far)
    }
}

/// Shortest times from the tap to each endpoint and back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loops {
    pub(super) near: Duration,
    pub(super) far: Duration,
}

/// Spans of one direction.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    begin: Instant,
    width: Duration,
    spans: Vec<Span>,
    /// Values of `flight_size` and `inflight` after the last packet, which apply until the next one.
    rests: (u64, u64),
}

impl Timeline {
    pub(super) fn new(begin: Instant) -> Self {
        Self { begin, width: SPAN, spans: Vec::new(), rests: (0, 0) }
    }

    /// Returns the span of a packet; `rests` is the data in flight after the packet. Spans between the last
    /// packet and this one get the values after the last packet.
    #[inline]
    pub(super) fn passes(&mut self, now: Instant, rests: (u64, u64), most: usize) -> &mut Span {
        let number = self.number(now, most);
        self.rests = rests;
        &mut self.spans[number]
    }

    /// Returns the span at `now`, out of at most `most`; packets that are out of order and precede the first
    /// packet get the first span.
    #[inline]
    pub(super) fn at(&mut self, now: Instant, most: usize) -> &mut Span {
        let number = self.number(now, most);
        &mut self.spans[number]
    }

    #[inline]
    fn number(&mut self, now: Instant, most: usize) -> usize {
        let since = now.saturating_since(self.begin).as_nanos();
        let number = (since / self.width.as_nanos()) as usize;
        if number < self.spans.len() { number } else { self.extend(since, most.max(2)) }
    }

    /// Adds spans up to the one at `since`; pairs of spans are merged until there are at most `most`.
    fn extend(&mut self, since: u64, most: usize) -> usize {
        while since / self.width.as_nanos() >= most as u64 {
            self.spans = self
                .spans
                .chunks(2)
                .map(|pair| pair.iter().skip(1).fold(pair[0], |a, &b| a.with(b)))
                .collect();
            self.width = self.width * 2;
        }
        let number = (since / self.width.as_nanos()) as usize;
        if self.spans.len() <= number {
            let quiet = Span {
                flight_size: self.rests.0,
                inflight: self.rests.1,
                delivered: self.spans.last().map_or(0, |last| last.delivered),
                sent_to: self.spans.last().map_or(0, |last| last.sent_to),
                ..Span::default()
            };
            self.spans.resize(number + 1, quiet);
        }
        number
    }

    /// Reduces the number of spans to at most `most`.
    pub(super) fn shrink(&mut self, most: usize) {
        if self.spans.len() > most
            && let Some(last) = self.spans.len().checked_sub(1)
        {
            self.extend(self.width.as_nanos() * last as u64, most);
            self.spans.shrink_to_fit();
        }
    }

    /// Records a sample of the time from the tap to the receiver and back.
    pub(super) fn far_sample(&mut self, now: Instant, took: Duration, most: usize) {
        let span = self.at(now, most);
        span.far = (span.far.0.saturating_add(1), span.far.1 + took);
        span.least_far = Some(span.least_far.map_or(took, |least| least.min(took)));
    }

    /// Records a sample of the time from the tap to the sender and back.
    pub(super) fn near_sample(&mut self, now: Instant, took: Duration, most: usize) {
        let span = self.at(now, most);
        span.near = Some(span.near.map_or(took, |least| least.min(took)));
    }

    /// Treats sent data as delivered, with nothing in flight, because no ACK was captured.
    pub(super) fn take_sent_as_delivered(&mut self) {
        for span in &mut self.spans {
            (span.delivered, span.flight_size, span.inflight) = (span.sent_to, 0, 0);
        }
    }

    /// Returns for each span whether it is a gap in the capture: nothing was captured although data moved.
    fn unseen(&self) -> Vec<bool> {
        let least = AWAY.as_nanos().div_ceil(self.width.as_nanos()) as usize;
        let mut unseen = vec![false; self.spans.len()];
        let mut quiet = 0;
        for (number, span) in self.spans.iter().enumerate() {
            if span.missed > 0 && quiet >= least {
                unseen[number - quiet..number].fill(true);
            }
            quiet = if span.sent == 0 && span.acks == 0 && span.retransmits == 0 { quiet + 1 } else { 0 };
        }
        unseen
    }

    /// Returns the total length of the gaps in the capture, in which data moved.
    pub(super) fn away(&self) -> Duration {
        self.width * self.unseen().into_iter().filter(|unseen| *unseen).count() as u64
    }

    /// Returns the maximum amount of data in flight.
    pub(super) fn most_in_flight(&self) -> Bytes {
        Bytes::new(self.spans.iter().map(|span| span.flight_size).max().unwrap_or(0))
    }

    /// Returns the time of the first packet.
    pub(super) const fn begin(&self) -> Instant {
        self.begin
    }

    /// Returns the time from the beginning to the end of the last span in which data arrived.
    pub(super) fn length(&self) -> Duration {
        self.width * self.moving() as u64
    }

    fn moving(&self) -> usize {
        let all = self.spans.last().map_or(0, |last| last.delivered);
        if all == 0 { 0 } else { self.spans.iter().take_while(|span| span.delivered < all).count() + 1 }
    }

    /// Returns the mean of all RTT samples, and the maximum of the spans' means.
    pub(super) fn rtts(&self, side: Side, least: Loops) -> Option<(Duration, Duration)> {
        let of = |span: &Span| Some((span.rtt(side, least)?, u64::from(span.far.0)));
        let (mut sum, mut count, mut most) = (0u128, 0u128, None);
        for (rtt, samples) in self.spans.iter().filter_map(of) {
            sum += u128::from(rtt.as_nanos()) * u128::from(samples);
            count += u128::from(samples);
            most = most.max(Some(rtt));
        }
        let mean = sum.checked_div(count).map(|nanos| Duration::from_nanos(nanos as u64));
        mean.zip(most)
    }

    /// Returns the spans as samples for the classifier.
    pub(super) fn samples(&self, side: Side, least: Loops) -> Vec<Sample> {
        let (mut retransmits, mut dsack_dups, mut window) = (0, 0, None);
        let unseen = self.unseen();
        let sample = |(number, span): (usize, &Span)| {
            retransmits += span.retransmits;
            dsack_dups += span.duplicates;
            window = span.window.or(window);
            Sample {
                at: Instant::ZERO + self.width * (number as u64 + 1),
                flight_size: Bytes::new(span.flight_size),
                inflight: Bytes::new(span.inflight),
                rwnd: window.map(Bytes::new),
                rtt: span.rtt(side, least),
                least_rtt: span.least_rtt(side, least),
                delivered: Bytes::new(span.delivered),
                retransmits,
                dsack_dups,
                sent: span.sent,
                full: span.full,
                short: span.short,
                acks: span.acks,
                prompt: span.prompt,
                unseen: unseen[number],
            }
        };
        self.spans[..self.moving()].iter().enumerate().map(sample).collect()
    }

    /// Returns the spans as the intervals of a log.
    pub(super) fn intervals(&self, side: Side, least: Loops) -> Vec<Interval> {
        let spans = &self.spans[..self.moving()];
        let fit = (INTERVAL.as_nanos() / self.width.as_nanos()).max(1) as usize;
        let size = fit.min((spans.len() / FEWEST).max(1));
        let (mut window, mut before) = (None, 0);
        spans
            .chunks(size)
            .enumerate()
            .map(|(number, chunk)| {
                let start = Instant::ZERO + self.width * (number * size) as u64;
                let length = self.width * chunk.len() as u64;
                let sum = chunk.iter().skip(1).fold(chunk[0], |a, &b| a.with(b));
                window = sum.window.or(window);
                let bytes = Bytes::new(sum.delivered.saturating_sub(before));
                before = sum.delivered;
                Interval {
                    start,
                    end: start + length,
                    bytes,
                    rate: Rate::of(bytes, length),
                    retransmits: Some(sum.retransmits),
                    lossy_streams: u64::from(sum.retransmits > 0),
                    cwnd: None,
                    snd_wnd: window.map(Bytes::new),
                    rtt: sum.rtt(side, least),
                    datagrams: None,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For a capture of any length, the sums stay the same and the memory is bounded.
    #[test]
    fn a_day_takes_no_more_room_than_a_minute() {
        let mut timeline = Timeline::new(Instant::ZERO);
        for second in 0..86_400 {
            timeline.at(Instant::from_nanos(second * 1_000_000_000), 1_024).delivered = 1_000 * (second + 1);
        }
        assert!(timeline.spans.len() <= 1_024);
        timeline.shrink(64);
        assert!(timeline.spans.len() <= 64 && timeline.spans.capacity() < 128);
        let intervals = timeline.intervals(Side::Sender, Loops::default());
        assert_eq!(intervals.iter().map(|interval| interval.bytes.get()).sum::<u64>(), 86_400_000);
        assert!(intervals.windows(2).all(|pair| pair[0].end == pair[1].start));
    }
}
