//! The link that the sockets of a host share, per direction.

use fullpipe_measurement::classify::SharedLink;
use fullpipe_measurement::measurement::sharing::stays_on_host;
use fullpipe_units::{Bytes, Rate};

use super::SocketReport;

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

/// Corrects the limits of sockets that share a link of rate `link`. `mss` is the payload length of a
/// full-sized segment.
pub(super) fn share(reports: &mut [SocketReport], link: Option<Rate>, way: Way, mss: Bytes, words: bool) {
    let rates: Vec<Rate> = reports.iter().map(|report| way.rate(report).unwrap_or_default()).collect();
    let shared = SharedLink::of(rates.iter().copied(), link, mss);
    let shared = match way {
        Way::Sent => shared,
        Way::Received => shared.judging_one(),
    };
    for (report, rate) in reports.iter_mut().zip(rates) {
        let own = report.limit.zip(report.confidence);
        let Some((limit, confidence)) = shared.corrected(rate, own) else { continue };
        (report.limit, report.confidence) = (Some(limit), Some(confidence));
        if words {
            report.what = Some(shared.what());
            report.evidence = shared.evidence().or(report.evidence.take());
        }
    }
}
