//! Packet and event counters of a stack.

/// Packet and event counters of a TCP stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of TCP packets received that are addressed to the stack and come from an address to which the
    /// stack may reply.
    pub packets_in: u64,
    /// Number of SYNs received for a listening socket that belong to no connection.
    pub syns_in: u64,
    /// Number of packets sent.
    pub packets_out: u64,
    /// Number of packets rejected because they were malformed, had a wrong checksum, or were neither TCP nor
    /// ICMP.
    pub refused: u64,
    /// Number of ignored packets: packets for other addresses, packets from addresses to which the stack may
    /// not reply, and ICMP messages that were not accepted.
    pub ignored: u64,
    /// Number of ICMP messages that a connection has accepted.
    pub complaints: u64,
    /// Number of resets sent in reply to packets that belong to no connection.
    pub resets: u64,
    /// Number of SYN cookies sent.
    pub cookies_sent: u64,
    /// Number of connections created from returned SYN cookies.
    pub cookies_accepted: u64,
    /// Number of ACKs with an invalid SYN cookie.
    pub cookies_refused: u64,
    /// Number of SYNs and final handshake ACKs dropped because the accept queue was full, and of held SYNs that
    /// were dropped.
    pub accept_overflows: u64,
    /// Number of segments whose payload was discarded because the memory of all connections was used up.
    pub out_of_memory: u64,
    /// Number of replies dropped because too many were queued.
    pub replies_dropped: u64,
}
