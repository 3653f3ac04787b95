//! Probes: what asks the path for an answer, and how many of them went unanswered.
//!
//! | kind | when | what is sent |
//! |---|---|---|
//! | tail loss probe (RFC 8985 section 7) | nothing was delivered for two round trips | new data, or the newest again |
//! | zero-window probe (RFC 9293 section 3.8.6.1) | the peer's window has been closed for a timeout | an octet that was acknowledged, or what the window takes |
//! | keep-alive (RFC 9293 section 3.8.4) | nothing is outstanding, and nothing is heard | an octet that was acknowledged |
//!
//! The path MTU is lowered and never searched upwards (`conn/sender/mtu.rs`): there are no probes for it.
//!
//! # Tail loss probe
//!
//! When the end of a flight is lost nothing is delivered after it, so RACK has nothing to go by. After
//! two round trips of silence one segment is sent: its SACK reveals the hole, or, if it was itself the
//! hole, repairs it.
//!
//! ```text
//!   idle ──silence for PTO──► probing(high_seq) ──ACK > high_seq, or duplicate──► repaired | not needed
//! ```

use fullpipe_units::Duration;

/// Largest delay by which the peer may hold back an ACK (RFC 8985's `MAX_ACK_DELAY`).
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);
/// Slack on top of two round trips when the peer has several segments to acknowledge.
const TIMER_SLACK: Duration = Duration::from_millis(2);
/// The timeout without an RTT sample.
const PTO_INITIAL: Duration = Duration::from_secs(1);

/// Why the peer is asked for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeKind {
    /// Tail loss probe.
    Tail,
    /// Zero-window probe.
    Window,
    /// Of an idle connection.
    KeepAlive,
}

/// The probe to be sent, and those of a closed window or an idle connection that nothing has answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    due: Option<ProbeKind>,
    unanswered: u32,
}

impl Probes {
    /// A tail loss probe is to be sent.
    pub(crate) fn request_tail(&mut self) {
        self.due = Some(ProbeKind::Tail);
    }

    /// A probe of a closed window or an idle connection is to be sent; until something is heard it counts as unanswered.
    pub(crate) fn request(&mut self, kind: ProbeKind) {
        self.due = Some(kind);
        self.unanswered += 1;
    }

    /// A probe is to be sent.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// The probe to be sent now.
    #[inline(always)]
    pub(crate) fn take_due(&mut self) -> Option<ProbeKind> {
        self.due.take()
    }

    /// An acceptable segment came.
    #[inline(always)]
    pub(crate) fn on_heard(&mut self) {
        self.unanswered = 0;
    }

    /// Probes since then.
    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered
    }
}

/// State of the tail loss probe.
#[derive(Clone, Debug, Default)]
pub struct TailProbe {
    outstanding: Option<Outstanding>,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    /// `snd_nxt` after the probe.
    high_seq: u64,
    /// The probe repeated old data (rather than carrying new).
    is_retransmission: bool,
}

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeEnd {
    /// Nothing was lost.
    NotNeeded,
    /// The probe repaired a loss: the window must be reduced once (section 7.4.2).
    RepairedLoss,
}

impl TailProbe {
    /// How long to wait for the peer before probing.
    pub fn timeout(srtt: Option<Duration>, segments_in_flight: u64) -> Duration {
        match srtt {
            None => PTO_INITIAL,
            Some(srtt) => srtt * 2 + if segments_in_flight == 1 { MAX_ACK_DELAY } else { TIMER_SLACK },
        }
    }

    /// A probe is under way.
    pub fn is_outstanding(&self) -> bool {
        self.outstanding.is_some()
    }

    /// A probe was sent.
    pub fn on_sent(&mut self, snd_nxt: u64, is_retransmission: bool) {
        self.outstanding = Some(Outstanding { high_seq: snd_nxt, is_retransmission });
    }

    /// An ACK arrived. `duplicate_reported`: it carried a DSACK; `news`: it delivered something.
    ///
    /// The ACK that first covers the probed segment does not tell whether the original arrived or the
    /// probe. A duplicate that follows acquits; the next new data acknowledged without one convicts
    /// (RFC 8985 section 7.4.2).
    pub fn on_ack(&mut self, snd_una: u64, news: bool, duplicate_reported: bool) -> Option<ProbeEnd> {
        let Outstanding { high_seq, is_retransmission } = self.outstanding?;
        if snd_una < high_seq {
            return None;
        }
        let end = if !is_retransmission || duplicate_reported {
            ProbeEnd::NotNeeded
        } else if snd_una > high_seq {
            ProbeEnd::RepairedLoss
        } else if !news {
            ProbeEnd::NotNeeded
        } else {
            return None;
        };
        self.outstanding = None;
        Some(end)
    }

    /// Recovery or a timeout took over.
    pub fn cancel(&mut self) {
        self.outstanding = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_allows_for_a_delayed_ack_of_a_single_segment() {
        let srtt = Duration::from_millis(100);
        assert_eq!(TailProbe::timeout(Some(srtt), 5), Duration::from_millis(202));
        assert_eq!(TailProbe::timeout(Some(srtt), 1), Duration::from_millis(400));
        assert_eq!(TailProbe::timeout(None, 1), Duration::from_secs(1));
    }

    /// TLP-2 and TLP-3: a silent repair costs one reduction, a duplicate report none; the first ACK of
    /// the probed segment decides nothing.
    #[test]
    fn a_duplicate_acquits() {
        for (una, news, duplicate, end) in [
            (501, true, false, ProbeEnd::RepairedLoss),
            (501, true, true, ProbeEnd::NotNeeded),
            (500, false, true, ProbeEnd::NotNeeded),
            (500, false, false, ProbeEnd::NotNeeded),
        ] {
            let mut probe = TailProbe::default();
            probe.on_sent(500, true);
            assert_eq!(probe.on_ack(499, true, false), None);
            assert_eq!(probe.on_ack(500, true, false), None);
            assert_eq!(probe.on_ack(una, news, duplicate), Some(end));
            assert!(!probe.is_outstanding());
        }
    }
}
