//! Several connections of one input: whether they fill the link together, and which conclusions this allows
//! about one of them.
//!
//! If the sum of the connections reaches the rate of a given link, the link is the limit of all of them, and
//! they are diagnosed together. Otherwise each connection is diagnosed alone, and the sum is only a lower
//! bound of the rate that the path can carry. A single connection then cannot show what limits the others:
//! its share of a full link is a rate as steady as that of a policer.

use fullpipe_measurement::measurement::sharing::fills;
use fullpipe_measurement::measurement::{Measurement, Protocol, Transfer};
use fullpipe_measurement::segment::DEFAULT_MSS;
use fullpipe_units::Rate;

use super::series::Series;
use super::{Confidence, Facts, Finding, Findings, Limit};

/// The connections are diagnosed together only if they overlap for at least this share of the time of the
/// chosen connection.
const MOSTLY: f64 = 0.5;

/// Returns the transfer to diagnose: the sum of all connections if they fill `link` together, or else the
/// chosen one.
pub(crate) fn subject(measurement: &Measurement, link: Option<Rate>) -> Transfer {
    let full = |sum: &Transfer| {
        link.zip(Series::of(sum))
            .is_some_and(|(link, series)| fills(series.steady(), link, sum.mss.unwrap_or(DEFAULT_MSS)))
    };
    let together = measurement.together().filter(|together| together.share >= MOSTLY);
    let sum = together.map(|together| together.transfer).filter(full);
    sum.unwrap_or_else(|| measurement.transfer())
}

impl Facts<'_> {
    /// Returns whether several connections are diagnosed together, because they fill the link.
    pub(super) fn is_of_full_link(&self) -> bool {
        self.measurement.chosen.is_some() && self.transfer.streams > 1
    }
}

/// Adds the conclusions from the number of connections or streams to the findings about one connection or
/// log.
pub(super) fn consider_companions(facts: &Facts<'_>, findings: &mut Findings) {
    if facts.is_of_full_link() || facts.transfer.protocol == Protocol::Udp {
        return;
    }
    let together = facts.measurement.together().map(|together| together.transfer);
    let together = together.filter(|sum| sum.streams > 1);
    if let Some(sum) = &together {
        findings.notes.push(format!(
            "{} connections ran at the same time in this direction and carried {} together, so the path \
             carries at least that rate; this diagnosis considers each connection alone",
            sum.streams,
            sum.mean_rate()
        ));
    }
    let streams = together.as_ref().map_or(facts.transfer.streams, |sum| sum.streams);
    if streams > 1 {
        doubt_policers(facts, findings, streams, together.is_some());
    }
}

/// Corrects findings of a policer for several concurrent connections: a third of a full link is as steady as
/// the rate of a policer. If several connections share a cap, more connections do not raise the rate.
fn doubt_policers(facts: &Facts<'_>, findings: &mut Findings, streams: usize, is_one_of_them: bool) {
    let link_is_unknown = facts.path.link.is_none();
    let is_doubtful = |finding: &Finding| {
        matches!(finding.limit, Limit::Cap | Limit::Policer)
            && facts.hosts.control.is_none()
            && (link_is_unknown || is_one_of_them)
    };
    let names_link = findings.findings.iter().any(|finding| finding.limit == Limit::Link);
    let before = findings.findings.len();
    if link_is_unknown && names_link {
        findings.findings.retain(|finding| !is_doubtful(finding));
    }
    let mut corrected = findings.findings.len() < before;
    for finding in findings.findings.iter_mut().filter(|finding| is_doubtful(finding)) {
        corrected = true;
        finding.confidence = Confidence::Low;
        if link_is_unknown {
            finding.limit = Limit::Link;
            finding.what = format!("{streams} connections share the capacity of the path");
            finding.could_not_tell =
                vec!["whether the link is full, or a cap below its rate is the limit".into()];
            finding.next_test = Some("give the rate of the link: --link".into());
        } else {
            finding.could_not_tell.insert(
                0,
                "whether the cap applies to each connection or to all connections together".into(),
            );
            finding.next_test = Some(
                "repeat with one connection: if the cap applies to all connections together, one connection \
                 reaches the same total"
                    .into(),
            );
        }
    }
    if corrected {
        findings.cap = None;
    }
}
