//! One flow: two connections, the applications at both ends, and what is remembered for the outcome.

use fullpipe_tcp::wire::{Flags, Segment};
use fullpipe_tcp::{Config, Connection, Event, SendLimit};
use fullpipe_units::{Bytes, Duration, Instant, Rate, draw};

use crate::outcome::{FlowOutcome, RttOutcome};
use crate::scenario::{FlowSpec, Scenario};
use crate::trace::{PathState, Row, SenderTruth, TcpInfo};

/// Most payload that is handed up as one segment (an IP packet's 64 KiB, whole segments only).
const MERGE_LIMIT: u32 = 65_000;

pub(crate) struct Flow {
    pub(crate) sender: Connection,
    pub(crate) receiver: Connection,
    spec: FlowSpec,
    starts_at: Instant,
    opened: bool,
    written: u64,
    finished_at: Option<Instant>,
    max_cwnd: u64,
    /// Bytes received and time per limit at each trace row.
    history: Vec<Moment>,
    merge: Merge,
}

#[derive(Clone, Copy)]
struct Moment {
    at: Instant,
    received: u64,
    limit_times: [Duration; SendLimit::ALL.len()],
}

/// Merging at the receiver (GRO): in-order neighbours that arrive within a short time go up as one.
struct Merge {
    within: Duration,
    held: Option<(Segment, Instant)>,
}

impl Flow {
    pub(crate) fn new(scenario: &Scenario, spec: &FlowSpec, number: usize) -> Self {
        let host = &scenario.host;
        let config = |side: u64| Config {
            mtu: scenario.path.mtu,
            cc: spec.cc,
            sndbuf: host.sndbuf,
            rcvbuf: host.rcvbuf,
            window_rule: host.window_rule,
            window_clamp: host.window_clamp,
            fair_queue: host.fair_queue,
            max_pacing_rate: spec.max_pacing_rate,
            seed: draw(scenario.seed, 0x666c_6f77, 2 * number as u64 + side),
        };
        let starts_at = Instant::ZERO + spec.start;
        Self {
            sender: Connection::client(config(0)),
            receiver: Connection::server(config(1)),
            spec: spec.clone(),
            starts_at,
            opened: false,
            written: 0,
            finished_at: None,
            max_cwnd: 0,
            history: vec![Moment { at: starts_at, received: 0, limit_times: Default::default() }],
            merge: Merge { within: host.rx_merge, held: None },
        }
    }

    pub(crate) fn starts_at(&self) -> Instant {
        self.starts_at
    }

    pub(crate) fn sender_takes(&mut self, now: Instant, segment: &Segment) {
        self.sender.handle_segment(now, segment);
        self.sender_events(now);
    }

    pub(crate) fn sender_timeout(&mut self, now: Instant) {
        if !self.opened && now >= self.starts_at {
            self.opened = true;
            self.sender.open();
        }
        self.sender.handle_timeout(now);
        self.sender_events(now);
    }

    fn sender_events(&mut self, now: Instant) {
        while let Some(event) = self.sender.poll_event() {
            match event {
                Event::Connected | Event::Writable => self.offer(),
                Event::Finished => self.finished_at = Some(now),
                Event::Readable | Event::PeerClosed | Event::Aborted => {}
            }
        }
    }

    /// The sending application: writes as much as the buffer takes.
    fn offer(&mut self) {
        let rest = self.spec.bytes.map_or(u64::MAX, |bytes| bytes.get() - self.written);
        self.written += self.sender.write(rest);
        if self.spec.bytes.is_some_and(|bytes| self.written >= bytes.get()) {
            self.sender.close();
        }
    }

    pub(crate) fn receiver_takes(&mut self, now: Instant, segment: Segment) {
        if self.merge.within.is_zero() {
            self.receiver_handles(now, &segment);
            return;
        }
        if let Some((held, _)) = &mut self.merge.held
            && mergeable(held, &segment)
        {
            held.len += segment.len;
            held.ack = segment.ack;
            held.window = segment.window;
            return;
        }
        self.flush_merge(now);
        if segment.len > 0 && !segment.flags.has(Flags::FIN) && segment.syn.is_none() {
            self.merge.held = Some((segment, now + self.merge.within));
        } else {
            self.receiver_handles(now, &segment);
        }
    }

    fn flush_merge(&mut self, now: Instant) {
        if let Some((segment, _)) = self.merge.held.take() {
            self.receiver_handles(now, &segment);
        }
    }

    fn receiver_handles(&mut self, now: Instant, segment: &Segment) {
        self.receiver.handle_segment(now, segment);
        // The receiving application reads whatever there is, at once.
        while let Some(event) = self.receiver.poll_event() {
            if event == Event::Readable {
                self.receiver.read(now, u64::MAX);
            }
        }
    }

    pub(crate) fn receiver_timeout(&mut self, now: Instant) {
        if self.merge.held.as_ref().is_some_and(|&(_, due)| due <= now) {
            self.flush_merge(now);
        }
        self.receiver.handle_timeout(now);
    }

    pub(crate) fn next_timeout(&self, of_sender: bool) -> Instant {
        if !of_sender {
            let merge = self.merge.held.as_ref().map_or(Instant::FAR_FUTURE, |&(_, due)| due);
            return self.receiver.poll_timeout().min(merge);
        }
        if self.opened { self.sender.poll_timeout() } else { self.starts_at }
    }

    /// The flow's trace row.
    pub(crate) fn row(&self, now: Instant, number: u32, path: PathState) -> Row {
        let sender = self.sender.snapshot();
        Row {
            at: now,
            flow: number,
            sender: TcpInfo::of(&sender, self.spec.max_pacing_rate),
            receiver: Some(self.receiver.receiver_snapshot().into()),
            path: Some(path),
            truth: Some(SenderTruth {
                send_limit: sender.limit,
                limit_times: self.sender.limit_times(now),
                lost: Bytes::new(sender.lost),
                status: sender.status,
            }),
        }
    }

    pub(crate) fn remember(&mut self, row: &Row) {
        self.max_cwnd = self.max_cwnd.max(row.sender.cwnd.get());
        if row.at > self.starts_at && self.finished_at.is_none() {
            let now = row.at;
            let (received, limit_times) = (self.receiver.received(), self.sender.limit_times(now));
            self.history.push(Moment { at: now, received, limit_times });
        }
    }

    pub(crate) fn outcome(&self, end: Instant) -> FlowOutcome {
        let end = self.finished_at.unwrap_or(end);
        let last =
            Moment { at: end, received: self.receiver.received(), limit_times: self.sender.limit_times(end) };
        let lifetime = end.saturating_since(self.starts_at);
        let half = self.at(self.starts_at + lifetime / 2, last);
        let rate = |from: u64, span: Duration| {
            if span.is_zero() { Rate::ZERO } else { Rate::of(Bytes::new(last.received - from), span) }
        };
        let rtts = self.sender.rtts();
        let rtt = match (rtts.min(), rtts.mean(), rtts.percentile(95)) {
            (Some(min), Some(mean), Some(p95)) => Some(RttOutcome { min, mean, p95 }),
            _ => None,
        };
        let spent = |since: &Moment| {
            SendLimit::ALL
                .into_iter()
                .map(|l| (l, last.limit_times[l as usize] - since.limit_times[l as usize]))
                .collect()
        };
        FlowOutcome {
            cc: self.spec.cc,
            bytes: Bytes::new(last.received),
            goodput: rate(0, lifetime),
            goodput_second_half: rate(half.received, end.saturating_since(half.at)),
            retransmits: self.sender.stats().retransmits,
            rtt,
            send_limit: spent(&self.history[0]),
            send_limit_second_half: spent(&half),
            max_cwnd: Bytes::new(self.max_cwnd),
            finished: self.finished_at,
        }
    }

    /// The state at `at`, between the rows around it.
    fn at(&self, at: Instant, last: Moment) -> Moment {
        let after = self.history.partition_point(|moment| moment.at <= at);
        let before = self.history[after - 1];
        let next = self.history.get(after).copied().unwrap_or(last);
        let span = next.at.saturating_since(before.at);
        let part = at.saturating_since(before.at);
        let between = |from: u64, to: u64| {
            if span.is_zero() {
                return from;
            }
            let share = u128::from(to - from) * u128::from(part.as_nanos()) / u128::from(span.as_nanos());
            from + share as u64
        };
        let mut limit_times = before.limit_times;
        for (i, time) in limit_times.iter_mut().enumerate() {
            *time = Duration::from_nanos(between(time.as_nanos(), next.limit_times[i].as_nanos()));
        }
        Moment { at, received: between(before.received, next.received), limit_times }
    }
}

fn mergeable(held: &Segment, next: &Segment) -> bool {
    next.len > 0
        && next.seq == held.seq.plus(held.len.into())
        && held.len + next.len <= MERGE_LIMIT
        && next.timestamps == held.timestamps
        && !next.flags.has(Flags::FIN)
        && next.sack.is_empty()
        && held.sack.is_empty()
}
