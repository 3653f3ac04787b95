//! Retransmission timeout: back-off, and F-RTO, which detects spurious timeouts (RFC 5682 with SACK).
//!
//! ```text
//!   expiry: resend the first ──ACK advances──► send NEW data ──data sent once arrives──► spurious
//!                                                   └──SACK or duplicate──► real: resend what is lost
//! ```

use fullpipe_units::{Duration, Instant};

use crate::Tunables;
use crate::estimate::RttEstimator;

/// Back-off of the retransmission timeout, and state of F-RTO (RFC 5682).
#[derive(Clone, Debug)]
pub struct Rto {
    /// Upper bound of the timeout.
    max: Duration,
    /// Number of expiries before the timeout starts to double.
    linear: u32,
    /// Number of expiries and unanswered probes since the last valid RTT sample. Each of them doubles the
    /// timeout, except the first `linear` ones.
    backoff: u32,
    /// Number of RTO expiries since the cumulative ACK last advanced.
    expiries: u32,
    /// Stream offset whose acknowledgement ends recovery after a timeout.
    repair_until: Option<u64>,
    /// Time of the last RTO expiry that may still prove spurious.
    suspect_since: Option<Instant>,
    /// `snd_nxt` when F-RTO began to test the path with new data.
    asked_at: Option<u64>,
}

impl Default for Rto {
    fn default() -> Self {
        Self::new(&Tunables::LINUX)
    }
}

impl Rto {
    /// Returns the state of the retransmission timeout for a new connection.
    pub fn new(tunables: &Tunables) -> Self {
        Self {
            max: tunables.rto_max,
            linear: tunables.rto_linear,
            backoff: 0,
            expiries: 0,
            repair_until: None,
            suspect_since: None,
            asked_at: None,
        }
    }

    /// Returns the retransmission timeout in effect, including back-off.
    pub fn timeout(&self, rtt: &RttEstimator) -> Duration {
        let doublings = self.backoff.saturating_sub(self.linear).min(20);
        (rtt.rto() * (1u64 << doublings)).min(self.max)
    }

    /// Handles an RTO expiry with data outstanding up to `snd_nxt`; `recovering` indicates whether fast
    /// recovery is in progress. Returns whether this is the first expiry for this data. After repeated
    /// expiries without progress, the first expiry may still prove spurious. F-RTO does not test an expiry
    /// that follows progress in a recovery or occurs during fast recovery.
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

    /// Records an unanswered window probe. This doubles the time to the next probe.
    pub fn on_unanswered_probe(&mut self) {
        self.backoff += 1;
    }

    /// Records an advance of the cumulative ACK, which shows that the peer is alive. By Karn's rule, the
    /// back-off continues until a valid RTT sample is taken.
    pub fn on_progress(&mut self) {
        self.expiries = 0;
    }

    /// Records a valid RTT sample, which ends the back-off.
    pub fn on_valid_sample(&mut self) {
        self.backoff = 0;
    }

    /// Returns whether a delivered record proves that the timeout was spurious. The record must have been
    /// sent before the timeout and never retransmitted, because then only its ACK was late (RFC 5682 section
    /// 3, SACK variant).
    pub fn proves_spurious(&self, sent_at: Instant, transmissions: u8) -> bool {
        transmissions == 1 && self.suspect_since.is_some_and(|expired| sent_at < expired)
    }

    /// Returns whether new data has been sent since the F-RTO test began.
    pub fn has_asked(&self, snd_nxt: u64) -> bool {
        self.asked_at.is_some_and(|at| snd_nxt > at)
    }

    /// Ends recovery and returns true if all data that was outstanding at the timeout is acknowledged.
    pub fn repaired(&mut self, snd_una: u64) -> bool {
        let over = self.repair_until.is_some_and(|until| snd_una >= until);
        if over {
            self.end_repair();
        }
        over
    }

    /// Ends recovery after a timeout, whether recovery succeeded or was not needed.
    pub fn end_repair(&mut self) {
        self.repair_until = None;
        self.confirm();
    }

    /// Performs the F-RTO step for an ACK that neither proves the timeout spurious nor ends recovery.
    /// `advanced` indicates whether the cumulative ACK advanced, `sacked` whether SACK blocks arrived, and
    /// `sendable` whether new data can be sent.
    pub fn on_ack_in_repair(&mut self, advanced: bool, sacked: bool, snd_nxt: u64, sendable: bool) {
        if self.suspect_since.is_none() {
            return;
        }
        match self.asked_at {
            // A SACK or a duplicate ACK shows that a hole remains, so the loss was real.
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

    /// Returns whether F-RTO is testing the timeout with new data. Until the test ends, the sender does not
    /// retransmit lost data.
    pub fn asks_with_new_data(&self) -> bool {
        self.asked_at.is_some()
    }

    /// Returns whether recovery after a timeout is in progress.
    pub fn repairing(&self) -> bool {
        self.repair_until.is_some()
    }

    /// Returns the number of expiries and unanswered probes since the last valid RTT sample.
    pub fn backoff(&self) -> u32 {
        self.backoff
    }

    /// Returns the number of RTO expiries since the cumulative ACK last advanced.
    pub fn expiries(&self) -> u32 {
        self.expiries
    }

    /// Accepts the timeout as genuine. The window reduction can no longer be undone.
    pub fn confirm(&mut self) {
        self.suspect_since = None;
        self.asked_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The timeout doubles at each expiry, up to 120 s (RTO-3). A valid RTT sample ends the back-off.
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

    /// The tunables can delay the doubling by some expiries, and lower the upper bound of 120 s. The upper
    /// bound applies even to a timeout that has not doubled.
    #[test]
    fn back_off_and_upper_bound_are_tunable() {
        let rtt = RttEstimator::default();
        let ms = Duration::from_millis;
        for (rto_linear, rto_max, expected) in
            [(1, ms(120_000), [1, 1, 2, 4, 8]), (2, ms(3_000), [1, 1, 1, 2, 3]), (0, ms(1_000), [1; 5])]
        {
            let mut rto = Rto::new(&Tunables { rto_linear, rto_max, ..Tunables::LINUX });
            let seconds = expected.map(|_| {
                let timeout = rto.timeout(&rtt);
                rto.on_expiry(Instant::ZERO, 0, 100, false);
                timeout.as_nanos() / 1_000_000_000
            });
            assert_eq!(seconds, expected);
        }
    }

    /// An expiry for other data during recovery cannot be spurious (RFC 5682; FRTO-4). After a repeated
    /// expiry without progress, the first expiry can still be spurious.
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
