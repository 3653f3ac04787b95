//! Explicit congestion notification (RFC 3168 section 6.1): a queue marks instead of dropping, the receiver says so until
//! it is heard, and the sender reduces its window once for each window of data.
//!
//! ```text
//!   sender                        queue            receiver
//!     ── data, ECT(0) ──────────── CE ────────────►  begins to echo
//!     ◄──────────────────────── ACK, ECE ──────────
//!   reduces, by PRR over the round trip that follows (the kernel's state CWR): nothing grows meanwhile
//!     ── new data, CWR ────────────────────────────►  ends to echo, unless this was marked too
//! ```

use fullpipe_units::{Ecn, Instant};

use super::receiver::Receiver;
use super::sender::Sender;
use crate::cc::{Recovery, Signal};
use crate::recovery::Phase;
use crate::wire::{Flags, Segment};

const ECE_CWR: Flags = Flags::ECE.with(Flags::CWR);

/// The bits of our SYN or SYN-ACK. A request that was not answered may be what was in the way: it is not repeated
/// (section 6.1.1.1).
pub(super) fn of_syn(answer: bool, agreed: bool, asks: bool, repeated: bool) -> Flags {
    match answer {
        true if agreed => Flags::ECE,
        false if asks && !repeated => ECE_CWR,
        _ => Flags::default(),
    }
}

/// Whether both ends take part, by the peer's SYN or SYN-ACK (section 6.1.1).
pub(super) fn is_agreed(segment: &Segment, asked: bool) -> bool {
    if segment.flags.has(Flags::ACK) {
        asked && segment.flags.has(Flags::ECE) && !segment.flags.has(Flags::CWR)
    } else {
        segment.flags.has(ECE_CWR)
    }
}

/// The receiving half's part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Echo {
    /// Both ends take part.
    pub(super) agreed: bool,
    /// Marked data came, and its sender has not said yet that it reduced.
    echoing: bool,
}

impl Echo {
    /// What every segment that acknowledges says.
    #[inline(always)]
    pub(super) fn of_ack(self) -> Flags {
        if self.echoing { Flags::ECE } else { Flags::default() }
    }
}

/// The sending half's part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reduction {
    /// Both ends take part.
    pub(super) agreed: bool,
    /// The window was reduced, and the next new data says so.
    reduced: bool,
    /// What was outstanding at the last reduction; echoes of it are of the same congestion.
    until: u64,
    /// That reduction is under way: PRR walks down to the threshold until something newer is acknowledged.
    reducing: bool,
}

impl Reduction {
    /// How new data leaves. Nothing else is ECN-capable: a retransmission, an ACK or a probe that is lost must be missed
    /// (sections 6.1.4 to 6.1.6).
    pub(super) fn of_new_data(&mut self) -> (Ecn, Flags) {
        let flags = if std::mem::take(&mut self.reduced) { Flags::CWR } else { Flags::default() };
        (if self.agreed { Ecn::Ect0 } else { Ecn::NotEct }, flags)
    }

    /// The window was reduced, for whatever reason.
    pub(super) fn on_reduced(&mut self, snd_nxt: u64) {
        self.reduced = self.agreed;
        self.until = snd_nxt;
        self.reducing = false;
    }

    /// A reduction for a mark is under way.
    pub(super) fn is_reducing(self) -> bool {
        self.reducing
    }

    /// Fast recovery goes on with the reduction that is under way, if one is, up to this offset.
    pub(super) fn hand_over(&mut self) -> Option<u64> {
        std::mem::take(&mut self.reducing).then_some(self.until)
    }
}

impl Receiver {
    /// Reads the mark of an arriving segment with data (section 6.1.3): one on the segment that ends the echo begins it again.
    pub(super) fn note_mark(&mut self, segment: &Segment) {
        let was_echoing = self.ecn.echoing;
        if segment.flags.has(Flags::CWR) {
            self.ecn.echoing = false;
        }
        self.ecn.echoing |= self.ecn.agreed && segment.ecn.is_marked();
        if self.ecn.echoing != was_echoing {
            // The sender waits for either.
            self.acks.demand();
        }
    }
}

impl Sender {
    /// Reads the echo of an ACK (section 6.1.2): one reduction for a window of data, none beside that for a loss.
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
