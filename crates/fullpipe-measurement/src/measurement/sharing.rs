//! Flows that share a path: several connections of one input, summed over the time for which they overlap.
//!
//! ```text
//!   chosen flow    ├──────────────────────┤     diagnosed
//!   its companions    ├─────────┤
//!                          ├────────────────┤
//!   overlap           ├────────────────── ┤     summed: the path carries at least that
//! ```
//!
//! The intervals of a companion have the times of the chosen flow's intervals, so that they can be added.

use std::net::IpAddr;

use fullpipe_lab::trace::Row;
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::{Flow, Interval, Measurement, Role, RttRange, Summary, Total, Totals, Transfer};
use crate::segment::HEADERS;
use crate::thresholds::link;

/// Several flows of one direction as one transfer.
#[derive(Clone, Debug)]
pub struct Together {
    /// Sum of the flows over the time in which at least one companion overlaps the chosen flow.
    pub transfer: Transfer,
    /// Share of the time in which the chosen flow carries data, 0 to 1, for which at least one companion
    /// overlaps it.
    pub share: f64,
}

impl Measurement {
    /// Returns the chosen flow and its companions in the same direction as one transfer, over the time for
    /// which they overlap; `None` if all flows are diagnosed together anyway, or if none overlap.
    pub fn together(&self) -> Option<Together> {
        let chosen = &self.flows[self.chosen?];
        let others: Vec<&Flow> = self.companions().collect();
        let takes_part = |nth: usize, flow: &Flow| {
            let least = link::TAKES_PART * chosen.intervals[nth].bytes.get() as f64;
            flow.intervals.get(nth).is_some_and(|own| !own.bytes.is_zero() && own.bytes.get() as f64 >= least)
        };
        let overlap: Vec<usize> = (0..chosen.intervals.len())
            .filter(|&nth| {
                !chosen.intervals[nth].bytes.is_zero() && others.iter().any(|flow| takes_part(nth, flow))
            })
            .collect();
        let time = |which: &mut dyn Iterator<Item = &Interval>| {
            which.fold(Duration::ZERO, |sum, interval| sum + interval.length())
        };
        let moving = time(&mut chosen.intervals.iter().filter(|interval| !interval.bytes.is_zero()));
        let length = time(&mut overlap.iter().map(|&nth| &chosen.intervals[nth]));
        if length.is_zero() {
            return None;
        }
        let sum_at = |&nth: &usize| {
            let added = others.iter().filter_map(|flow| flow.intervals.get(nth));
            // The sum keeps the RTTs of the chosen flow, even if another flow has no RTT samples.
            added.fold(chosen.intervals[nth], |sum, own| Interval { rtt: sum.rtt, ..sum.added(*own) })
        };
        let intervals: Vec<Interval> = overlap.iter().map(sum_at).collect();
        let bytes = intervals.iter().fold(Bytes::ZERO, |sum, interval| sum + interval.bytes);
        let retransmits = intervals.iter().map(|interval| interval.retransmits).sum::<Option<u64>>();
        let total = Total::mean(bytes, length, retransmits);
        let (sent, received) = match chosen.role {
            Role::Sender => (Some(total), None),
            Role::Receiver => (None, Some(total)),
        };
        let part = |flow: &&&Flow| overlap.iter().any(|&nth| takes_part(nth, flow));
        let streams = 1 + others.iter().filter(part).count();
        let rtt = others.iter().filter_map(|flow| flow.summary.rtt).fold(chosen.summary.rtt, |all, own| {
            let min =
                |all: RttRange| RttRange { min: all.min.min(own.min), max: all.max.max(own.max), ..all };
            Some(all.map_or(own, min))
        });
        let totals =
            Totals { direction: chosen.direction, summary: Summary { sent, received, rtt }, datagrams: None };
        let mss = others.iter().filter_map(|flow| flow.mss).chain(chosen.mss).max();
        let transfer = Transfer { streams, intervals, mss, ..Transfer::of([chosen].into_iter(), &totals) };
        Some(Together { transfer, share: length.as_secs_f64() / moving.as_secs_f64() })
    }

    /// Returns the flows in the direction of the chosen flow, without the chosen one.
    pub fn companions(&self) -> impl Iterator<Item = &Flow> {
        let direction = self.chosen.map(|chosen| self.flows[chosen].direction);
        let others = self.flows.iter().enumerate().filter(|(nth, _)| Some(*nth) != self.chosen);
        others.map(|(_, flow)| flow).filter(move |flow| Some(flow.direction) == direction)
    }

    /// Returns the samples of each sending socket in the direction of the chosen flow, without the chosen
    /// flow's samples; empty unless the input is a trace.
    pub fn companion_rows(&self) -> Vec<&[Row]> {
        self.companions().filter_map(Flow::rows).collect()
    }

    /// Returns the highest rate that the path is proven to carry, by the diagnosed flows alone or together
    /// with their companions.
    pub fn proven_rate(&self) -> Rate {
        let together = self.together().map(|together| together.transfer.proven_rate());
        together.into_iter().fold(self.transfer().proven_rate(), Rate::max)
    }
}

/// Returns whether payload at rate `steady` in segments of `mss` fills `link`.
pub fn fills(steady: Rate, link: Rate, mss: Bytes) -> bool {
    let mss = mss.get() as f64;
    steady.as_bps() as f64 >= link::FULL_IN_LOG * link.as_bps() as f64 * mss / (mss + HEADERS as f64)
}

/// Returns whether both ends of a connection are on one host, according to its local and its remote address.
/// Its packets then cross no link.
pub fn stays_on_host((local, remote): (IpAddr, IpAddr)) -> bool {
    local.is_loopback() || local == remote
}

/// Returns whether two connections may share a link.
pub fn may_share(a: (IpAddr, IpAddr), b: (IpAddr, IpAddr)) -> bool {
    stays_on_host(a) == stays_on_host(b)
}

/// Returns the intervals of a flow at the times of `like`. The flow's times start `later` after the times
/// of `like`, or `earlier` before them. The rate within an interval is assumed to be constant.
pub(crate) fn at_times_of(
    like: &[Interval],
    own: &[Interval],
    (later, earlier): (Duration, Duration),
) -> Vec<Interval> {
    let shifted = |at: Instant| (at + later).saturating_sub(earlier);
    let interval = |at: &Interval| {
        let (mut bytes, mut retransmits) = (0.0, 0.0);
        let begin = own.partition_point(|own| shifted(own.end) <= at.start);
        let within = own[begin..].iter().take_while(|own| shifted(own.start) < at.end);
        let mut last = None;
        for own in within {
            let (from, to) = (shifted(own.start), shifted(own.end));
            let common = to.min(at.end).saturating_since(from.max(at.start));
            let share = common.as_secs_f64() / own.length().as_secs_f64().max(f64::MIN_POSITIVE);
            bytes += share * own.bytes.get() as f64;
            retransmits += share * own.retransmits.unwrap_or(0) as f64;
            last = Some(own);
        }
        let bytes = Bytes::new(bytes as u64);
        Interval {
            start: at.start,
            end: at.end,
            bytes,
            rate: Rate::mean(bytes, at.length()),
            retransmits: at.retransmits.map(|_| retransmits as u64),
            lossy_streams: u64::from(retransmits >= 1.0),
            cwnd: last.and_then(|own| own.cwnd),
            snd_wnd: last.and_then(|own| own.snd_wnd),
            rtt: last.and_then(|own| own.rtt),
            datagrams: None,
        }
    };
    like.iter().map(interval).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn intervals(begin: u64, length: u64, bytes: &[u64]) -> Vec<Interval> {
        let one = |(nth, bytes): (usize, &u64)| {
            let start = begin + nth as u64 * length;
            let bytes = Bytes::new(*bytes);
            Interval {
                start: at(start),
                end: at(start + length),
                bytes,
                rate: Rate::mean(bytes, Duration::from_millis(length)),
                retransmits: Some(0),
                lossy_streams: 0,
                cwnd: None,
                snd_wnd: None,
                rtt: None,
                datagrams: None,
            }
        };
        bytes.iter().enumerate().map(one).collect()
    }

    /// Converted intervals contain the bytes of the common time, whether the flow begins later or earlier.
    #[test]
    fn bytes_stay_at_their_times() {
        let like = intervals(0, 1_000, &[100; 4]);
        let own = intervals(0, 500, &[10, 20, 30, 40]);
        let bytes = |shift| {
            let moved = at_times_of(&like, &own, shift);
            moved.iter().map(|interval| interval.bytes.get()).collect::<Vec<u64>>()
        };
        let millis = Duration::from_millis;
        assert_eq!(bytes((Duration::ZERO, Duration::ZERO)), [30, 70, 0, 0]);
        assert_eq!(bytes((millis(1_500), Duration::ZERO)), [0, 10, 50, 40]);
        assert_eq!(bytes((Duration::ZERO, millis(1_000))), [70, 0, 0, 0]);
        assert_eq!(bytes((millis(250), Duration::ZERO)), [20, 60, 20, 0]);
    }
}
