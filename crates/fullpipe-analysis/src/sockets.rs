//! Sockets of running applications, sampled while they run: what each carries, what its application offers, and what holds it.
//!
//! ```text
//!   samples of all sockets ──► one Live a socket ──► report(): those that moved or have something waiting
//!     (sock_diag)         └──► counters at the begin of the interval ──┘
//! ```
//!
//! Offered is what the application wrote: what was acknowledged and by how much the send queue grew. A writer that waits
//! for its full send buffer offers what it is let, and what it holds back no kernel knows: that is what a given demand
//! is for. Who may not wait queues by itself, and then the queue grows by offered less achieved ([`crate::demand`]).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use fullpipe_lab::trace::{ReceiverInfo, Row, TcpInfo};
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::classify::{Confidence, Limit, SocketFacts};
use crate::demand::{Backlog, Demand, Memory};
use crate::live::{CurrentLimit, Live};

/// Rows that are kept for a diagnosis, of all sockets together: some hundred megabytes.
const MOST_ROWS: usize = 200_000;
/// Of so many sockets rows are kept when there are too many: the largest.
const LARGEST: usize = 16;

/// A socket at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// A number that no other socket has.
    pub id: u64,
    /// Where it is on this host.
    pub local: SocketAddr,
    /// Its peer.
    pub remote: SocketAddr,
    /// The kernel's name of its congestion control.
    pub cc: &'a str,
    /// As a sender.
    pub sender: TcpInfo,
    /// As a receiver.
    pub receiver: ReceiverInfo,
    /// Payload that its peer has acknowledged so far.
    pub acked: Bytes,
    /// Written and not acknowledged (`Send-Q`).
    pub queued: Bytes,
}

/// A socket over an interval, as JSON has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketReport {
    /// Where the interval ends, in seconds since the first sample.
    pub t_s: f64,
    /// Its number in the order in which sockets were met.
    pub flow: u32,
    /// Where it is on this host.
    pub local: SocketAddr,
    /// Its peer.
    pub remote: SocketAddr,
    /// Both ends, `local > remote`.
    #[serde(skip)]
    pub connection: Arc<str>,
    /// The kernel's name of its congestion control.
    #[serde(with = "crate::json::SharedText")]
    pub congestion_control: Arc<str>,
    /// Payload acknowledged a second: key `achieved_bps`.
    #[serde(rename = "achieved_bps", with = "crate::json::Bps")]
    pub achieved: Rate,
    /// Payload written a second, or what was given: key `offered_bps`.
    #[serde(rename = "offered_bps", with = "crate::json::Bps")]
    pub offered: Rate,
    /// Where the offered rate comes from.
    pub offered_source: OfferedSource,
    /// Payload received a second: key `received_bps`.
    #[serde(rename = "received_bps", with = "crate::json::Bps")]
    pub received: Rate,
    /// Smoothed RTT in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Smallest RTT in milliseconds.
    pub min_rtt_ms: Option<f64>,
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// In flight: sent and not acknowledged.
    pub inflight_bytes: u64,
    /// The peer's window.
    pub rwnd_bytes: u64,
    /// Written and not sent.
    pub notsent_bytes: u64,
    /// Received and not read.
    pub unread_bytes: u64,
    /// Retransmitted segments in the interval.
    pub retransmits: u64,
    /// Pacing rate where it is in force: key `pacing_bps`.
    #[serde(rename = "pacing_bps", with = "crate::json::OptionalBps")]
    pub pacing: Option<Rate>,
    /// What held it for most of the interval; null where it rested, and for a socket that only receives.
    pub limit: Option<Limit>,
    /// How sure that is.
    pub confidence: Option<Confidence>,
    /// What it is in plain words, unless the sockets are [`Sockets::without_words`].
    pub what: Option<String>,
    /// What speaks for it, with the same exception.
    pub evidence: Option<String>,
    /// How the queue of the application grows, in the kernel and outside.
    pub backlog: Backlog,
}

/// Where the rate comes from that an application offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OfferedSource {
    /// What the socket wrote.
    Measured,
    /// What the user said.
    Given,
}

/// One socket.
#[derive(Clone, Debug)]
struct WatchedSocket {
    number: u32,
    local: SocketAddr,
    remote: SocketAddr,
    connection: Arc<str>,
    cc: Arc<str>,
    live: Live,
    /// Every row, where they are wanted.
    rows: Vec<Row>,
    first: Mark,
    /// At the begin of the interval.
    begin: Mark,
    last: Mark,
    unread: Bytes,
}

/// Its counters at one moment.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    acked: Bytes,
    queued: Bytes,
    received: Bytes,
    retransmits: u64,
}

/// All sockets that were seen.
#[derive(Clone, Debug, Default)]
pub struct Sockets {
    host: SocketFacts,
    keeps_rows: bool,
    without_words: bool,
    sockets: BTreeMap<u64, WatchedSocket>,
    met: u32,
    /// Of those that are gone.
    gone: Totals,
    /// The most that was told, for a counter never falls: the last moments may be told otherwise later.
    told: BTreeMap<Limit, Duration>,
}

/// Sums over all sockets since they were met, those included that are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Payload acknowledged.
    pub sent: Bytes,
    /// Payload received.
    pub received: Bytes,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// The time of each limit.
    pub limits: BTreeMap<Limit, Duration>,
}

/// The sockets that are there now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Present {
    /// How many.
    pub connections: u64,
    /// Written and not sent, of all.
    pub unsent: Bytes,
    /// Received and not read, of all.
    pub unread: Bytes,
    /// Mean of the smoothed RTTs.
    pub rtt: Option<Duration>,
    /// The smallest RTT.
    pub min_rtt: Option<Duration>,
}

impl Totals {
    fn add(&mut self, watched: &WatchedSocket) {
        let (first, last) = (&watched.first, &watched.last);
        self.sent += last.acked.saturating_sub(first.acked);
        self.received += last.received.saturating_sub(first.received);
        self.retransmits += last.retransmits.saturating_sub(first.retransmits);
        for (limit, time) in watched.live.times() {
            *self.limits.entry(limit).or_default() += time;
        }
    }
}

impl Sockets {
    /// None yet, on a host of which that is known.
    pub fn new(host: SocketFacts) -> Self {
        Self { host, ..Self::default() }
    }

    /// The same, which keeps every row for [`Sockets::rows`], or those of the largest sockets where there are too many.
    #[must_use]
    pub fn keeping_rows(self) -> Self {
        Self { keeps_rows: true, ..self }
    }

    /// The same, whose reports name limits without saying why: for lines of text, which have no room for that.
    #[must_use]
    pub fn without_words(self) -> Self {
        Self { without_words: true, ..self }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Takes a sample of one socket.
    pub fn take(&mut self, at: Instant, sample: &Sample<'_>) {
        let mark = Mark {
            at,
            acked: sample.acked,
            queued: sample.queued,
            received: sample.receiver.received,
            retransmits: sample.sender.retransmits,
        };
        let watched = self.sockets.entry(sample.id).or_insert_with(|| {
            self.met += 1;
            WatchedSocket {
                number: self.met,
                local: sample.local,
                remote: sample.remote,
                connection: format!("{} > {}", sample.local, sample.remote).into(),
                cc: sample.cc.into(),
                live: Live::new(self.host),
                rows: Vec::new(),
                first: mark,
                begin: mark,
                last: mark,
                unread: Bytes::ZERO,
            }
        });
        (watched.last, watched.unread) = (mark, sample.receiver.unread);
        // What this end receives says nothing of what its sender meets, and the other end is not here.
        let row =
            Row { at, flow: watched.number, sender: sample.sender, receiver: None, path: None, truth: None };
        if self.keeps_rows && (watched.sends() || watched.rows.is_empty()) {
            watched.rows.push(row.clone());
        }
        watched.live.push_observed(row);
    }

    /// Forgets the sockets of which there is no sample from `since` on, but for their sums.
    pub fn keep(&mut self, since: Instant) {
        let gone = &mut self.gone;
        self.sockets.retain(|_, watched| {
            let stays = watched.last.at >= since;
            if !stays {
                gone.add(watched);
            }
            stays
        });
    }

    /// Ends the interval: a report of each socket that moved in it or has something waiting, the largest first. `demand` is
    /// what the application offers, if somebody knows; `memory` is what its queue may take.
    pub fn interval(&mut self, demand: Option<Rate>, memory: Memory) -> Vec<SocketReport> {
        let mut reports = Vec::new();
        for watched in self.sockets.values_mut() {
            if watched.moved() && watched.time() > Duration::ZERO {
                reports.push(watched.report(watched.begin, demand, memory, !self.without_words));
            }
            watched.begin = watched.last;
        }
        largest_first(&mut reports);
        self.thin();
        reports
    }

    /// A report of each socket since it was met, the largest first.
    pub fn whole(&self, demand: Option<Rate>, memory: Memory) -> Vec<SocketReport> {
        let report =
            |watched: &WatchedSocket| watched.report(watched.first, demand, memory, !self.without_words);
        let mut reports: Vec<SocketReport> = self.sockets.values().map(report).collect();
        largest_first(&mut reports);
        reports
    }

    /// Sums since the beginning. They never fall.
    pub fn totals(&mut self) -> Totals {
        let mut totals = self.gone.clone();
        self.sockets.values().for_each(|watched| totals.add(watched));
        for (limit, time) in &mut totals.limits {
            let told = self.told.entry(*limit).or_default();
            *told = (*told).max(*time);
            *time = *told;
        }
        for (limit, told) in &self.told {
            totals.limits.entry(*limit).or_insert(*told);
        }
        totals
    }

    /// The sockets that are there now.
    pub fn present(&self) -> Present {
        let rows: Vec<&Row> = self.sockets.values().filter_map(|watched| watched.live.last()).collect();
        let smooth: Vec<f64> =
            rows.iter().filter_map(|row| row.sender.srtt).map(Duration::as_secs_f64).collect();
        let sum = |sum: Bytes, bytes: Bytes| sum + bytes;
        Present {
            connections: rows.len() as u64,
            unsent: rows.iter().map(|row| row.sender.notsent).fold(Bytes::ZERO, sum),
            unread: self.sockets.values().map(|watched| watched.unread).fold(Bytes::ZERO, sum),
            rtt: (!smooth.is_empty())
                .then(|| Duration::from_secs_f64(smooth.iter().sum::<f64>() / smooth.len() as f64)),
            min_rtt: rows.iter().filter_map(|row| row.sender.min_rtt).min(),
        }
    }

    /// The number, the ends and the last row of each that sends or has sent.
    pub fn senders(&self) -> impl Iterator<Item = (u32, &str, &Row)> {
        self.sockets.values().filter_map(|watched| {
            let row = watched.live.last().filter(|row| {
                !(row.sender.delivered.is_zero()
                    && row.sender.notsent.is_zero()
                    && row.sender.flight_size.is_zero())
            })?;
            Some((watched.number, &*watched.connection, row))
        })
    }

    /// The flow of a socket, where it is kept.
    pub fn live(&self, id: u64) -> Option<&Live> {
        self.sockets.get(&id).map(|watched| &watched.live)
    }

    /// The rows of the socket with that number.
    pub fn rows(&self, number: u32) -> Option<&[Row]> {
        let watched = self.sockets.values().find(|watched| watched.number == number)?;
        Some(&watched.rows)
    }

    /// Leaves the rows of the largest sockets where there are too many.
    fn thin(&mut self) {
        let all: usize = self.sockets.values().map(|watched| watched.rows.len()).sum();
        if all <= MOST_ROWS {
            return;
        }
        let mut sent: Vec<(Bytes, u64)> = Vec::new();
        sent.extend(self.sockets.iter().map(|(id, watched)| (watched.sent(), *id)));
        sent.sort_unstable_by_key(|sent| std::cmp::Reverse(*sent));
        for (_, id) in sent.iter().skip(LARGEST) {
            if let Some(watched) = self.sockets.get_mut(id) {
                watched.rows = Vec::new();
            }
        }
        // A few sockets for a long time: their past is of less interest than their present.
        for watched in self.sockets.values_mut() {
            let too_many = watched.rows.len().saturating_sub(MOST_ROWS / LARGEST);
            watched.rows.drain(..too_many);
        }
    }
}

impl WatchedSocket {
    fn time(&self) -> Duration {
        self.last.at.saturating_since(self.begin.at)
    }

    fn sent(&self) -> Bytes {
        self.last.acked.saturating_sub(self.first.acked)
    }

    /// Whether it is a sender: anything acknowledged, or waiting for that.
    fn sends(&self) -> bool {
        !self.sent().is_zero() || !self.last.queued.is_zero()
    }

    fn moved(&self) -> bool {
        let (begin, last) = (&self.begin, &self.last);
        begin.acked != last.acked || begin.received != last.received || !last.queued.is_zero()
    }

    fn report(&self, from: Mark, demand: Option<Rate>, memory: Memory, words: bool) -> SocketReport {
        let (last, time) = (&self.last, self.last.at.saturating_since(from.at));
        let rate = |bytes: Bytes| Rate::mean(bytes, time);
        let acked = last.acked.saturating_sub(from.acked);
        let written = (last.acked + last.queued).saturating_sub(from.acked + from.queued);
        let (achieved, measured) = (rate(acked), rate(written));
        let offered = demand.unwrap_or(measured);
        let sender = self.live.last().map(|row| row.sender);
        let size = |of: fn(&TcpInfo) -> Bytes| sender.as_ref().map_or(0, |sender| of(sender).get());
        let millis = |of: fn(&TcpInfo) -> Option<Duration>| of(sender.as_ref()?).map(Duration::as_millis_f64);
        let is_held = self.moved() || acked > Bytes::ZERO;
        let held = (is_held && words).then(|| self.live.held_since(from.at)).flatten();
        let (held, why) = match held {
            Some(CurrentLimit { limit, confidence, what, evidence, .. }) => {
                (Some((limit, confidence)), Some((what, evidence)))
            }
            None if is_held && !words => (self.live.limit_since(from.at), None),
            None => (None, None),
        };
        let ((limit, confidence), (what, evidence)) = (held.unzip(), why.unzip());
        SocketReport {
            t_s: last.at.as_secs_f64(),
            flow: self.number,
            local: self.local,
            remote: self.remote,
            connection: Arc::clone(&self.connection),
            congestion_control: Arc::clone(&self.cc),
            achieved,
            offered,
            offered_source: if demand.is_some() { OfferedSource::Given } else { OfferedSource::Measured },
            received: rate(last.received.saturating_sub(from.received)),
            rtt_ms: millis(|sender| sender.srtt),
            min_rtt_ms: millis(|sender| sender.min_rtt),
            cwnd_bytes: size(|sender| sender.cwnd),
            inflight_bytes: size(|sender| sender.flight_size),
            rwnd_bytes: size(|sender| sender.rwnd),
            notsent_bytes: size(|sender| sender.notsent),
            unread_bytes: self.unread.get(),
            retransmits: last.retransmits.saturating_sub(from.retransmits),
            pacing: sender.and_then(|sender| sender.pacing_rate),
            limit,
            confidence,
            what,
            evidence,
            backlog: Backlog::measured(Demand { rate: offered, memory }, achieved),
        }
    }
}

fn largest_first(reports: &mut [SocketReport]) {
    // A report has many words: they are moved once.
    reports
        .sort_by_cached_key(|report| (std::cmp::Reverse(report.achieved.max(report.received)), report.flow));
}

#[cfg(test)]
pub(crate) mod made;
#[cfg(test)]
mod tests;
