//! Simulates a copy: its connections are simulated, but the code that chooses their number is that of
//! `fullpipe copy`.
//!
//! ```text
//!   simulated flows ──rows──► Sockets (classifier) ──reports──► Choice ──► number of flows that send
//!   real sockets ──sock_diag──► Sockets ──────────────────────► Choice ──► number of connections that send
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fullpipe_analysis::classify::SocketFacts;
use fullpipe_analysis::sockets::Sample;
use fullpipe_analysis::{Memory, Sockets};
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim::{Team, TeamRates, run_team};
use fullpipe_lab::trace::{ReceiverInfo, ReceiverSample, Row};
use fullpipe_lab::workload::{Reading, Writing};
use fullpipe_relay::{Buffers, Choice, Connections, Interval};
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::own_sockets::{INTERVAL, sample};

/// Interval between two samples of the connections, as in `fullpipe copy`.
const SAMPLING: Duration = Duration::from_millis(100);
/// Interval at which the applications at both ends divide the data to write and to read among the
/// connections.
const TICK: Duration = Duration::from_millis(20);
/// First port of the connections, and their addresses (RFC 5737).
const FIRST_PORT: u16 = 40_000;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const THERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), fullpipe_relay::PORT);

/// State of a simulated copy at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyState {
    /// Time since the start of the copy.
    pub at: Instant,
    /// Number of payload bytes that the receiving program has read.
    pub read: Bytes,
    /// Number of connections that send from this time on.
    pub connections: u32,
}

/// Timeline of a simulated copy: its state every 20 ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyCourse(pub Vec<CopyState>);

impl CopyCourse {
    /// Returns the payload rate from the time `from` to the end of the copy.
    pub fn rate_since(&self, from: Instant) -> Rate {
        let first = self.0.partition_point(|state| state.at < from);
        match (self.0.get(first), self.0.last()) {
            (Some(first), Some(last)) => {
                Rate::mean(last.read.saturating_sub(first.read), last.at.saturating_since(first.at))
            }
            _ => Rate::ZERO,
        }
    }

    /// Returns the largest number of connections from the time `from` to the end of the copy.
    pub fn most_since(&self, from: Instant) -> u32 {
        let later = self.0.iter().filter(|state| state.at >= from);
        later.map(|state| state.connections).max().unwrap_or(0)
    }

    /// Returns each number of connections, with the time from which it was used.
    pub fn changes(&self) -> Vec<(Instant, u32)> {
        let mut changes: Vec<(Instant, u32)> = Vec::new();
        for state in &self.0 {
            if changes.last().is_none_or(|(_, count)| *count != state.connections) {
                changes.push((state.at, state.connections));
            }
        }
        changes
    }
}

/// Simulates a copy over the path and between the hosts of `scenario`; the first flow of `scenario` describes
/// each connection. The rates of the applications in this flow apply to the copy as a whole. If `connections`
/// is a range, the copy chooses a number in the same way as `fullpipe copy`; `link` is the link rate, if the
/// copy knows it.
pub fn simulate(scenario: &Scenario, connections: Connections, link: Option<Rate>) -> CopyCourse {
    let (least, most) = connections.range();
    let mut scenario = Scenario { sample_every: TICK, ..scenario.clone() };
    let Some(flow) = scenario.flows.first().cloned() else { return CopyCourse(Vec::new()) };
    let rates = TeamRates {
        writes: match flow.workload.writing {
            Writing::Paced { rate, .. } => Some(rate),
            Writing::Greedy | Writing::Granted => None,
        },
        reads: match flow.workload.reading {
            Reading::Paced { rate, .. } | Reading::CurlLimit { rate } => Some(rate),
            Reading::Loop { buffer, every } => Some(Rate::of(buffer, every)),
            Reading::Greedy | Reading::Granted => None,
        },
    };
    // The kernel paces the connections of a copy.
    scenario.host.fair_queue = true;
    scenario.flows = vec![flow; most as usize];
    let mut choice = (least < most).then(|| Choice::new(least, most, link));
    let host = &scenario.host;
    let buffers = Buffers { send: Some(host.sndbuf.limit()), receive: Some(host.rcvbuf.limit()) };
    // The copy lasts longer than the run.
    let forecast = |choice: &mut Choice| choice.forecast(scenario.path.rtt(), buffers, None);
    let sending = choice.as_mut().map_or(least, forecast);
    let mut copy = SimulatedCopy {
        sockets: Sockets::new(SocketFacts { link, ..SocketFacts::default() }).without_words(),
        choice,
        sending,
        opened: sending,
        sampled: Instant::ZERO,
        begin: Instant::ZERO,
        course: Vec::new(),
    };
    run_team(&scenario, rates, &mut copy);
    CopyCourse(copy.course)
}

struct SimulatedCopy {
    sockets: Sockets,
    /// Chooses the number of connections; `None` if the number is fixed.
    choice: Option<Choice>,
    sending: u32,
    /// Number of connections that have been opened.
    opened: u32,
    /// Time of the last sample.
    sampled: Instant,
    /// Start of the present interval.
    begin: Instant,
    course: Vec<CopyState>,
}

impl Team for SimulatedCopy {
    fn steer(&mut self, now: Instant, rows: &[Row]) -> usize {
        if self.choice.is_some() && now.saturating_since(self.sampled) >= SAMPLING {
            self.sampled = now;
            self.sample(now, &rows[..rows.len().min(self.opened as usize)]);
        }
        let read = |row: &Row| {
            row.receiver.map_or(Bytes::ZERO, |receiver| receiver.received.saturating_sub(receiver.unread))
        };
        let read = rows.iter().map(read).fold(Bytes::ZERO, |sum, read| sum + read);
        self.course.push(CopyState { at: now, read, connections: self.sending });
        self.sending as usize
    }
}

impl SimulatedCopy {
    /// Samples the open connections, and chooses their number at the end of an interval.
    fn sample(&mut self, now: Instant, rows: &[Row]) {
        for row in rows {
            self.sockets.take(now, &as_socket(row));
        }
        let interval = now.saturating_since(self.begin);
        if interval < INTERVAL {
            return;
        }
        self.begin = now;
        let reports = self.sockets.interval(None, Memory::Unknown);
        let mut samples: Vec<_> = reports.iter().map(|report| sample(report, interval)).collect();
        samples.sort_unstable_by_key(|sample| sample.port);
        let sending = self.sending;
        let intervals = samples.iter().map(|sample| Interval {
            acked: sample.acked,
            rtt: sample.rtt,
            room: sample.room,
            is_growing: sample.is_growing,
            is_window_limited: sample.is_window_limited,
            retransmits: sample.retransmits,
            is_resting: u32::from(sample.port - FIRST_PORT) >= sending,
        });
        let is_opening = rows.iter().any(|row| row.sender.delivered.is_zero());
        if let Some(count) =
            self.choice.as_mut().and_then(|choice| choice.sampled(now, intervals, is_opening))
        {
            (self.sending, self.opened) = (count, self.opened.max(count));
        }
    }
}

/// Returns the state of a simulated connection in the form in which the kernel reports a socket.
fn as_socket(row: &Row) -> Sample<'static> {
    let nothing = ReceiverInfo { received: Bytes::ZERO, unread: Bytes::ZERO, rcvbuf: Bytes::ZERO };
    let receiver = ReceiverSample {
        at: row.at,
        flow: row.flow,
        receiver: nothing,
        window: Bytes::ZERO,
        rtt: None,
        out_of_order: 0,
        mss: row.sender.mss,
    };
    // The number is below 16.
    let port = FIRST_PORT + row.flow as u16;
    Sample {
        id: row.flow.into(),
        local: SocketAddr::new(HERE, port),
        remote: THERE,
        cc: "",
        sender: row.sender,
        receiver,
        acked: row.sender.delivered,
        queued: row.sender.flight_size + row.sender.notsent,
    }
}

#[cfg(test)]
mod tests;
