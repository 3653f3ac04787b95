//! The retransmission timeout: back-off, and whether it was needed (F-RTO, RFC 5682 with SACK).
//!
//! ```text
//!   expiry: resend the first ──ACK advances──► send NEW data ──data never resent arrives──► spurious
//!                                                   └──SACK or duplicate──► real: resend what is lost
//! ```

use fullpipe_units::{Duration, Instant};

use crate::estimate::{RTO_MAX, RttEstimator};

/// State of the timeout.
#[derive(Clone, Debug, Default)]
pub struct Rto {
    /// How often the timeout has doubled: expiries, and unanswered probes, since the last valid RTT sample.
    backoff: u32,
    /// Expiries since the last progress.
    expiries: u32,
    /// The repair after a timeout ends when this offset is acknowledged.
    repair_until: Option<u64>,
    /// When the timeout expired that may yet prove spurious.
    suspect_since: Option<Instant>,
    /// `snd_nxt` when the question began to be put to the path with new data.
    asked_at: Option<u64>,
}

impl Rto {
    /// The timeout in force, back-off included.
    pub fn timeout(&self, rtt: &RttEstimator) -> Duration {
        let doubled = rtt.rto() * (1u64 << self.backoff.min(20));
        doubled.min(RTO_MAX)
    }

    /// The timer expired with `snd_nxt` outstanding, `recovering` or not. True for the first expiry for
    /// this data. An expiry in vain leaves the question open whether the first was needed; one after
    /// progress, or in the middle of fast recovery, does not ask it.
    pub fn on_expiry(&mut self, now: Instant, snd_una: u64, snd_nxt: u64, recovering: bool) -> bool {
        let first = self.backoff == 0 && self.repair_until.is_none_or(|until| snd_una >= until);
        let again = self.backoff > 0 && self.suspect_since.is_some();
        self.backoff += 1;
        self.expiries += 1;
        self.suspect_since = (again || (first && !recovering)).then_some(now);
        self.asked_at = None;
        self.repair_until = Some(snd_nxt);
        first
    }

    /// A window probe went unanswered so far: the next one waits longer.
    pub fn on_unanswered_probe(&mut self) {
        self.backoff += 1;
    }

    /// Something was acknowledged. By Karn's rule that need not end the back-off, but there is somebody to wait for.
    pub fn on_progress(&mut self) {
        self.expiries = 0;
    }

    /// A valid RTT sample: the path answers, the back-off is over.
    pub fn on_valid_sample(&mut self) {
        self.backoff = 0;
    }

    /// Data sent before the timeout and never again was delivered after it: nothing had been lost, the
    /// path was only late (RFC 5682 section 3, SACK variant).
    pub fn proves_spurious(&self, sent_at: Instant, transmissions: u8) -> bool {
        transmissions == 1 && self.suspect_since.is_some_and(|expired| sent_at < expired)
    }

    /// New data was sent since the question began.
    pub fn has_asked(&self, snd_nxt: u64) -> bool {
        self.asked_at.is_some_and(|at| snd_nxt > at)
    }

    /// `snd_una` advanced past all that was outstanding: the repair is over.
    pub fn repaired(&mut self, snd_una: u64) -> bool {
        let over = self.repair_until.is_some_and(|until| snd_una >= until);
        if over {
            self.end_repair();
        }
        over
    }

    /// Ends the repair, whether by success or because it was not needed.
    pub fn end_repair(&mut self) {
        self.repair_until = None;
        self.confirm();
    }

    /// The step that an ACK means for F-RTO, when it neither proves anything nor ends the repair:
    /// `advanced` or not, with `snd_nxt` sent so far and new data `sendable` or not.
    pub fn on_ack_in_repair(&mut self, advanced: bool, sacked: bool, snd_nxt: u64, sendable: bool) {
        if self.suspect_since.is_none() {
            return;
        }
        match self.asked_at {
            // New data was delivered, or a hole is still there: the loss was real.
            Some(_) if sacked || !advanced => self.confirm(),
            Some(_) => {}
            None if advanced && sendable => {
                self.asked_at = Some(snd_nxt);
                self.repair_until = Some(snd_nxt);
            }
            None if advanced => self.confirm(),
            None => {}
        }
    }

    /// What is marked lost is not retransmitted yet: new data is on its way to find out whether it is.
    pub fn asks_with_new_data(&self) -> bool {
        self.asked_at.is_some()
    }

    /// A repair is under way.
    pub fn repairing(&self) -> bool {
        self.repair_until.is_some()
    }

    /// How often the timeout has doubled.
    pub fn backoff(&self) -> u32 {
        self.backoff
    }

    /// Expiries since the last progress.
    pub fn expiries(&self) -> u32 {
        self.expiries
    }

    /// The timeout no longer counts as possibly spurious.
    pub fn confirm(&mut self) {
        self.suspect_since = None;
        self.asked_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RTO-3: the timeout doubles at each expiry up to 120 s, and a valid sample ends the back-off.
    #[test]
    fn backs_off_exponentially() {
        let rtt = RttEstimator::default();
        let mut rto = Rto::default();
        let mut seen = Vec::new();
        for _ in 0..9 {
            seen.push(rto.timeout(&rtt).as_nanos() / 1_000_000_000);
            rto.on_expiry(Instant::ZERO, 0, 100, false);
        }
        assert_eq!(seen, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
        rto.on_valid_sample();
        assert_eq!(rto.timeout(&rtt), Duration::from_secs(1));
    }

    /// FRTO-4: an expiry for other data during the repair is not suspect; one more in vain still is.
    #[test]
    fn an_expiry_after_progress_is_not_suspect() {
        let mut rto = Rto::default();
        let at = Instant::from_nanos;
        assert!(rto.on_expiry(at(100), 0, 1000, false));
        assert!(rto.proves_spurious(at(50), 1));
        assert!(!rto.proves_spurious(at(50), 2), "it may be the retransmission that arrived");
        assert!(!rto.proves_spurious(at(150), 1), "sent after the timeout");
        assert!(!rto.on_expiry(at(300), 0, 1000, false));
        assert!(rto.proves_spurious(at(50), 1));
        rto.on_valid_sample();
        assert!(!rto.on_expiry(at(700), 500, 1000, false));
        assert!(!rto.proves_spurious(at(50), 1));
        assert!(!rto.repaired(999) && rto.repaired(1000) && !rto.repairing());
    }
}
