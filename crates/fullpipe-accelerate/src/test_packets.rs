//! Packets for the unit tests of several modules.

use fullpipe_tcp::wire::{Flags, Headers, Segment, SeqNum, SynOptions};
use fullpipe_units::Ecn;

/// Returns a segment without data. A SYN has the options of a typical client.
pub(crate) fn segment(seq: SeqNum, ack: SeqNum, flags: Flags) -> Segment {
    let options = SynOptions { mss: 1_460, window_scale: Some(7), sack_permitted: true };
    Segment {
        seq,
        ack,
        len: 0,
        window: 64_000,
        flags,
        timestamps: None,
        syn: flags.has(Flags::SYN).then_some(options),
        sack: Default::default(),
        ecn: Ecn::NotEct,
    }
}

/// Returns the packet of a segment without data.
pub(crate) fn packet(segment: &Segment, from: &str, to: &str) -> Vec<u8> {
    let (from, to) = (from.parse().expect("an address"), to.parse().expect("an address"));
    Headers::between(segment, from, to).expect("one family").as_bytes().to_vec()
}
