//! Result of loss detection: the records that one event has marked lost.

use crate::cc::{LossCause, Lost};

use super::scoreboard::SentRecord;

/// State of a record when it was marked lost.
#[derive(Clone, Copy, Debug)]
struct Marked {
    offset: u64,
    len: u64,
    /// Bytes in flight just after the record was sent, including the record.
    tx_in_flight: u64,
    /// Bytes marked lost between the start of the connection and the last transmission of the record.
    lost_before_sent: u64,
    app_limited: bool,
    /// Whether the record was sent only once.
    first_transmission: bool,
}

/// Buffer for the records that one event marks lost. Each event reuses the buffer, which allocates memory
/// only when it grows.
#[derive(Debug, Default)]
pub(crate) struct LossBuffer(Vec<Marked>);

impl LossBuffer {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn push(&mut self, record: &SentRecord) {
        self.0.push(Marked {
            offset: record.offset,
            len: record.len.into(),
            tx_in_flight: record.snapshot.tx_in_flight,
            lost_before_sent: record.snapshot.lost,
            app_limited: record.snapshot.app_limited,
            first_transmission: record.transmissions == 1,
        });
    }
}

/// Records that one event has marked lost, in the order of marking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Losses<'a> {
    marked: &'a [Marked],
    cause: LossCause,
    /// Total number of bytes marked lost before this event.
    lost_before: u64,
    /// Whether one of the lost records is a retransmission sent after the last window reduction.
    retransmission: bool,
}

impl<'a> Losses<'a> {
    pub(super) fn new(
        buffer: &'a LossBuffer,
        cause: LossCause,
        lost_before: u64,
        retransmission: bool,
    ) -> Self {
        Self { marked: &buffer.0, cause, lost_before, retransmission }
    }

    /// Returns whether the event has marked no record lost.
    pub(crate) fn is_empty(&self) -> bool {
        self.marked.is_empty()
    }

    /// Returns whether the event has marked lost a retransmission sent after the last window reduction.
    pub(crate) fn has_retransmission(&self) -> bool {
        self.retransmission
    }

    /// Returns the number of bytes below the stream offset `end` that this event has marked lost after a
    /// single transmission.
    pub(crate) fn first_transmissions_below(&self, end: u64) -> u64 {
        let first = self.marked.iter().filter(|record| record.first_transmission && record.offset < end);
        first.map(|record| record.len).sum()
    }

    /// Returns one loss report per lost record, for the congestion controller.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Lost> + '_ {
        let (mut total, mut previous_end) = (self.lost_before, None);
        self.marked.iter().map(move |record| {
            total += record.len;
            let starts_new_range = previous_end != Some(record.offset);
            previous_end = Some(record.offset + record.len);
            Lost {
                offset: record.offset,
                len: record.len,
                tx_in_flight: record.tx_in_flight,
                lost_since_sent: total - record.lost_before_sent.min(total),
                app_limited: record.app_limited,
                starts_new_range,
                cause: self.cause,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::scoreboard::board;

    /// Each loss report includes the bytes lost before the event. A lost range is new if the preceding record
    /// was not marked lost.
    #[test]
    fn each_record_is_told_with_its_sums() {
        let (board, mut buffer) = (board(10), LossBuffer::default());
        for number in [2, 3, 5] {
            buffer.push(board.get(number).expect("outstanding"));
        }
        let losses = Losses::new(&buffer, LossCause::Rack, 700, true);
        let told: Vec<_> =
            losses.iter().map(|lost| (lost.offset, lost.lost_since_sent, lost.starts_new_range)).collect();
        assert_eq!(told, [(200, 800, true), (300, 900, false), (500, 1_000, true)]);
        assert!(losses.has_retransmission() && !losses.is_empty());
        buffer.clear();
        assert!(Losses::new(&buffer, LossCause::Rto, 0, false).is_empty());
    }
}
