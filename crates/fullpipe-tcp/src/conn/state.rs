//! The states of a connection.

/// States of RFC 9293 section 3.3.2, as far as they differ for a transfer.
///
/// ```text
///   Listen ──SYN──► SynReceived ──ACK──► Established ──reset, gave up──► Closed
///   Closed ──open──► SynSent ──SYN-ACK──────►┘
/// ```
/// Which of the two FINs came first matters to TIME-WAIT only, which a simulator has no use for: each
/// half closes by itself, and says so by [`Event::Finished`] and [`Event::PeerClosed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waiting for a SYN.
    Listen,
    /// SYN sent.
    SynSent,
    /// SYN received and answered.
    SynReceived,
    /// Data may flow.
    Established,
    /// Not opened yet, reset, or given up.
    Closed,
}
