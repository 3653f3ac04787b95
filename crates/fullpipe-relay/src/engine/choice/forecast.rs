//! The number of connections with which a copy starts, if the rate of its path is known, or assumed for a short copy.
//!
//! ```text
//!   rate, RTT, largest window ──► as many connections as fill the link ─────────────┐
//!   size of the copy ───────────► time with each larger number, with its slow start ─┴─► the fastest number
//! ```
//!
//! A larger number of windows fills the link earlier: twice as many connections save one round trip of slow start. For a
//! short copy over a long path, this time matters more than the cost of further connections; for a long copy, it does not.

use fullpipe_units::{Bytes, Duration, Rate};

use super::watching::FIRST_FACTOR;
use super::{Choice, NEARLY_PERCENT, Phase, SPAN, needed};
use crate::engine::HANDSHAKES;

/// Factor by which the RTT may differ from that of an earlier copy over the same path, as a fraction.
const SAME_RTT: (u64, u64) = (3, 2);
/// Fraction of a receive buffer that the receive window can be. With a receive buffer of 320 KiB and an RTT of 100 ms, a
/// connection reached 16.1 Mbit/s.
const RECEIVED: (u64, u64) = (5, 8);
/// Payload length of a full-sized segment and length of its Ethernet frame in bytes, with IPv6 and timestamps.
pub(super) const PAYLOAD: (u64, u64) = (1428, 1514);
/// Fraction of a send buffer that payload can occupy; the rest is taken by the kernel's skb overhead. With a send
/// buffer of 4 MiB and an RTT of 210 ms, a connection reached 136 to 147 Mbit/s.
const BUFFERED: (u64, u64) = (7, 8);
/// Initial congestion window in segments (RFC 6928 §2).
const INITIAL_SEGMENTS: u64 = 10;
/// Round trips of a copy without those that carry its data: the handshakes of TCP and TLS, the first announcement, and the
/// last reply.
const MESSAGES: u64 = 4;
/// Round trips from the start of a TCP handshake until the connection carries data.
const HANDSHAKE: u64 = 2;
/// CPU time for the keys of a connection, of both hosts: over loopback, a copy of 1 kB over eight connections takes 7 ms
/// longer than over one.
const KEYS: Duration = Duration::from_millis(1);
/// Time, and number of round trips in addition, within which a search settles on most paths.
const SEARCH: Duration = Duration::from_secs(5);
const SEARCH_ROUND_TRIPS: u64 = 20;
/// Rate of the link that a short copy assumes if nothing states it. It is more than one connection carries over a long path
/// with the kernel's default buffers: 140 Mbit/s at an RTT of 210 ms.
const ASSUMED_LINK: Rate = Rate::from_bps(500_000_000);
/// Percentage of the shortest time that the time of a smaller number of connections may be.
const AS_FAST_PERCENT: u64 = 101;

/// Largest sizes of the buffers that hold the payload of a connection; `None` if a size is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    /// Send buffer of the host that sends.
    pub send: Option<Bytes>,
    /// Receive buffer of the host that receives.
    pub receive: Option<Bytes>,
}

impl Buffers {
    /// Returns the smaller buffer after its size has been reduced to a fraction; `None` if neither size is known.
    fn least(self, sent: (u64, u64), received: (u64, u64)) -> Option<Bytes> {
        let part = |size: Option<Bytes>, (part, whole)| Some(size?.mul_div(part, whole));
        part(self.send, sent).into_iter().chain(part(self.receive, received)).min()
    }
}

/// What a copy has seen of its path, for the next copy to the same peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Number of connections on which the copy has settled.
    pub connections: u32,
    /// Shortest RTT.
    pub rtt: Duration,
    /// Payload rate of these connections.
    pub rate: Rate,
}

/// A copy of known size over a path of known rate.
#[derive(Clone, Copy, Debug)]
struct Prospect {
    size: Bytes,
    rtt: Duration,
    /// Payload rate of the link.
    rate: Rate,
    /// Largest payload that a connection can have in flight.
    window: Bytes,
}

impl Prospect {
    /// Returns the smallest number of connections from `least` to `most` that is about as fast as the fastest one.
    fn fastest(self, least: u32, most: u32) -> u32 {
        let times: Vec<(u32, Duration)> = (least..=most).map(|count| (count, self.time(count))).collect();
        let shortest = times.iter().map(|(_, time)| *time).min().unwrap_or(Duration::ZERO);
        let is_as_fast = |time: Duration| time <= shortest.mul_div(AS_FAST_PERCENT, 100);
        times.iter().find(|(_, time)| is_as_fast(*time)).map_or(least, |(count, _)| *count)
    }

    /// Returns the time of the copy over `count` connections, if nothing is lost.
    fn time(self, count: u32) -> Duration {
        let full = (self.rate * self.rtt).max(Bytes::new(1));
        let most = full.min(self.window.max(Bytes::new(1)).mul_div(count.into(), 1));
        let (mut left, mut trips) = (self.size, 0);
        loop {
            let flight = (0..count).fold(Bytes::ZERO, |sum, number| sum + self.flight(number, trips));
            let flight = flight.min(full);
            if left <= flight || flight >= most {
                // Initial windows that hold all data leave at once; later windows are spread over the round trip.
                let spread = if trips == 0 && flight < most { Bytes::ZERO } else { left };
                let rest = self.rtt.mul_div(spread.get(), flight.get().max(1));
                return self.rtt * (MESSAGES + trips) + rest + KEYS * u64::from(count);
            }
            left = left.saturating_sub(flight);
            trips += 1;
        }
    }

    /// Returns what the connection `number` can send in a round trip, `trips` after the first data. The first connections
    /// send at the same time; each further group of [`HANDSHAKES`] waits for the handshakes of the group before.
    fn flight(self, number: u32, trips: u64) -> Bytes {
        let begin = u64::from(number.saturating_sub(1) / HANDSHAKES) * HANDSHAKE;
        let Some(doublings) = trips.checked_sub(begin) else { return Bytes::ZERO };
        let initial = INITIAL_SEGMENTS * PAYLOAD.0;
        // No window is as large as 2^40 initial windows.
        Bytes::new(initial << doublings.min(40)).min(self.window.max(Bytes::new(1)))
    }
}

impl Choice {
    /// Starts with the number of connections of an earlier copy, or with more if this shortens a copy of `size`, if the path
    /// has the same RTT of `rtt`; returns the number. If the connections of the earlier copy have the same rate, no search
    /// begins. Has no effect after data has been acknowledged.
    pub fn resume(&mut self, earlier: Remembered, rtt: Duration, size: Option<Bytes>) -> Option<u32> {
        let (longer, shorter) = (earlier.rtt.max(rtt), earlier.rtt.min(rtt));
        let is_same = longer <= shorter.mul_div(SAME_RTT.0, SAME_RTT.1);
        if !is_same || !self.acked.is_zero() {
            return None;
        }
        let least = earlier.connections.clamp(self.least, self.most);
        let window = (earlier.rate * earlier.rtt).mul_div(1, earlier.connections.max(1).into());
        let prospect = |size| Prospect { size, rtt, rate: earlier.rate, window };
        self.count = size.map_or(least, |size| prospect(size).fastest(least, self.most));
        self.expected = (self.count == earlier.connections).then_some(earlier.rate);
        Some(self.count)
    }

    /// Returns what the next copy over this path should know; `None` if no search for the number of connections has
    /// ended.
    pub fn outcome(&self) -> Option<Remembered> {
        let (connections, rate) = match self.phase {
            Phase::Raised { before, rate, .. } => (before, rate),
            Phase::Lowered { upper, rate, .. } => (upper, rate),
            Phase::Yielding { .. } => return None,
            Phase::Watching { .. } if self.is_yielding => return None,
            Phase::Watching { .. } => {
                let (kept, last) = (self.kept?, self.sums.back()?);
                let time = last.at.saturating_since(kept.at);
                if time < SPAN {
                    return None;
                }
                (self.count, Rate::mean(last.acked.saturating_sub(kept.acked), time))
            }
        };
        let is_settled = self.last.is_some() || connections == self.most;
        is_settled.then_some(Remembered { connections, rtt: self.least_rtt?, rate })
    }

    /// Starts with as many connections as fill the link at an RTT of `rtt` with these buffers, or with more if this shortens
    /// a copy of `size`, if the size of a buffer is known; returns their number. Has no effect after data has been
    /// acknowledged.
    ///
    /// If the rate of the link is not known, a copy of known size that ends before a search would have settled starts with
    /// the number that is fastest on a link of 500 Mbit/s, up to that of the first trial.
    pub fn forecast(&mut self, rtt: Duration, buffers: Buffers, size: Option<Bytes>) -> u32 {
        let sizes = buffers.least(BUFFERED, RECEIVED).zip(buffers.least((1, 1), (1, 1)));
        let Some((window, memory)) = sizes.filter(|_| self.acked.is_zero()) else { return self.count };
        let prospect = |rate: Rate, size: Bytes| Prospect { size, rtt, rate, window };
        if let Some(rate) = self.link {
            let each = |size: Bytes| Rate::mean(size, rtt.max(Duration::from_nanos(1)));
            let least = needed(rate, each(window), 1).clamp(self.least, self.most);
            self.count = size.map_or(least, |size| prospect(rate, size).fastest(least, self.most));
            // Fewer connections cannot fill the link, even if the kernel needs no memory for its records.
            let enough = needed(rate.mul_div(NEARLY_PERCENT, 100), each(memory), 1);
            self.fewest = enough.clamp(self.least, least);
        } else if let Some(size) = size {
            let prospect = prospect(ASSUMED_LINK.mul_div(PAYLOAD.0, PAYLOAD.1), size);
            let ends_early = prospect.time(self.least) <= SEARCH + rtt * SEARCH_ROUND_TRIPS;
            let most = if ends_early { FIRST_FACTOR.clamp(self.least, self.most) } else { self.least };
            self.count = prospect.fastest(self.least, most);
        }
        self.count
    }
}
