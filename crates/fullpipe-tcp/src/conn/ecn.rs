//! Explicit Congestion Notification (RFC 3168 section 6.1). A queue marks packets instead of dropping them,
//! the receiver echoes the mark until the sender responds, and the sender reduces its window once per window
//! of data.
//!
//! ```text
//!   sender                        queue            receiver
//!     ── data, ECT(0) ──────────── CE ────────────►  starts to echo
//!     ◄──────────────────────── ACK, ECE ──────────
//!   reduces by PRR over the next round trip (Linux state CWR); the window does not grow meanwhile
//!     ── new data, CWR ────────────────────────────►  stops the echo, unless this packet is CE-marked too
//! ```

use fullpipe_units::{Ecn, Instant};

use super::receiver::Receiver;
use super::sender::Sender;
use crate::cc::{Recovery, Signal};
use crate::recovery::Phase;
use crate::wire::{Flags, Segment};

const ECE_CWR: Flags = Flags::ECE.with(Flags::CWR);

/// Returns the ECN bits of our SYN or SYN-ACK. A retransmitted SYN does not request ECN, because a middlebox
/// may have dropped the first SYN for its ECN request (RFC 3168 section 6.1.1.1).
pub(super) fn of_syn(answer: bool, agreed: bool, asks: bool, repeated: bool) -> Flags {
    match answer {
        true if agreed => Flags::ECE,
        false if asks && !repeated => ECE_CWR,
        _ => Flags::default(),
    }
}

/// Determines from the peer's SYN or SYN-ACK whether both ends use ECN (RFC 3168 section 6.1.1).
pub(super) fn is_agreed(segment: &Segment, asked: bool) -> bool {
    if segment.flags.has(Flags::ACK) {
        asked && segment.flags.has(Flags::ECE) && !segment.flags.has(Flags::CWR)
    } else {
        segment.flags.has(ECE_CWR)
    }
}

/// ECN state of the receiving half.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Echo {
    /// Whether both ends use ECN.
    pub(super) agreed: bool,
    /// Whether CE-marked data has arrived and the sender has not yet responded with CWR.
    echoing: bool,
}

impl Echo {
    /// Returns the ECN bits to set in every segment that carries an ACK.
    #[inline(always)]
    pub(super) fn of_ack(self) -> Flags {
        if self.echoing { Flags::ECE } else { Flags::default() }
    }
}

/// ECN state of the sending half.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reduction {
    /// Whether both ends use ECN.
    pub(super) agreed: bool,
    /// Whether the next new data must carry CWR, because the sender has reduced its window.
    reduced: bool,
    /// SND.NXT at the last reduction. An ECN echo for data below this offset belongs to the congestion event
    /// that caused this reduction.
    until: u64,
    /// Whether a reduction for ECE is in progress: PRR lowers the window to `ssthresh` until data beyond
    /// `until` is acknowledged.
    reducing: bool,
}

impl Reduction {
    /// Returns the ECN codepoint and the ECN flags of new data. Only new data is ECN-capable, because the
    /// loss of a retransmission, an ACK or a probe must be detected (RFC 3168 sections 6.1.4 to 6.1.6).
    pub(super) fn of_new_data(&mut self) -> (Ecn, Flags) {
        let flags = if std::mem::take(&mut self.reduced) { Flags::CWR } else { Flags::default() };
        (if self.agreed { Ecn::Ect0 } else { Ecn::NotEct }, flags)
    }

    /// Records a window reduction for any reason.
    pub(super) fn on_reduced(&mut self, snd_nxt: u64) {
        self.reduced = self.agreed;
        self.until = snd_nxt;
        self.reducing = false;
    }

    /// Returns whether a reduction for ECE is in progress.
    pub(super) fn is_reducing(self) -> bool {
        self.reducing
    }

    /// Passes a reduction in progress to fast recovery, which continues it. Returns the offset at which the
    /// reduction ends, or `None` if no reduction is in progress.
    pub(super) fn hand_over(&mut self) -> Option<u64> {
        std::mem::take(&mut self.reducing).then_some(self.until)
    }
}

impl Receiver {
    /// Processes the ECN bits of an arriving data segment (RFC 3168 section 6.1.3). CWR stops the echo; a CE
    /// mark on the same segment restarts it.
    pub(super) fn note_mark(&mut self, segment: &Segment) {
        let was_echoing = self.ecn.echoing;
        if segment.flags.has(Flags::CWR) {
            self.ecn.echoing = false;
        }
        self.ecn.echoing |= self.ecn.agreed && segment.ecn.is_marked();
        if self.ecn.echoing != was_echoing {
            // A change of the echo must reach the sender quickly, so the receiver sends an ACK without delay.
            self.acks.demand();
        }
    }
}

impl Sender {
    /// Processes the ECE bit of an ACK (RFC 3168 section 6.1.2). The sender reduces the congestion window at
    /// most once per window of data; a reduction for a loss counts too.
    pub(super) fn note_echo(&mut self, now: Instant, segment: &Segment) {
        if self.ecn.reducing && self.snd_una > self.ecn.until {
            self.ecn.reducing = false;
        }
        let echoed = self.ecn.agreed && segment.flags.has(Flags::ECE);
        let open = self.recovery.phase == Phase::Open;
        if !echoed || !open || self.ecn.reducing || self.snd_una <= self.ecn.until {
            return;
        }
        self.recovery.prr.enter(self.decision.control.cwnd);
        self.ecn.on_reduced(self.snd_nxt());
        self.stats.ecn_reductions += 1;
        self.signal(now, Signal::EcnEcho);
        self.ecn.reducing = self.decision.control.recovery == Recovery::Prr;
        self.refresh_control(now);
    }
}
