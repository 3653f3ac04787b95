//! Path memory: a connection starts with measurements of earlier connections to the same client, and adds its
//! own measurements for later connections.
//!
//! ```text
//!   before the SYN   ─► expect ─► time of the early retransmission of the SYN-ACK
//!   Event::Connected ─► recall ─► launch, RTT, rate, loss ─► a new controller, before the first byte
//!   end              ─► visit  ─► PathMemory::record
//! ```

use std::net::IpAddr;

use fullpipe_units::{Bytes, Duration, Instant};

use super::sender::Sender;
use super::{Connection, State};
use crate::cc::{INITIAL_SEGMENTS, Launch};
use crate::memory::{Capacity, PathMemory, Recollection, SenderTotals, Visit};

/// Minimum amount of data in a rate sample, in segments, for the path memory to store its rate. Any
/// connection can deliver the data of its initial window, so a smaller sample says nothing about the path.
const LEAST_SAMPLE: u64 = 2 * INITIAL_SEGMENTS;

/// First flight of a connection: the data within the initial congestion window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FirstFlight {
    /// Stream offset at which the first flight ends.
    pub(super) end: u64,
    /// Number of bytes in the first flight whose first transmission was lost.
    pub(super) lost: u64,
    /// Whether the connection may launch, because no SYN or SYN-ACK was lost.
    pub(super) may_launch: bool,
    /// Whether the first flight uses the capacity from path memory.
    pub(super) informed: bool,
}

impl Connection {
    /// Derives the time after which the SYN-ACK is retransmitted early from the RTT of an earlier connection
    /// to `client`, if `memory` contains such an RTT. After the SYN has arrived, the call has no effect.
    pub fn expect(&mut self, now: Instant, memory: &dyn PathMemory, client: IpAddr) {
        if self.lifecycle.state == State::Listen {
            self.handshake.known_rtt = memory.rtt(now, client);
        }
    }

    /// Restarts the sending half with the values that `memory` contains for the path to `client`, and deducts
    /// the octets of the launch from the budgets.
    ///
    /// The owner of the connection calls this function once, at
    /// [`Event::Connected`](super::Event::Connected). After the first byte has been sent, the call has no
    /// effect.
    pub fn recall(&mut self, now: Instant, memory: &mut dyn PathMemory, client: IpAddr) {
        if self.is_established() && self.sender.snd_nxt() == 0 {
            let known = memory.recall(now, client);
            self.sender.recall(now, &known, |wanted, rtt| memory.grant(now, client, wanted, rtt));
        }
    }

    /// Returns whether the handshake has completed and the connection has not ended.
    fn is_established(&self) -> bool {
        let before = matches!(
            self.lifecycle.state,
            State::Closed | State::Listen | State::SynSent | State::SynReceived
        );
        !before && !self.lifecycle.over
    }

    /// Returns the measurements of the connection so far, or `None` if it has sent no data or has no RTT
    /// sample.
    pub fn visit(&self) -> Option<Visit> {
        self.sender.visit()
    }

    /// Returns the contribution of this connection to the sums that the kill switch observes.
    pub fn sender_totals(&self) -> SenderTotals {
        self.sender.totals()
    }
}

impl Sender {
    /// Restarts the sending half with the `known` values of the path. `grant` returns how many octets above
    /// ten segments the first flight may contain.
    fn recall(
        &mut self,
        now: Instant,
        known: &Recollection,
        grant: impl FnOnce(Bytes, Option<Duration>) -> Bytes,
    ) {
        let (mss, rtt) = (self.mss, self.rtt.srtt());
        let configured = self.config.launch(mss, rtt).filter(|_| self.first_flight.may_launch);
        let launch = configured.map(|configured| {
            let wanted = known.launch(configured, rtt, Bytes::new(self.peer.wnd), mss);
            let least = wanted.window.min(INITIAL_SEGMENTS as u32);
            let beyond = u64::from(wanted.window - least) * mss;
            let granted = grant(Bytes::new(beyond), rtt).get().min(beyond) / mss;
            Launch { window: least + granted as u32, ..wanted }
        });
        let initial = self.first_flight.end;
        self.first_flight.informed = known.capacity.is_some();
        self.start_control(now, initial, launch, known);
    }

    fn visit(&self) -> Option<Visit> {
        let sent = self.first_flight.end.min(self.snd_nxt());
        if sent == 0 {
            return None;
        }
        let segments = |octets: u64| octets.div_ceil(self.mss);
        let launched = segments(sent);
        let lost = self.recovery.board.lost_total().saturating_sub(self.first_flight.lost);
        let (rtt, assessment) = (self.rtt.min_rtt()?, self.decision.assessment());
        let measured = match assessment.bottleneck {
            Some(rate) => Some((rate, true)),
            None => {
                let sample = self.rate.last().filter(|sample| sample.delivered >= LEAST_SAMPLE * self.mss);
                sample.map(|sample| (sample.rate(), false))
            }
        };
        Some(Visit {
            rtt,
            rttvar: self.rtt.rttvar(),
            capacity: measured.map(|(rate, is_bottleneck)| Capacity {
                rate,
                cwnd: rate * rtt,
                is_bottleneck,
            }),
            launched,
            launch_lost: segments(self.first_flight.lost).min(launched),
            later: self.stats.segments_sent.saturating_sub(launched),
            later_lost: segments(lost),
            congested: assessment.launch_congested,
            informed: self.first_flight.informed,
        })
    }

    fn totals(&self) -> SenderTotals {
        let sent = self.stats.bytes_sent.saturating_sub(self.recovery.board.inflight());
        let first = self.first_flight.end.min(self.snd_nxt());
        let duplicates = self.stats.duplicates.saturating_mul(self.mss);
        let lost = self.recovery.board.lost_total().saturating_sub(self.first_flight.lost);
        let has_sent = u64::from(self.snd_nxt() > 0);
        let timeout = has_sent * u64::from(self.stats.timeouts > 0);
        let larger = u64::from(self.first_flight.end > INITIAL_SEGMENTS * self.mss);
        SenderTotals {
            sent,
            needed: self.snd_una,
            later_sent: sent.saturating_sub(first),
            later_lost: lost.saturating_sub(duplicates),
            launched: has_sent * larger,
            launched_timeouts: timeout * larger,
            plain: has_sent * (1 - larger),
            plain_timeouts: timeout * (1 - larger),
        }
    }
}
