//! The sending application of a flow.

use fullpipe_units::{Bytes, Duration, Instant};

use super::Writing;

/// Maximum number of bytes per write: the default block size of iperf3.
pub const WRITE_BLOCK: u64 = 128 << 10;

/// Number of bytes that a greedy writer writes each time its socket becomes writable: ten blocks, as in
/// iperf3.
///
/// After ten blocks, the writer waits until its socket is writable, that is, until a third of the send buffer
/// is free. This wait matters if the send buffer is the limit: with a buffer of 4 MiB, thirty blocks are in
/// flight; with a large buffer, two thirds of the buffer are in flight.
const GREEDY_WRITE: u64 = 10 * WRITE_BLOCK;

/// Time that the write of a whole block takes: the host copies, segments and sends the block at 8 Gbit/s. The
/// duration of a write matters only if a writer continues while its buffer is full, because ACKs then arrive
/// during the write.
pub const WRITE_TIME: Duration = Duration::from_micros(131);

/// State of a sending application.
#[derive(Clone, Debug)]
pub struct Writer {
    writing: Writing,
    /// Total number of bytes to write; `u64::MAX` for an endless flow.
    total: u64,
    written: u64,
    /// Time at which a paced writer started to produce data.
    started: Option<Instant>,
    /// Number of chunks that a paced writer has produced so far.
    chunks: u64,
    /// Number of bytes that have been granted to the writer so far.
    granted: u64,
    /// Whether the socket accepted only part of the last write, so that the writer must wait for room.
    blocked: bool,
}

impl Writer {
    /// Creates a writer of `total` bytes; `None` makes it endless.
    pub fn new(writing: Writing, total: Option<Bytes>) -> Self {
        let total = total.map_or(u64::MAX, Bytes::get);
        Self { writing, total, written: 0, started: None, chunks: 0, granted: 0, blocked: false }
    }

    /// Returns the number of bytes to write at `now`. The driver calls this function when the connection is
    /// established, when a full socket has room again, and at [`Self::wakes_at`]. A paced writer produces its
    /// first chunk at the first call.
    pub fn offers(&mut self, now: Instant) -> u64 {
        if let Writing::Paced { .. } = self.writing {
            self.started.get_or_insert(now);
            while self.next_chunk() <= now {
                self.chunks += 1;
            }
        }
        let rest = self.produced() - self.written;
        match self.writing {
            Writing::Greedy | Writing::Granted => rest.min(GREEDY_WRITE),
            Writing::Paced { .. } => rest,
        }
    }

    /// Returns whether the writer has data left that it can write at once, so that the driver must poll the
    /// socket again; always `false` for a paced writer, which waits for its timer.
    pub fn has_more(&self) -> bool {
        match self.writing {
            Writing::Greedy => !self.is_done(),
            Writing::Granted => self.produced() > self.written,
            Writing::Paced { .. } => false,
        }
    }

    /// Grants `bytes` more to a writer whose program grants its writes.
    pub fn grant(&mut self, bytes: u64) {
        self.granted = self.granted.saturating_add(bytes);
    }

    /// Revokes the granted bytes that the writer has not written, except for `kept` bytes of a write in
    /// progress; returns their number.
    pub fn revoke(&mut self, kept: u64) -> u64 {
        let left = self.granted.saturating_sub(self.written + kept);
        self.granted -= left;
        left
    }

    /// Records that the socket accepted `taken` of the `offered` bytes.
    pub fn wrote(&mut self, offered: u64, taken: u64) {
        self.written += taken;
        self.blocked = taken < offered;
    }

    /// Returns whether the writer has written everything.
    pub fn is_done(&self) -> bool {
        self.written >= self.total
    }

    /// Returns the time at which new data will be available; returns [`Instant::FAR_FUTURE`] if the writer
    /// only waits for room in the socket, or if it has finished.
    #[inline]
    pub fn wakes_at(&self) -> Instant {
        if self.started.is_none() || self.blocked { Instant::FAR_FUTURE } else { self.next_chunk() }
    }

    /// Returns the time at which a paced writer produces chunk `number`, counted from zero, and the stream offset
    /// of the chunk's end. Returns `None` if there is no such chunk, or before the writer has started.
    pub fn chunk(&self, number: u64) -> Option<(Instant, u64)> {
        let Writing::Paced { rate, chunk } = self.writing else { return None };
        let begin = number.saturating_mul(chunk.get());
        let produced = self.started? + rate.time_for(Bytes::new(begin));
        (begin < self.total).then(|| (produced, (begin + chunk.get()).min(self.total)))
    }

    /// Returns the number of bytes that the application has produced so far, whether or not they have been
    /// written.
    fn produced(&self) -> u64 {
        match self.writing {
            Writing::Greedy => self.total,
            Writing::Granted => self.granted.min(self.total),
            Writing::Paced { chunk, .. } => self.chunks.saturating_mul(chunk.get()).min(self.total),
        }
    }

    /// Returns the time of a paced writer's next chunk. The time is computed from the start time, so that
    /// rounding errors do not accumulate.
    fn next_chunk(&self) -> Instant {
        match (self.writing, self.started) {
            (Writing::Paced { rate, chunk }, Some(started)) if self.produced() < self.total => {
                started + rate.time_for(Bytes::new(self.chunks.saturating_mul(chunk.get())))
            }
            _ => Instant::FAR_FUTURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_units::Rate;

    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn paced(total: Option<Bytes>) -> Writer {
        // The writer produces 1000 bytes every 10 ms.
        Writer::new(Writing::Paced { rate: Rate::from_bps(800_000), chunk: Bytes::new(1_000) }, total)
    }

    /// The chunks of a paced writer are due at the times that [`Writer::wakes_at`] returns, and the last
    /// chunk may be shorter.
    #[test]
    fn chunks_have_times_and_ends() {
        let mut writer = paced(Some(Bytes::new(2_500)));
        assert_eq!(writer.chunk(0), None, "not started");
        assert_eq!(writer.offers(at_ms(30)), 1_000);
        let chunks: Vec<_> = (0..).map_while(|number| writer.chunk(number)).collect();
        assert_eq!(chunks, [(at_ms(30), 1_000), (at_ms(40), 2_000), (at_ms(50), 2_500)]);
        assert_eq!(Writer::new(Writing::Greedy, None).chunk(0), None);
    }

    /// A paced writer produces chunks on a time grid that starts at the first call and does not depend on the
    /// times of later calls.
    #[test]
    fn a_paced_writer_produces_on_a_grid() {
        let mut writer = paced(None);
        assert_eq!(writer.wakes_at(), Instant::FAR_FUTURE, "not connected yet");
        assert_eq!((writer.offers(at_ms(5)), writer.wakes_at()), (1_000, at_ms(15)));
        writer.wrote(1_000, 1_000);
        assert_eq!(writer.offers(at_ms(14)), 0);
        assert_eq!((writer.offers(at_ms(37)), writer.wakes_at()), (3_000, at_ms(45)));
    }

    /// Data that a full socket does not accept waits in the application. When the socket has room, all of
    /// this data is written.
    #[test]
    fn a_blocked_writer_keeps_what_it_produces() {
        let mut writer = paced(None);
        let offered = writer.offers(at_ms(0));
        writer.wrote(offered, 400);
        assert_eq!(writer.wakes_at(), Instant::FAR_FUTURE);
        assert_eq!(writer.offers(at_ms(95)), 9_600);
        writer.wrote(9_600, 9_600);
        assert_eq!(writer.wakes_at(), at_ms(100));
    }

    #[test]
    fn a_writer_of_so_many_bytes_ends() {
        let mut writer = paced(Some(Bytes::new(2_500)));
        for (ms, offered) in [(0, 1_000), (10, 1_000), (20, 500)] {
            assert!(!writer.is_done());
            assert_eq!(writer.offers(at_ms(ms)), offered);
            writer.wrote(offered, offered);
        }
        assert!(writer.is_done());
        assert_eq!((writer.offers(at_ms(90)), writer.wakes_at()), (0, Instant::FAR_FUTURE));

        let mut greedy = Writer::new(Writing::Greedy, Some(Bytes::new(700)));
        assert_eq!(greedy.offers(at_ms(0)), 700);
        greedy.wrote(700, 700);
        assert!(greedy.is_done() && !greedy.has_more());

        let mut endless = Writer::new(Writing::Greedy, None);
        assert_eq!(endless.offers(at_ms(0)), 1_310_720, "as much at once as iperf3");
        assert!(endless.has_more());
    }
}
