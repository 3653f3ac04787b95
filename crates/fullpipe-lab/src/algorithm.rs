//! Congestion controls by their names in experiments: those that fullpipe's TCP implements, and those that
//! only Linux implements.

use std::fmt;
use std::str::FromStr;

use fullpipe_tcp::cc::{Algorithm, SlowStart};

/// Congestion control of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlowAlgorithm {
    /// Congestion control that fullpipe's TCP implements. Mainline Linux has all of these except BBRv3 and
    /// surge.
    Fullpipe(Algorithm),
    /// Congestion control that only Linux has, so the flow must run on a kernel.
    Linux(LinuxAlgorithm),
}

impl FlowAlgorithm {
    /// Returns a list of all names, for hints in error messages.
    pub fn known() -> String {
        let linux = LinuxAlgorithm::ALL.map(LinuxAlgorithm::name).join(", ");
        format!("{}; with a kernel's TCP (--world uml) also {linux}", Algorithm::KNOWN)
    }

    /// Returns the name of the algorithm in experiments and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fullpipe(algorithm) => algorithm.name(),
            Self::Linux(algorithm) => algorithm.name(),
        }
    }

    /// Returns the algorithm of fullpipe's TCP, or `None` if only Linux has it.
    pub const fn of_fullpipe(self) -> Option<Algorithm> {
        match self {
            Self::Fullpipe(algorithm) => Some(algorithm),
            Self::Linux(_) => None,
        }
    }

    /// Returns whether the algorithm is rate-based ([`Algorithm::is_rate_based`]).
    pub const fn is_rate_based(self) -> bool {
        match self {
            Self::Fullpipe(algorithm) => algorithm.is_rate_based(),
            Self::Linux(_) => false,
        }
    }

    /// Returns the default rule for leaving slow start, or `None` if the algorithm offers no choice.
    pub const fn slow_start(self) -> Option<SlowStart> {
        match self {
            Self::Fullpipe(algorithm) => algorithm.slow_start(),
            Self::Linux(_) => None,
        }
    }

    /// Returns whether the receiver needs the same algorithm as the sender: DCTCP's receiver echoes each change of the
    /// ECN mark (RFC 8257 section 3.2), and DCTCP connections negotiate ECN even if the host does not request it.
    pub const fn needs_receiver(self) -> bool {
        matches!(self, Self::Linux(LinuxAlgorithm::Dctcp))
    }
}

impl From<Algorithm> for FlowAlgorithm {
    fn from(algorithm: Algorithm) -> Self {
        Self::Fullpipe(algorithm)
    }
}

impl PartialEq<Algorithm> for FlowAlgorithm {
    fn eq(&self, other: &Algorithm) -> bool {
        *self == Self::Fullpipe(*other)
    }
}

/// Formats only the algorithm, without the name of the variant, so that stored runs keep their identity
/// ([`Scenario::identity`](crate::scenario::Scenario::identity)).
impl fmt::Debug for FlowAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fullpipe(algorithm) => algorithm.fmt(f),
            Self::Linux(algorithm) => algorithm.fmt(f),
        }
    }
}

impl fmt::Display for FlowAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FlowAlgorithm {
    type Err = UnknownFlowAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownFlowAlgorithm> {
        let linux = || LinuxAlgorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        name.parse()
            .map(Self::Fullpipe)
            .or_else(|_| linux().map(Self::Linux).ok_or_else(|| UnknownFlowAlgorithm(name.into())))
    }
}

/// Error for a string that does not name a [`FlowAlgorithm`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFlowAlgorithm(String);

impl fmt::Display for UnknownFlowAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown congestion control '{}'", self.0)
    }
}

impl std::error::Error for UnknownFlowAlgorithm {}

/// Congestion controls of mainline Linux that fullpipe's TCP does not have. All of them are window-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinuxAlgorithm {
    /// CAIA delay gradient (2011).
    Cdg,
    /// Data center TCP (RFC 8257).
    Dctcp,
    /// HighSpeed TCP (RFC 3649).
    Highspeed,
    /// H-TCP (2004).
    Htcp,
    /// Hybla, for long round-trip times (2004).
    Hybla,
    /// Illinois (2006).
    Illinois,
    /// Low priority (2006).
    Lp,
    /// New Vegas (2010).
    Nv,
    /// Scalable TCP (2003).
    Scalable,
    /// Veno (2003).
    Veno,
    /// Westwood+ (2004).
    Westwood,
    /// Yeah (2007).
    Yeah,
}

impl LinuxAlgorithm {
    /// All of these algorithms.
    pub const ALL: [Self; 12] = [
        Self::Cdg,
        Self::Dctcp,
        Self::Highspeed,
        Self::Htcp,
        Self::Hybla,
        Self::Illinois,
        Self::Lp,
        Self::Nv,
        Self::Scalable,
        Self::Veno,
        Self::Westwood,
        Self::Yeah,
    ];

    /// Returns the name of the algorithm in the kernel and in experiments.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cdg => "cdg",
            Self::Dctcp => "dctcp",
            Self::Highspeed => "highspeed",
            Self::Htcp => "htcp",
            Self::Hybla => "hybla",
            Self::Illinois => "illinois",
            Self::Lp => "lp",
            Self::Nv => "nv",
            Self::Scalable => "scalable",
            Self::Veno => "veno",
            Self::Westwood => "westwood",
            Self::Yeah => "yeah",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_its_name_and_is_listed() {
        let linux = LinuxAlgorithm::ALL.map(FlowAlgorithm::Linux);
        let fullpipe = Algorithm::ALL.map(FlowAlgorithm::Fullpipe);
        for algorithm in linux.into_iter().chain(fullpipe) {
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
            let known = FlowAlgorithm::known();
            let mut names = known.split([',', ';', ':']).flat_map(|part| part.split(" also "));
            assert!(names.any(|name| name.trim() == algorithm.name()), "{algorithm} is not in the hint");
        }
        assert_eq!("bbr".parse(), Ok(FlowAlgorithm::Fullpipe(Algorithm::Bbr1)));
        let unknown = "westwod".parse::<FlowAlgorithm>().expect_err("unknown");
        assert_eq!(unknown.to_string(), "unknown congestion control 'westwod'");
    }

    /// The identity of a stored run contains its algorithm, without the name of the variant.
    #[test]
    fn the_debug_text_is_that_of_the_algorithm() {
        assert_eq!(format!("{:?}", FlowAlgorithm::from(Algorithm::Cubic)), "Cubic");
        assert_eq!(format!("{:?}", FlowAlgorithm::Linux(LinuxAlgorithm::Dctcp)), "Dctcp");
    }
}
