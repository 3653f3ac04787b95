//! Waiting for connections, and the two queues of RFC 9293's passive open that a stranger can fill.
//!
//! ```text
//!   SYN ──► half-open (at most `backlog`) ──ACK──► waiting (at most `backlog`) ──accept──► the application's
//!            │ full: SYN cookie, nothing kept         │ full: SYNs and final ACKs are dropped, the peer repeats itself
//! ```

use std::collections::VecDeque;

use fullpipe_units::{Duration, Instant};

use super::ConnId;
use crate::conn::Config;

/// How long after the last SYN cookie one may still come back.
const COOKIES_COME_BACK: Duration = Duration::from_secs(120);

/// An address on which connections are accepted.
#[derive(Debug)]
pub(super) struct Listener {
    /// What its connections are told.
    pub(super) config: Config,
    /// Most half-open connections, and most that wait to be accepted.
    pub(super) backlog: usize,
    pub(super) half_open: usize,
    pub(super) waiting: VecDeque<ConnId>,
    last_cookie: Option<Instant>,
}

impl Listener {
    pub(super) fn new(config: Config, backlog: usize) -> Self {
        Self { config, backlog: backlog.max(1), half_open: 0, waiting: VecDeque::new(), last_cookie: None }
    }

    /// No connection can be completed now.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.backlog
    }

    /// No further SYN can be remembered.
    pub(super) fn is_flooded(&self) -> bool {
        self.half_open >= self.backlog
    }

    pub(super) fn cookie_sent(&mut self, now: Instant) {
        self.last_cookie = Some(now);
    }

    /// Whether an ACK out of nowhere may answer a cookie. While none was sent none is looked for: a guess costs a hash.
    pub(super) fn expects_cookies(&self, now: Instant) -> bool {
        self.last_cookie.is_some_and(|sent| now.saturating_since(sent) <= COOKIES_COME_BACK)
    }
}
