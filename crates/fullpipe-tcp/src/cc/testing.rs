//! Test driver for congestion controllers: one controller, a `Context`, and ACKs that the test or a simulated
//! path creates.
//!
//! ```text
//!   controller ──► pacer, window ──► loss, policer ──► queue + link ──► delay ──► ACK ──► controller
//! ```
//!
//! Segments are delivered in order, with one ACK each. A segment that a later ACK skips counts as lost. The
//! next new segment is sent instead of a retransmission, which makes no difference to a controller.

use std::collections::VecDeque;

use fullpipe_units::{Bytes, Draws, Duration, Instant, Rate};

use super::{
    AckSample, Algorithm, CongestionControl, Context, Control, Hints, LossCause, Lost, Pacing, Sent,
    SentKind, Signal, Status,
};

pub(super) const MSS: u64 = 1448;

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(super) fn at_ms(n: u64) -> Instant {
    Instant::ZERO + ms(n)
}

pub(super) fn context() -> Context {
    Context { cwnd_limited: true, rwnd: u64::MAX, ..Context::fresh(MSS, Draws::new(1, 1)) }
}

/// Returns the sample of an ACK for `segments` new segments, without other measurements.
pub(super) fn sample(segments: u64) -> AckSample {
    AckSample {
        cum_acked: segments * MSS,
        sacked: 0,
        acked_segments: segments,
        una_advanced: segments > 0,
        may_grow: segments > 0,
        was_open: true,
        newly_lost: 0,
        prior_inflight: 0,
        tx_in_flight: 0,
        lost_since_sent: 0,
        prior_delivered: 0,
        delivered: segments * MSS,
        interval: None,
        rtt: None,
        oldest_rtt: None,
        newest_sent_at: Instant::ZERO,
        first_transmission: true,
        app_limited: false,
        spurious: false,
        round_start: false,
    }
}

/// Congestion controller for which the test creates the ACKs one by one.
pub(super) struct Bench<C> {
    pub(super) cx: Context,
    pub(super) cc: C,
}

impl<C: CongestionControl> Bench<C> {
    pub(super) fn new(segments: u64, build: impl FnOnce(&Context, &Hints) -> C) -> Self {
        let mut cx = context();
        cx.srtt = Some(ms(100));
        cx.min_rtt = Some(ms(100));
        let hints = Hints { rtt: Some(ms(100)), initial_cwnd: Some(segments * MSS), ..Hints::default() };
        Self { cc: build(&cx, &hints), cx }
    }

    /// Creates a bench whose controller gets additional `hints`.
    pub(super) fn hinted(segments: u64, hints: Hints, build: impl FnOnce(&Context, &Hints) -> C) -> Self {
        Self::new(segments, |cx, plain| {
            build(cx, &Hints { rtt: plain.rtt, initial_cwnd: plain.initial_cwnd, ..hints })
        })
    }

    /// Returns the congestion window in segments.
    pub(super) fn cwnd(&self) -> u64 {
        self.cc.control().cwnd / MSS
    }

    /// Returns the slow-start threshold in segments.
    pub(super) fn ssthresh(&self) -> u64 {
        self.cc.control().ssthresh / MSS
    }

    pub(super) fn ack(&mut self, segments: u64) {
        self.cc.on_ack(&self.cx, &sample(segments));
    }

    /// Injects `count` ACKs of one segment each, all at the same time.
    pub(super) fn acks(&mut self, count: u64) {
        (0..count).for_each(|_| self.ack(1));
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        self.cc.on_signal(&self.cx, signal);
    }

    /// Injects a loss and completes the recovery from it.
    pub(super) fn lose(&mut self) {
        self.signal(Signal::EnterRecovery);
        self.signal(Signal::ExitRecovery);
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.cx.now += time;
    }
}

impl<C: CongestionControl + ?Sized> CongestionControl for Box<C> {
    fn on_send(&mut self, cx: &Context, sent: &Sent) {
        (**self).on_send(cx, sent);
    }

    fn on_lost(&mut self, cx: &Context, lost: &Lost) {
        (**self).on_lost(cx, lost);
    }

    fn on_signal(&mut self, cx: &Context, signal: Signal) {
        (**self).on_signal(cx, signal);
    }

    fn on_ack(&mut self, cx: &Context, sample: &AckSample) {
        (**self).on_ack(cx, sample);
    }

    fn control(&self) -> Control {
        (**self).control()
    }

    fn status(&self) -> Status {
        (**self).status()
    }
}

struct Packet {
    offset: u64,
    sent_at: Instant,
    /// Time at which the packet is ACKed; `None` if the packet was dropped.
    acked_at: Option<Instant>,
    delivered: u64,
    delivered_time: Instant,
    first_sent: Instant,
    app_limited: bool,
    inflight: u64,
    /// Total number of bytes marked lost when the packet was sent.
    lost: u64,
}

/// Token bucket that drops the packets that exceed its rate and burst size.
pub(super) struct Policer {
    pub(super) rate: Rate,
    pub(super) burst: u64,
    pub(super) tokens: u64,
    pub(super) filled: Instant,
}

impl Policer {
    fn admits(&mut self, at: Instant, len: u64) -> bool {
        let new = (self.rate * at.saturating_since(self.filled)).get();
        self.tokens = (self.tokens + new).min(self.burst);
        self.filled = at;
        let admitted = self.tokens >= len;
        self.tokens -= if admitted { len } else { 0 };
        admitted
    }
}

/// Congestion controller on a simulated path.
pub(super) struct Run<C = Box<dyn CongestionControl>> {
    pub(super) cx: Context,
    pub(super) cc: C,
    pub(super) rate: Rate,
    pub(super) rtt: Duration,
    /// Capacity of the link's queue in bytes.
    pub(super) buffer: u64,
    pub(super) policer: Option<Policer>,
    /// Random loss probability, in segments per million.
    pub(super) loss_ppm: u64,
    /// Interval at which ACKs are released; an ACK that is due waits for the next multiple of this interval.
    pub(super) ack_grid: Duration,
    /// Whether the application currently writes nothing.
    pub(super) silent: bool,
    /// Rate at which the application writes; `None` means that the application never limits the flow.
    app_rate: Option<Rate>,
    /// Time at which the application wrote, or will write, the next segment.
    written_at: Instant,
    pub(super) rounds: u64,
    flight: VecDeque<Packet>,
    link_free: Instant,
    first_sent: Instant,
    app_limited_until: u64,
    round_end: u64,
    /// Last round in which the congestion window was full.
    limited_round: u64,
    recover: u64,
}

impl Run {
    pub(super) fn new(algorithm: Algorithm, rate: &str, rtt: Duration, buffer: u64) -> Self {
        Self::of(|cx, hints| algorithm.build(cx, hints), rate.parse().unwrap(), rtt, buffer)
    }
}

impl<C: CongestionControl> Run<C> {
    pub(super) fn of(
        build: impl FnOnce(&Context, &Hints) -> C,
        rate: Rate,
        rtt: Duration,
        buffer: u64,
    ) -> Self {
        let mut cx = context();
        cx.srtt = Some(rtt);
        cx.min_rtt = Some(rtt);
        let hints = Hints { rtt: Some(rtt), ..Hints::default() };
        Self {
            cc: build(&cx, &hints),
            cx,
            rate,
            rtt,
            buffer,
            policer: None,
            loss_ppm: 0,
            ack_grid: Duration::ZERO,
            silent: false,
            app_rate: None,
            written_at: Instant::ZERO,
            rounds: 0,
            flight: VecDeque::new(),
            link_free: Instant::ZERO,
            first_sent: Instant::ZERO,
            app_limited_until: 0,
            round_end: 0,
            limited_round: 0,
            recover: 0,
        }
    }

    pub(super) fn control(&self) -> Control {
        self.cc.control()
    }

    pub(super) fn phase(&self) -> &'static str {
        self.cc.status().phase
    }

    pub(super) fn value(&self, name: &str) -> f64 {
        let values = self.cc.status().values;
        values.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no value {name}")).1
    }

    /// Returns the path's bandwidth-delay product in segments, including the serialisation delay.
    pub(super) fn bdp_segments(&self) -> f64 {
        let rtt = self.rtt + self.rate.time_for(Bytes::new(MSS));
        (self.rate * rtt).get() as f64 / MSS as f64
    }

    pub(super) fn queue_bytes(&self) -> u64 {
        (self.rate * self.link_free.saturating_since(self.cx.now)).get()
    }

    /// Makes the application write at `rate` from now on; `None` means that the application never limits the
    /// flow.
    pub(super) fn write_at(&mut self, rate: Option<Rate>) {
        self.app_rate = rate;
        self.written_at = self.cx.now;
    }

    /// Sets the link rate from now on, including for the data already in the link's queue.
    pub(super) fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
        let per_packet = rate.time_for(Bytes::new(MSS));
        let (now, rtt) = (self.cx.now, self.rtt);
        self.link_free = now;
        for acked_at in self.flight.iter_mut().filter_map(|packet| packet.acked_at.as_mut()) {
            if acked_at.saturating_sub(rtt) > now {
                self.link_free += per_packet;
                *acked_at = self.link_free + rtt;
            }
        }
    }

    /// Returns the time at which the application can write the next segment.
    fn ready_at(&self) -> Instant {
        match (self.silent, self.app_rate) {
            (true, _) => Instant::FAR_FUTURE,
            (false, Some(_)) => self.written_at,
            (false, None) => Instant::ZERO,
        }
    }

    /// Marks the oldest segments in flight lost, and then reports the loss as spurious.
    pub(super) fn take_back_losses(&mut self, segments: usize, timeout: bool) {
        let suspects: Vec<Packet> = self.flight.drain(..segments).collect();
        if !timeout {
            self.cx.in_recovery = true;
            self.cc.on_signal(&self.cx, Signal::EnterRecovery);
        }
        for packet in &suspects {
            self.lose(packet, if timeout { LossCause::Rto } else { LossCause::Rack }, true);
        }
        if timeout {
            self.cx.in_loss = true;
            self.cc.on_signal(&self.cx, Signal::Timeout { first: true });
        }
        self.cx.inflight += MSS * segments as u64;
        for packet in suspects.into_iter().rev() {
            self.flight.push_front(packet);
        }
        (self.cx.in_recovery, self.cx.in_loss) = (false, false);
        let spurious = if timeout { Signal::SpuriousTimeout } else { Signal::SpuriousRecovery };
        self.cc.on_signal(&self.cx, spurious);
    }

    /// Advances the run to the time `until`, and calls `watch` after every ACK.
    pub(super) fn until(&mut self, until: Instant, mut watch: impl FnMut(&Self)) {
        loop {
            self.send();
            let ack = self.flight.iter().find_map(|p| p.acked_at);
            let room = self.cx.inflight + MSS <= self.control().cwnd;
            let send = if room { self.cx.next_departure.max(self.ready_at()) } else { Instant::FAR_FUTURE };
            let rto = match (ack, self.flight.back()) {
                (None, Some(last)) => last.sent_at + self.rtt * 2 + ms(200),
                _ => Instant::FAR_FUTURE,
            };
            let next = ack.unwrap_or(Instant::FAR_FUTURE).min(send).min(rto);
            if next > until {
                self.cx.now = until;
                return;
            }
            self.cx.now = next;
            if ack == Some(next) {
                self.acknowledge();
                watch(self);
            } else if rto == next {
                self.time_out();
            }
        }
    }

    fn send(&mut self) {
        loop {
            let control = self.control();
            let full = self.cx.inflight + MSS > control.cwnd;
            self.limited_round = if full { self.rounds } else { self.limited_round };
            // The window was full in the current or the previous round.
            self.cx.cwnd_limited = full || self.limited_round + 1 >= self.rounds;
            if full || self.cx.next_departure > self.cx.now {
                return;
            }
            if self.ready_at() > self.cx.now {
                self.mark_app_limited();
                return;
            }
            if let Some(rate) = self.app_rate {
                self.written_at += rate.time_for(Bytes::new(MSS));
            }
            self.send_one(control);
        }
    }

    fn mark_app_limited(&mut self) {
        self.app_limited_until = (self.cx.delivered + self.cx.inflight).max(1);
        self.cx.app_limited = true;
    }

    fn send_one(&mut self, control: Control) {
        let cx = &mut self.cx;
        let first_after_idle = cx.inflight == 0;
        if first_after_idle {
            self.first_sent = cx.now;
            cx.delivered_time = cx.now;
        }
        cx.inflight += MSS;
        cx.max_inflight = cx.max_inflight.max(cx.inflight);
        if let Pacing::Rate(rate) = control.pacing {
            cx.next_departure = cx.next_departure.max(cx.now) + rate.time_for(Bytes::new(MSS));
        }
        let lucky = cx.rng.at(cx.sent / MSS) % 1_000_000 >= self.loss_ppm;
        let admitted = lucky && self.policer.as_mut().is_none_or(|p| p.admits(cx.now, MSS));
        let backlog = (self.rate * self.link_free.saturating_since(cx.now)).get();
        let acked_at = (admitted && backlog + MSS <= self.buffer.saturating_add(MSS)).then(|| {
            self.link_free = self.link_free.max(cx.now) + self.rate.time_for(Bytes::new(MSS));
            let grid = self.ack_grid.as_nanos().max(1);
            Instant::from_nanos((self.link_free + self.rtt).as_nanos().next_multiple_of(grid))
        });
        self.flight.push_back(Packet {
            offset: cx.snd_nxt,
            sent_at: cx.now,
            acked_at,
            delivered: cx.delivered,
            delivered_time: cx.delivered_time,
            first_sent: self.first_sent,
            app_limited: cx.app_limited,
            inflight: cx.inflight,
            lost: cx.lost,
        });
        let sent = Sent {
            offset: cx.snd_nxt,
            len: MSS,
            kind: SentKind::New,
            first_after_idle,
            idle: Duration::ZERO,
            departure: cx.now,
        };
        cx.snd_nxt += MSS;
        cx.sent += MSS;
        cx.flight_size = cx.snd_nxt - cx.snd_una;
        self.cc.on_send(&self.cx, &sent);
    }

    fn lose(&mut self, packet: &Packet, cause: LossCause, starts_new_range: bool) {
        self.cx.lost += MSS;
        self.cx.inflight -= MSS;
        let lost = Lost {
            offset: packet.offset,
            len: MSS,
            tx_in_flight: packet.inflight,
            lost_since_sent: self.cx.lost - packet.lost,
            app_limited: packet.app_limited,
            starts_new_range,
            cause,
        };
        self.cc.on_lost(&self.cx, &lost);
    }

    fn acknowledge(&mut self) {
        let prior_inflight = self.cx.inflight;
        // The application-limited check runs here because the connection runs it at the start of every ACK
        // (DR-12).
        if self.ready_at() > self.cx.now && prior_inflight + MSS <= self.control().cwnd {
            self.mark_app_limited();
        }
        let mut newly_lost = 0;
        let packet = loop {
            let packet = self.flight.pop_front().unwrap();
            if packet.acked_at.is_some() {
                break packet;
            }
            newly_lost += MSS;
            self.lose(&packet, LossCause::Rack, newly_lost == MSS);
        };
        let cx = &mut self.cx;
        cx.snd_una = packet.offset + MSS;
        cx.flight_size = cx.snd_nxt - cx.snd_una;
        cx.inflight -= MSS;
        cx.delivered += MSS;
        cx.delivered_time = cx.now;
        if cx.delivered > self.app_limited_until {
            cx.app_limited = false;
        }
        let rtt = cx.now.saturating_since(packet.sent_at);
        cx.srtt = Some(cx.srtt.map_or(rtt, |srtt| (srtt * 7 + rtt) / 8));
        cx.min_rtt = Some(cx.min_rtt.map_or(rtt, |min| min.min(rtt)));
        let round_start = packet.delivered >= self.round_end;
        if round_start {
            self.round_end = cx.delivered;
            self.rounds += 1;
            cx.max_inflight = cx.inflight + MSS;
        }
        let send_elapsed = packet.sent_at.saturating_since(packet.first_sent);
        let ack_elapsed = cx.now.saturating_since(packet.delivered_time);
        self.first_sent = packet.sent_at;
        let mut sample = sample(1);
        sample.newly_lost = newly_lost;
        sample.prior_inflight = prior_inflight;
        sample.lost_since_sent = cx.lost - packet.lost;
        sample.tx_in_flight = packet.inflight;
        sample.prior_delivered = packet.delivered;
        sample.delivered = cx.delivered - packet.delivered;
        sample.interval = Some(send_elapsed.max(ack_elapsed)).filter(|i| Some(*i) >= cx.min_rtt);
        sample.rtt = Some(rtt);
        sample.newest_sent_at = packet.sent_at;
        sample.app_limited = packet.app_limited;
        sample.round_start = round_start;
        self.change_phase(newly_lost);
        self.cc.on_ack(&self.cx, &sample);
        if self.control().mark_app_limited {
            self.mark_app_limited();
        }
    }

    fn change_phase(&mut self, newly_lost: u64) {
        if (self.cx.in_recovery || self.cx.in_loss) && self.cx.snd_una >= self.recover {
            let was_recovery = self.cx.in_recovery;
            (self.cx.in_recovery, self.cx.in_loss) = (false, false);
            if was_recovery {
                self.cc.on_signal(&self.cx, Signal::ExitRecovery);
            }
        }
        if newly_lost > 0 && !self.cx.in_recovery && !self.cx.in_loss {
            self.cx.in_recovery = true;
            self.recover = self.cx.snd_nxt;
            self.cc.on_signal(&self.cx, Signal::EnterRecovery);
        }
    }

    fn time_out(&mut self) {
        for packet in std::mem::take(&mut self.flight) {
            self.lose(&packet, LossCause::Rto, false);
        }
        self.recover = self.cx.snd_nxt;
        let first = !self.cx.in_loss;
        (self.cx.in_recovery, self.cx.in_loss) = (false, true);
        self.cc.on_signal(&self.cx, Signal::Timeout { first });
    }
}
