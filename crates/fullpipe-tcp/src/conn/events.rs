//! What a connection tells its driver, beside segments and timers.

/// What happened that the application or the driver should know, in the order in which it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete.
    Connected,
    /// A write that found the buffer full can go on.
    Writable,
    /// In-order data waits to be read.
    Readable,
    /// The peer will send no more, and all it sent has been received.
    PeerClosed,
    /// All that was written has been acknowledged, the end included.
    Finished,
    /// Somebody on the way complains ([`Connection::soft_error`](super::Connection::soft_error)); the connection goes on.
    SoftError,
    /// The connection was reset or gave up: nothing of it needs to be kept.
    Aborted,
    /// The connection is over, after both sides have closed or once nobody waits for the peer any more: nothing of it needs
    /// to be kept.
    Closed,
}

/// What happened and was not told yet. A set: whoever hears that data waits reads all of it, however many
/// segments brought it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Events(u8);

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

    pub(super) fn add(&mut self, event: Event) {
        self.0 |= 1 << event as u8;
    }

    #[inline]
    pub(super) fn take(&mut self) -> Option<Event> {
        if self.0 == 0 {
            return None;
        }
        let first = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Self::ORDER.get(first as usize).copied()
    }
}
