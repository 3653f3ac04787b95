//! When nothing is heard: keep-alive (RFC 9293 section 3.8.4) and the user timeout (RFC 5482).
//!
//! ```text
//!   nothing outstanding   silent for `idle` ──► probe ──`interval`──► probe … ──► reset after `probes` of them
//!                              ▲                  │ anything heard
//!                              └──────────────────┘
//!   something outstanding     retransmissions, or probes of a closed window ──► given up when the user timeout is over
//! ```
//!
//! What a packet costs for it: the time of an ACK that delivers something is written down. A probe is timed from that when its
//! timer fires, and not before.

use fullpipe_units::{Duration, Instant};

use super::timers::RetransmitTimer;
use super::{Connection, Event, ProbeKind, State};

/// Probes of an idle connection (`SO_KEEPALIVE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe (`TCP_KEEPIDLE`).
    pub idle: Duration,
    /// Between probes (`TCP_KEEPINTVL`).
    pub interval: Duration,
    /// Unanswered probes before the connection is reset (`TCP_KEEPCNT`); with a user timeout that decides instead.
    pub probes: u32,
}

impl Default for KeepAlive {
    /// Linux: two hours, then nine probes 75 s apart (`net.ipv4.tcp_keepalive_*`).
    fn default() -> Self {
        Self { idle: Duration::from_secs(7_200), interval: Duration::from_secs(75), probes: 9 }
    }
}

impl Connection {
    /// When the peer was last heard: data of any kind, or an ACK.
    pub(super) fn last_heard(&self) -> Instant {
        self.acks.last_arrival().map_or(self.heard_at, |at| at.max(self.heard_at))
    }

    /// The timer while nothing is outstanding.
    pub(super) fn silence_timer(&self) -> Option<(RetransmitTimer, Instant)> {
        let keep_alive = self.config.keep_alive?;
        self.state.carries_data().then(|| (RetransmitTimer::KeepAlive, self.last_heard() + keep_alive.idle))
    }

    pub(super) fn on_keep_alive_timeout(&mut self, now: Instant) {
        let Some(keep_alive) = self.config.keep_alive else { return };
        let silent = now.saturating_since(self.last_heard());
        if self.unanswered_probes == 0 && silent < keep_alive.idle {
            self.retransmit_timer = self.silence_timer();
            return;
        }
        // Linux: a user timeout takes the place of the number of probes.
        let gives_up = match self.config.user_timeout {
            Some(timeout) => self.unanswered_probes > 0 && silent >= timeout,
            None => self.unanswered_probes >= keep_alive.probes,
        };
        if gives_up {
            self.abort(now);
            return;
        }
        self.unanswered_probes += 1;
        self.probe_due = Some(ProbeKind::KeepAlive);
        self.retransmit_timer = Some((RetransmitTimer::KeepAlive, now + keep_alive.interval));
    }

    /// Data has been under way, or waiting for a closed window, for longer than the application puts up with: it is given up.
    pub(super) fn exceeds_user_timeout(&mut self, now: Instant) -> bool {
        let over =
            self.config.user_timeout.is_some_and(|most| now.saturating_since(self.waiting_since()) >= most);
        if over {
            self.end(now, Event::Aborted);
        }
        over
    }

    /// `at`, or the end of the user timeout if that comes first.
    pub(super) fn within_user_timeout(&self, at: Instant) -> Instant {
        self.config.user_timeout.map_or(at, |most| at.min(self.waiting_since() + most))
    }

    /// Since when the peer owes an answer: the last progress, the first transmission after a pause, or the closing of its window.
    fn waiting_since(&self) -> Instant {
        if matches!(self.state, State::SynSent | State::SynReceived) { self.opened_at } else { self.rto_base }
    }
}
