//! Observable state of a connection: counters, times, and the values of a trace row.

use fullpipe_units::{Duration, Instant, Rate};

use super::Connection;
use crate::SendLimit;
use crate::cc::Status;
use crate::estimate::RttHistogram;
use crate::recovery::Phase;

/// Event counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of data segments sent, including retransmissions.
    pub segments_sent: u64,
    /// Number of payload bytes sent, including retransmissions.
    pub bytes_sent: u64,
    /// Number of segments retransmitted.
    pub retransmits: u64,
    /// Number of copies sent of segments that were not marked lost; included in `retransmits`.
    pub copies: u64,
    /// Number of expiries of the retransmission timeout.
    pub timeouts: u64,
    /// Number of tail loss probes sent.
    pub probes: u64,
    /// Number of fast recoveries started.
    pub recoveries: u64,
    /// Number of window reductions in response to ECE.
    pub ecn_reductions: u64,
    /// Number of duplicate ranges reported by the peer (D-SACK, RFC 2883).
    pub duplicates: u64,
    /// Number of ACKs that delivered data.
    pub acks: u64,
    /// Number of accesses to the records of sent segments, a measure of processing cost.
    pub records_visited: u64,
}

/// Time for which each limit has blocked the sender.
#[derive(Clone, Debug)]
pub(super) struct LimitClock {
    pub(super) current: SendLimit,
    since: Instant,
    spent: [Duration; SendLimit::ALL.len()],
}

impl Default for LimitClock {
    fn default() -> Self {
        Self { current: SendLimit::App, since: Instant::ZERO, spent: [Duration::ZERO; SendLimit::ALL.len()] }
    }
}

impl LimitClock {
    pub(super) fn set(&mut self, now: Instant, limit: SendLimit) {
        if limit != self.current {
            self.spent[self.current as usize] += now.saturating_since(self.since);
            self.current = limit;
            self.since = now;
        }
    }

    pub(super) fn spent(&self, now: Instant) -> [Duration; SendLimit::ALL.len()] {
        let mut spent = self.spent;
        spent[self.current as usize] += now.saturating_since(self.since);
        spent
    }
}

/// Sender state at one time, for a trace row.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// Congestion window in effect, in bytes.
    pub cwnd: u64,
    /// Slow-start threshold in bytes; `u64::MAX` before the first reduction.
    pub ssthresh: u64,
    /// Bytes estimated to be in the network: sent, but neither delivered nor marked lost.
    pub inflight: u64,
    /// Bytes sent and not cumulatively acknowledged: FlightSize (RFC 5681 section 2).
    pub flight_size: u64,
    /// Receive window advertised by the peer, in bytes.
    pub rwnd: u64,
    /// Payload length of a full-sized segment, in bytes.
    pub mss: u64,
    /// Pacing rate in effect.
    pub pacing_rate: Option<Rate>,
    /// Most recent delivery rate. As in the kernel's `tcpi_delivery_rate`, an application-limited sample does
    /// not replace a higher rate.
    pub delivery_rate: Option<Rate>,
    /// Whether the sample of `delivery_rate` is application-limited.
    pub app_limited: bool,
    /// Smoothed RTT of the connection (RFC 6298).
    pub srtt: Option<Duration>,
    /// Minimum RTT of the last five minutes.
    pub min_rtt: Option<Duration>,
    /// Bytes delivered since the start of the connection.
    pub delivered: u64,
    /// Bytes marked lost since the start of the connection.
    pub lost: u64,
    /// Bytes written by the application and not yet acknowledged.
    pub queued: u64,
    /// Bytes written by the application and not yet sent.
    pub notsent: u64,
    /// Memory limit of the send buffer, in bytes.
    pub sndbuf: u64,
    /// Memory in use by the send buffer, in bytes.
    pub sndbuf_used: u64,
    /// Whether the connection is in fast recovery or in recovery after a retransmission timeout.
    pub recovering: bool,
    /// Limit that currently blocks the sender.
    pub limit: SendLimit,
    /// Phase and internal values of the congestion controller.
    pub status: Status,
    /// Event counters since the start of the connection.
    pub stats: Stats,
}

/// Receiver state at one time, for a trace row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverSnapshot {
    /// Number of in-order payload bytes received.
    pub received: u64,
    /// Number of in-order bytes received and not yet read by the application.
    pub unread: u64,
    /// Current memory limit of the receive buffer, in bytes.
    pub rcvbuf: u64,
    /// Largest value that the memory limit of the receive buffer can reach, in bytes.
    pub rcvbuf_limit: u64,
}

impl Connection {
    /// Returns the time for which each limit has blocked the sender, in the order of [`SendLimit::ALL`].
    pub fn limit_times(&self, now: Instant) -> [Duration; SendLimit::ALL.len()] {
        self.sender.limits.spent(now)
    }

    /// Returns the event counters since the start of the connection.
    pub fn stats(&self) -> Stats {
        Stats { records_visited: self.sender.recovery.board.visited(), ..self.sender.stats }
    }

    /// Returns the histogram of RTT samples, with one sample per ACK.
    pub fn rtts(&self) -> &RttHistogram {
        &self.sender.rtts
    }

    /// Returns the sender state for a trace row.
    pub fn snapshot(&self) -> Snapshot {
        let queued = self.sender.queue.written().saturating_sub(self.sender.snd_una);
        Snapshot {
            cwnd: self.sender.effective_cwnd(),
            ssthresh: self.sender.decision.control.ssthresh,
            inflight: self.sender.recovery.board.inflight(),
            flight_size: self.sender.flight_size(),
            rwnd: self.sender.peer.wnd,
            mss: self.sender.mss,
            pacing_rate: self.sender.release().rate,
            delivery_rate: self.sender.rate.last().map(|sample| sample.rate()),
            app_limited: self.sender.rate.last().is_some_and(|sample| sample.app_limited),
            srtt: self.sender.rtt.srtt(),
            min_rtt: self.sender.rtt.min_rtt(),
            delivered: self.sender.rate.delivered,
            lost: self.sender.recovery.board.lost_total(),
            queued,
            notsent: self.sender.unsent(),
            sndbuf: self.sender.queue.sndbuf(),
            sndbuf_used: self.sender.queue.memory(self.sender.snd_nxt()),
            recovering: self.sender.recovery.phase != Phase::Open,
            limit: self.sender.limits.current,
            status: self.sender.decision.status(),
            stats: self.stats(),
        }
    }

    /// Returns the receiver state for a trace row.
    pub fn receiver_snapshot(&self) -> ReceiverSnapshot {
        ReceiverSnapshot {
            received: self.received(),
            unread: self.readable(),
            rcvbuf: self.receiver.window.rcvbuf(),
            rcvbuf_limit: self.config.rcvbuf.limit().get(),
        }
    }
}
