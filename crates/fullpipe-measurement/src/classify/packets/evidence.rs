//! Findings from packets: evidence that can be checked in the capture, and questions that packets leave open.

use fullpipe_units::{Bytes, Duration, Instant};

use super::Packets;
use crate::classify::losses::Losses;
use crate::classify::tally::{self, Tally};
use crate::classify::window::{payload, stretch};
use crate::classify::{Finding, Limit, LimitPeriod};
use crate::measurement::packets::{Sample, Side};
use crate::thresholds::queue;

/// Returns one finding per limit, longest first.
pub(super) fn findings(packets: &Packets<'_>, intervals: &[LimitPeriod], losses: &Losses) -> Vec<Finding> {
    let mut tallies: Vec<Tally<'_, Sample>> = Vec::new();
    let samples = packets.samples;
    let at = |when: Instant| samples.partition_point(|sample| sample.at <= when);
    let before = |number: usize| number.checked_sub(1).map_or(0, |last| samples[last].delivered.get());
    for interval in intervals {
        let (from, to) = (at(interval.from), at(interval.to));
        let tally = Tally::among(&mut tallies, interval.limit);
        let delivered = before(to).saturating_sub(before(from)) as f64;
        tally.add(interval.length(), interval.confidence, delivered);
        tally.rows.extend(&samples[from..to]);
    }
    let all = Tally::longest_first(&mut tallies);
    tallies.into_iter().map(|tally| Time { packets, losses, tally }.finding(all)).collect()
}

/// Time during which one limit applied.
struct Time<'a> {
    packets: &'a Packets<'a>,
    losses: &'a Losses,
    tally: Tally<'a, Sample>,
}

impl Time<'_> {
    fn finding(&self, all: f64) -> Finding {
        let (evidence, could_not_tell) = self.evidence();
        Finding {
            limit: self.tally.limit,
            what: self.what().into(),
            share: self.tally.share(all),
            confidence: self.tally.confidence(),
            ceiling: self.tally.ceiling(),
            evidence,
            could_not_tell,
            next_test: self.next_test().map(Into::into),
        }
    }

    fn what(&self) -> &'static str {
        match self.tally.limit {
            Limit::Sndbuf if self.window().is_none() => {
                "the send buffer or the receiver's window limits the data in flight"
            }
            Limit::Sndbuf => "the send buffer limits the data in flight, although every window has room",
            Limit::SlowStart => "slow start: the data in flight still doubles each round trip",
            Limit::Pacing => "the sender paces packets at a fixed rate",
            _ => self.tally.what(|| self.losses.episodes > 0, || self.queued()),
        }
    }

    fn median(&self, value: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        self.tally.median(value)
    }

    /// Returns the median data in flight; samples in which no new data was sent are ignored.
    fn in_flight(&self) -> Bytes {
        let of = |sample: &Sample| (sample.sent > 0).then_some(sample.flight_size.get() as f64);
        Bytes::new(self.median(of).unwrap_or(0.0) as u64)
    }

    fn window(&self) -> Option<Bytes> {
        self.median(|sample| sample.rwnd.map(|rwnd| rwnd.get() as f64)).map(|bytes| Bytes::new(bytes as u64))
    }

    fn sum(&self, of: fn(&Sample) -> u32) -> u64 {
        self.tally.rows.iter().map(|sample| u64::from(of(sample))).sum()
    }

    /// Returns the median and the minimum RTT.
    fn round_trips(&self) -> Option<(Duration, Duration)> {
        let usual = self.median(|sample| sample.rtt.map(Duration::as_secs_f64))?;
        let least = self.packets.samples.iter().filter_map(|sample| sample.rtt).min()?;
        Some((tally::rounded(usual), least))
    }

    /// Returns whether there is a standing queue, that is, whether a queue delays even the fastest packet of
    /// each round trip.
    fn queued(&self) -> bool {
        let rows = &self.packets.rows;
        let stretched = |sample: &Sample| stretch(&rows[rows.partition_point(|row| row.at < sample.at)]);
        self.median(stretched).is_some_and(|stretch| stretch >= queue::STANDS)
    }

    fn round_trip(&self) -> Option<String> {
        let (usual, least) = self.round_trips()?;
        let queued = self.queued();
        if !queued && usual.as_secs_f64() >= queue::STANDS * least.as_secs_f64() {
            return Some(format!(
                "the median RTT is {usual} and the minimum {least}, because bursts build up a queue that \
                 drains before the next burst"
            ));
        }
        Some(tally::round_trip(usual, least, queued))
    }

    /// Returns the evidence and the open questions.
    fn evidence(&self) -> (Vec<String>, Vec<String>) {
        let (mut evidence, mut open) = (Vec::new(), Vec::new());
        match self.tally.limit {
            Limit::App => self.app(&mut evidence, &mut open),
            Limit::Rwnd | Limit::ReceiverApp => self.full_window(&mut evidence, &mut open),
            Limit::SlowStart => {
                evidence.push(format!(
                    "the data in flight is {} (median) and grows with each round trip",
                    self.in_flight()
                ));
            }
            Limit::Sndbuf => self.steady(&mut evidence, &mut open),
            Limit::Pacing => self.paced(&mut evidence, &mut open),
            Limit::Link | Limit::Cap | Limit::Policer => self.path(&mut evidence, &mut open),
            // Packets contain no data about the processor.
            Limit::Cpu | Limit::Unknown => {}
            Limit::Cwnd => self.cwnd(&mut evidence, &mut open),
        }
        // With a known window, the rules have already decided whether it is full, so the question is not
        // open.
        let would_show = matches!(self.tally.limit, Limit::App | Limit::Sndbuf | Limit::Pacing | Limit::Cwnd);
        if would_show && self.window().is_none() {
            open.push(
                "whether the receiver's window is full, because the capture lacks the handshake, which \
                 contains the window scale"
                    .into(),
            );
        }
        (evidence, open)
    }

    fn app(&self, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        let idle = self.tally.rows.iter().filter(|sample| sample.sent == 0).count();
        let (sent, short) = (self.sum(|sample| sample.sent), self.sum(|sample| sample.short));
        if short > 0 {
            evidence.push(format!(
                "{short} of {sent} packets are shorter than a full segment although the window has room, so \
                 the sender had no more data"
            ));
        }
        if 2 * idle > self.tally.rows.len() {
            let room = if self.window().is_some() { ", although the window has room" } else { "" };
            evidence.push(format!("for most of this time, the sender sends nothing{room}"));
        } else if self.packets.side != Side::Sender {
            open.push(
                "whether the sending application or the send buffer is the limit, because the sender runs \
                 out of data in both cases, and only a capture at the sender shows whether ACKs release the \
                 packets"
                    .into(),
            );
        } else {
            evidence.push("packets leave without waiting for ACKs".into());
        }
    }

    fn full_window(&self, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        evidence.push(format!(
            "{} of the receiver's window of {} is in flight; after {} of {} packets, the window has no \
             room for another segment",
            self.in_flight(),
            self.window().unwrap_or_default(),
            self.sum(|sample| sample.full),
            self.sum(|sample| sample.sent),
        ));
        let closed = self.tally.rows.iter().filter(|sample| sample.rwnd == Some(Bytes::ZERO)).count();
        if closed > 0 {
            evidence.push(
                "the receiver closes its window, because the receiving application does not read the data"
                    .into(),
            );
            return;
        }
        open.push(tally::whose_window(self.tally.limit, "not in a capture"));
    }

    fn steady(&self, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        let window = self.window().map_or(String::new(), |window| format!(" of a window of {window}"));
        evidence.push(format!(
            "{}{window} is in flight, and this amount stays constant without packet loss",
            self.in_flight()
        ));
        evidence.extend(self.round_trip());
        if self.packets.side == Side::Sender {
            evidence.push("packets leave when ACKs arrive".into());
            open.push(
                "whether the send buffer or a maximum of cwnd is the limit, because both keep the data in \
                 flight constant"
                    .into(),
            );
        } else {
            open.push(
                "whether the send buffer, the sender's pacing or the sending application is the limit, \
                 because only a capture at the sender shows what releases the packets"
                    .into(),
            );
        }
    }

    fn paced(&self, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        let prompt = self.sum(|sample| sample.prompt);
        let sent = self.sum(|sample| sample.sent);
        evidence.push(format!(
            "full segments leave at {}, and only {prompt} of {sent} packets leave just after an ACK, so \
             ACKs do not release the packets",
            self.tally.rate()
        ));
        evidence.extend(self.round_trip());
        open.push(
            "what sets this rate: a cap on the socket's pacing (SO_MAX_PACING_RATE), a shaper on the \
             sending host, or an application that writes at this rate"
                .into(),
        );
    }

    fn path(&self, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        let rate = self.tally.rate();
        match self.packets.line {
            Some(line) => {
                let payload = payload(line, Bytes::new(self.packets.mss()));
                let share = 100.0 * rate.as_bps() as f64 / payload.max(1.0);
                evidence.push(format!(
                    "data arrives at {rate}, which is {share:.0} % of the link's payload rate"
                ));
            }
            None => {
                evidence.push(format!("data arrives at a steady rate of {rate}"));
                open.push(tally::WHICH_LINE.into());
            }
        }
        evidence.extend(self.round_trip());
        if self.tally.limit == Limit::Policer && self.losses.at_fixed_rate() {
            evidence.push(self.ranks());
        }
        if self.tally.limit == Limit::Cap {
            open.push(tally::WHAT_ENFORCES_IT.into());
        }
    }

    fn ranks(&self) -> String {
        format!(
            "on average, the amount in flight at the {} losses is larger than it was for {:.0} % of the data \
             (expected for random loss: 50 %)",
            self.losses.episodes,
            100.0 * self.losses.rank
        )
    }

    fn cwnd(&self, evidence: &mut Vec<String>, open: &mut Vec<String>) {
        let resent = self.packets.samples.last().map_or(0, |last| last.retransmits);
        let room = if self.window().is_some() { ", and the receiver's window has room" } else { "" };
        evidence.push(format!(
            "{} is in flight{room}; {resent} segments were retransmitted, in {} episodes",
            self.in_flight(),
            self.losses.episodes
        ));
        evidence.extend(self.round_trip());
        if self.losses.episodes > 3 {
            evidence.push(self.ranks());
        } else if self.losses.episodes > 0 {
            open.push(tally::few_losses(self.losses));
        }
        if self.losses.may_come_from_a_rate() {
            open.push(tally::WHICH_RATE.into());
        }
        open.push(
            "how large Cwnd is, because a capture does not show it; the data in flight is used instead"
                .into(),
        );
    }

    fn next_test(&self) -> Option<&'static str> {
        match self.tally.limit {
            Limit::App | Limit::Sndbuf => Some(
                "run ss -tmi on the sender during the transfer: if skmem w is near tb, the send buffer is \
                 the limit; if w is far below tb, the application is",
            ),
            Limit::Pacing => Some(
                "run ss -ti on the sender during the transfer, and compare pacing_rate \
                                   with its maximum",
            ),
            _ => self.tally.next_test(self.packets.line.is_some()),
        }
    }
}
