//! The connections of a copy: which of them are open, how many are needed, and what limits them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::engine::{Budget, Buffers, Choice, Demand, Interval, Laggards, Remembered, Role, Room};
use crate::error::Error;
use crate::frame::MOST_CONNECTIONS;
use crate::report::{ConnectionReport, CopyFacts};

/// Range of the number of connections. If the range contains more than one number, the copy chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    least: u32,
    most: u32,
}

impl Connections {
    /// Any number of connections that the protocol permits, starting with one.
    pub const AUTO: Self = Self { least: 1, most: MOST_CONNECTIONS };

    /// Returns the minimum and the maximum number of connections.
    pub fn range(self) -> (u32, u32) {
        (self.least, self.most)
    }

    /// Creates a range.
    ///
    /// # Errors
    /// Returns an error if the range is empty, or not within 1 to 16.
    pub fn new(least: u32, most: u32) -> Result<Self, Error> {
        if least < 1 || most > MOST_CONNECTIONS || least > most {
            return Err(wrong(format_args!("{least}..{most}")));
        }
        Ok(Self { least, most })
    }
}

fn wrong(text: impl fmt::Display) -> Error {
    Error::usage(
        format!("'{text}' is not a number of connections"),
        format!("write auto, a number from 1 to {MOST_CONNECTIONS}, or a range such as 2..8"),
    )
}

impl FromStr for Connections {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "auto" {
            return Ok(Self::AUTO);
        }
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        match (least.parse(), most.parse()) {
            (Ok(least), Ok(most)) => Self::new(least, most).map_err(|_| wrong(text)),
            _ => Err(wrong(text)),
        }
    }
}

/// Measurements of a socket of this process in the last interval.
#[derive(Clone, Debug, PartialEq)]
pub struct SocketSample {
    /// Local port of the connection.
    pub port: u16,
    /// Address and port of the peer.
    pub peer: SocketAddr,
    /// Payload that was acknowledged in the interval.
    pub acked: Bytes,
    /// Mean rate of this payload in the interval.
    pub rate: Rate,
    /// Smoothed RTT.
    pub rtt: Duration,
    /// Number of retransmitted segments in the interval.
    pub retransmits: u64,
    /// Name of the limit of the socket; `None` if it is not known.
    pub limit: Option<String>,
    /// Whether another connection may increase the total rate.
    pub room: Room,
    /// Whether the congestion window is the limit and grows, because nothing was lost.
    pub is_growing: bool,
    /// Whether the congestion window, a rate cap or the link is the limit, so that losses reduce the rate in cycles.
    pub is_window_limited: bool,
    /// Kernel memory that the socket uses.
    pub memory: Bytes,
    /// Payload that was sent since the socket was opened, without retransmissions.
    pub sent: Bytes,
}

/// Maximum number of times that a connection is opened until the peer accepts it. The handshakes of other copies may
/// displace its handshake at the relay.
const ATTEMPTS: u32 = 3;
/// Name of the limit of a socket without data to send.
const APP: &str = "app";

/// Samples the sockets of this process. This is a trait because this crate has no classifier of limits.
pub trait Sampler: Send {
    /// Samples the sockets, and returns their measurements at the end of each interval; the caller calls this
    /// method ten times per second. Returns no measurements before the end of an interval, or if the sockets
    /// cannot be sampled.
    fn sample(&mut self) -> Vec<SocketSample>;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Absent,
    Opening,
    Open,
    Lost,
}

#[derive(Clone, Debug, Default)]
struct Link {
    state: State,
    /// Local port, and address and port of the peer.
    socket: Option<(u16, SocketAddr)>,
    /// Number of intervals in which each limit applied.
    limits: BTreeMap<String, u64>,
    rtt: Option<Duration>,
    /// Rate in the last interval.
    rate: Option<Rate>,
    retransmits: u64,
    /// Payload that was sent until the last sample.
    sent: Bytes,
    /// Number of times that the connection was opened, and whether the peer has accepted the last attempt.
    attempts: u32,
    has_joined: bool,
}

impl Link {
    /// Returns the sample of the connection's socket.
    fn sample<'a>(&self, samples: &'a [SocketSample]) -> Option<&'a SocketSample> {
        samples.iter().find(|sample| Some((sample.port, sample.peer)) == self.socket)
    }
}

/// All connections of a copy, by number.
#[derive(Debug)]
pub(super) struct Links {
    links: Vec<Link>,
    wanted: u32,
    /// Chooses the number of connections; absent if the number is fixed.
    choice: Option<Choice>,
    /// Rate of the slowest link, if it is known.
    link: Option<Rate>,
    /// Memory of the process and its sockets.
    pub(super) budget: Budget,
    laggards: Laggards,
    most_open: u64,
}

impl Links {
    /// Prepares the connections of a copy; `link` is the rate of the slowest link, if it is known.
    pub(super) fn new(range: Connections, link: Option<Rate>, memory: Option<Bytes>) -> Self {
        let Connections { least, most } = range;
        Self {
            links: vec![Link::default(); most as usize],
            wanted: least,
            choice: (least < most).then(|| Choice::new(least, most, link)),
            link,
            budget: Budget::new(memory),
            laggards: Laggards::default(),
            most_open: 0,
        }
    }

    /// Returns the number of connections that send: as many as were chosen, if the memory permits.
    fn wanted(&self) -> usize {
        self.wanted.min(self.budget.most_connections().unwrap_or(u32::MAX)) as usize
    }

    /// Starts with as many connections as fill the link at an RTT of `rtt` with these buffers, or with more for a short copy
    /// of `size`, if the copy chooses their number and knows the rate of the link.
    pub(super) fn forecast(&mut self, rtt: Duration, buffers: Buffers, size: Option<Bytes>) {
        if let Some(choice) = &mut self.choice {
            self.wanted = choice.forecast(rtt, buffers, size);
        }
    }

    /// Starts with the number of connections of an earlier copy, or with more for a short copy of `size`, if the copy
    /// chooses their number and the path has the same RTT; returns the number.
    pub(super) fn resume(&mut self, earlier: Remembered, rtt: Duration, size: Option<Bytes>) -> Option<u32> {
        self.wanted = self.choice.as_mut()?.resume(earlier, rtt, size)?;
        Some(self.wanted)
    }

    /// Returns what the next copy should know, if the copy chooses the number of connections.
    pub(super) fn outcome(&self) -> Option<Remembered> {
        self.choice.as_ref()?.outcome()
    }

    fn count(&self, is_counted: impl Fn(State) -> bool) -> usize {
        self.links.iter().filter(|link| is_counted(link.state)).count()
    }

    /// Returns the number of a connection to open; the connection counts as being opened from then on. If the
    /// copy chooses the number of connections, a lost connection is replaced.
    pub(super) fn next_to_open(&mut self) -> Option<u32> {
        let replaces = self.choice.is_some();
        let present = self.count(|state| match state {
            State::Absent => false,
            State::Opening | State::Open => true,
            State::Lost => !replaces,
        });
        if present >= self.wanted() {
            return None;
        }
        let number = self.links.iter().position(|link| link.state == State::Absent)?;
        self.links[number].state = State::Opening;
        // The number is below 16.
        Some(number as u32)
    }

    /// Records an open connection; `socket` contains its local port and the address of the peer.
    pub(super) fn opened(&mut self, number: u32, socket: Option<(u16, SocketAddr)>) {
        if let Some(link) = self.links.get_mut(number as usize) {
            (link.state, link.socket, link.has_joined) = (State::Open, socket, false);
            link.sent = Bytes::ZERO;
            link.attempts += 1;
        }
        self.most_open = self.most_open.max(self.count(|state| state == State::Open) as u64);
    }

    /// Records that the peer has accepted a connection.
    pub(super) fn joined(&mut self, number: u32) {
        if let Some(link) = self.links.get_mut(number as usize) {
            (link.has_joined, link.attempts) = (true, 0);
        }
    }

    /// Returns whether to open a lost connection anew, because the peer has not accepted it.
    pub(super) fn is_tried_again(&self, number: u32) -> bool {
        let link = self.links.get(number as usize);
        link.is_some_and(|link| !link.has_joined && link.attempts < ATTEMPTS)
    }

    /// Records the loss of a connection; returns whether the loss was not yet known.
    pub(super) fn lose(&mut self, number: u32) -> bool {
        let Some(link) = self.links.get_mut(number as usize) else { return false };
        std::mem::replace(&mut link.state, State::Lost) != State::Lost
    }

    /// Returns the number of connections that the memory budget permitted, if it is below the maximum.
    pub(super) fn held_to(&self) -> Option<u32> {
        self.budget.most_connections().filter(|count| (*count as usize) < self.links.len())
    }

    /// Returns the numbers of the open connections.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.open().map(|(number, _)| number)
    }

    /// Returns whether a connection is open.
    pub(super) fn is_open(&self, number: u32) -> bool {
        self.links.get(number as usize).is_some_and(|link| link.state == State::Open)
    }

    /// Closes a connection that will be opened anew.
    pub(super) fn close(&mut self, number: u32) {
        if let Some(link) = self.links.get_mut(number as usize) {
            (link.state, link.socket, link.rate) = (State::Absent, None, None);
        }
    }

    /// Records the memory of the process and its sockets.
    pub(super) fn remember(&mut self, at: Instant, process: Bytes, samples: &[SocketSample]) {
        let kernel = samples.iter().fold(Bytes::ZERO, |sum, sample| sum + sample.memory);
        let sending = self.open().count().min(self.wanted());
        // The number is at most 16.
        self.budget.sampled(at, process, kernel, sending as u32);
    }

    /// Returns a connection that has been far slower than the others for 5 s and should be opened anew, if there is
    /// one.
    pub(super) fn laggard(&mut self, at: Instant, samples: &[SocketSample]) -> Option<u32> {
        let resting = self.resting();
        let mut rates = Vec::new();
        for (number, link) in self.open().filter(|(number, _)| !resting.contains(number)) {
            let own = link.sample(samples);
            // A connection without blocks to send is not slow.
            let Some(own) = own.filter(|own| own.limit.as_deref() != Some(APP)) else { continue };
            rates.push((number, own.rate));
        }
        self.laggards.sampled(at, &rates)
    }

    /// Returns the open connections with their numbers.
    fn open(&self) -> impl Iterator<Item = (u32, &Link)> {
        (0..).zip(&self.links).filter(|(_, link)| link.state == State::Open)
    }

    /// Returns the numbers of the open connections that have the limit `name`.
    pub(super) fn limited_by(&self, name: &str, samples: &[SocketSample]) -> BTreeSet<u32> {
        let has_limit = |link: &Link| link.sample(samples)?.limit.as_deref().map(|limit| limit == name);
        self.open().filter(|(_, link)| has_limit(link) == Some(true)).map(|(number, _)| number).collect()
    }

    /// Returns whether the copy chooses the number of connections.
    pub(super) fn are_chosen(&self) -> bool {
        self.choice.is_some()
    }

    /// Returns the connections that get no blocks, because more are open than are needed.
    pub(super) fn resting(&self) -> BTreeSet<u32> {
        self.open().skip(self.wanted()).map(|(number, _)| number).collect()
    }

    /// Returns the demand of each open connection for a share of the rate limit; the connections `finished` have written
    /// their last blocks.
    pub(super) fn demands(&self, finished: &BTreeSet<u32>) -> Vec<Demand> {
        let resting = self.resting();
        let demand = |(connection, link): (u32, &Link)| Demand {
            connection,
            used: link.rate,
            role: match resting.contains(&connection) {
                true => Role::Resting,
                false if finished.contains(&connection) => Role::Finishing,
                false => Role::Writing,
            },
        };
        self.open().map(demand).collect()
    }

    /// Returns the payload that the open connections have sent since the last call.
    pub(super) fn sent(&mut self, samples: &[SocketSample]) -> Bytes {
        let mut sum = Bytes::ZERO;
        for link in self.links.iter_mut().filter(|link| link.state == State::Open) {
            if let Some(sample) = link.sample(samples) {
                sum += sample.sent.saturating_sub(link.sent);
                link.sent = sample.sent.max(link.sent);
            }
        }
        sum
    }

    /// Adds the samples of all sockets in an interval; returns the number of connections if it changes.
    pub(super) fn sampled(&mut self, at: Instant, samples: &[SocketSample]) -> Option<u32> {
        let resting = self.resting();
        let mut is_opening = self.count(|state| state == State::Opening) > 0;
        let mut intervals = Vec::new();
        for (number, link) in (0..).zip(&mut self.links).filter(|(_, link)| link.state == State::Open) {
            let Some(sample) = link.sample(samples) else {
                // The samples contain only sockets that have carried data.
                link.rate = link.rate.map(|_| Rate::ZERO);
                is_opening |= link.rate.is_none() && !resting.contains(&number);
                continue;
            };
            *link.limits.entry(sample.limit.clone().unwrap_or_else(|| "unknown".into())).or_default() += 1;
            link.rtt = Some(sample.rtt);
            link.rate = Some(sample.rate);
            link.retransmits += sample.retransmits;
            let SocketSample { acked, rtt, room, is_growing, is_window_limited, retransmits, .. } = *sample;
            let is_resting = resting.contains(&number);
            intervals.push(Interval {
                acked,
                rtt,
                room,
                is_growing,
                is_window_limited,
                retransmits,
                is_resting,
            });
        }
        let count = self.choice.as_mut()?.sampled(at, intervals, is_opening)?;
        self.wanted = count;
        Some(count)
    }

    /// Returns the limit that applied for the longest time over all connections, with its share of the time.
    pub(super) fn limit(&self) -> Option<(String, f64)> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (limit, count) in self.links.iter().flat_map(|link| &link.limits) {
            *sums.entry(limit).or_default() += count;
        }
        let all: u64 = sums.values().sum();
        let (limit, count) = sums.into_iter().max_by_key(|(_, count)| *count)?;
        Some((limit.to_owned(), count as f64 / all as f64))
    }

    /// Returns the facts from which advice follows; `rate` is the mean payload rate of the copy.
    pub(super) fn facts(&self, rate: Rate) -> CopyFacts {
        let rtt = self.links.iter().filter_map(|link| link.rtt).min();
        CopyFacts { link: self.link, rtt, rate, connections: self.most_open }
    }

    /// Returns the largest number of connections that were open at the same time.
    pub(super) fn most_open(&self) -> u64 {
        self.most_open
    }

    /// Returns a report on each connection that was opened; `sent` is the payload of each connection in
    /// bytes.
    pub(super) fn reports(&self, sent: &[u64], wall: Duration) -> Vec<ConnectionReport> {
        let opened = (0..)
            .zip(&self.links)
            .zip(sent)
            .filter(|((number, link), _)| link.state != State::Absent || self.laggards.times(*number) > 0);
        let report = |((number, link), bytes): ((u32, &Link), &u64)| {
            let all: u64 = link.limits.values().sum();
            ConnectionReport {
                bytes: *bytes,
                goodput_bps: Rate::mean(Bytes::new(*bytes), wall).as_bps(),
                rtt_ms: link.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
                retransmits: link.socket.map(|_| link.retransmits),
                limit: link.limits.iter().map(|(name, n)| (name.clone(), *n as f64 / all as f64)).collect(),
                lost: link.state == State::Lost,
                reopened: self.laggards.times(number),
            }
        };
        opened.map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        let range = |least, most| Connections::new(least, most);
        assert_eq!("auto".parse(), Ok(Connections::AUTO));
        assert_eq!("4".parse(), range(4, 4));
        assert_eq!("2..8".parse(), range(2, 8));
        for wrong in ["", "0", "17", "8..2", "1..", "1..17", "many"] {
            let error = wrong.parse::<Connections>().expect_err(wrong);
            assert!(error.hint.starts_with("write auto, a number from 1 to 16"), "{wrong}: {error}");
        }
    }

    fn peer() -> SocketAddr {
        "192.0.2.1:9581".parse().expect("an address")
    }

    fn sample(port: u16, room: Room) -> SocketSample {
        SocketSample {
            port,
            peer: peer(),
            acked: Bytes::from_mib(1),
            rate: Rate::from_bps(32 << 20),
            rtt: Duration::from_millis(10),
            retransmits: 1,
            limit: Some("sndbuf".into()),
            room,
            is_growing: false,
            is_window_limited: false,
            memory: Bytes::from_mib(1),
            sent: Bytes::ZERO,
        }
    }

    /// If each connection is limited on its own, more connections are opened; those that a trial gives up
    /// rest.
    #[test]
    fn the_choice_opens_connections_and_lets_them_rest() {
        let mut links = Links::new(Connections::AUTO, None, None);
        let open = |links: &mut Links| {
            while let Some(number) = links.next_to_open() {
                links.opened(number, Some((1000 + number as u16, peer())));
            }
        };
        open(&mut links);
        assert_eq!(links.count(|state| state == State::Open), 1);
        let mut counts = Vec::new();
        for step in 1..40_u64 {
            let at = Instant::from_nanos(step * 250_000_000);
            // All connections together now reach the rate that one connection reached alone.
            let open_now = links.count(|state| state == State::Open) as u64;
            let mut samples: Vec<_> = (0..16).map(|n| sample(1000 + n, Room::PerConnection)).collect();
            for sample in &mut samples {
                sample.acked = Bytes::new((1 << 20) / open_now);
            }
            if let Some(count) = links.sampled(at, &samples) {
                counts.push(count);
                open(&mut links);
            }
        }
        assert_eq!(counts[..2], [4, 1]);
        assert_eq!(links.resting(), BTreeSet::from([1, 2, 3]));
        assert_eq!((links.most_open(), links.limit()), (4, Some(("sndbuf".into(), 1.0))));
        let used = Some(Rate::from_bps(32 << 20));
        let demand = |connection, is_resting| {
            let role = if is_resting { Role::Resting } else { Role::Writing };
            Demand { connection, used, role }
        };
        assert_eq!(links.demands(&BTreeSet::new())[..2], [demand(0, false), demand(1, true)]);
        let at = Instant::from_nanos(41 * 250_000_000);
        links.sampled(at, &[sample(1001, Room::PerConnection)]);
        let idle = Demand { used: Some(Rate::ZERO), ..demand(0, false) };
        assert_eq!(links.demands(&BTreeSet::new())[..2], [idle, demand(1, true)], "no sample, no data");
        assert!(links.lose(0) && !links.lose(0));
        assert_eq!(links.resting(), BTreeSet::from([2, 3]), "connection 1 takes over");
        let idle = Demand { used: Some(Rate::ZERO), ..demand(2, true) };
        assert_eq!(links.demands(&BTreeSet::new())[..2], [demand(1, false), idle]);
    }

    /// A connection that has carried nothing says nothing about the rate of more connections, so a trial waits for it.
    #[test]
    fn a_trial_is_not_judged_before_its_connections_carry_data() {
        let mut links = Links::new(Connections::AUTO, None, None);
        let mut open = 0;
        let mut changes = Vec::new();
        for step in 1..28_u64 {
            while let Some(number) = links.next_to_open() {
                links.opened(number, Some((1000 + number as u16, peer())));
                open += 1;
            }
            // Only the first connection carries data, at its rate before the trial.
            let sample =
                SocketSample { rtt: Duration::from_millis(400), ..sample(1000, Room::PerConnection) };
            let at = Instant::from_nanos(step * 250_000_000);
            changes.extend(links.sampled(at, &[sample]).map(|count| (step, count)));
        }
        let [(begun, 4)] = changes[..] else { panic!("{changes:?}") };
        assert!(open == 4 && begun < 16, "{changes:?}");
    }

    #[test]
    fn a_fixed_number_is_opened_once() {
        let mut links = Links::new(Connections::new(2, 2).expect("a range"), None, None);
        assert_eq!(std::iter::from_fn(|| links.next_to_open()).collect::<Vec<_>>(), [0, 1]);
        links.opened(0, None);
        assert!(links.lose(1));
        assert_eq!(links.next_to_open(), None);
        let lost: Vec<bool> = links.reports(&[5, 0], Duration::from_secs(1)).iter().map(|r| r.lost).collect();
        assert_eq!(lost, [false, true]);
    }
}
