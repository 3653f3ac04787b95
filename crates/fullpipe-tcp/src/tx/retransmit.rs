//! Retransmission: selects the next lost range and sends it. Only `recovery/` marks data lost.

use fullpipe_units::Ecn;

use super::{Departure, Transmit};
use crate::cc::SentKind;
use crate::estimate::DeliveryRate;
use crate::recovery::LossRecovery;
use crate::recovery::scoreboard::{RecordNo, RecordState, Scoreboard};
use crate::wire::Flags;

/// State of the retransmission logic, apart from the records marked lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retransmission {
    /// Whether the next retransmission ignores the windows because the retransmission timer has expired.
    forced: bool,
}

/// Retransmission that is ready to be sent, and its range.
pub(crate) struct Retransmitted {
    pub(crate) transmit: Transmit,
    /// Stream offset of the first retransmitted octet.
    pub(crate) offset: u64,
    /// Length of the retransmission in octets of sequence space.
    pub(crate) len: u64,
    /// Number of segments: more than one if segments have become smaller since the first transmission.
    pub(crate) segments: u64,
}

impl Retransmission {
    /// Permits the next retransmission to ignore the windows.
    pub(crate) fn force(&mut self) {
        self.forced = true;
    }

    /// Withdraws the permission of [`Self::force`] after a spurious timeout.
    pub(crate) fn unforce(&mut self) {
        self.forced = false;
    }

    /// Returns the next lost record, and whether its retransmission may ignore the windows. The call clears
    /// that permission.
    #[inline]
    pub(crate) fn next(&mut self, board: &mut Scoreboard) -> (Option<RecordNo>, bool) {
        (board.next_lost(), std::mem::take(&mut self.forced))
    }

    /// Returns the newest record if it is in the network. A tail loss probe retransmits this record.
    pub(crate) fn newest_in_network(board: &Scoreboard) -> Option<RecordNo> {
        let number = board.end().checked_sub(1)?;
        let record = board.get(number)?;
        matches!(record.state, RecordState::InFlight | RecordState::Resent).then_some(number)
    }
}

/// Retransmits record `number`. Returns `None` if the record is already acknowledged.
pub(crate) fn retransmit(
    departure: Departure,
    recovery: &mut LossRecovery,
    rate: &mut DeliveryRate,
    number: RecordNo,
    kind: SentKind,
) -> Option<Retransmitted> {
    let board = &recovery.board;
    let record = board.get(number)?;
    let (offset, len, payload) = (record.offset, u64::from(record.len), record.payload());
    let flags = if record.psh { Flags::ACK.with(Flags::PSH) } else { Flags::ACK };
    let flags = if record.fin { flags.with(Flags::FIN) } else { flags };
    let snapshot = rate.on_send(departure.at, board.inflight(), len, board.lost_total());
    recovery.on_retransmission(departure.at, number, snapshot, kind);
    // A retransmission is not ECN-capable (RFC 3168 section 6.1.5).
    let transmit = Transmit::of_data(departure, departure.header(offset, flags, Ecn::NotEct), payload);
    let segments = payload.div_ceil(departure.mss).max(1);
    Some(Retransmitted { transmit, offset, len, segments })
}
