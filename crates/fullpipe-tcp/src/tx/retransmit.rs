//! Retransmission: which lost range is sent next, and how it is sent. Nothing here marks data lost (`recovery/`).

use fullpipe_units::Ecn;

use super::{Departure, Transmit};
use crate::cc::SentKind;
use crate::estimate::DeliveryRate;
use crate::recovery::LossRecovery;
use crate::recovery::scoreboard::{RecordNo, RecordState, Scoreboard};
use crate::wire::Flags;

/// What the sender is to retransmit beside what is marked lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retransmission {
    /// A timeout expired: the next retransmission leaves whatever the windows say.
    forced: bool,
}

/// A retransmission that leaves.
pub(crate) struct Retransmitted {
    pub(crate) transmit: Transmit,
    /// Offset of its first octet.
    pub(crate) offset: u64,
    /// Its octets of sequence space.
    pub(crate) len: u64,
}

impl Retransmission {
    /// The next retransmission leaves whatever the windows say.
    pub(crate) fn force(&mut self) {
        self.forced = true;
    }

    /// The timeout was spurious: its retransmission waits like any other.
    pub(crate) fn unforce(&mut self) {
        self.forced = false;
    }

    /// The next lost record, and whether it leaves whatever the windows say. That is said once.
    #[inline]
    pub(crate) fn next(&mut self, board: &mut Scoreboard) -> (Option<RecordNo>, bool) {
        (board.next_lost(), std::mem::take(&mut self.forced))
    }

    /// The newest record, if it is in the network: what a tail loss probe repeats.
    pub(crate) fn newest_in_network(board: &Scoreboard) -> Option<RecordNo> {
        let number = board.end().checked_sub(1)?;
        let record = board.get(number)?;
        matches!(record.state, RecordState::InFlight | RecordState::Resent).then_some(number)
    }
}

/// Sends record `number` again; `None` if it is acknowledged.
pub(crate) fn retransmit(
    departure: Departure,
    recovery: &mut LossRecovery,
    rate: &mut DeliveryRate,
    number: RecordNo,
    kind: SentKind,
) -> Option<Retransmitted> {
    let board = &recovery.board;
    let record = board.get(number)?;
    let (offset, len, fin) = (record.offset, u64::from(record.len), record.fin);
    let snapshot = rate.on_send(departure.at, board.inflight(), len, board.lost_total());
    recovery.on_retransmission(departure.at, number, snapshot, kind);
    // A retransmission is not ECN-capable (RFC 3168 section 6.1.5). A FIN takes an octet of sequence space and has no payload.
    let (flags, payload) = if fin { (Flags::ACK.with(Flags::FIN), 0) } else { (Flags::ACK, len) };
    let transmit = Transmit::of_data(departure, departure.header(offset, flags, Ecn::NotEct), payload);
    Some(Retransmitted { transmit, offset, len })
}
