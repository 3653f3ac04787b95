//! Judges running flows that share a link.
//!
//! ```text
//!   payload rates of the flows of one direction, over one span of time
//!     └─► sum ──┬─ fills the given link         link, for every flow
//!               └─ does not, or unknown link    each flow is judged alone
//! ```
//!
//! A flow that is judged alone keeps the limit of its own rows, with one exception: the fixed rate of one of
//! several flows is not mistaken for a rate cap ([`of_one_of_several`]).

use fullpipe_units::{Bytes, Rate};

use super::{Confidence, Limit, of_one_of_several};
use crate::measurement::sharing::fills;
use crate::segment::DEFAULT_MSS;
use crate::thresholds::link;

/// Link that flows of one direction share over one span of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedLink {
    /// Number of flows that share the link.
    flows: usize,
    /// Minimum payload rate, in bit/s, for a flow to count as one that shares the link.
    least: f64,
    /// Sum of the payload rates of the flows that share the link.
    sum: Rate,
    /// Rate of the link, if it is known and the flows together fill the link.
    full: Option<Rate>,
    judges_one: bool,
}

impl SharedLink {
    /// Creates the link that flows with the payload rates `rates` share. A flow with a negligible rate does
    /// not count. `link` is the rate of the link, if it is known. `mss` is the payload length of a full-sized
    /// segment, or zero if it is unknown.
    pub fn of(rates: impl Iterator<Item = Rate> + Clone, link: Option<Rate>, mss: Bytes) -> Self {
        let largest = rates.clone().max().unwrap_or_default();
        let shared = Self { least: link::TAKES_PART * largest.as_bps() as f64, ..Self::default() };
        let (flows, bps) = rates
            .filter(|rate| shared.takes_part(*rate))
            .fold((0, 0u64), |(flows, sum), rate| (flows + 1, sum.saturating_add(rate.as_bps())));
        let sum = Rate::from_bps(bps);
        let mss = if mss.is_zero() { DEFAULT_MSS } else { mss };
        Self { flows, sum, full: link.filter(|link| fills(sum, *link, mss)), ..shared }
    }

    /// Applies the rule to a single flow, too. Receivers need this: only the rows of a sender show whether a
    /// single flow fills the link.
    #[must_use]
    pub fn judging_one(self) -> Self {
        Self { judges_one: true, ..self }
    }

    /// Returns whether a flow of payload rate `rate` counts as one that shares the link.
    pub fn takes_part(&self, rate: Rate) -> bool {
        !rate.is_zero() && rate.as_bps() as f64 >= self.least
    }

    /// Returns the sum of the payload rates, if several flows share the link.
    pub fn sum_of_several(&self) -> Option<Rate> {
        (self.flows > 1).then_some(self.sum)
    }

    /// Returns how a flow of payload rate `rate` shares the link; `None` if the flow is judged by its own
    /// rows alone.
    pub fn sharing(&self, rate: Rate) -> Option<Sharing> {
        if !self.takes_part(rate) {
            return None;
        }
        if self.full.is_some() && (self.flows > 1 || self.judges_one) {
            return Some(Sharing::Full);
        }
        (self.flows > 1).then_some(Sharing::Unfilled)
    }

    /// Returns the limit of a flow of payload rate `rate` if it differs from `own`, the limit according to
    /// the flow's own rows.
    pub fn corrected(&self, rate: Rate, own: Option<(Limit, Confidence)>) -> Option<(Limit, Confidence)> {
        self.sharing(rate)?.corrected(own)
    }

    /// Returns the description of a corrected limit.
    pub fn what(&self) -> String {
        match self.full {
            Some(_) if self.flows > 1 => format!("the link is full: {} connections share it", self.flows),
            Some(_) => "the link is full".into(),
            None => format!("{} connections share the capacity of the path", self.flows),
        }
    }

    /// Returns the evidence that the link is full; `None` if it is not, or if its rate is unknown.
    pub fn evidence(&self) -> Option<String> {
        self.full.map(|link| {
            format!("all connections together carry {} of payload over a link of {link}", self.sum)
        })
    }
}

/// How a flow shares a link with other flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The flows fill the link.
    Full,
    /// The flows do not fill the link, or its rate is unknown.
    Unfilled,
}

impl Sharing {
    /// Returns the limit of the flow if it differs from `own`, the limit according to its own rows.
    pub fn corrected(self, own: Option<(Limit, Confidence)>) -> Option<(Limit, Confidence)> {
        match self {
            Self::Full => Some((Limit::Link, Confidence::Certain)),
            Self::Unfilled => {
                let (limit, confidence) = own?;
                let corrected = of_one_of_several(limit, confidence);
                (corrected.0 != limit).then_some(corrected)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: Bytes = Bytes::new(1_448);
    const OWN: Option<(Limit, Confidence)> = Some((Limit::Cwnd, Confidence::High));
    const FULL: Option<(Limit, Confidence)> = Some((Limit::Link, Confidence::Certain));

    fn mbps(rates: &[u64]) -> Vec<Rate> {
        rates.iter().map(|rate| Rate::from_bps(rate * 1_000_000)).collect()
    }

    fn shared(rates: &[u64], link: Option<u64>) -> SharedLink {
        let link = link.map(|link| Rate::from_bps(link * 1_000_000));
        SharedLink::of(mbps(rates).iter().copied(), link, MSS)
    }

    fn corrected(shared: &SharedLink, rate: u64) -> Option<(Limit, Confidence)> {
        shared.corrected(Rate::from_bps(rate * 1_000_000), OWN)
    }

    /// The link is full at 93 % of its rate, counted with headers: a segment of 1448 bytes takes 1500 bytes
    /// on the link, so 90 Mbit/s of payload are 93.2 % of a link of 100 Mbit/s, and 89 Mbit/s are 92.2 %.
    #[test]
    fn flows_that_fill_the_link_together_have_it_as_their_limit() {
        let full = shared(&[60, 20, 10], Some(100));
        assert_eq!([60, 20, 10].map(|rate| corrected(&full, rate)), [FULL; 3]);
        assert_eq!(full.what(), "the link is full: 3 connections share it");
        assert_eq!(full.sum_of_several(), Some(Rate::from_bps(90_000_000)));
        for below in [shared(&[60, 19, 10], Some(100)), shared(&[60, 20, 10], None)] {
            assert_eq!([60, 20, 10].map(|rate| corrected(&below, rate)), [None; 3]);
            assert_eq!(below.evidence(), None);
        }
    }

    /// A single flow is judged by its own rows. The rule for the link applies to it only on request.
    #[test]
    fn one_flow_is_judged_alone() {
        let one = shared(&[99], Some(100));
        assert_eq!((corrected(&one, 99), one.sum_of_several()), (None, None));
        assert_eq!(corrected(&one.judging_one(), 99), FULL);
    }

    /// A control connection shares the link but does not fill it. Its limit is therefore not the link, and it
    /// does not count as a second flow.
    #[test]
    fn a_negligible_flow_takes_no_part() {
        let rates = [Rate::from_bps(95_000_000), Rate::from_bps(9_000), Rate::ZERO];
        let shared = SharedLink::of(rates.into_iter(), Some(Rate::from_bps(100_000_000)), Bytes::ZERO);
        assert_eq!(rates.map(|rate| shared.corrected(rate, OWN)), [None; 3]);
    }

    /// If one of several flows has a fixed rate, the cause is more likely the path that they share than a
    /// cap.
    #[test]
    fn one_of_several_is_not_policed() {
        let own = Some((Limit::Policer, Confidence::High));
        let rate = Rate::from_bps(20_000_000);
        let several = shared(&[20, 20], None);
        assert_eq!(several.corrected(rate, own), Some((Limit::Link, Confidence::Low)));
        assert_eq!(several.what(), "2 connections share the capacity of the path");
        assert_eq!(shared(&[20], None).corrected(rate, own), None);
    }
}
