//! Loss recovery: the only place where data is marked lost.
//!
//! ```text
//!   ACK ─► scoreboard ─► rack ─► losses ─► prr ─► window      (recovery marks losses and sizes the window;
//!            │                     │                           without SACK, newreno replaces rack)
//!            └── probe, rto ───────┘        tx/retransmit sends the lost records
//! ```
//!
//! The functions of this module return the losses of one event as `Losses` (`losses.rs`).
//! `conn/sender/episodes.rs` reports them to the congestion controller and decides whether recovery begins.
//!
//! Code outside this module cannot mark a record lost:
//!
//! ```compile_fail,E0624
//! let mut board = fullpipe_tcp::recovery::scoreboard::Scoreboard::default();
//! board.mark_lost(0);
//! ```

mod losses;
pub mod newreno;
pub mod probe;
pub mod prr;
pub mod rack;
pub mod rto;
pub mod scoreboard;
pub mod undo;

use fullpipe_units::{Duration, Instant};

use crate::Tunables;
use crate::cc::{LossCause, SentKind};
use crate::estimate::{RateSnapshot, RttEstimator};
use crate::wire::Timestamps;
pub(crate) use losses::{LossBuffer, Losses};
use newreno::NewReno;
use probe::TailProbe;
use prr::Prr;
use rack::{Rack, ReoWndInputs};
use rto::Rto;
use scoreboard::{RecordNo, Scoreboard};
use undo::Undo;

/// Phase of loss recovery.
///
/// ```text
///   Open ──marked lost──► Recovery(until) ──una >= until──► Open, or Recovery again if more is lost
///     └────timeout────► Loss ──una >= snd_nxt then──► Open      (Recovery ──timeout──► Loss,
///                                                                Loss ──lost retransmission──► Recovery)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    Recovery { until: u64 },
    Loss,
}

/// Loss recovery of a connection: the records of sent data, and the detectors and timeouts that mark records
/// lost.
#[derive(Debug)]
pub(crate) struct LossRecovery {
    pub(crate) board: Scoreboard,
    pub(crate) rack: Rack,
    /// Loss detection for connections without SACK; replaces RACK.
    pub(crate) newreno: NewReno,
    pub(crate) rto: Rto,
    /// Start of the retransmission timeout: the time of the last progress, or of the first transmission after
    /// a pause.
    pub(crate) rto_base: Instant,
    pub(crate) probe: TailProbe,
    pub(crate) prr: Prr,
    pub(crate) undo: Undo,
    pub(crate) phase: Phase,
    /// Time of the last window reduction because of a loss.
    pub(crate) reduced_at: Instant,
    /// Whether SACK was negotiated on the connection.
    pub(crate) has_sack: bool,
}

impl LossRecovery {
    pub(crate) fn new(has_sack: bool, tunables: &Tunables) -> Self {
        Self {
            board: Scoreboard::default(),
            rack: Rack::new(tunables.reo_wnd),
            newreno: NewReno::default(),
            rto: Rto::new(tunables),
            rto_base: Instant::ZERO,
            probe: TailProbe::default(),
            prr: Prr::default(),
            undo: Undo::default(),
            phase: Phase::Open,
            reduced_at: Instant::ZERO,
            has_sack,
        }
    }

    /// Records the retransmission of record `number`.
    pub(crate) fn on_retransmission(
        &mut self,
        now: Instant,
        number: RecordNo,
        snapshot: RateSnapshot,
        kind: SentKind,
    ) {
        self.board.on_resent(number, now, snapshot, kind != SentKind::Retransmission);
        if self.has_sack {
            self.rack.on_resent(number, now);
        }
        self.undo.on_retransmission(Timestamps::clock(now));
    }

    /// Returns whether loss detection by RACK may find a loss.
    #[inline(always)]
    pub(crate) fn suspects(&mut self) -> bool {
        self.rack.suspects(&mut self.board)
    }

    /// Marks losses with RACK. Call this function only after [`suspects`](Self::suspects) has returned true.
    /// Returns the losses and the time of the next check.
    pub(crate) fn detect<'b>(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        buffer: &'b mut LossBuffer,
    ) -> (Losses<'b>, Option<Instant>) {
        buffer.clear();
        let inputs = self.reo_wnd_inputs(rtt);
        let (lost_before, reduced_at) = (self.board.lost_total(), self.reduced_at);
        let mut retransmission = false;
        let look_again = self.rack.mark_older(now, &mut self.board, inputs, |_, record| {
            retransmission |= record.transmissions > 1 && record.sent_at >= reduced_at;
            buffer.push(record);
        });
        (Losses::new(buffer, LossCause::Rack, lost_before, retransmission), look_again)
    }

    /// Detects losses from duplicate ACKs, on connections without SACK. `advanced` indicates whether the
    /// cumulative ACK has advanced to `snd_una`.
    pub(crate) fn detect_without_sack<'b>(
        &mut self,
        snd_una: u64,
        advanced: bool,
        buffer: &'b mut LossBuffer,
    ) -> Losses<'b> {
        buffer.clear();
        let lost_before = self.board.lost_total();
        let recovery = matches!(self.phase, Phase::Recovery { .. });
        let open = self.phase == Phase::Open && self.newreno.listens(snd_una);
        self.newreno.detect(&mut self.board, open, recovery && advanced, |_, record| buffer.push(record));
        Losses::new(buffer, LossCause::DupAck, lost_before, false)
    }

    /// Marks records lost after a retransmission timeout. If the peer has `reneged`, marks all records lost.
    pub(crate) fn mark_on_timeout<'b>(
        &mut self,
        now: Instant,
        rtt: &RttEstimator,
        reneged: bool,
        buffer: &'b mut LossBuffer,
    ) -> Losses<'b> {
        buffer.clear();
        let lost_before = self.board.lost_total();
        if self.has_sack {
            let inputs = self.reo_wnd_inputs(rtt);
            self.rack.mark_on_timeout(now, &mut self.board, inputs, reneged, |_, record| buffer.push(record));
        } else {
            self.newreno.forget(&mut self.board);
            NewReno::mark_on_timeout(&mut self.board, |_, record| buffer.push(record));
        }
        Losses::new(buffer, LossCause::Rto, lost_before, false)
    }

    /// Removes the loss marks of records that still wait for retransmission, because those records were only
    /// late.
    pub(crate) fn unmark_all(&mut self) {
        self.board.unmark_all_lost();
        self.newreno.forget(&mut self.board);
    }

    fn reo_wnd_inputs(&self, rtt: &RttEstimator) -> ReoWndInputs {
        let srtt = rtt.srtt().unwrap_or(Duration::from_secs(1));
        let min_rtt = rtt.min_rtt().unwrap_or(srtt);
        ReoWndInputs { min_rtt, srtt, in_recovery: self.phase != Phase::Open }
    }

    /// Recounts the records and checks the counters against the result, for tests.
    pub(crate) fn check(&self) {
        self.board.check();
    }
}
