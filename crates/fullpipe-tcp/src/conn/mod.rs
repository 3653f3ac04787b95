//! One connection: the parts of the engine put together.
//!
//! ```text
//!   write(n) ─► queue ─► build ─► [ lost first, then new ] ─► pacer ─► poll_transmit
//!                                        ▲                                │
//!   poll_event ◄── window, queue         │ marks                          ▼ wire
//!                                    recovery ◄── scoreboard ◄──── handle_segment
//!                                        │ facts                          ▲
//!                                        ▼                                │
//!                              congestion control ─► control ─► build, pacer
//! ```
//!
//! A connection knows offsets only, never payload. Time is always passed in; the driver calls
//!
//! 1. `handle_segment`, `write`, `read` or `close` when something happens,
//! 2. `handle_timeout` when `poll_timeout` is due,
//!
//! and after any of them `poll_transmit` until it yields nothing.
//!
//! A peer cannot make a connection remember without bound, whatever it sends (`tests/limits.rs`):
//!
//! | what | most |
//! |---|---|
//! | payload received and not read, holes counted | the window that was offered, which the receive buffer bounds |
//! | ranges above holes | one for each 832 bytes of receive buffer, 64 at least |
//! | ranges and duplicates that are reported | 4 and 1 |
//! | records of segments sent | what was written: the send buffer, in segments of 48 bytes at least |
//! | ranges that the peer reports | one more than there are records |
//! | losses that wait, retransmissions that are timed | two for each record |
//! | resets and ACKs that are due | one each; out of place, an ACK in half a second |

mod carried;
mod close;
mod config;
mod ecn;
mod events;
mod handshake;
mod icmp;
mod input;
mod mtu;
mod output;
mod prediction;
mod report;
mod reset;
mod silence;
mod state;
#[cfg(test)]
mod tests;
mod time_wait;
mod timers;
mod without_sack;

use fullpipe_units::{Draws, Instant};

use crate::SendLimit;
use crate::buffers::PACKET_BUFFER_MEMORY;
use crate::cc::{CongestionControl, Context, Control, Hints, Lost, Recovery};
use crate::estimate::{DeliveryRate, RttEstimator, RttHistogram};
use crate::recovery::newreno::NewReno;
use crate::recovery::probe::TailProbe;
use crate::recovery::prr::Prr;
use crate::recovery::rack::Rack;
use crate::recovery::rto::Rto;
use crate::recovery::scoreboard::Scoreboard;
use crate::recovery::undo::Undo;
use crate::rx::ack::AckPolicy;
use crate::rx::reassembly::Reassembly;
use crate::rx::window::ReceiveWindow;
use crate::tx::build::{self, Basis, Release};
use crate::tx::pacer::Pacer;
use crate::tx::queue::{Outlet, SendQueue};
use crate::wire::{Complaint, IpChoices, Segment, SeqNum};

pub use carried::Accepted;
pub use config::{Config, IpVersion};
use ecn::EcnState;
pub use events::Event;
use events::Events;
use report::LimitClock;
pub use report::{ReceiverSnapshot, Snapshot, Stats};
pub use reset::reset_for;
pub use silence::KeepAlive;
pub use state::State;
pub use time_wait::{TimeWait, TimeWaitVerdict};
use timers::RetransmitTimer;

/// A transmission: one segment, or several of `gso_size` bytes that leave together.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// Header of the first segment; `len` is the payload of all.
    pub segment: Segment,
    /// Payload bytes of each segment on the wire but the last.
    pub gso_size: u32,
    /// Scheduled departure.
    pub depart_at: Instant,
}

/// Ranges that are held above holes however small the receive buffer is.
const LEAST_RANGES: usize = 64;

/// Where loss recovery stands.
///
/// ```text
///   Open ──marked lost──► Recovery(until) ──una >= until──► Open, or Recovery again if more is lost
///     └────timeout────► Loss ──una >= snd_nxt then──► Open      (Recovery ──timeout──► Loss,
///                                                                Loss ──lost retransmission──► Recovery)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Recovery { until: u64 },
    Loss,
}

/// One TCP connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    state: State,
    /// Nobody reads any more.
    detached: bool,
    /// Opened by a SYN of the peer.
    passive: bool,
    /// It was there and has ended.
    over: bool,
    events: Events,
    draws: Draws,

    // Sequence space: offset 0 is the octet after the SYN.
    iss: SeqNum,
    irs: SeqNum,
    /// Payload of a full segment.
    mss: u64,
    /// Payload that the path and the peer's MSS option allow, however small the peer's window.
    path_mss: u64,
    has_timestamps: bool,
    has_sack: bool,
    peer_scale: u8,
    syn_retries: u32,
    /// How often a SYN or SYN-ACK was sent, for whatever reason.
    syn_transmissions: u32,
    syn_pending: bool,
    syn_sent_at: Instant,
    /// When the first SYN or SYN-ACK left.
    opened_at: Instant,
    ecn: EcnState,

    // Sending half.
    snd_una: u64,
    snd_nxt: u64,
    /// End of the last short segment sent.
    short_until: u64,
    snd_wnd: u64,
    /// The largest window that the peer has offered.
    max_snd_wnd: u64,
    snd_wl1: u64,
    queue: SendQueue,
    fin_sent: bool,
    finished: bool,
    board: Scoreboard,
    rack: Rack,
    /// In RACK's place without SACK.
    newreno: NewReno,
    rto: Rto,
    /// The last time the timeout was restarted by progress.
    rto_base: Instant,
    probe: TailProbe,
    prr: Prr,
    undo: Undo,
    phase: Phase,
    /// A recovery has just ended and left losses that are younger than it.
    still_lost: bool,
    /// When the window was last reduced for a loss, and that a retransmission sent since then is lost as well.
    reduced_at: Instant,
    lost_again: bool,
    rtt: RttEstimator,
    rate: DeliveryRate,
    pacer: Pacer,
    cc: Box<dyn CongestionControl>,
    control: Control,
    release: Release,
    /// What `release` is to be made of; `None` once it is. Both its parts cost a division for each ACK, and
    /// whoever sends unpaced what an ACK has made room for needs neither.
    release_basis: Option<Basis>,
    usage: WindowUsage,
    last_sent_at: Option<Instant>,
    /// The timeout's retransmission leaves whatever the window says.
    force_retransmit: bool,
    probe_due: Option<ProbeKind>,
    /// Probes of a closed window or an idle connection since the peer was last heard.
    unanswered_probes: u32,
    /// When something outstanding was last acknowledged, or an ACK came that said nothing.
    heard_at: Instant,
    retransmit_timer: Option<(RetransmitTimer, Instant)>,
    /// When the tail loss probe was armed, if more than one segment was outstanding and nothing was heard since:
    /// what is sent at the same time as that does not move it.
    probe_armed_at: Option<Instant>,
    lost_scratch: Vec<Lost>,

    // Receiving half.
    reassembly: Reassembly,
    /// What was taken of the segment handled last.
    accepted: Accepted,
    acks: AckPolicy,
    window: ReceiveWindow,
    rcv_mss: u64,
    fin_at: Option<u64>,
    /// Bytes handed to the application.
    copied: u64,
    ts_recent: u32,
    /// When it was noted.
    ts_recent_at: Instant,
    last_ack_sent: u64,
    /// When something out of place was last answered.
    challenged_at: Option<Instant>,

    /// What was last heard of the path.
    soft_error: Option<Complaint>,

    /// A reset to be sent.
    reset_due: Option<Segment>,
    time_wait: Option<TimeWait>,

    /// The largest window that an autotuned send buffer has followed.
    tuned_for: u64,

    limits: LimitClock,
    stats: Stats,
    rtts: RttHistogram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeKind {
    /// Tail loss probe.
    Tail,
    /// Zero-window probe.
    Window,
    /// Of an idle connection.
    KeepAlive,
}

/// Whether the window was used (RFC 7661's spirit, the kernel's bookkeeping): growth is earned only by a
/// window that was full at some moment of the round.
#[derive(Clone, Debug, Default)]
struct WindowUsage {
    cwnd_limited: bool,
    max_inflight: u64,
    round_end: u64,
}

impl WindowUsage {
    fn on_send(&mut self, snd_una: u64, snd_nxt: u64, flight_size: u64, limited: bool) {
        if snd_una >= self.round_end || limited || (!self.cwnd_limited && flight_size > self.max_inflight) {
            self.cwnd_limited = limited;
            self.max_inflight = flight_size;
            self.round_end = snd_nxt;
        }
    }
}

impl Connection {
    /// The side that connects. Call [`Connection::open`] to begin.
    pub fn client(config: Config) -> Self {
        Self::new(config, State::Closed)
    }

    /// The side that waits for a SYN.
    pub fn server(config: Config) -> Self {
        Self::new(config, State::Listen)
    }

    fn new(config: Config, state: State) -> Self {
        let draws = Draws::new(config.seed, 0x7463_7000);
        let mss = config.mtu.saturating_sub(config.ip.headers() + 12).max(48);
        let queue = SendQueue::new(config.sndbuf, config.notsent_lowat, config.initial_window(mss), mss);
        let window = ReceiveWindow::new(config.window_rule, config.rcvbuf, config.window_clamp, mss);
        // What arrives out of order takes a packet buffer in a kernel, which bounds how much of it there can be; so here.
        let most_ranges = usize::try_from(config.rcvbuf.limit().get() / PACKET_BUFFER_MEMORY)
            .unwrap_or(usize::MAX)
            .max(LEAST_RANGES);
        let window = if state == State::Listen {
            window
        } else {
            window.before_timestamps(config.mtu.saturating_sub(config.ip.headers()).max(48))
        };
        let cx = Context::fresh(mss, draws);
        let cc = config.cc.build(&cx, &Hints::default());
        let control = cc.control();
        let has_sack = config.sack;
        let rtt = RttEstimator::new(config.tunables.rto);
        Self {
            config,
            state,
            detached: false,
            passive: state == State::Listen,
            over: false,
            events: Events::default(),
            draws,
            iss: SeqNum(draws.at(0) as u32),
            irs: SeqNum::default(),
            mss,
            path_mss: mss,
            has_timestamps: true,
            has_sack,
            peer_scale: 0,
            syn_retries: 0,
            syn_transmissions: 0,
            syn_pending: false,
            syn_sent_at: Instant::ZERO,
            opened_at: Instant::ZERO,
            ecn: EcnState::default(),
            snd_una: 0,
            snd_nxt: 0,
            short_until: 0,
            snd_wnd: 0,
            max_snd_wnd: 0,
            snd_wl1: 0,
            queue,
            fin_sent: false,
            finished: false,
            board: Scoreboard::default(),
            rack: Rack::default(),
            newreno: NewReno::default(),
            rto: Rto::default(),
            rto_base: Instant::ZERO,
            probe: TailProbe::default(),
            prr: Prr::default(),
            undo: Undo::default(),
            phase: Phase::Open,
            still_lost: false,
            reduced_at: Instant::ZERO,
            lost_again: false,
            rtt,
            rate: DeliveryRate::default(),
            pacer: Pacer::default(),
            cc,
            control,
            release: Release { rate: None, quantum: 2 * mss },
            release_basis: None,
            usage: WindowUsage::default(),
            last_sent_at: None,
            force_retransmit: false,
            probe_due: None,
            unanswered_probes: 0,
            heard_at: Instant::ZERO,
            retransmit_timer: None,
            probe_armed_at: None,
            lost_scratch: Vec::new(),
            reassembly: Reassembly::new(most_ranges),
            accepted: Accepted::default(),
            acks: AckPolicy::default(),
            window,
            rcv_mss: mss.min(536),
            fin_at: None,
            copied: 0,
            ts_recent: 0,
            ts_recent_at: Instant::ZERO,
            last_ack_sent: 0,
            challenged_at: None,
            soft_error: None,
            reset_due: None,
            time_wait: None,
            tuned_for: 0,
            limits: LimitClock::default(),
            stats: Stats::default(),
            rtts: RttHistogram::default(),
        }
    }

    /// The state of the connection.
    pub fn state(&self) -> State {
        self.state
    }

    /// What its packets have in the IP header.
    pub(crate) fn ip_choices(&self) -> IpChoices {
        self.config.ip_choices
    }

    /// Payload bytes of a full segment.
    pub fn mss(&self) -> u64 {
        self.mss
    }

    /// Offers `len` bytes to the send buffer; returns how many it took. When it took fewer,
    /// [`Event::Writable`] says when to go on.
    pub fn write(&mut self, len: u64) -> u64 {
        self.check_app_limited();
        self.queue.write(len, self.outlet())
    }

    /// The send buffer is full: only a packet buffer that has been begun still takes data. Who writes on finds
    /// out by the time that writing takes.
    pub fn is_full(&self) -> bool {
        self.queue.is_full(self.snd_nxt)
    }

    /// Whether a third of the send buffer is free, which is when a socket counts as writable. If not,
    /// [`Event::Writable`] says when it is.
    pub fn wait_for_room(&mut self) -> bool {
        self.queue.wait_for_room(self.snd_nxt)
    }

    /// What may leave while the application writes.
    fn outlet(&self) -> Outlet {
        let window = self.snd_wnd.max(self.mss);
        let quantum = self.release().quantum;
        // The kernel fills a packet buffer with 64 KiB of whole segments, but no more than half of the peer's window.
        let most = build::bound_to_half_window(crate::cc::MAX_QUANTUM, window);
        let cwnd = self.effective_cwnd().saturating_sub(self.board.inflight());
        let room = cwnd.min(self.window_left());
        Outlet {
            nxt: self.snd_nxt,
            room: match self.paced() {
                false => room,
                true if self.limits.current == SendLimit::Pacing => 0,
                true => room.min(quantum),
            },
            quantum: quantum.max(self.mss),
            goal: (most / self.mss).max(1) * self.mss,
            push_after: window / 2,
            mss: self.mss,
            short_waits: self.short_until > self.snd_una,
        }
    }

    /// Bytes that wait to be read.
    pub fn readable(&self) -> u64 {
        self.received() - self.copied
    }

    /// Takes up to `len` in-order bytes; returns how many. May open the window.
    #[inline]
    pub fn read(&mut self, now: Instant, len: u64) -> u64 {
        let taken = len.min(self.readable());
        let span = if self.reassembly.has_holes() {
            self.reassembly.highest() - self.reassembly.rcv_nxt()
        } else {
            0
        };
        // A reader takes packet after packet, and right-sizing looks on after each. A measurement that is due
        // therefore ends with the first: what a filled hole has set free belongs to the next one.
        let first = taken.min(self.rcv_mss);
        self.window.on_read(now, self.copied + first, self.readable() - first, span);
        self.copied += taken;
        // An ACK that is due anyway carries the new window.
        if taken > 0 && !self.acks.is_due() {
            let (rcv_nxt, held) = (self.reassembly.rcv_nxt(), self.reassembly.held_bytes());
            let opens = self.window.would_open(rcv_nxt, held + self.readable(), self.rcv_mss);
            // Who has sent everything needs no window. A second segment waited for a reader (G-9).
            if (opens && !self.is_peer_closed()) || self.acks.is_second(0, self.rcv_mss) {
                self.acks.demand();
            }
        }
        taken
    }

    /// In-order payload bytes received, the FIN not counted.
    pub fn received(&self) -> u64 {
        let next = self.reassembly.rcv_nxt();
        self.fin_at.map_or(next, |fin| next.min(fin))
    }

    /// Bytes acknowledged by the peer, the FIN not counted.
    pub fn acknowledged(&self) -> u64 {
        self.snd_una.min(self.queue.written())
    }

    /// The next event that was not told yet, in the order of [`Event`]. One that happened several times since
    /// is told once.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.take()
    }

    /// Checks what must always hold, for tests.
    ///
    /// # Panics
    /// If it does not.
    #[doc(hidden)]
    pub fn check(&self) {
        self.board.check();
        self.reassembly.check();
        assert!(self.snd_una <= self.snd_nxt);
        assert!(self.board.oldest().is_none_or(|record| record.offset == self.snd_una), "una and the board");
    }

    /// The window in force: the controller's, or PRR's while it is reduced.
    fn effective_cwnd(&self) -> u64 {
        if self.reduces_by_prr() { self.prr.cwnd() } else { self.control.cwnd }
    }

    /// In fast recovery, or in the reduction for a mark, that the controller leaves to PRR.
    fn reduces_by_prr(&self) -> bool {
        self.control.recovery == Recovery::Prr && self.is_reducing()
    }

    fn is_reducing(&self) -> bool {
        match self.phase {
            Phase::Recovery { .. } => true,
            Phase::Open => self.ecn.is_reducing(),
            Phase::Loss => false,
        }
    }

    fn context(&self, now: Instant) -> Context {
        Context {
            now,
            mss: self.mss,
            snd_una: self.snd_una,
            snd_nxt: self.snd_nxt,
            inflight: self.board.inflight(),
            flight_size: self.snd_nxt - self.snd_una,
            cwnd_limited: self.usage.cwnd_limited,
            max_inflight: self.usage.max_inflight,
            app_limited: self.rate.is_app_limited(),
            sent: self.stats.bytes_sent,
            delivered: self.rate.delivered,
            delivered_time: self.rate.delivered_time,
            lost: self.board.lost_total(),
            copied: 0,
            srtt: self.rtt.srtt(),
            rttvar: self.rtt.rttvar(),
            min_rtt: self.rtt.min_rtt(),
            rwnd: self.snd_wnd,
            in_recovery: self.is_reducing(),
            in_loss: self.phase == Phase::Loss,
            has_sack: self.has_sack,
            has_timestamps: self.has_timestamps,
            next_departure: self.pacer.next_departure(),
            rng: self.draws,
        }
    }

    fn signal(&mut self, now: Instant, signal: crate::cc::Signal) {
        // What was not asked for yet still follows from the decision that is about to change.
        self.settle_release();
        let cx = self.context(now);
        self.cc.on_signal(&cx, signal);
        self.control = self.cc.control();
    }

    /// How the decision is carried out.
    fn release(&self) -> Release {
        match &self.release_basis {
            None => self.release,
            Some(basis) => basis.release(&self.control, self.config.max_pacing_rate),
        }
    }

    fn settle_release(&mut self) {
        if self.release_basis.is_some() {
            self.release = self.release();
            self.release_basis = None;
        }
    }

    /// Reads the decision, from which what is used per transmission follows.
    #[inline]
    fn refresh_control(&mut self, cx: &Context) {
        // Mostly it stands, and to find that out is cheaper than a copy.
        let control = self.cc.control();
        if control != self.control {
            self.control = control;
        }
        self.release_basis = Some(Basis::of(cx));
    }

    /// Marks the samples to come when the application leaves the window unused
    /// (draft-ietf-ccwg-bbr section 4.1.2.4).
    #[inline(always)]
    fn check_app_limited(&mut self) {
        let unsent = self.unsent();
        let inflight = self.board.inflight();
        if unsent < self.mss && inflight < self.effective_cwnd() && self.board.lost_pending() == 0 {
            self.rate.mark_app_limited(inflight);
        }
    }
}
