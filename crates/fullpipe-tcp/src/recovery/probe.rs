//! Probes: segments that the peer must answer, and the number of unanswered probes.
//!
//! | kind | condition | segment |
//! |---|---|---|
//! | tail loss probe (RFC 8985 section 7) | no delivery for two round trips | new data, FIN, or the newest segment |
//! | window probe (RFC 9293 section 3.8.6.1) | window closed for an RTO | acknowledged octet, or new data |
//! | keep-alive (RFC 9293 section 3.8.4) | nothing outstanding, nothing received | acknowledged octet |
//!
//! There are no path MTU probes, because the engine lowers the path MTU but never searches upwards
//! (`conn/sender/mtu.rs`).
//!
//! # Tail loss probe
//!
//! If the end of a flight is lost, no later segment can arrive, so RACK cannot detect the loss. After two
//! round trips ([`ProbeTimeout`]) without an ACK, the sender transmits one segment as a probe. The SACK of
//! the probe reveals the hole. If the probe is a retransmission of the lost segment, it fills the hole.
//!
//! ```text
//!   idle ──silence for PTO──► probing(high_seq) ──ACK > high_seq, or duplicate──► repaired | not needed
//! ```

use fullpipe_units::Duration;

use crate::ProbeTimeout;
use crate::estimate::RttEstimator;

/// Slack of the probe timeout if several segments are in flight.
const TIMER_SLACK: Duration = Duration::from_millis(2);
/// Probe timeout (PTO) before the first RTT sample.
const PTO_INITIAL: Duration = Duration::from_secs(1);

/// Kind of probe segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeKind {
    /// Tail loss probe.
    Tail,
    /// Zero-window probe.
    Window,
    /// Keep-alive probe of an idle connection.
    KeepAlive,
}

/// The probe that is due, if any, and the number of unanswered window and keep-alive probes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    due: Option<ProbeKind>,
    unanswered: u32,
}

impl Probes {
    /// Requests a tail loss probe.
    pub(crate) fn request_tail(&mut self) {
        self.due = Some(ProbeKind::Tail);
    }

    /// Requests a window or keep-alive probe. The probe counts as unanswered until an acceptable segment
    /// arrives.
    pub(crate) fn request(&mut self, kind: ProbeKind) {
        self.due = Some(kind);
        self.unanswered += 1;
    }

    /// Returns true if a probe is due.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// Returns the probe that is due, if any, and clears the request.
    #[inline(always)]
    pub(crate) fn take_due(&mut self) -> Option<ProbeKind> {
        self.due.take()
    }

    /// Records the arrival of an acceptable segment.
    #[inline(always)]
    pub(crate) fn on_heard(&mut self) {
        self.unanswered = 0;
    }

    /// Returns the number of window and keep-alive probes since the last acceptable segment.
    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered
    }
}

/// State of the tail loss probe (RFC 8985 section 7).
#[derive(Clone, Debug, Default)]
pub struct TailProbe {
    outstanding: Option<Outstanding>,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    /// Value of `snd_nxt` just after the probe was sent.
    high_seq: u64,
    /// Whether the probe was a retransmission rather than new data.
    is_retransmission: bool,
}

/// Outcome of a tail loss probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeEnd {
    /// Nothing was lost, so the probe was not needed.
    NotNeeded,
    /// The probe repaired a loss, so the window must be reduced once (RFC 8985 section 7.4.2).
    RepairedLoss,
}

impl TailProbe {
    /// Returns the probe timeout (PTO) for `segments_in_flight`.
    pub fn timeout(rule: &ProbeTimeout, rtt: &RttEstimator, segments_in_flight: u64) -> Duration {
        let Some(srtt) = rtt.srtt() else { return PTO_INITIAL };
        let nanos = srtt.as_nanos().saturating_mul(u64::from(rule.srtt_percent)) / 100;
        let multiple = Duration::from_nanos(nanos);
        let wait = match rule.floor {
            None => multiple,
            Some(floor) => multiple.max((srtt + rtt.deviation4() + floor).min(srtt * 2)),
        };
        wait + if segments_in_flight == 1 { rule.ack_delay } else { TIMER_SLACK }
    }

    /// Returns whether a tail loss probe is outstanding.
    pub fn is_outstanding(&self) -> bool {
        self.outstanding.is_some()
    }

    /// Records that a tail loss probe was sent.
    pub fn on_sent(&mut self, snd_nxt: u64, is_retransmission: bool) {
        self.outstanding = Some(Outstanding { high_seq: snd_nxt, is_retransmission });
    }

    /// Handles an ACK. `news` indicates whether the ACK delivered data, and `duplicate_reported` indicates
    /// whether it carried a D-SACK.
    ///
    /// The first ACK of the probed segment does not show whether the original or the probe arrived. If a
    /// later ACK carries a D-SACK, nothing was lost. If an ACK of further data carries no D-SACK, the probe
    /// repaired a loss (RFC 8985 section 7.4.2).
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

    /// Cancels the tail loss probe when fast recovery or a timeout takes over.
    pub fn cancel(&mut self) {
        self.outstanding = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tunables;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const LINUX: ProbeTimeout = Tunables::LINUX.probe_timeout;

    #[test]
    fn timeout_allows_for_a_delayed_ack_of_a_single_segment() {
        let mut rtt = RttEstimator::default();
        assert_eq!(TailProbe::timeout(&LINUX, &rtt, 1), Duration::from_secs(1));
        rtt.on_sample(MS(100), 0, 0);
        assert_eq!(TailProbe::timeout(&LINUX, &rtt, 5), MS(202));
        assert_eq!(TailProbe::timeout(&LINUX, &rtt, 1), MS(400));
    }

    /// Factor and ACK delay are tunables. With a floor, the timeout exceeds the RTT by the floor and four
    /// times the mean deviation, but is at most two round trips (RFC 8985 section 7.2).
    #[test]
    fn the_timeout_follows_its_rule() {
        let mut rtt = RttEstimator::default();
        rtt.on_sample(MS(100), 0, 0);
        let early = ProbeTimeout { srtt_percent: 125, ack_delay: MS(40), ..LINUX };
        assert_eq!(TailProbe::timeout(&early, &rtt, 5), MS(127));
        assert_eq!(TailProbe::timeout(&early, &rtt, 1), MS(165));
        let careful = ProbeTimeout { floor: Some(MS(5)), ..early };
        // After one sample, the mean deviation is half of the RTT. Each equal sample reduces it by a quarter.
        assert_eq!(TailProbe::timeout(&careful, &rtt, 5), MS(2 * 100 + 2));
        (0..3).for_each(|_| rtt.on_sample(MS(100), 0, 0));
        let deviation4 = Duration::from_micros(84_375);
        assert_eq!(TailProbe::timeout(&careful, &rtt, 5), MS(100) + deviation4 + MS(5 + 2));
        // With a steady RTT, the deviation vanishes, and the multiple of SRTT is the larger bound.
        (0..100).for_each(|_| rtt.on_sample(MS(100), 0, 0));
        assert_eq!(TailProbe::timeout(&careful, &rtt, 5), MS(127));
        let steep = ProbeTimeout { srtt_percent: 100, ..careful };
        assert_eq!(TailProbe::timeout(&steep, &rtt, 5).as_millis(), 107);
    }

    /// A loss that the probe repaired causes one window reduction (RFC 8985 section 7; TLP-2 and TLP-3). If a
    /// D-SACK reports the probe, the window is not reduced. The first ACK of the probed segment does not
    /// decide the outcome.
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
