//! Listening socket, with its queues of half-open connections and of connections not yet accepted.
//!
//! ```text
//!   SYN ──► half-open (at most `backlog`) ──ACK──► waiting (at most `backlog`) ──accept──► application
//!            │ full: SYN cookie, no state          │ full: SYNs and final ACKs are dropped, the peer resends
//! ```

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use fullpipe_units::{Duration, Instant};

use super::admission::Admission;
use super::policy::ClientPrefix;
use super::{ConnId, FourTuple};
use crate::conn::Config;
use crate::wire::Segment;

/// Time after the last SYN cookie during which a reply to a cookie may arrive.
const COOKIES_COME_BACK: Duration = Duration::from_secs(120);

/// State of a listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    /// Configuration of the connections accepted on this socket.
    pub(super) config: Arc<Config>,
    /// Configurations of the connections from some clients, which replace `config`. The first prefix that contains
    /// the client's address applies.
    pub(super) policies: Vec<(ClientPrefix, Arc<Config>)>,
    /// Maximum length of the queue of half-open connections, and of the queue of connections not yet
    /// accepted.
    pub(super) backlog: usize,
    pub(super) half_open: usize,
    pub(super) waiting: VecDeque<ConnId>,
    pub(super) admission: Admission,
    /// SYNs that wait until the admission changes, at most `backlog`.
    pub(super) held: VecDeque<(FourTuple, Segment)>,
    last_cookie: Option<Instant>,
}

impl Listener {
    pub(super) fn new(config: Arc<Config>, backlog: usize) -> Self {
        Self {
            config,
            policies: Vec::new(),
            backlog: backlog.max(1),
            half_open: 0,
            waiting: VecDeque::new(),
            admission: Admission::Open,
            held: VecDeque::new(),
            last_cookie: None,
        }
    }

    /// Returns the configuration of connections from `client`.
    pub(super) fn config_of(&self, client: IpAddr) -> Arc<Config> {
        let policy = self.policies.iter().find(|(clients, _)| clients.contains(client));
        Arc::clone(policy.map_or(&self.config, |(_, config)| config))
    }

    /// Returns whether the accept queue is full, so that no connection can be completed.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= self.backlog
    }

    /// Returns whether the queue of half-open connections is full, so that a SYN gets a cookie.
    pub(super) fn is_flooded(&self) -> bool {
        self.half_open >= self.backlog
    }

    /// Returns whether a SYN can become a half-open connection at once.
    pub(super) fn opens_at_once(&self) -> bool {
        self.admission == Admission::Open && !self.is_full() && !self.is_flooded()
    }

    /// Keeps a SYN until the admission changes. A retransmitted SYN is kept only once.
    pub(super) fn hold(&mut self, tuple: FourTuple, syn: &Segment) {
        // During a flood, the queue is full, so it is not searched for each SYN.
        let full = self.held.len() >= self.backlog;
        if !full && !self.held.iter().any(|(held, _)| *held == tuple) {
            self.held.push_back((tuple, syn.clone()));
        }
    }

    pub(super) fn cookie_sent(&mut self, now: Instant) {
        self.last_cookie = Some(now);
    }

    /// Returns whether an ACK that belongs to no connection may be the reply to a SYN cookie. If no cookie
    /// was sent recently, the stack does not check ACKs, which saves a hash for each forged ACK.
    pub(super) fn expects_cookies(&self, now: Instant) -> bool {
        self.last_cookie.is_some_and(|sent| now.saturating_since(sent) <= COOKIES_COME_BACK)
    }
}
