//! A driver for tests of controllers: one controller, a `Context`, and either ACKs by hand or a
//! virtual path that makes them.
//!
//! ```text
//!   controller ──► pacer, window ──► policer ──► queue + link ──► delay ──► ACK ──► controller
//! ```
//!
//! Segments are delivered in order, one ACK each; what a later ACK passes over was lost. What was lost
//! is not sent again: the next segment stands for it, which makes no difference to a controller.

use std::collections::VecDeque;

use fullpipe_units::{Bytes, Draws, Duration, Instant, Rate};

use super::{
    AckSample, Algorithm, CongestionControl, Context, Control, Hints, LossCause, Lost, Pacing, Sent,
    SentKind, Signal,
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

/// What an ACK for `segments` new segments says, if nothing else is known.
pub(super) fn sample(segments: u64) -> AckSample {
    AckSample {
        cum_acked: segments * MSS,
        sacked: 0,
        acked_segments: segments,
        una_advanced: segments > 0,
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
        ce_bytes: 0,
        app_limited: false,
        spurious: false,
        round_start: false,
    }
}

/// ACKs by hand.
pub(super) struct Bench<C> {
    pub(super) cx: Context,
    pub(super) cc: C,
}

impl<C: CongestionControl> Bench<C> {
    pub(super) fn new(segments: u64, build: impl FnOnce(&Context, &Hints) -> C) -> Self {
        let mut cx = context();
        cx.srtt = Some(ms(100));
        cx.min_rtt = Some(ms(100));
        let hints = Hints { rtt: Some(ms(100)), initial_cwnd: Some(segments * MSS) };
        Self { cc: build(&cx, &hints), cx }
    }

    /// In segments.
    pub(super) fn cwnd(&self) -> u64 {
        self.cc.control().cwnd / MSS
    }

    /// In segments.
    pub(super) fn ssthresh(&self) -> u64 {
        self.cc.control().ssthresh / MSS
    }

    pub(super) fn ack(&mut self, segments: u64) {
        self.cc.on_ack(&self.cx, &sample(segments));
    }

    /// `count` ACKs of one segment each, at one instant.
    pub(super) fn acks(&mut self, count: u64) {
        (0..count).for_each(|_| self.ack(1));
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        self.cc.on_signal(&self.cx, signal);
    }

    /// A loss, and the whole recovery from it.
    pub(super) fn lose(&mut self) {
        self.signal(Signal::EnterRecovery);
        self.signal(Signal::ExitRecovery);
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.cx.now += time;
    }
}

struct Packet {
    offset: u64,
    sent_at: Instant,
    /// `None`: dropped.
    acked_at: Option<Instant>,
    delivered: u64,
    delivered_time: Instant,
    first_sent: Instant,
    app_limited: bool,
    inflight: u64,
}

/// A token bucket that drops what exceeds it.
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

/// A controller on a virtual path.
pub(super) struct Run {
    pub(super) cx: Context,
    pub(super) cc: Box<dyn CongestionControl>,
    pub(super) rate: Rate,
    pub(super) rtt: Duration,
    /// Capacity of the queue in bytes.
    pub(super) buffer: u64,
    pub(super) policer: Option<Policer>,
    /// The application writes nothing from now on.
    pub(super) silent: bool,
    pub(super) rounds: u64,
    flight: VecDeque<Packet>,
    link_free: Instant,
    first_sent: Instant,
    app_limited_until: u64,
    round_end: u64,
    recover: u64,
}

impl Run {
    pub(super) fn new(algorithm: Algorithm, rate: &str, rtt: Duration, buffer: u64) -> Self {
        let mut cx = context();
        cx.srtt = Some(rtt);
        cx.min_rtt = Some(rtt);
        let hints = Hints { rtt: Some(rtt), initial_cwnd: None };
        Self {
            cc: algorithm.build(&cx, &hints),
            cx,
            rate: rate.parse().unwrap(),
            rtt,
            buffer,
            policer: None,
            silent: false,
            rounds: 0,
            flight: VecDeque::new(),
            link_free: Instant::ZERO,
            first_sent: Instant::ZERO,
            app_limited_until: 0,
            round_end: 0,
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

    /// The path's own bandwidth-delay product in segments, serialisation included.
    pub(super) fn bdp_segments(&self) -> f64 {
        let rtt = self.rtt + self.rate.time_for(Bytes::new(MSS));
        (self.rate * rtt).get() as f64 / MSS as f64
    }

    pub(super) fn queue_bytes(&self) -> u64 {
        (self.rate * self.link_free.saturating_since(self.cx.now)).get()
    }

    /// Goes on until `until`; `watch` looks after every ACK.
    pub(super) fn until(&mut self, until: Instant, mut watch: impl FnMut(&Self)) {
        loop {
            self.send();
            let ack = self.flight.iter().find_map(|p| p.acked_at);
            let room = self.cx.inflight + MSS <= self.control().cwnd && !self.silent;
            let send = if room { self.cx.next_departure } else { Instant::FAR_FUTURE };
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
            self.cx.cwnd_limited = self.cx.inflight + MSS > control.cwnd;
            if self.cx.cwnd_limited || self.cx.next_departure > self.cx.now {
                return;
            }
            if self.silent {
                self.app_limited_until = (self.cx.delivered + self.cx.inflight).max(1);
                self.cx.app_limited = true;
                return;
            }
            self.send_one(control);
        }
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
        let admitted = self.policer.as_mut().is_none_or(|p| p.admits(cx.now, MSS));
        let backlog = (self.rate * self.link_free.saturating_since(cx.now)).get();
        let acked_at = (admitted && backlog + MSS <= self.buffer.saturating_add(MSS)).then(|| {
            self.link_free = self.link_free.max(cx.now) + self.rate.time_for(Bytes::new(MSS));
            self.link_free + self.rtt
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
        });
        let sent =
            Sent { offset: cx.snd_nxt, len: MSS, kind: SentKind::New, first_after_idle, departure: cx.now };
        cx.snd_nxt += MSS;
        cx.sent += MSS;
        cx.flight_size = cx.snd_nxt - cx.snd_una;
        self.cc.on_send(&self.cx, &sent);
    }

    fn lose(&mut self, packet: &Packet, cause: LossCause) {
        self.cx.lost += MSS;
        self.cx.inflight -= MSS;
        let lost = Lost {
            offset: packet.offset,
            len: MSS,
            tx_in_flight: packet.inflight,
            lost_since_sent: MSS,
            app_limited: packet.app_limited,
            starts_new_range: true,
            cause,
        };
        self.cc.on_lost(&self.cx, &lost);
    }

    fn acknowledge(&mut self) {
        let prior_inflight = self.cx.inflight;
        let mut newly_lost = 0;
        let packet = loop {
            let packet = self.flight.pop_front().unwrap();
            if packet.acked_at.is_some() {
                break packet;
            }
            newly_lost += MSS;
            self.lose(&packet, LossCause::Rack);
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
            self.lose(&packet, LossCause::Rto);
        }
        self.recover = self.cx.snd_nxt;
        let first = !self.cx.in_loss;
        (self.cx.in_recovery, self.cx.in_loss) = (false, true);
        self.cc.on_signal(&self.cx, Signal::Timeout { first });
    }
}
