//! Events that a connection reports to its driver, besides segments and timers.

/// Event for the application or the driver. Variants are in order of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake has completed.
    Connected,
    /// The send buffer has room again after a write found it full.
    Writable,
    /// In-order data is ready to be read.
    Readable,
    /// The peer's FIN and all data before it have been received.
    PeerClosed,
    /// The peer has acknowledged all written data and the FIN.
    Finished,
    /// An ICMP error arrived ([`Connection::soft_error`](super::Connection::soft_error)); the connection
    /// continues.
    SoftError,
    /// The connection was reset, or gave up after too many timeouts. The driver can drop the connection's
    /// state.
    Aborted,
    /// The connection ended normally: both sides have closed, or a detached connection stopped waiting for
    /// the peer. The driver can drop the connection's state.
    Closed,
}

/// Set of pending events. A set is sufficient, because an application that learns of available data reads all
/// of it, regardless of the number of segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Events(u8);

impl Events {
    const ORDER: [Event; 8] = [
        Event::Connected,
        Event::Writable,
        Event::Readable,
        Event::PeerClosed,
        Event::Finished,
        Event::SoftError,
        Event::Aborted,
        Event::Closed,
    ];

    pub(crate) fn add(&mut self, event: Event) {
        self.0 |= 1 << event as u8;
    }

    pub(crate) fn remove(&mut self, event: Event) {
        self.0 &= !(1 << event as u8);
    }

    pub(crate) fn has(self, event: Event) -> bool {
        self.0 & 1 << event as u8 != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<Event> {
        if self.is_empty() {
            return None;
        }
        let first = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Self::ORDER.get(first as usize).copied()
    }
}
