//! The sizes of a full segment, where a log or a path does not name them.

use fullpipe_units::Bytes;

/// Packet size and the header bytes in it, with timestamps.
pub(crate) const MTU: u64 = 1500;
pub(crate) const HEADERS: u64 = 52;
/// TCP payload of a full segment on a 1500-byte path with time stamps.
pub const DEFAULT_MSS: Bytes = Bytes::new(1448);
