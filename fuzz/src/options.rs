//! Fuzz target that parses octets as options, and encodes the result again.

use fullpipe_tcp::wire::{Flags, Options, Segment, SeqNum, SynOptions};

use super::wire::read_again;

/// Checks that options which the parser accepts read the same after our headers have encoded them.
pub fn run(data: &[u8]) {
    let Ok(options) = Options::parse(data) else { return };
    assert!(options.sack.len() <= 4);
    let plain = Segment {
        seq: SeqNum(1),
        ack: SeqNum(2),
        len: 0,
        window: 3,
        flags: Flags::ACK,
        timestamps: options.timestamps,
        syn: None,
        sack: options.sack,
        ecn: Default::default(),
    };
    read_again(&plain);
    let offer = SynOptions {
        mss: options.mss.unwrap_or(0),
        window_scale: options.window_scale,
        sack_permitted: options.sack_permitted,
    };
    read_again(&Segment {
        flags: Flags::SYN.with(Flags::ACK),
        syn: Some(offer),
        sack: Default::default(),
        ..plain
    });
}
