//! States of a TCP connection (RFC 9293 section 3.3.2).

/// Connection state (RFC 9293 section 3.3.2).
///
/// ```text
///                Listen ◄──────reset──────┐
///                   │ SYN                 │
///   Closed ──open─► SynSent ──SYN────► SynReceived
///                      │ SYN-ACK          │ ACK, or the SYN-ACK of a simultaneous open
///                      └────────► Established
///                         close │          │ FIN
///                               ▼          ▼
///                   ┌──FIN── FinWait1   CloseWait
///                   ▼           │ ACK      │ close
///                Closing        ▼          ▼
///                   │ ACK    FinWait2   LastAck ──ACK──► Closed
///                   ▼           │ FIN
///                TimeWait ◄─────┘   (from FinWait1 at once if one segment brings ACK and FIN)
///                   └──2 MSL, or a SYN that opens a new connection──► Closed
///
///   any ──reset, or no answer for too long──► Closed
/// ```
/// `close` moves to [`State::FinWait1`] or [`State::LastAck`] at once; the FIN leaves with the last byte
/// written. From [`State::Established`] to [`State::LastAck`], all segments are handled in the same way,
/// because the sending half and the receiving half decide what is still allowed.
/// [`Event::Finished`](super::Event::Finished) reports that the peer has acknowledged our FIN, and
/// [`Event::PeerClosed`](super::Event::PeerClosed) that the peer's FIN has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The connection is not open yet, or has ended.
    Closed,
    /// The connection waits for a SYN.
    Listen,
    /// A SYN has been sent.
    SynSent,
    /// A SYN has been received and answered.
    SynReceived,
    /// Data may flow in both directions.
    Established,
    /// This side has closed, and its FIN is not acknowledged yet.
    FinWait1,
    /// This side has closed, and the peer has acknowledged the FIN.
    FinWait2,
    /// The peer has closed; this side has not.
    CloseWait,
    /// Both sides have closed simultaneously, and our FIN is not acknowledged yet.
    Closing,
    /// This side has closed after the peer, and our FIN is not acknowledged yet.
    LastAck,
    /// Both sides have closed, this side first. The state prevents delayed segments from reaching a new
    /// connection.
    TimeWait,
}

impl State {
    /// Returns whether both sides have agreed on sequence numbers and data may still flow in at least one
    /// direction.
    #[inline]
    pub(super) const fn carries_data(self) -> bool {
        let state = self as u8;
        state >= Self::Established as u8 && state <= Self::LastAck as u8
    }
}
