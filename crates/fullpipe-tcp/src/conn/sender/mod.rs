//! Sending half of a connection: written data, outstanding data, and the amount that may be sent.
//!
//! ```text
//!   write ─► queue ─► tx/fresh, tx/retransmit ──► Transmit ──► the receiving half adds its ACK
//!                          ▲                          │ `transmit.rs`: pacer, timers, counts
//!     windows, rate        │ losses                   ▼ wire
//!   `control.rs` ◄── `episodes.rs` ◄── recovery/ ◄── `ack.rs` ◄── an ACK
//! ```
//!
//! The sending half does not depend on the receiving half or on the states of RFC 9293. The caller passes
//! only acceptable segments, and acts on the returned values.

mod ack;
mod control;
mod deferral;
mod delivery;
mod episodes;
mod mtu;
mod timers;
mod transmit;

use std::sync::Arc;

use fullpipe_units::{Draws, Duration, Instant};

use super::config::Config;
use super::ecn::Reduction;
use super::handshake::Agreed;
use super::paths::FirstFlight;
use super::report::{LimitClock, Stats};
use crate::SendLimit;
use crate::cc::{Context, Hints, Launch};
use crate::estimate::{DeliveryRate, RttEstimator, RttHistogram};
use crate::memory::Recollection;
use crate::recovery::probe::Probes;
use crate::recovery::{LossBuffer, LossRecovery, Phase};
use crate::tx::build;
use crate::tx::fresh::NewData;
use crate::tx::pacer::Pacer;
use crate::tx::queue::{Outlet, SendQueue};
use crate::tx::retransmit::Retransmission;
use crate::wire::SeqNum;
use control::{Decision, WindowUsage};
pub(super) use deferral::Deferral;
pub(super) use timers::RetransmitTimer;

/// Sending half of a connection.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) config: Arc<Config>,
    pub(super) draws: Draws,
    /// Initial sequence number (ISS). Offset 0 is the octet after the SYN.
    pub(super) iss: SeqNum,
    pub(super) agreed: Agreed,
    /// Payload length of a full-sized segment, in bytes.
    pub(super) mss: u64,
    /// Payload length of a segment, in bytes, that the path MTU and the peer's MSS option allow, regardless
    /// of the peer's window.
    path_mss: u64,
    pub(super) queue: SendQueue,
    pub(super) fresh: NewData,
    pub(super) retransmission: Retransmission,
    pub(super) snd_una: u64,
    pub(super) peer: PeerWindow,
    pub(super) recovery: LossRecovery,
    /// Buffer for lost records, reused by every loss detection.
    losses: LossBuffer,
    pub(super) ecn: Reduction,
    pub(super) rtt: RttEstimator,
    pub(super) rtts: RttHistogram,
    pub(super) rate: DeliveryRate,
    pub(super) pacer: Pacer,
    pub(super) decision: Decision,
    usage: WindowUsage,
    pub(super) first_flight: FirstFlight,
    last_sent_at: Option<Instant>,
    pub(super) timer: Option<(RetransmitTimer, Instant)>,
    /// Time at which the tail loss probe was armed, if more than one segment was outstanding and nothing has
    /// arrived since. Further transmissions at the same instant do not postpone the probe.
    probe_armed_at: Option<Instant>,
    pub(super) probes: Probes,
    /// Arrival time of the last ACK for outstanding data, or of the last pure ACK without new information.
    pub(super) heard_at: Instant,
    /// Largest congestion window for which the send buffer has been autotuned so far.
    tuned_for: u64,
    pub(super) limits: LimitClock,
    pub(super) stats: Stats,
}

/// Receive window advertised by the peer (RFC 9293 section 3.3.1).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeerWindow {
    /// SND.WND: the receive window advertised by the peer, in bytes.
    pub(super) wnd: u64,
    /// Largest receive window that the peer has advertised, in bytes.
    pub(super) max: u64,
    /// SND.WL1: offset of the first octet of the segment that last updated the window.
    pub(super) wl1: u64,
    /// Window scale shift of the peer (RFC 7323 section 2.2).
    pub(super) scale: u8,
}

impl Sender {
    pub(super) fn new(config: Arc<Config>, draws: Draws, mss: u64) -> Self {
        let queue = SendQueue::new(config.sndbuf, config.notsent_lowat, config.initial_window(mss), mss);
        let cx = Context::fresh(mss, draws);
        let least = u64::from(config.tunables.least_window);
        let decision = Decision::new(config.cc.build(&cx, &Hints::default()), mss, least);
        let agreed = Agreed { sack: config.sack, timestamps: true };
        let rtt = RttEstimator::new(config.tunables.rto, config.rto_prompt());
        let recovery = LossRecovery::new(agreed.sack, &config.tunables);
        Self {
            config,
            draws,
            iss: SeqNum(draws.at(0) as u32),
            agreed,
            mss,
            path_mss: mss,
            queue,
            fresh: NewData::default(),
            retransmission: Retransmission::default(),
            snd_una: 0,
            peer: PeerWindow::default(),
            recovery,
            losses: LossBuffer::default(),
            ecn: Reduction::default(),
            rtt,
            rtts: RttHistogram::default(),
            rate: DeliveryRate::default(),
            pacer: Pacer::default(),
            decision,
            usage: WindowUsage::default(),
            first_flight: FirstFlight::default(),
            last_sent_at: None,
            timer: None,
            probe_armed_at: None,
            probes: Probes::default(),
            heard_at: Instant::ZERO,
            tuned_for: 0,
            limits: LimitClock::default(),
            stats: Stats::default(),
        }
    }

    /// Applies the negotiated options, and sets the payload length of a full-sized segment to `mss` bytes.
    pub(super) fn agree(&mut self, agreed: Agreed, scale: u8, mss: u64) {
        self.agreed = agreed;
        self.recovery.has_sack = agreed.sack;
        self.peer.scale = scale;
        self.path_mss = mss;
        self.mss = mss;
    }

    /// Completes the handshake. `window` is the receive window that the peer offers, in bytes.
    /// `handshake_rtt` is the RTT sample of the handshake, unless Karn's rule forbids a sample. `lost` is the
    /// number of SYNs or SYN-ACKs that were lost.
    pub(super) fn establish(
        &mut self,
        now: Instant,
        window: u64,
        handshake_rtt: Option<Duration>,
        lost: u32,
    ) {
        self.heard_at = now;
        self.timer = None;
        self.peer.wnd = window;
        self.peer.max = window;
        self.mss = self.bounded_mss();
        if let Some(rtt) = handshake_rtt {
            self.rtt.on_sample(rtt, 0, 0);
            self.rtt.on_min_sample(rtt, now);
        }
        self.rate.delivered_time = now;
        // The loss of more than one SYN indicates congestion, so the congestion window starts at one segment
        // (TCP-10).
        let initial_cwnd = if lost > 1 { self.mss } else { self.config.initial_window(self.mss) };
        self.first_flight.may_launch = lost == 0;
        let launch = self.config.launch(self.mss, self.rtt.srtt()).filter(|_| lost == 0);
        self.start_control(now, initial_cwnd, launch, &Recollection::NONE);
    }

    /// Creates the congestion controller of the established connection, with the `known` values of the path.
    /// The first flight is limited to the window of `launch` or, without a launch, to `initial_cwnd` bytes.
    pub(super) fn start_control(
        &mut self,
        now: Instant,
        initial_cwnd: u64,
        launch: Option<Launch>,
        known: &Recollection,
    ) {
        let initial_cwnd = launch.map_or(initial_cwnd, |launch| launch.bytes(self.mss));
        self.first_flight.end = initial_cwnd;
        let srtt = self.rtt.srtt();
        // A sender may use only half of the remembered capacity at once, and only one connection may use it
        // (RFC 9959).
        let capacity = known.capacity.filter(|_| known.resumes);
        let hints = Hints {
            rtt: srtt.or(known.rtt),
            rttvar: if srtt.is_some() { self.rtt.rttvar() } else { known.rttvar },
            rate: capacity.map(|capacity| capacity.rate),
            cwnd: capacity.map(|capacity| capacity.cwnd),
            bottleneck: known.capacity.filter(|known| known.is_bottleneck).map(|known| known.rate),
            initial_cwnd: Some(initial_cwnd),
            launch,
            loss_window: Some(self.config.tunables.loss_window),
            slow_start: self.config.slow_start,
            loss: self.config.known_loss.max(known.loss),
            copies: self.config.tunables.copies,
        };
        let cc = if known.halted { self.config.cc.fallback() } else { self.config.cc };
        if known.halted {
            self.rtt.expect_late_acks();
        }
        let cx = self.context(now);
        self.decision.replace(cc.build(&cx, &hints));
        self.decision.refresh(&cx);
        self.queue.autotune(self.decision.control.cwnd, self.mss, 2);
    }

    /// Accepts up to `len` bytes from the application and returns the number of bytes accepted.
    pub(super) fn write(&mut self, len: u64) -> u64 {
        self.check_app_limited();
        self.queue.write(len, self.outlet())
    }

    /// Frees the memory for records of outstanding segments. No segment may be outstanding.
    pub(super) fn free_idle_memory(&mut self) {
        self.losses = LossBuffer::default();
        self.recovery.board.free_empty();
        self.recovery.rack.free_empty();
    }

    /// Returns the offset of the next octet to be sent for the first time (SND.NXT).
    #[inline(always)]
    pub(super) fn snd_nxt(&self) -> u64 {
        self.fresh.snd_nxt()
    }

    /// Returns the number of bytes that the application has written and that have not been sent yet.
    #[inline]
    pub(super) fn unsent(&self) -> u64 {
        self.fresh.unsent(&self.queue)
    }

    /// Returns the number of bytes that may still be sent within the peer's window.
    #[inline]
    pub(super) fn window_left(&self) -> u64 {
        (self.snd_una + self.peer.wnd).saturating_sub(self.snd_nxt())
    }

    /// Returns the number of bytes sent and not yet cumulatively acknowledged.
    pub(super) fn flight_size(&self) -> u64 {
        self.snd_nxt() - self.snd_una
    }

    /// Returns whether the peer has acknowledged the FIN.
    #[inline]
    pub(super) fn is_fin_acknowledged(&self) -> bool {
        self.fresh.fin_sent() && self.snd_una > self.queue.written()
    }

    /// Returns whether nothing is outstanding or unsent, and the recorded limit is already
    /// [`SendLimit::App`]. The receiving side of a transfer calls this function after every segment.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.recovery.board.is_empty()
            && self.queue.written() <= self.snd_nxt()
            && self.limits.current == SendLimit::App
            && !self.probes.is_due()
            && !self.queue.is_blocked()
            && !self.queue.is_closed()
    }

    /// Stops the sending half when the connection ends.
    pub(super) fn end(&mut self, now: Instant) {
        self.queue.close();
        self.timer = None;
        self.retransmission.end();
        self.limits.set(now, SendLimit::App);
    }

    /// Returns the limits on the data that may be sent while the application is writing.
    fn outlet(&self) -> Outlet {
        let window = self.peer.wnd.max(self.mss);
        let quantum = self.release().quantum;
        // Linux fills an skb with whole segments up to 64 KiB, but with at most half of the peer's window.
        let most = build::bound_to_half_window(crate::cc::MAX_QUANTUM, window);
        let cwnd = self.effective_cwnd().saturating_sub(self.recovery.board.inflight());
        let room = cwnd.min(self.window_left());
        Outlet {
            nxt: self.snd_nxt(),
            room: match self.paced() {
                false => room,
                true if self.limits.current == SendLimit::Pacing => 0,
                true => room.min(quantum),
            },
            quantum: quantum.max(self.mss),
            goal: (most / self.mss).max(1) * self.mss,
            push_after: window / 2,
            mss: self.mss,
            short_waits: self.fresh.short_outstanding(self.snd_una),
        }
    }

    /// Checks the invariants of the sending half, for tests.
    pub(super) fn check(&self) {
        self.recovery.check();
        assert!(self.snd_una <= self.snd_nxt());
        let oldest = self.recovery.board.oldest();
        assert!(oldest.is_none_or(|record| record.offset == self.snd_una), "una and the board");
    }
}
