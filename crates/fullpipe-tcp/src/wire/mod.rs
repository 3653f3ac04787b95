//! Wire format: sequence numbers and headers of segments, as values and as bytes.

pub mod checksum;
mod headers;
mod icmp;
mod options;
mod packet;
mod segment;
mod seq;

pub use headers::{Dscp, Headers, IpChoices};
pub use icmp::{IcmpError, IcmpMessage};
pub use options::{OptionError, Options};
pub use packet::{Checksums, Packet, PacketError};
pub use segment::{Flags, SackBlocks, Segment, SynOptions, Timestamps, reported_duplicate};
pub use seq::SeqNum;
