//! Assumptions of a diagnosis. Each assumption that rules depend on has its own type.

use std::fmt;

use fullpipe_tcp::cc::Algorithm;

use super::Sender;

/// Assumption made by a diagnosis.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Assumption {
    /// The sender's congestion control.
    CongestionControl(Algorithm, CongestionControlBasis),
    /// Any other assumption, as a sentence that no rule depends on.
    Other(String),
}

/// Reason for assuming a congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CongestionControlBasis {
    /// Named in the log.
    Named,
    /// Suggested by the congestion window over time.
    Window,
    /// The kernel's default, assumed because nothing is observed.
    Default,
    /// Assumed for a capture: packets do not name the congestion control, and the data in flight does not
    /// suggest BBR.
    Packets,
}

impl From<Sender> for Assumption {
    fn from(sender: Sender) -> Self {
        let basis = match sender {
            Sender::Named(_) => CongestionControlBasis::Named,
            Sender::Inferred(_) => CongestionControlBasis::Window,
            Sender::Assumed(_) => CongestionControlBasis::Default,
        };
        Self::CongestionControl(sender.algorithm(), basis)
    }
}

impl From<String> for Assumption {
    fn from(sentence: String) -> Self {
        Self::Other(sentence)
    }
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (algorithm, basis) = match self {
            Self::CongestionControl(algorithm, basis) => (*algorithm, *basis),
            Self::Other(sentence) => return f.write_str(sentence),
        };
        match (basis, algorithm) {
            (CongestionControlBasis::Named, _) => {
                write!(f, "congestion control {algorithm}, which the log names")
            }
            (CongestionControlBasis::Window, Algorithm::Bbr1) => {
                f.write_str("congestion control BBR, because losses reduce neither Cwnd nor the rate")
            }
            (CongestionControlBasis::Window, _) => write!(
                f,
                "congestion control {algorithm}, because Cwnd falls at losses and then recovers, as with \
                 loss-based congestion control"
            ),
            (CongestionControlBasis::Default, _) => {
                write!(
                    f,
                    "congestion control {algorithm}, the kernel's default, because the log does not name one"
                )
            }
            (CongestionControlBasis::Packets, _) => write!(
                f,
                "congestion control {algorithm}, because packets do not name one, and the data in flight \
                 does not suggest BBR"
            ),
        }
    }
}

/// Returns the assumptions as sentences for the document.
pub(super) fn sentences(assumptions: &[Assumption]) -> Vec<String> {
    assumptions.iter().map(ToString::to_string).collect()
}
