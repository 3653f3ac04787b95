//! One TCP connection, assembled from the parts of the engine.
//!
//! ```text
//!   write(n) ─► queue ─► build ─► [ lost first, then new ] ─► pacer ─► poll_transmit
//!                                        ▲                                │
//!   poll_event ◄── window, queue         │ losses                         ▼ wire
//!                                    recovery ◄── scoreboard ◄──── handle_segment
//!                                        │ ACK samples                    ▲
//!                                        ▼                                │
//!                              congestion control ─► control ─► build, pacer
//! ```
//!
//! A connection has four parts. Each part owns its fields. The parts exchange values, but do not access each
//! other's fields:
//!
//! | part | responsibility |
//! |---|---|
//! | `handshake.rs` | SYN and SYN-ACK, and the options they negotiate |
//! | `sender/` | data written and sent, losses, and how much may be sent |
//! | `receiver.rs` | data received, ACKs, and the advertised window |
//! | `close.rs` (`Lifecycle`) | the state of RFC 9293, resets, and TIME-WAIT |
//!
//! A connection handles stream offsets, never payload bytes. The caller passes the time, because a connection
//! reads no clock. The driver calls
//!
//! 1. `handle_segment` when a segment arrives, and `write`, `read` or `close` when the application acts,
//! 2. `handle_timeout` when the time of `poll_timeout` is reached,
//!
//! and then `poll_transmit` until it returns `None`. Before `poll_transmit`, the driver calls `poll_event`,
//! so that the application can reply. After `poll_transmit`, it calls `poll_event` again, because sending may
//! make the socket writable.
//!
//! The memory of a connection stays within these bounds, regardless of the peer's behaviour
//! (`tests/limits.rs`):
//!
//! | state | bound |
//! |---|---|
//! | unread payload, holes included | the advertised window, which the receive buffer bounds |
//! | out-of-order ranges | one per 832 bytes of receive buffer, at least 64 |
//! | SACK and D-SACK ranges to report | 4 and 1 |
//! | records of sent segments | data written: the send buffer in segments of at least 48 bytes |
//! | ranges that the peer has SACKed | one more than there are records |
//! | losses to retransmit, retransmissions that RACK times | two per record |
//! | pending resets and ACKs | one each; at most one challenge ACK per 0.5 s |

mod carried;
mod close;
mod config;
mod ecn;
mod events;
mod half_open;
mod handshake;
mod icmp;
mod input;
mod liveness;
mod output;
mod paths;
mod prediction;
mod receiver;
mod report;
mod reset;
mod sender;
mod state;
#[cfg(test)]
mod tests;
mod time_wait;
mod timers;

use std::sync::Arc;

use fullpipe_units::{Draws, Instant};

use crate::tx::Transmit;
use crate::wire::{IcmpError, IpChoices};

pub use carried::Accepted;
use close::Lifecycle;
pub use config::{Config, IpVersion};
pub use events::Event;
pub(crate) use events::Events;
pub(crate) use half_open::HandshakeProgress;
use handshake::Handshake;
pub use liveness::{KeepAlive, Probe};
use receiver::Receiver;
pub use report::{ReceiverSnapshot, Snapshot, Stats};
pub use reset::reset_for;
use sender::Sender;
pub use state::State;
pub use time_wait::{TimeWait, TimeWaitVerdict};

/// State machine of one TCP connection.
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    handshake: Handshake,
    sender: Sender,
    receiver: Receiver,
    lifecycle: Lifecycle,
    events: Events,
    /// Last ICMP error other than "too big".
    soft_error: Option<IcmpError>,
}

/// Returns the random number generator of a connection with this seed.
fn draws(seed: u64) -> Draws {
    Draws::new(seed, 0x7463_7000)
}

impl Connection {
    /// Creates the active side of a connection. [`Connection::open`] starts the handshake.
    pub fn client(config: Config) -> Self {
        let draws = draws(config.seed);
        Self::new(Arc::new(config), draws, State::Closed)
    }

    /// Creates the passive side of a connection, in state [`State::Listen`].
    pub fn server(config: Config) -> Self {
        let seed = config.seed;
        Self::server_with(Arc::new(config), seed)
    }

    /// Creates the passive side of a connection whose configuration is shared with other connections. `seed`
    /// replaces the seed of the configuration.
    pub(crate) fn server_with(config: Arc<Config>, seed: u64) -> Self {
        Self::new(config, draws(seed), State::Listen)
    }

    fn new(config: Arc<Config>, draws: Draws, state: State) -> Self {
        let mss = config.mtu.saturating_sub(config.ip.headers() + 12).max(48);
        let passive = state == State::Listen;
        Self {
            handshake: Handshake::new(passive),
            sender: Sender::new(config.clone(), draws, mss),
            receiver: Receiver::new(&config, passive, mss),
            lifecycle: Lifecycle::new(state),
            events: Events::default(),
            soft_error: None,
            config,
        }
    }

    /// Frees memory that the connection needs only while data is outstanding. The next transmission allocates
    /// the memory again, so call this function only for idle connections.
    pub fn free_idle_memory(&mut self) {
        if self.sender.flight_size() == 0 {
            self.sender.free_idle_memory();
        }
    }

    /// Returns the TCP state of the connection.
    pub fn state(&self) -> State {
        self.lifecycle.state
    }

    /// Returns the IP header fields from the configuration.
    pub(crate) fn ip_choices(&self) -> IpChoices {
        self.config.ip_choices
    }

    /// Returns the payload length of a full-sized segment, in bytes.
    pub fn mss(&self) -> u64 {
        self.sender.mss
    }

    /// Offers `len` bytes to the send buffer and returns the number of bytes accepted. After a partial write,
    /// [`Event::Writable`] reports when there is room again.
    pub fn write(&mut self, len: u64) -> u64 {
        self.sender.write(len)
    }

    /// Returns whether the send buffer is full; only a partly filled skb then accepts more data. An
    /// application can detect a full buffer only by another write, which takes time.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.sender.queue.is_full(self.sender.snd_nxt())
    }

    /// Returns whether the socket is writable: at least a third of the send buffer is free. If not,
    /// [`Event::Writable`] reports when it becomes writable.
    #[inline]
    pub fn wait_for_room(&mut self) -> bool {
        self.sender.queue.wait_for_room(self.sender.fresh.snd_nxt())
    }

    /// Returns the number of in-order bytes ready to be read by the application.
    #[inline]
    pub fn readable(&self) -> u64 {
        self.receiver.readable()
    }

    /// Reads up to `len` in-order bytes and returns the number read. Reading may open the receive window.
    #[inline]
    pub fn read(&mut self, now: Instant, len: u64) -> u64 {
        self.receiver.read(now, len)
    }

    /// Returns the number of in-order payload bytes received, excluding the FIN.
    #[inline]
    pub fn received(&self) -> u64 {
        self.receiver.received()
    }

    /// Returns the number of bytes that the peer has acknowledged, excluding the FIN.
    pub fn acknowledged(&self) -> u64 {
        self.sender.snd_una.min(self.sender.queue.written())
    }

    /// Returns the next pending event, in the order of [`Event`]. An event that has occurred several times
    /// since the last call is returned only once.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.take()
    }

    /// Checks the invariants of the connection, for tests.
    ///
    /// # Panics
    ///
    /// Panics if an invariant is violated.
    #[doc(hidden)]
    pub fn check(&self) {
        self.sender.check();
        self.receiver.reassembly.check();
    }
}
