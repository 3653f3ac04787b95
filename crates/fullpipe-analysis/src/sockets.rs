//! Samples of the sockets of running applications, with the achieved rate, the offered rate and the limit of
//! each socket.
//!
//! ```text
//!   samples of all sockets ──► one Live per socket ──► interval(): sockets that moved or have queued data
//!     (sock_diag)         └──► counters at the start of the interval ──┘
//! ```
//!
//! The offered rate is the rate of the application's writes: payload acknowledged plus growth of the send
//! queue. A writer that blocks on a full send buffer offers only what the buffer accepts. The kernel cannot
//! know how much more the writer would send, but the user can specify this demand. An application that must
//! not block queues the data itself, and its queue grows by the offered rate minus the achieved rate
//! ([`crate::demand`]).

mod arrivals;
mod link;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use fullpipe_lab::trace::{ReceiverSample, Row, TcpInfo};
use fullpipe_measurement::classify::{Confidence, Limit, SocketFacts};
use fullpipe_measurement::measurement::sharing::{may_share, stays_on_host};
use fullpipe_units::{Bytes, Duration, Instant, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::demand::{Backlog, Demand, Memory};
use crate::live::{CurrentLimit, Live, SharedTime};
use arrivals::Arrivals;
pub(crate) use arrivals::{NOT_OBSERVABLE, reader_is_behind};
use link::Way;

/// Maximum number of rows kept for a diagnosis, over all sockets: a few hundred megabytes.
const MOST_ROWS: usize = 200_000;
/// Number of largest sockets whose rows are kept if there are more than `MOST_ROWS` rows.
const LARGEST: usize = 16;

/// Sample of one socket at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Unique identifier of the socket.
    pub id: u64,
    /// Local address and port.
    pub local: SocketAddr,
    /// Address and port of the peer.
    pub remote: SocketAddr,
    /// Kernel name of the congestion control.
    pub cc: &'a str,
    /// State of the socket as a sender.
    pub sender: TcpInfo,
    /// State of the socket as a receiver; its time and flow number are not used.
    pub receiver: ReceiverSample,
    /// Total payload acknowledged by the peer.
    pub acked: Bytes,
    /// Payload written but not acknowledged (`Send-Q`).
    pub queued: Bytes,
}

/// Report on one socket over an interval, in the form of its JSON object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketReport {
    /// End of the interval, in seconds since the first sample.
    pub t_s: f64,
    /// Number of the socket, in the order in which the sockets were first sampled.
    pub flow: u32,
    /// Local address and port.
    pub local: SocketAddr,
    /// Address and port of the peer.
    pub remote: SocketAddr,
    /// Both endpoints, as `local > remote`.
    #[serde(skip)]
    pub connection: Arc<str>,
    /// Kernel name of the congestion control.
    #[serde(with = "fullpipe_measurement::json::SharedText")]
    pub congestion_control: Arc<str>,
    /// Rate at which payload was acknowledged: key `achieved_bps`.
    #[serde(rename = "achieved_bps", with = "fullpipe_measurement::json::Bps")]
    pub achieved: Rate,
    /// Rate at which payload was written, or the demand specified by the user: key `offered_bps`.
    #[serde(rename = "offered_bps", with = "fullpipe_measurement::json::Bps")]
    pub offered: Rate,
    /// Source of the offered rate.
    pub offered_source: OfferedSource,
    /// Rate at which payload was received: key `received_bps`.
    #[serde(rename = "received_bps", with = "fullpipe_measurement::json::Bps")]
    pub received: Rate,
    /// Smoothed RTT in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Minimum RTT in milliseconds.
    pub min_rtt_ms: Option<f64>,
    /// Congestion window in bytes.
    pub cwnd_bytes: u64,
    /// Bytes in flight: sent but not acknowledged.
    pub inflight_bytes: u64,
    /// Window advertised by the peer, in bytes.
    pub rwnd_bytes: u64,
    /// Bytes written but not sent.
    pub notsent_bytes: u64,
    /// Bytes received but not read.
    pub unread_bytes: u64,
    /// Segments retransmitted in the interval.
    pub retransmits: u64,
    /// Pacing rate, if pacing is active: key `pacing_bps`.
    #[serde(rename = "pacing_bps", with = "fullpipe_measurement::json::OptionalBps")]
    pub pacing: Option<Rate>,
    /// Limit that applied for most of the interval; null for an idle socket, and for a receiving socket whose
    /// limit the receiver does not observe.
    pub limit: Option<Limit>,
    /// Confidence in the limit.
    pub confidence: Option<Confidence>,
    /// Description of the limit in plain words; null if [`Sockets::without_words`] was called.
    pub what: Option<String>,
    /// Main evidence for the limit; null if [`Sockets::without_words`] was called.
    pub evidence: Option<String>,
    /// Growth of the application's queue, inside and outside the kernel.
    pub backlog: Backlog,
}

/// Source of an application's offered rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OfferedSource {
    /// Measured as the rate at which the socket accepted data.
    Measured,
    /// Given by the user.
    Given,
}

/// Socket that is sending or has sent data.
#[derive(Clone, Copy, Debug)]
pub struct SendingSocket<'a> {
    /// Number of the socket, in the order in which the sockets were first sampled.
    pub number: u32,
    /// Both endpoints, as `local > remote`.
    pub connection: &'a str,
    /// Whether the endpoints are on different hosts.
    pub crosses_link: bool,
    /// Last row.
    pub row: &'a Row,
}

/// Sampled socket with its counters and rows.
#[derive(Clone, Debug)]
struct WatchedSocket {
    number: u32,
    local: SocketAddr,
    remote: SocketAddr,
    connection: Arc<str>,
    cc: Arc<str>,
    live: Live,
    /// All rows, if rows are kept for a diagnosis.
    rows: Vec<Row>,
    /// All samples of the receiving side, if rows are kept for a diagnosis.
    received: Vec<ReceiverSample>,
    /// Summaries of the receiving side's samples: of all samples, and of those in the present interval.
    arrivals: Arrivals,
    arrivals_in_interval: Arrivals,
    first: Mark,
    /// Counters at the start of the interval.
    begin: Mark,
    last: Mark,
    unread: Bytes,
    /// Whether unread data filled much of the receive buffer in the last sample.
    is_behind: bool,
}

/// Counters of a socket at one instant.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    acked: Bytes,
    queued: Bytes,
    received: Bytes,
    retransmits: u64,
}

/// All sampled sockets.
#[derive(Clone, Debug, Default)]
pub struct Sockets {
    host: SocketFacts,
    keeps_rows: bool,
    without_words: bool,
    sockets: BTreeMap<u64, WatchedSocket>,
    met: u32,
    /// Sums over the closed sockets.
    gone: Totals,
    /// Maximum time reported so far for each limit. A reported counter must not decrease, although later
    /// samples may change the limit of the most recent span.
    told: BTreeMap<Limit, Duration>,
    /// Time for which the sending sockets share a link.
    shared: SharedTime,
}

/// Sums over all sockets since their first samples, including closed sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Payload acknowledged.
    pub sent: Bytes,
    /// Payload received.
    pub received: Bytes,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Time of each limit.
    pub limits: BTreeMap<Limit, Duration>,
}

/// Sums and means over the existing sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Present {
    /// Number of connections.
    pub connections: u64,
    /// Payload written but not sent, over all sockets.
    pub unsent: Bytes,
    /// Payload received but not read, over all sockets.
    pub unread: Bytes,
    /// Mean of the smoothed RTTs.
    pub rtt: Option<Duration>,
    /// Minimum RTT over all sockets.
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
    /// Creates an empty set of sockets on a host described by `host`.
    pub fn new(host: SocketFacts) -> Self {
        Self { host, ..Self::default() }
    }

    /// Keeps every row for [`Sockets::rows`], or only the rows of the largest sockets if there are too many.
    #[must_use]
    pub fn keeping_rows(self) -> Self {
        Self { keeps_rows: true, ..self }
    }

    /// Leaves description and evidence of limits out of the reports, for text lines without room for them.
    #[must_use]
    pub fn without_words(self) -> Self {
        Self { without_words: true, ..self }
    }

    /// Returns the number of sockets.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Returns whether there are no sockets.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Records a sample of one socket.
    pub fn take(&mut self, at: Instant, sample: &Sample<'_>) {
        let mark = Mark {
            at,
            acked: sample.acked,
            queued: sample.queued,
            received: sample.receiver.receiver.received,
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
                received: Vec::new(),
                arrivals: Arrivals::default(),
                arrivals_in_interval: Arrivals::default(),
                first: mark,
                begin: mark,
                last: mark,
                unread: Bytes::ZERO,
                is_behind: false,
            }
        });
        (watched.last, watched.unread) = (mark, sample.receiver.receiver.unread);
        watched.is_behind = reader_is_behind(&sample.receiver);
        if watched.receives() || watched.is_behind {
            watched.arrivals.add(&sample.receiver);
            watched.arrivals_in_interval.add(&sample.receiver);
        }
        // Omit the receive state: that of this endpoint describes the data that it receives, not the data that
        // it sends, and the peer is not sampled.
        let row =
            Row { at, flow: watched.number, sender: sample.sender, receiver: None, path: None, truth: None };
        if self.keeps_rows && (watched.sends() || watched.rows.is_empty()) {
            watched.rows.push(row.clone());
        }
        if self.keeps_rows && (watched.receives() || watched.received.is_empty()) {
            watched.received.push(ReceiverSample { at, flow: watched.number, ..sample.receiver });
        }
        watched.live.push_observed(row);
        if self.shared.is_due(at) {
            self.judge_together();
        }
    }

    /// Judges together the sending sockets that may share a link, up to their last rows.
    fn judge_together(&mut self) {
        let sends = |watched: &WatchedSocket| {
            !watched.receives() && !stays_on_host((watched.local.ip(), watched.remote.ip()))
        };
        let senders = self.sockets.values_mut().filter(|watched| sends(watched));
        self.shared.judge(&mut senders.map(|watched| &mut watched.live).collect::<Vec<_>>());
    }

    /// Removes sockets without a sample at or after `since`, and keeps their sums.
    pub fn keep(&mut self, since: Instant) {
        if self.sockets.values().any(|watched| watched.last.at < since) {
            self.judge_together();
        }
        let gone = &mut self.gone;
        self.sockets.retain(|_, watched| {
            let stays = watched.last.at >= since;
            if !stays {
                gone.add(watched);
            }
            stays
        });
    }

    /// Ends the interval and returns a report on each socket that moved data or has data queued, largest
    /// first. `demand` is the rate that the application offers, if known; `memory` is the memory available to
    /// its queue.
    pub fn interval(&mut self, demand: Option<Rate>, memory: Memory) -> Vec<SocketReport> {
        let mut reports = Vec::new();
        for watched in self.sockets.values_mut() {
            if watched.moved() && watched.time() > Duration::ZERO {
                let arrivals = watched.arrivals_in_interval;
                reports.push(watched.report(watched.begin, &arrivals, demand, memory, !self.without_words));
            }
            watched.begin = watched.last;
            watched.arrivals_in_interval = Arrivals::default();
        }
        self.share_link(&mut reports);
        largest_first(&mut reports);
        self.thin();
        reports
    }

    /// Returns a report on each socket since its first sample, largest first.
    pub fn whole(&self, demand: Option<Rate>, memory: Memory) -> Vec<SocketReport> {
        let report = |watched: &WatchedSocket| {
            watched.report(watched.first, &watched.arrivals, demand, memory, !self.without_words)
        };
        let mut reports: Vec<SocketReport> = self.sockets.values().map(report).collect();
        self.share_link(&mut reports);
        largest_first(&mut reports);
        reports
    }

    /// Corrects the limits of sockets that share the link.
    fn share_link(&self, reports: &mut [SocketReport]) {
        let own = |watched: &WatchedSocket| watched.live.last().map(|row| row.sender.mss);
        let sent = self.sockets.values().filter_map(own).max().unwrap_or_default();
        let received = self.sockets.values().map(|watched| watched.arrivals.mss).max().unwrap_or_default();
        for (way, mss) in Way::BOTH.into_iter().zip([sent, received]) {
            link::share(reports, self.host.link, way, mss, !self.without_words);
        }
    }

    /// Returns the sums since the first sample, which never decrease.
    pub fn totals(&mut self) -> Totals {
        self.judge_together();
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

    /// Returns sums and means over the existing sockets.
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

    /// Returns each socket that is sending or has sent data.
    pub fn senders(&self) -> impl Iterator<Item = SendingSocket<'_>> {
        self.sockets.values().filter_map(|watched| {
            let row = watched.live.last().filter(|row| {
                !(row.sender.delivered.is_zero()
                    && row.sender.notsent.is_zero()
                    && row.sender.flight_size.is_zero())
            })?;
            let ends = (watched.local.ip(), watched.remote.ip());
            let crosses_link = !stays_on_host(ends);
            Some(SendingSocket { number: watched.number, connection: &watched.connection, crosses_link, row })
        })
    }

    /// Returns the flow of a socket, or `None` if the socket is unknown.
    pub fn live(&self, id: u64) -> Option<&Live> {
        self.sockets.get(&id).map(|watched| &watched.live)
    }

    /// Returns the rows of socket number `number`.
    pub fn rows(&self, number: u32) -> Option<&[Row]> {
        let watched = self.sockets.values().find(|watched| watched.number == number)?;
        Some(&watched.rows)
    }

    /// Returns the samples of the receiving side of socket number `number`.
    pub fn received(&self, number: u32) -> Option<&[ReceiverSample]> {
        let watched = self.sockets.values().find(|watched| watched.number == number)?;
        Some(&watched.received)
    }

    /// Returns the numbers of the other sockets that may share a link with socket number `number`.
    pub fn beside(&self, number: u32) -> Vec<u32> {
        let ends = |watched: &WatchedSocket| (watched.local.ip(), watched.remote.ip());
        let chosen = self.sockets.values().find(|watched| watched.number == number).map(ends);
        let others = self.sockets.values().filter(|watched| watched.number != number);
        others
            .filter(|watched| chosen.is_some_and(|chosen| may_share(chosen, ends(watched))))
            .map(|watched| watched.number)
            .collect()
    }

    /// Drops the rows of all but the largest sockets if there are too many.
    fn thin(&mut self) {
        let kept = |watched: &WatchedSocket| watched.rows.len() + watched.received.len();
        let all: usize = self.sockets.values().map(kept).sum();
        if all <= MOST_ROWS {
            return;
        }
        let mut sent: Vec<(Bytes, u64)> = Vec::new();
        sent.extend(self.sockets.iter().map(|(id, watched)| (watched.sent().max(watched.arrived()), *id)));
        sent.sort_unstable_by_key(|sent| std::cmp::Reverse(*sent));
        for (_, id) in sent.iter().skip(LARGEST) {
            if let Some(watched) = self.sockets.get_mut(id) {
                (watched.rows, watched.received) = (Vec::new(), Vec::new());
            }
        }
        // A few sockets alone reach the maximum only after a long time, so their oldest rows matter least.
        for watched in self.sockets.values_mut() {
            let too_many = watched.rows.len().saturating_sub(MOST_ROWS / LARGEST);
            watched.rows.drain(..too_many);
            let too_many = watched.received.len().saturating_sub(MOST_ROWS / LARGEST);
            watched.received.drain(..too_many);
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

    fn arrived(&self) -> Bytes {
        self.last.received.saturating_sub(self.first.received)
    }

    /// Returns whether this endpoint receives more than it sends.
    fn receives(&self) -> bool {
        self.arrived() > self.sent()
    }

    /// Returns the maximum amount of data that the send buffer may hold, now or after autotuning; zero if
    /// unknown.
    fn most_queued(&self) -> Bytes {
        let now = self.live.last().map(|row| row.sender.sndbuf).unwrap_or_default();
        if now.is_zero() { now } else { now.max(self.live.host().wmem.unwrap_or_default()) }
    }

    /// Returns whether this endpoint sends: data was acknowledged, or is waiting for an ACK.
    fn sends(&self) -> bool {
        !self.sent().is_zero() || !self.last.queued.is_zero()
    }

    fn moved(&self) -> bool {
        let (begin, last) = (&self.begin, &self.last);
        let waits = self.is_behind || !last.queued.is_zero();
        begin.acked != last.acked || begin.received != last.received || waits
    }

    fn report(
        &self,
        from: Mark,
        arrivals: &Arrivals,
        demand: Option<Rate>,
        memory: Memory,
        words: bool,
    ) -> SocketReport {
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
        let ((mut limit, mut confidence), (mut what, mut evidence)) = (held.unzip(), why.unzip());
        let received = rate(last.received.saturating_sub(from.received));
        if received > achieved || self.is_behind && achieved.is_zero() {
            let own = arrivals.limit(received);
            (limit, confidence) = own.as_ref().map(|own| (own.limit, own.confidence)).unzip();
            (what, evidence) = match own.filter(|_| words) {
                Some(own) => (Some(own.what), Some(own.evidence)),
                None => (words.then(|| NOT_OBSERVABLE.to_owned()), None),
            };
        }
        // A writer normally fills the send buffer. While an autotuned buffer grows, its data is not a
        // backlog, because the amount stays within the maximum size of the buffer.
        let (most, is_given) = (self.most_queued(), demand.is_some());
        let is_backlog = is_given || most.is_zero() || last.queued > most;
        let demanded = if is_backlog { offered } else { offered.min(achieved) };
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
            received,
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
            backlog: Backlog::measured(Demand { rate: demanded, memory }, achieved),
        }
    }
}

fn largest_first(reports: &mut [SocketReport]) {
    // A report contains many strings, so move it only once.
    reports
        .sort_by_cached_key(|report| (std::cmp::Reverse(report.achieved.max(report.received)), report.flow));
}

#[cfg(test)]
pub(crate) mod made;
#[cfg(test)]
mod tests;
