//! Candidates for a limit that the input leaves open, and the test that decides between them. A report shows
//! them instead of a guess.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use fullpipe_measurement::classify::{Confidence, Finding, Limit};

/// Candidates for a limit that a receiver does not observe. The receiver observes none of the sender's own
/// limits, and of the limits of the path neither the congestion window nor a cap.
const UNOBSERVED: [(&[Limit], &str); MOST] = [
    (&[Limit::App, Limit::Pacing], "the sending application or its pacing rate"),
    (&[Limit::Sndbuf], "the send buffer"),
    (&[Limit::Cwnd, Limit::Cap], "the congestion window or a cap on the path"),
];

/// Maximum number of candidates; a longer list would not help the user.
const MOST: usize = 3;

/// Test on the sending host that distinguishes windows, buffers, application and path.
const SOCKET_STATE: &str = "run ss -tmi dst RECEIVER on the sender during the transfer: the limit is the \
     application if notsent is 0, the receive window if unacked x mss is near snd_wnd (or the receiver's \
     application, if Recv-Q there stays full), the send buffer if skmem w is 0.67 of tb or more, and otherwise \
     the path";

/// Conclusion from a second transfer with BBR.
const BBR: &str = "a higher rate shows that loss limited cwnd; the same rate shows that the limit is a rate cap or the link";

/// Kind of data about a flow that an input contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observed {
    /// State of the sending socket.
    Socket,
    /// Packets, which show neither buffers nor data that waits to be sent.
    Packets,
}

/// Candidates for a limit that the input leaves open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Undecided {
    /// Two or three candidates, likeliest first.
    pub candidates: Vec<Candidate>,
    /// Test that decides between them.
    pub test: String,
}

/// Candidate for the limit: one limit, or several limits that only the test distinguishes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// Limits that the candidate stands for, likeliest first.
    pub limits: Vec<Limit>,
    /// The candidate as a noun phrase.
    pub what: String,
}

impl Undecided {
    /// Returns the candidates of a log, whose findings of low confidence are alternatives. `room` tells
    /// whether the log shows that the congestion window has room. Returns `None` if the first finding is
    /// decided.
    pub(super) fn of_alternatives(findings: &[Finding], room: bool) -> Option<Self> {
        let first = findings.first().filter(|first| first.confidence == Confidence::Low)?;
        if first.limit == Limit::Unknown {
            return Some(Self::unobserved(first));
        }
        let mut candidates: Vec<Candidate> = Vec::new();
        for finding in findings.iter().filter(|finding| finding.confidence == Confidence::Low) {
            let kind = kind(finding.limit);
            let more = candidates.len() < MOST;
            match candidates.iter_mut().find(|known| self::kind(known.limits[0]) == kind) {
                Some(known) if !known.limits.contains(&finding.limit) => {
                    known.limits.push(finding.limit);
                    known.what = format!("{} or {}", known.what, noun(finding));
                }
                Some(_) => {}
                // A log shows neither the rate that the application offers nor the maximum pacing
                // rate of its socket.
                None if more && finding.limit == Limit::App => candidates.push(Candidate {
                    limits: vec![Limit::App, Limit::Pacing],
                    what: "the sending application or its pacing rate".into(),
                }),
                // A log with few losses shows only that the flow exceeded some fixed rate.
                None if more && finding.limit == Limit::Policer => candidates
                    .push(Candidate { limits: vec![Limit::Policer, Limit::Cap], what: noun(finding) }),
                None if more => {
                    candidates.push(Candidate { limits: vec![finding.limit], what: noun(finding) });
                }
                None => {}
            }
        }
        if candidates.len() < 2 {
            return Self::of_times(findings, Observed::Socket);
        }
        let is_known = |limit| candidates.iter().any(|one: &Candidate| one.limits.contains(&limit));
        let of_receiver = is_known(Limit::Rwnd) && is_known(Limit::ReceiverApp) && candidates.len() == 2;
        let test = if room && !of_receiver { Some(SOCKET_STATE.into()) } else { first.next_test.clone() };
        // At the sender, the window that a slow reader leaves looks the same as the window of a small buffer.
        if !is_known(Limit::ReceiverApp)
            && let Some(windows) = candidates.iter_mut().find(|one| one.limits.contains(&Limit::Rwnd))
        {
            windows.limits.push(Limit::ReceiverApp);
        }
        Some(Self { candidates, test: test.unwrap_or_else(|| SOCKET_STATE.into()) })
    }

    /// Returns the candidates for a limit that the input does not show.
    fn unobserved(finding: &Finding) -> Self {
        let candidate =
            |(limits, what): (&[Limit], &str)| Candidate { limits: limits.into(), what: what.into() };
        Self {
            candidates: UNOBSERVED.into_iter().map(candidate).collect(),
            test: finding.next_test.clone().unwrap_or_else(|| SOCKET_STATE.into()),
        }
    }

    /// Returns the candidates for the limit of a trace or capture, whose findings cover different times: the
    /// first limit, and the limits that look the same in this input. Returns `None` if the first finding is
    /// decided.
    pub(super) fn of_times(findings: &[Finding], observed: Observed) -> Option<Self> {
        let first = findings.first().filter(|first| first.confidence == Confidence::Low)?;
        let limits = match observed {
            Observed::Socket => alike(first.limit),
            Observed::Packets => alike_in_packets(first.limit),
        };
        let rivals = limits.iter().map(|limits| {
            let names: Vec<&str> = limits.iter().map(|limit| name(*limit)).collect();
            Candidate { limits: limits.to_vec(), what: listed(&names) }
        });
        let own = Candidate { limits: vec![first.limit], what: noun(first) };
        let candidates = std::iter::once(own).chain(rivals);
        let test = match (observed, first.limit) {
            (Observed::Packets, Limit::Cwnd) => {
                Some(format!("{SOCKET_STATE}; then repeat with BBR on the sender: {BBR}"))
            }
            (Observed::Packets, Limit::App | Limit::Sndbuf | Limit::Pacing) => Some(SOCKET_STATE.into()),
            _ => first.next_test.clone(),
        };
        let test = test.unwrap_or_else(|| SOCKET_STATE.into());
        Some(Self { candidates: candidates.collect(), test })
    }
}

impl fmt::Display for Undecided {
    /// `not decided: a receive window near 3 MiB, the sending application or a rate cap near 108 Mbit/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.candidates.iter().map(|one| one.what.as_str()).collect();
        f.write_str("not decided: ")?;
        match names.as_slice() {
            // A candidate may itself contain an "or".
            [first @ .., last] if names.iter().any(|name| name.contains(" or ")) => {
                write!(f, "{}, or {last}", first.join(", "))
            }
            names => f.write_str(&listed(names)),
        }
    }
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).into(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Returns the number of the group to which a limit belongs. The limits of one group form one candidate,
/// because only the test distinguishes them.
const fn kind(limit: Limit) -> u8 {
    match limit {
        Limit::App | Limit::Pacing => 0,
        Limit::ReceiverApp => 1,
        Limit::Rwnd | Limit::Sndbuf => 2,
        Limit::Cwnd | Limit::SlowStart => 3,
        Limit::Cap | Limit::Policer | Limit::Link => 4,
        Limit::Cpu => 5,
        Limit::Unknown => 6,
    }
}

/// Returns the limits for which the state of the sending socket may be the same as for `limit`, as one or two
/// candidates.
const fn alike(limit: Limit) -> &'static [&'static [Limit]] {
    match limit {
        Limit::App => &[&[Limit::Sndbuf], &[Limit::Pacing]],
        Limit::ReceiverApp => &[&[Limit::Rwnd]],
        Limit::Rwnd => &[&[Limit::ReceiverApp]],
        Limit::Sndbuf => &[&[Limit::App, Limit::Pacing], &[Limit::Rwnd]],
        Limit::Cwnd => &[&[Limit::Cap, Limit::Policer], &[Limit::Link]],
        Limit::SlowStart => &[&[Limit::Cwnd]],
        Limit::Pacing => &[&[Limit::App, Limit::Sndbuf], &[Limit::Cap]],
        Limit::Cap => &[&[Limit::Link], &[Limit::Cwnd]],
        Limit::Policer => &[&[Limit::Cap], &[Limit::Cwnd]],
        Limit::Cpu => &[&[Limit::App]],
        Limit::Link => &[&[Limit::Cap, Limit::Policer], &[Limit::Cwnd]],
        Limit::Unknown => &[],
    }
}

/// Returns the limits for which the packets of a flow may look the same as for `limit`.
const fn alike_in_packets(limit: Limit) -> &'static [&'static [Limit]] {
    match limit {
        Limit::Sndbuf => &[&[Limit::App, Limit::Pacing], &[Limit::Cwnd, Limit::Cap, Limit::Policer]],
        Limit::Cwnd => &[&[Limit::Cap, Limit::Policer, Limit::Link], &[Limit::App, Limit::Sndbuf]],
        other => alike(other),
    }
}

const fn name(limit: Limit) -> &'static str {
    match limit {
        Limit::App => "the sending application",
        Limit::ReceiverApp => "the receiving application",
        Limit::Rwnd => "the receive window",
        Limit::Sndbuf => "the send buffer",
        Limit::Cwnd => "the congestion window",
        Limit::SlowStart => "slow start",
        Limit::Pacing => "the socket's pacing rate",
        Limit::Cap => "a rate cap",
        Limit::Policer => "a policer",
        Limit::Cpu => "a processor",
        Limit::Link => "the link",
        Limit::Unknown => "a limit that is not observable here",
    }
}

/// Returns a finding as a noun phrase: its description if that is a noun phrase, otherwise the name of its
/// limit.
fn noun(finding: &Finding) -> String {
    let what = finding.what.as_str();
    let noun = what.strip_suffix(" limits the rate").or_else(|| what.strip_suffix(" is full"));
    let noun = noun.filter(|noun| noun.starts_with("a "));
    let noun = noun.or_else(|| what.strip_suffix(" holds cwnd down"));
    noun.unwrap_or_else(|| name(finding.limit)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(limit: Limit) -> Finding {
        Finding {
            limit,
            what: "it limits the rate".into(),
            share: 1.0,
            confidence: Confidence::Low,
            ceiling: None,
            evidence: Vec::new(),
            could_not_tell: Vec::new(),
            next_test: None,
        }
    }

    /// A limit that is not observable has candidates, and none of them is "unknown".
    #[test]
    fn what_is_not_observable_has_candidates() {
        let test = Some("look at the sender".to_owned());
        let unknown = Finding { next_test: test.clone(), ..guess(Limit::Unknown) };
        let undecided = Undecided::of_alternatives(&[unknown], false).expect("undecided");
        assert!(
            undecided.candidates.iter().all(|one| !one.limits.contains(&Limit::Unknown)),
            "{undecided:?}"
        );
        assert_eq!((undecided.candidates.len(), Some(undecided.test.clone())), (MOST, test));
        assert_eq!(
            undecided.to_string(),
            "not decided: the sending application or its pacing rate, the send buffer, or the congestion window or a \
             cap on the path"
        );
    }

    /// Every limit that is a guess has one or two alternatives, and the limit itself is never among them.
    #[test]
    fn a_guess_has_two_or_three_candidates() {
        for (limit, observed) in
            Limit::ALL.into_iter().flat_map(|limit| [(limit, Observed::Socket), (limit, Observed::Packets)])
        {
            let finding = guess(limit);
            let undecided = Undecided::of_times(std::slice::from_ref(&finding), observed).expect("a guess");
            let mut limits: Vec<Limit> =
                undecided.candidates.iter().flat_map(|one| one.limits.clone()).collect();
            limits.sort_unstable();
            limits.dedup();
            let named: usize = undecided.candidates.iter().map(|one| one.limits.len()).sum();
            assert_eq!(limits.len(), named, "{limit}");
            assert!((2..=MOST).contains(&undecided.candidates.len()), "{limit}");
            assert!(undecided.to_string().contains(" or ") && !undecided.test.is_empty(), "{limit}");
            let sure = Finding { confidence: Confidence::High, ..finding };
            assert_eq!(Undecided::of_times(&[sure], observed), None, "{limit}");
        }
    }
}
