//! The link that the sockets of a host share: if they fill it together, it is the limit of all of them.

use fullpipe_units::{Bytes, Rate};

use super::SocketReport;
use crate::classify::{Confidence, Limit, of_one_of_several};
use crate::measurement::sharing::{fills, stays_on_host};
use crate::segment::DEFAULT_MSS;
use crate::thresholds::link;

/// Direction of the data of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Sent,
    Received,
}

impl Way {
    pub(super) const BOTH: [Self; 2] = [Self::Sent, Self::Received];

    /// Returns the payload rate of a socket in this direction, if most of its data goes this way.
    fn rate(self, report: &SocketReport) -> Option<Rate> {
        let sends = report.achieved >= report.received;
        let rate = match self {
            Self::Sent => sends.then_some(report.achieved),
            Self::Received => (!sends).then_some(report.received),
        }?;
        let ends = (report.local.ip(), report.remote.ip());
        (!rate.is_zero() && !stays_on_host(ends)).then_some(rate)
    }
}

/// Corrects the limits of sockets that share a link of rate `link`. `mss` is the largest payload of a segment.
/// If their sum fills the link, it is the limit of each of them; otherwise each keeps its own, but a fixed rate
/// of one of several is not taken for a policer.
pub(super) fn share(reports: &mut [SocketReport], link: Option<Rate>, way: Way, mss: Bytes, words: bool) {
    let largest = reports.iter().filter_map(|report| way.rate(report)).max().unwrap_or_default();
    let takes_part = |report: &SocketReport| {
        way.rate(report)
            .is_some_and(|rate| rate.as_bps() as f64 >= link::TAKES_PART * largest.as_bps() as f64)
    };
    let sharing: Vec<usize> = (0..reports.len()).filter(|nth| takes_part(&reports[*nth])).collect();
    let bps = |nth: &usize| way.rate(&reports[*nth]).unwrap_or_default().as_bps();
    let sum = Rate::from_bps(sharing.iter().map(bps).fold(0, u64::saturating_add));
    let mss = if mss.is_zero() { DEFAULT_MSS } else { mss };
    let full = link.filter(|link| fills(sum, *link, mss));
    let count = sharing.len();
    for nth in sharing {
        let report = &mut reports[nth];
        match full {
            // The rules for the rows of one sender decide by itself whether it fills the link.
            Some(link) if count > 1 || way == Way::Received => {
                (report.limit, report.confidence) = (Some(Limit::Link), Some(Confidence::Certain));
                let who = if count > 1 { format!(": {count} connections share it") } else { String::new() };
                report.what = words.then(|| format!("the link is full{who}"));
                report.evidence = words.then(|| format!("{sum} of payload on a link of {link}"));
            }
            _ if count > 1 => {
                let corrected = report.limit.zip(report.confidence).map(|(l, c)| of_one_of_several(l, c));
                if corrected.map(|(limit, _)| limit) != report.limit {
                    report.what = report
                        .what
                        .as_ref()
                        .map(|_| format!("{count} connections share what the path lets pass"));
                    (report.limit, report.confidence) = corrected.unzip();
                }
            }
            _ => {}
        }
    }
}
