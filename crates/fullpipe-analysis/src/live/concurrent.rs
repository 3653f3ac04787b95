//! Running flows of one direction that may share a link, over a span of time for which all of them are known.
//!
//! ```text
//!   flow 1   ├──────────────────────┤      newest row
//!   flow 2         ├───────────────┤       sampled just before: its next row is not there yet
//!   flow 3   ├──────────┤                  ended
//!   span               ├───────────┤       up to the last row that every running flow has
//! ```
//!
//! [`SharedLink`] contains the rule.

use fullpipe_measurement::classify::{Confidence, Limit, SharedLink, Sharing};
use fullpipe_units::{Instant, Rate};

use super::{CurrentLimit, Live, NOW};

/// Running flows of one direction over a common span of time.
#[derive(Clone, Copy, Debug)]
pub struct ConcurrentFlows {
    from: Instant,
    to: Instant,
    link: SharedLink,
}

impl ConcurrentFlows {
    /// Creates the flows over the span for which [`Live::held`] determines a limit.
    pub fn now<'a>(flows: impl Iterator<Item = &'a Live> + Clone) -> Self {
        Self::covering(flows, Instant::FAR_FUTURE)
    }

    /// Creates the flows over the span of [`Self::now`], or over the time since `from` if that is longer but
    /// less than twice as long. If all flows pause, their rates over the pause do not show whether they fill
    /// the link after it.
    pub(super) fn covering<'a>(flows: impl Iterator<Item = &'a Live> + Clone, from: Instant) -> Self {
        let span = flows.clone().map(Live::recent).max().unwrap_or_default();
        let recent = known_up_to(flows.clone()).saturating_sub(span);
        let is_near = from >= recent.saturating_sub(span);
        Self::since(flows, if is_near { recent.min(from) } else { recent })
    }

    /// Creates the flows over the time since `from`, as far as rows have been kept.
    pub fn since<'a>(flows: impl Iterator<Item = &'a Live> + Clone, from: Instant) -> Self {
        let to = known_up_to(flows.clone());
        let first = flows.clone().filter_map(|live| live.rows().first()).map(|row| row.at).min();
        let from = first.map_or(from, |first| from.max(first));
        let rates: Vec<Rate> = flows.clone().map(|live| live.rate_between(from, to)).collect();
        let link = flows.clone().find_map(|live| live.host().link);
        let mss = flows.filter_map(Live::last).map(|row| row.sender.mss).max().unwrap_or_default();
        Self { from, to, link: SharedLink::of(rates.iter().copied(), link, mss) }
    }

    /// Returns the limit of `live`, which is one of the flows. `own` is its limit according to its own rows.
    pub fn limit_of(&self, live: &Live, own: Option<CurrentLimit>) -> Option<CurrentLimit> {
        let judged = own.as_ref().map(|own| (own.limit, own.confidence));
        let Some((limit, confidence)) = self.link.corrected(self.rate(live), judged) else { return own };
        let share = own.as_ref().map_or(1.0, |own| own.share);
        let evidence = self.link.evidence().or(own.map(|own| own.evidence)).unwrap_or_default();
        Some(CurrentLimit { limit, confidence, share, what: self.link.what(), evidence })
    }

    /// Returns the limit of the sum of the flows: the limit that all flows of the sum have, with the lowest
    /// confidence, or `None` if their limits differ. `limits` pairs each flow with its limit.
    pub fn limit_of_sum<'a>(
        &self,
        limits: impl Iterator<Item = (&'a Live, Option<(Limit, Confidence)>)>,
    ) -> Option<(Limit, Confidence)> {
        let mut common: Option<(Limit, Confidence)> = None;
        for (_, limit) in limits.filter(|(live, _)| self.link.takes_part(self.rate(live))) {
            let (limit, confidence) = limit?;
            let least = match common {
                None => confidence,
                Some((known, least)) if known == limit => least.min(confidence),
                Some(_) => return None,
            };
            common = Some((limit, least));
        }
        common
    }

    /// Returns the sum of the payload rates of `live` and of the flows that share its link; `None` if no
    /// other flow shares it.
    pub fn sum_with(&self, live: &Live) -> Option<Rate> {
        self.link.sum_of_several().filter(|_| self.link.takes_part(self.rate(live)))
    }

    /// Returns the start and the end of the span.
    pub(super) const fn span(&self) -> (Instant, Instant) {
        (self.from, self.to)
    }

    /// Returns how `live` shares the link with the other flows.
    pub(super) fn sharing(&self, live: &Live) -> Option<Sharing> {
        self.link.sharing(self.rate(live))
    }

    fn rate(&self, live: &Live) -> Rate {
        live.rate_between(self.from, self.to)
    }
}

/// Returns the time of the last row that every running flow has. A flow whose last row is older than the span
/// of a limit counts as ended.
fn known_up_to<'a>(flows: impl Iterator<Item = &'a Live> + Clone) -> Instant {
    let last = flows.filter_map(Live::last).map(|row| row.at);
    let newest = last.clone().max().unwrap_or_default();
    last.filter(|at| newest.saturating_since(*at) < NOW).min().unwrap_or(newest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_measurement::classify::SocketFacts;
    use fullpipe_measurement::classify::samples::row;

    /// Returns a flow on a link of `link` Mbit/s with rows every 100 ms; it delivers 23.2 Mbit/s and is
    /// limited by its congestion window.
    fn flow(link: Option<u64>, from: u64, to: u64) -> Live {
        let link = link.map(|link| Rate::from_bps(link * 1_000_000));
        let mut live = Live::new(SocketFacts { link, ..SocketFacts::default() });
        (from..=to).step_by(100).for_each(|millis| live.push(&row(millis)));
        live
    }

    fn limits(flows: &[Live]) -> Vec<Option<Limit>> {
        let concurrent = ConcurrentFlows::now(flows.iter());
        let limit = |live: &Live| concurrent.limit_of(live, live.held()).map(|held| held.limit);
        flows.iter().map(limit).collect()
    }

    /// Two flows of 23.2 Mbit/s each fill a link of 50 Mbit/s, regardless of which flow was sampled last.
    /// Neither fills it alone, and they do not fill 60 Mbit/s.
    #[test]
    fn flows_that_fill_the_link_together_share_it() {
        for last in [5_000, 4_900] {
            let on = |link| limits(&[flow(link, 100, 5_000), flow(link, 100, last)]);
            assert_eq!(on(Some(50)), [Some(Limit::Link); 2], "{last}");
            assert_eq!(on(Some(60)), [Some(Limit::Cwnd); 2], "{last}");
            assert_eq!(on(None), [Some(Limit::Cwnd); 2], "{last}");
        }
        assert_eq!(limits(&[flow(Some(50), 100, 5_000)]), [Some(Limit::Cwnd)]);
        let two = [flow(Some(50), 100, 5_000), flow(Some(50), 100, 5_000)];
        let concurrent = ConcurrentFlows::now(two.iter());
        let held = concurrent.limit_of(&two[0], two[0].held()).expect("a limit");
        assert_eq!(held.what, "the link is full: 2 connections share it");
        assert!(held.evidence.ends_with("of payload over a link of 50 Mbit/s"), "{}", held.evidence);
        let sum = concurrent.sum_with(&two[0]).expect("a sum").as_bps();
        assert!((46_330_000..46_340_000).contains(&sum), "{sum}");
    }

    /// A flow counts only for the time for which it overlaps with the others.
    #[test]
    fn a_flow_that_has_ended_shares_no_link() {
        assert_eq!(limits(&[flow(Some(50), 100, 5_000), flow(Some(50), 100, 3_500)])[0], Some(Limit::Cwnd));
        // The first flow covers half of the last second.
        assert_eq!(limits(&[flow(Some(50), 4_500, 5_000), flow(Some(50), 100, 5_000)])[1], Some(Limit::Cwnd));
    }

    /// The rate between two rows is assumed to be constant, so a span that begins between two rows has the
    /// rate of the flow.
    #[test]
    fn the_rate_does_not_depend_on_the_times_of_the_rows() {
        let live = flow(None, 100, 2_000);
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let exact = live.rate_between(at(500), at(1_500)).as_bps();
        for (from, to) in [(530, 1_530), (599, 1_600), (501, 1_499)] {
            let rate = live.rate_between(at(from), at(to)).as_bps();
            assert!(rate.abs_diff(exact) < 100, "{from} to {to}: {rate} instead of {exact}");
        }
        assert_eq!(live.rate_between(at(3_000), at(4_000)), Rate::ZERO);
    }

    /// The sum has a limit only if all flows that share the link have this limit.
    #[test]
    fn the_sum_has_the_common_limit() {
        let mut flows = vec![flow(None, 100, 5_000), flow(None, 100, 5_000)];
        let mut idle = Live::default();
        (1..=50).for_each(|tenth| {
            let mut row = row(100 * tenth);
            row.sender.delivered = fullpipe_units::Bytes::ZERO;
            idle.push(&row);
        });
        flows.push(idle);
        let concurrent = ConcurrentFlows::now(flows.iter());
        let of = |limits: [Option<(Limit, Confidence)>; 3]| concurrent.limit_of_sum(flows.iter().zip(limits));
        let (cwnd, rwnd) = ((Limit::Cwnd, Confidence::High), (Limit::Rwnd, Confidence::High));
        let low = (Limit::Cwnd, Confidence::Low);
        assert_eq!(of([Some(cwnd), Some(low), Some(rwnd)]), Some(low), "the idle flow takes no part");
        assert_eq!(of([Some(cwnd), Some(rwnd), None]), None);
        assert_eq!(of([Some(cwnd), None, None]), None);
    }
}
