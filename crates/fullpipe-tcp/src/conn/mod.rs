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
//! It has four parts with fields of their own, which exchange values and do not know of each other:
//!
//! | part | what it is about |
//! |---|---|
//! | `handshake.rs` | SYN and SYN-ACK, and what they agree on |
//! | `sender/` | what was written and sent, what is lost, how much may be sent |
//! | `receiver.rs` | what has arrived, what is acknowledged, which window is offered |
//! | `close.rs` (`Lifecycle`) | the state of RFC 9293, and what is left in the end |
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
mod liveness;
mod output;
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
use events::Events;
use handshake::Handshake;
pub use liveness::KeepAlive;
use receiver::Receiver;
pub use report::{ReceiverSnapshot, Snapshot, Stats};
pub use reset::reset_for;
use sender::Sender;
pub use state::State;
pub use time_wait::{TimeWait, TimeWaitVerdict};

/// One TCP connection.
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    handshake: Handshake,
    sender: Sender,
    receiver: Receiver,
    lifecycle: Lifecycle,
    events: Events,
    /// What was last heard of the path.
    soft_error: Option<IcmpError>,
}

impl Connection {
    /// The side that connects. Call [`Connection::open`] to begin.
    pub fn client(config: Config) -> Self {
        Self::new(Arc::new(config), State::Closed)
    }

    /// The side that waits for a SYN.
    pub fn server(config: Config) -> Self {
        Self::new(Arc::new(config), State::Listen)
    }

    fn new(config: Arc<Config>, state: State) -> Self {
        let draws = Draws::new(config.seed, 0x7463_7000);
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

    /// The state of the connection.
    pub fn state(&self) -> State {
        self.lifecycle.state
    }

    /// What its packets have in the IP header.
    pub(crate) fn ip_choices(&self) -> IpChoices {
        self.config.ip_choices
    }

    /// Payload bytes of a full segment.
    pub fn mss(&self) -> u64 {
        self.sender.mss
    }

    /// Offers `len` bytes to the send buffer; returns how many it took. When it took fewer,
    /// [`Event::Writable`] says when to go on.
    pub fn write(&mut self, len: u64) -> u64 {
        self.sender.write(len)
    }

    /// The send buffer is full: only an skb that has been begun still takes data. Who writes on finds
    /// out by the time that writing takes.
    pub fn is_full(&self) -> bool {
        self.sender.queue.is_full(self.sender.snd_nxt())
    }

    /// Whether a third of the send buffer is free, which is when a socket counts as writable. If not,
    /// [`Event::Writable`] says when it is.
    pub fn wait_for_room(&mut self) -> bool {
        self.sender.queue.wait_for_room(self.sender.fresh.snd_nxt())
    }

    /// Bytes that wait to be read.
    pub fn readable(&self) -> u64 {
        self.receiver.readable()
    }

    /// Takes up to `len` in-order bytes; returns how many. May open the window.
    #[inline]
    pub fn read(&mut self, now: Instant, len: u64) -> u64 {
        self.receiver.read(now, len)
    }

    /// In-order payload bytes received, the FIN not counted.
    pub fn received(&self) -> u64 {
        self.receiver.received()
    }

    /// Bytes acknowledged by the peer, the FIN not counted.
    pub fn acknowledged(&self) -> u64 {
        self.sender.snd_una.min(self.sender.queue.written())
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
        self.sender.check();
        self.receiver.reassembly.check();
    }
}
