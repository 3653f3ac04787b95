//! Reset in reply to a segment that belongs to no connection (RFC 9293 section 3.10.7.1). The sequence
//! numbers of the reset are acceptable to the sender of that segment.
//!
//! ```text
//!   RST               no answer: a reset is never answered, or two hosts would exchange resets forever
//!   ACK               <SEQ=SEG.ACK><RST>                        the number that its sender expects next
//!   neither           <SEQ=0><ACK=SEG.SEQ+SEG.LEN><RST,ACK>     acknowledges all of it: accepted in SYN-SENT
//! ```

use fullpipe_units::Ecn;

use crate::wire::{Flags, SackBlocks, Segment, SeqNum};

/// Returns the reset to send in reply to `segment`, or `None` if `segment` is itself a reset. The function is
/// intended for a segment that arrives at a closed port (RFC 9293 section 3.10.7.1, TCP-4), and for an ACK
/// that arrives at a listening port and belongs to no connection (section 3.10.7.2, TCP-3).
///
/// The reset depends only on `segment`: the host keeps no state and answers each segment with one small
/// segment.
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

/// Builds a reset with sequence number `seq`, without TCP options.
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

    /// The reset in response to a segment without an ACK acknowledges the whole segment, including SYN and
    /// FIN (RFC 9293 section 3.10.7.1; TCP-4). The reset in response to an ACK carries the sequence number
    /// that the sender of the ACK expects next. Sequence numbers wrap around.
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
