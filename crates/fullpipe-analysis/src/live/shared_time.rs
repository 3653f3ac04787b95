//! Time for which running flows of one direction share a link.
//!
//! ```text
//!   rows of all flows ──► once a second: do they fill the link together? ──► a period for each flow
//!                                                                              │
//!   rows of one flow  ──► its limit, judged alone ──────────────────────────────┴──► Live::times
//! ```
//!
//! [`ConcurrentFlows`] contains the rule.

use fullpipe_measurement::classify::Sharing;
use fullpipe_units::Instant;

use super::{ConcurrentFlows, Live, NOW};

/// Judges running flows of one direction together, second by second, so that [`Live::times`] attributes the
/// time for which they fill a link to the link.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedTime {
    /// Time up to which the flows have been judged.
    judged_to: Instant,
    /// Last time at which the flows had to be judged.
    due: Instant,
}

/// Period in which a flow shares a link with others.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedPeriod {
    pub(super) from: Instant,
    pub(super) to: Instant,
    pub(super) sharing: Sharing,
}

impl SharedTime {
    /// Returns whether the flows have to be judged at `now`. They are judged once a second, because a flow
    /// keeps only its most recent rows.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_since(self.due) >= NOW;
        if is_due {
            self.due = now;
        }
        is_due
    }

    /// Judges the time since the last call, up to the last row that every running flow has. `flows` are all
    /// flows of one direction.
    pub fn judge(&mut self, flows: &mut [&mut Live]) {
        let concurrent = ConcurrentFlows::covering(flows.iter().map(|live| &**live), self.judged_to);
        let (from, to) = concurrent.span();
        let from = from.max(self.judged_to);
        if to <= from {
            return;
        }
        self.judged_to = to;
        for live in flows {
            if let Some(sharing) = concurrent.sharing(live) {
                live.share(SharedPeriod { from, to, sharing });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fullpipe_lab::trace::Row;
    use fullpipe_units::{Bytes, Duration, Rate};

    use super::*;
    use fullpipe_measurement::classify::samples::row;
    use fullpipe_measurement::classify::{Limit, SocketFacts};

    fn flows(link: u64) -> Vec<Live> {
        let link = Some(Rate::from_bps(link * 1_000_000));
        vec![Live::new(SocketFacts { link, ..SocketFacts::default() }); 2]
    }

    /// Adds a row every 100 ms to the first `running` flows, from `from` to `to` seconds, and judges all
    /// flows together.
    fn run(flows: &mut [Live], shared: &mut SharedTime, running: usize, from: u64, to: u64) {
        for millis in (1_000 * from + 100..=1_000 * to).step_by(100) {
            flows.iter_mut().take(running).for_each(|live| live.push(&row(millis)));
            if shared.is_due(Instant::from_nanos(1_000_000 * millis)) {
                shared.judge(&mut flows.iter_mut().collect::<Vec<_>>());
            }
        }
    }

    fn seconds(live: &Live) -> BTreeMap<Limit, f64> {
        live.times().into_iter().map(|(limit, time)| (limit, time.as_secs_f64())).collect()
    }

    /// Two flows of 23.2 Mbit/s each fill a link of 50 Mbit/s all the time, including the time that has
    /// already been counted and whose rows have been dropped. They do not fill a link of 60 Mbit/s.
    #[test]
    fn a_link_that_is_full_for_minutes_has_all_the_time() {
        for (link, limit) in [(50, Limit::Link), (60, Limit::Cwnd)] {
            let (mut flows, mut shared) = (flows(link), SharedTime::default());
            run(&mut flows, &mut shared, 2, 0, 300);
            for live in &flows {
                assert_eq!(live.times(), BTreeMap::from([(limit, Duration::from_millis(299_900))]));
                assert!(live.shared.len() <= 1, "{:?}", live.shared);
            }
        }
    }

    /// The time after one of two flows has ended belongs to the other flow alone.
    #[test]
    fn each_second_is_judged_by_itself() {
        let (mut flows, mut shared) = (flows(50), SharedTime::default());
        run(&mut flows, &mut shared, 2, 0, 20);
        run(&mut flows, &mut shared, 1, 20, 30);
        let times = seconds(&flows[0]);
        let of = |limit| times.get(&limit).copied().unwrap_or_default();
        assert!((19.0..=22.0).contains(&of(Limit::Link)), "{times:?}");
        assert!((of(Limit::Link) + of(Limit::Cwnd) - 29.9).abs() < 1e-6, "no time is lost: {times:?}");
    }

    /// If flows fill the link again after a pause, the link is their limit from the second in which they
    /// resume.
    #[test]
    fn a_pause_does_not_dilute_the_rate_after_it() {
        let (mut flows, mut shared) = (flows(50), SharedTime::default());
        run(&mut flows, &mut shared, 2, 0, 10);
        for millis in (10_100..=20_000).step_by(100) {
            let resumed = Row { at: Instant::from_nanos(1_000_000 * (millis + 30_000)), ..row(millis) };
            flows.iter_mut().for_each(|live| live.push(&resumed));
            if shared.is_due(resumed.at) {
                shared.judge(&mut flows.iter_mut().collect::<Vec<_>>());
            }
        }
        let link = seconds(&flows[0])[&Limit::Link];
        assert!((18.0..21.0).contains(&link), "{link}");
    }

    /// A flow with a negligible rate is judged alone.
    #[test]
    fn a_negligible_flow_has_its_own_limit() {
        let (mut flows, mut shared) = (flows(50), SharedTime::default());
        flows.push(flows[0].clone());
        for millis in (100..=10_000).step_by(100) {
            flows.iter_mut().take(2).for_each(|live| live.push(&row(millis)));
            let mut starved = row(millis);
            (starved.sender.notsent, starved.sender.delivered) = (Bytes::ZERO, Bytes::new(millis));
            flows[2].push(&starved);
            if shared.is_due(starved.at) {
                shared.judge(&mut flows.iter_mut().collect::<Vec<_>>());
            }
        }
        assert!(seconds(&flows[0])[&Limit::Link] > 9.0);
        assert_eq!(seconds(&flows[2]).get(&Limit::Link), None);
    }
}
