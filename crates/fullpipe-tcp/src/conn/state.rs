//! The states of a connection.

/// States of RFC 9293 section 3.3.2.
///
/// ```text
///                Listen ◄──────reset──────┐
///                   │ SYN                 │
///   Closed ──open─► SynSent ──SYN────► SynReceived
///                      │ SYN-ACK          │ ACK, or the SYN-ACK of who opened at the same time
///                      └────────► Established
///                         close │          │ FIN
///                               ▼          ▼
///                   ┌──FIN── FinWait1   CloseWait
///                   ▼           │ ACK      │ close
///                Closing        ▼          ▼
///                   │ ACK    FinWait2   LastAck ──ACK──► Closed
///                   ▼           │ FIN
///                TimeWait ◄─────┘   (from FinWait1 at once if one segment brings ACK and FIN)
///                   └──2 MSL, or a SYN that opens a new one──► Closed
///
///   any ──reset, or nothing heard for too long──► Closed
/// ```
/// `close` moves to [`State::FinWait1`] or [`State::LastAck`] when it is called; the FIN leaves behind the last byte that was
/// written. Between [`State::Established`] and [`State::LastAck`] segments are handled alike: what the halves still allow
/// decides what comes of them, and [`Event::Finished`](super::Event::Finished) and
/// [`Event::PeerClosed`](super::Event::PeerClosed) say how far each of them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not opened yet, or over.
    Closed,
    /// Waiting for a SYN.
    Listen,
    /// SYN sent.
    SynSent,
    /// SYN received and answered.
    SynReceived,
    /// Data may flow both ways.
    Established,
    /// This side has closed; its FIN is not acknowledged.
    FinWait1,
    /// This side has closed, and the peer knows it.
    FinWait2,
    /// The peer has closed.
    CloseWait,
    /// Both sides have closed at the same time; our FIN is not acknowledged.
    Closing,
    /// This side has closed after the peer; our FIN is not acknowledged.
    LastAck,
    /// Both sides have closed, this one first: what is still on its way must not meet a new connection.
    TimeWait,
}

impl State {
    /// Both sides have agreed on sequence numbers, and one of them may still have data under way.
    #[inline]
    pub(super) const fn carries_data(self) -> bool {
        let state = self as u8;
        state >= Self::Established as u8 && state <= Self::LastAck as u8
    }
}
