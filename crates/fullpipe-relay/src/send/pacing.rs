//! Applies the rate limit of a copy to its sockets.

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

/// Limits the rate of a socket. This is a trait because Rust libraries can set this Linux option only with
/// unsafe code.
pub trait Pacer: fmt::Debug + Send + Sync {
    /// Limits the kernel's sending rate on `socket` to `rate` from now on (`SO_MAX_PACING_RATE`).
    ///
    /// # Errors
    /// Returns the error of the kernel.
    fn pace(&self, socket: BorrowedFd<'_>, rate: Rate) -> io::Result<()>;
}

/// Functions of the kernel that a relay needs to send: samples of its sockets, and a limit of their rates.
pub trait Kernel: fmt::Debug + Send + Sync {
    /// Starts to sample the sockets of this process; `link` is the rate of the slowest link of the path, if
    /// it is known. Returns `None` if the kernel does not report sockets.
    fn sampler(&self, link: Option<Rate>) -> Option<Box<dyn Sampler>>;
    /// Returns the pacer that limits the rate of a socket.
    fn pacer(&self) -> Arc<dyn Pacer>;
}

/// Maximum rate of a copy, over all its connections.
#[derive(Clone, Debug)]
pub struct RateLimit {
    rate: Rate,
    pacer: Arc<dyn Pacer>,
}

impl RateLimit {
    /// Creates a limit of `rate`, which `pacer` enforces.
    ///
    /// # Errors
    /// Returns an error for a rate below 100 kbit/s.
    pub fn new(rate: Rate, pacer: Arc<dyn Pacer>) -> Result<Self, Error> {
        if rate < LEAST_LIMIT {
            return Err(Error::usage(
                format!("a limit of {rate} is too low for a copy"),
                format!("choose a limit of at least {LEAST_LIMIT}"),
            ));
        }
        Ok(Self { rate, pacer })
    }

    /// Returns the rate.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }
}

/// A rate limit, and the sockets that share it.
#[derive(Debug)]
pub(super) struct Pacing {
    limiter: Limiter,
    pacer: Arc<dyn Pacer>,
    sockets: BTreeMap<u32, Arc<Readiness>>,
}

impl Pacing {
    pub(super) fn new(limit: &RateLimit) -> Self {
        let pacer = Arc::clone(&limit.pacer);
        Self { limiter: Limiter::new(limit.rate), pacer, sockets: BTreeMap::new() }
    }

    /// Adds a connection; returns the time that the connection must wait before it sends.
    pub(super) fn opened(
        &mut self,
        at: Instant,
        number: u32,
        socket: &Arc<Readiness>,
    ) -> Result<Duration, Error> {
        let mss = socket.mss().map_err(failed)?;
        self.sockets.insert(number, Arc::clone(socket));
        Ok(self.limiter.start(at, mss))
    }

    /// Removes a lost connection, which closes its socket.
    pub(super) fn lost(&mut self, number: u32) {
        self.sockets.remove(&number);
    }

    /// Corrects the limit after the connections have carried `acked` since the last call.
    pub(super) fn correct(&mut self, at: Instant, acked: Bytes) {
        self.limiter.correct(at, acked);
    }

    /// Shares the limit among the open connections.
    pub(super) fn share(&mut self, demands: &[Demand]) -> Result<(), Error> {
        for (number, rate) in self.limiter.share(demands) {
            if let Some(socket) = self.sockets.get(&number) {
                self.pacer.pace(socket.socket(), rate).map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn failed(error: io::Error) -> Error {
    Error::system("limit the rate of a connection", &error)
}
