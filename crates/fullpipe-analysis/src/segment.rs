//! Default segment sizes, for logs and paths without one.

use fullpipe_units::Bytes;

/// Length of the IP and TCP headers of a packet in bytes, including TCP timestamps.
pub(crate) const HEADERS: u64 = 52;
/// TCP payload of a full segment with timestamps, on a path with an MTU of 1500 bytes.
pub const DEFAULT_MSS: Bytes = Bytes::new(1448);
