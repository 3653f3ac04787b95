//! Paces the sockets of a copy, and applies its rate limit.
//!
//! A connection that is not paced sends all segments that an ACK or the application releases back to back. Such a burst
//! overflows a shallow queue, and delays the packets of the other connections, which then leave slow start with a small
//! window.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::links::Sampler;
use crate::engine::{Demand, Limiter};
use crate::error::Error;
use crate::wire::Readiness;

/// Smallest rate limit, at which each of 16 connections sends a segment every two seconds.
pub(crate) const LEAST_LIMIT: Rate = Rate::from_bps(100_000);
/// Maximum pacing rate that no connection reaches. If a maximum rate is set, TCP spreads the segments of its window
/// over a round trip; without one, CUBIC does not pace (`sk_setsockopt`, `tcp_update_pacing_rate`).
const PACED: Rate = Rate::from_bps(1_000_000_000_000);

/// Minimum RTT at which a connection is paced. At a shorter RTT, a connection sends few segments at once; over loopback,
/// the kernel's pacing timer would halve the rate.
const PACED_RTT: Duration = Duration::from_millis(1);

/// Limits the rate of a socket, and reads its RTT. This is a trait because these Linux options require unsafe
/// code, which this crate forbids.
pub trait Pacer: fmt::Debug + Send + Sync {
    /// Limits the kernel's sending rate on `socket` to `rate` from now on (`SO_MAX_PACING_RATE`).
    ///
    /// # Errors
    /// Returns the error of the kernel.
    fn pace(&self, socket: BorrowedFd<'_>, rate: Rate) -> io::Result<()>;

    /// Returns the RTT that the kernel has measured on `socket`.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    fn rtt(&self, socket: BorrowedFd<'_>) -> io::Result<Duration>;
}

/// Kernel interfaces that a relay needs to send files: they sample its sockets and pace them.
pub trait Kernel: fmt::Debug + Send + Sync {
    /// Starts to sample the sockets of this process; `link` is the rate of the slowest link of the path, if
    /// it is known. Returns `None` if the kernel does not report sockets.
    fn sampler(&self, link: Option<Rate>) -> Option<Box<dyn Sampler>>;
    /// Returns the pacer that limits the rate of a socket.
    fn pacer(&self) -> Arc<dyn Pacer>;
}

/// Maximum rate of a copy, over all its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    rate: Rate,
}

impl RateLimit {
    /// Creates a limit of `rate`.
    ///
    /// # Errors
    /// Returns an error for a rate below 100 kbit/s.
    pub fn new(rate: Rate) -> Result<Self, Error> {
        if rate < LEAST_LIMIT {
            return Err(Error::usage(
                format!("a limit of {rate} is too low for a copy"),
                format!("choose a limit of at least {LEAST_LIMIT}"),
            ));
        }
        Ok(Self { rate })
    }

    /// Returns the rate.
    pub(crate) fn rate(self) -> Rate {
        self.rate
    }
}

/// Paced sockets, and the rate limit that they share.
#[derive(Debug)]
pub(super) struct Pacing {
    limiter: Option<Limiter>,
    pacer: Arc<dyn Pacer>,
    sockets: BTreeMap<u32, Arc<Readiness>>,
}

impl Pacing {
    pub(super) fn new(pacer: &Arc<dyn Pacer>, limit: Option<RateLimit>) -> Self {
        let limiter = limit.map(|limit| Limiter::new(limit.rate));
        Self { limiter, pacer: Arc::clone(pacer), sockets: BTreeMap::new() }
    }

    /// Returns whether the rate of the copy is limited.
    pub(super) fn is_limiting(&self) -> bool {
        self.limiter.is_some()
    }

    /// Adds a connection; returns the time that the connection must wait before it sends.
    pub(super) fn opened(
        &mut self,
        at: Instant,
        number: u32,
        socket: &Arc<Readiness>,
    ) -> Result<Duration, Error> {
        let Some(limiter) = &mut self.limiter else {
            if self.pacer.rtt(socket.socket()).map_err(failed)? >= PACED_RTT {
                self.pacer.pace(socket.socket(), PACED).map_err(failed)?;
            }
            return Ok(Duration::ZERO);
        };
        let mss = socket.mss().map_err(failed)?;
        self.sockets.insert(number, Arc::clone(socket));
        Ok(limiter.start(at, mss))
    }

    /// Removes a lost connection, which closes its socket.
    pub(super) fn lost(&mut self, number: u32) {
        self.sockets.remove(&number);
    }

    /// Corrects the limit after the connections have sent `sent` since the last call.
    pub(super) fn correct(&mut self, at: Instant, sent: Bytes) {
        if let Some(limiter) = &mut self.limiter {
            limiter.correct(at, sent);
        }
    }

    /// Shares the limit among the open connections.
    pub(super) fn share(&mut self, demands: &[Demand]) -> Result<(), Error> {
        let Some(limiter) = &mut self.limiter else { return Ok(()) };
        for (number, rate) in limiter.share(demands) {
            if let Some(socket) = self.sockets.get(&number) {
                self.pacer.pace(socket.socket(), rate).map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn failed(error: io::Error) -> Error {
    Error::system("pace a connection", &error)
}
