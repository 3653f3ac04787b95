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

use super::Connection;
use super::sender::RetransmitTimer;
use crate::recovery::probe::ProbeKind;

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
    fn last_heard(&self) -> Instant {
        let heard_at = self.sender.heard_at;
        self.receiver.acks.last_arrival().map_or(heard_at, |at| at.max(heard_at))
    }

    /// Sets the timer of an idle connection, if probes were asked for and the sending half waits for nothing.
    #[inline(always)]
    pub(super) fn watch_silence(&mut self) {
        if let Some(keep_alive) = self.config.keep_alive {
            self.arm_keep_alive(keep_alive);
        }
    }

    #[cold]
    fn arm_keep_alive(&mut self, keep_alive: KeepAlive) {
        if self.sender.waits_for_nothing() && self.lifecycle.state.carries_data() {
            self.sender.timer = Some((RetransmitTimer::KeepAlive, self.last_heard() + keep_alive.idle));
        }
    }

    pub(super) fn on_keep_alive_timeout(&mut self, now: Instant) {
        let Some(keep_alive) = self.config.keep_alive else { return };
        let silent = now.saturating_since(self.last_heard());
        let unanswered = self.sender.probes.unanswered();
        if unanswered == 0 && silent < keep_alive.idle {
            // Heard since the timer was set.
            self.watch_silence();
            return;
        }
        // Linux: a user timeout takes the place of the number of probes.
        let gives_up = match self.config.user_timeout {
            Some(timeout) => unanswered > 0 && silent >= timeout,
            None => unanswered >= keep_alive.probes,
        };
        if gives_up {
            self.abort(now);
            return;
        }
        self.sender.probes.request(ProbeKind::KeepAlive);
        self.sender.timer = Some((RetransmitTimer::KeepAlive, now + keep_alive.interval));
    }
}
