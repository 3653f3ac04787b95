//! What answers a segment that no connection takes (RFC 9293 section 3.10.7.1): a reset whose numbers its sender must
//! believe.
//!
//! ```text
//!   RST               nothing: a reset is never answered, or two hosts would go on for ever
//!   ACK               <SEQ=SEG.ACK><RST>                              the number that its sender expects next
//!   neither           <SEQ=0><ACK=SEG.SEQ+SEG.LEN><RST,ACK>           acknowledges all of it: believed in SYN-SENT
//! ```

use fullpipe_units::Ecn;

use crate::wire::{Flags, SackBlocks, Segment, SeqNum};

/// The reset for `segment`, which arrived at a port where nobody listens (TCP-4) or, with an ACK, where somebody listens
/// and no connection of the kind is known (TCP-3). `None` if `segment` is a reset itself.
///
/// A function of the segment alone: whoever answers so keeps no state, and sends one small segment for one.
pub fn reset_for(segment: &Segment) -> Option<Segment> {
    if segment.flags.has(Flags::RST) {
        return None;
    }
    Some(if segment.flags.has(Flags::ACK) {
        bare(segment.ack, None)
    } else {
        bare(SeqNum(0), Some(segment.seq.plus(segment.seq_len())))
    })
}

/// A reset at `seq` without options.
pub(super) fn bare(seq: SeqNum, ack: Option<SeqNum>) -> Segment {
    Segment {
        seq,
        ack: ack.unwrap_or_default(),
        len: 0,
        window: 0,
        flags: if ack.is_some() { Flags::RST.with(Flags::ACK) } else { Flags::RST },
        timestamps: None,
        syn: None,
        sack: SackBlocks::default(),
        ecn: Ecn::NotEct,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(flags: Flags, seq: u32, ack: u32, len: u32) -> Segment {
        Segment { len, flags, ..bare(SeqNum(seq), Some(SeqNum(ack))) }
    }

    /// TCP-4: without an ACK everything is acknowledged, SYN and FIN counted; with one the reset stands where its sender
    /// expects the next octet. Sequence numbers wrap.
    #[test]
    fn tcp_4_a_closed_port() {
        for (arrives, answer) in [
            (segment(Flags::SYN, 100, 0, 0), bare(SeqNum(0), Some(SeqNum(101)))),
            (segment(Flags::SYN.with(Flags::FIN), u32::MAX, 0, 10), bare(SeqNum(0), Some(SeqNum(11)))),
            (segment(Flags::default(), 100, 0, 7), bare(SeqNum(0), Some(SeqNum(107)))),
            (segment(Flags::ACK, 100, 300, 7), bare(SeqNum(300), None)),
            (segment(Flags::SYN.with(Flags::ACK), 100, 300, 0), bare(SeqNum(300), None)),
        ] {
            assert_eq!(reset_for(&arrives), Some(answer.clone()), "{arrives:?}");
            assert_eq!(reset_for(&answer), None, "a reset is not answered");
        }
    }
}
