//! Sizes of segments: the default for logs and paths without a segment size, and the plausible ranges.

use std::ops::RangeInclusive;

pub use fullpipe_lab::metric::HEADERS;
use fullpipe_units::Bytes;

/// Payload length of a full-sized TCP segment with timestamps, on a path with an MTU of 1500 bytes.
pub const DEFAULT_MSS: Bytes = Bytes::new(1448);
/// Possible payload lengths of a full-sized segment, in bytes: from the minimum that Linux accepts to the
/// maximum of an IPv4 packet.
pub const POSSIBLE: RangeInclusive<u64> = 88..=65_483;
/// Payload lengths of a full-sized segment on a real path, in bytes: from the minimum that a host must accept
/// to that of a jumbo frame. A log with another value, such as that of a loopback device, does not show the
/// segment size of the path.
pub const USUAL: RangeInclusive<u64> = 500..=9_000;
