//! The sending application.

use fullpipe_units::{Bytes, Duration, Instant};

use super::Writing;

/// The most that one write hands over: a block of iperf3's.
pub const WRITE_BLOCK: u64 = 128 << 10;

/// What a greedy writer writes each time its socket has room: ten blocks, as iperf3 does. It then asks
/// again, and a socket has room only when a third of its buffer is free. That makes a difference where the
/// buffer is the limit: three times this is in flight behind a buffer of 4 MiB, and two thirds of a large one.
const GREEDY_WRITE: u64 = 10 * WRITE_BLOCK;

/// What a write of a whole block takes: the host copies, cuts and sends 8 Gbit/s. It matters only to a
/// writer that goes on although its buffer is full, in a race with the ACKs: they come in while it writes.
pub const WRITE_TIME: Duration = Duration::from_micros(131);

/// A sending application at work.
#[derive(Clone, Debug)]
pub struct Writer {
    writing: Writing,
    /// All that it will ever write; `u64::MAX` for no end.
    total: u64,
    written: u64,
    /// From when on a paced writer produces.
    started: Option<Instant>,
    /// Chunks it has produced.
    chunks: u64,
    /// The last write was cut short: only room makes another worth trying.
    blocked: bool,
}

impl Writer {
    /// One that writes `total` bytes, or without end.
    pub fn new(writing: Writing, total: Option<Bytes>) -> Self {
        let total = total.map_or(u64::MAX, Bytes::get);
        Self { writing, total, written: 0, started: None, chunks: 0, blocked: false }
    }

    /// How many bytes it wants to write at `now`, to be asked when the connection is there, when a full
    /// socket has room again, and when [`Self::wakes_at`] has come. A paced writer produces from the first
    /// call on, beginning with a chunk.
    pub fn offers(&mut self, now: Instant) -> u64 {
        if let Writing::Paced { .. } = self.writing {
            self.started.get_or_insert(now);
            while self.next_chunk() <= now {
                self.chunks += 1;
            }
        }
        let rest = self.produced() - self.written;
        if self.writing == Writing::Greedy { rest.min(GREEDY_WRITE) } else { rest }
    }

    /// It has more to write than it offers at once: it asks again whether there is room.
    pub fn has_more(&self) -> bool {
        self.writing == Writing::Greedy && !self.is_done()
    }

    /// The socket took `taken` of `offered` bytes.
    pub fn wrote(&mut self, offered: u64, taken: u64) {
        self.written += taken;
        self.blocked = taken < offered;
    }

    /// It has written all that it ever will.
    pub fn is_done(&self) -> bool {
        self.written >= self.total
    }

    /// When it will want to write what it does not have yet; [`Instant::FAR_FUTURE`] if all it waits for is
    /// room in the socket, or nothing.
    #[inline]
    pub fn wakes_at(&self) -> Instant {
        if self.started.is_none() || self.blocked { Instant::FAR_FUTURE } else { self.next_chunk() }
    }

    /// Bytes that exist so far, written or not.
    fn produced(&self) -> u64 {
        match self.writing {
            Writing::Greedy => self.total,
            Writing::Paced { chunk, .. } => self.chunks.saturating_mul(chunk.get()).min(self.total),
        }
    }

    /// When the next chunk is there. From the start each time, so that rounding does not add up.
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
        // 1000 bytes each 10 ms.
        Writer::new(Writing::Paced { rate: Rate::from_bps(800_000), chunk: Bytes::new(1_000) }, total)
    }

    /// Chunks come on a grid from the first call on, whenever somebody looks.
    #[test]
    fn a_paced_writer_produces_on_a_grid() {
        let mut writer = paced(None);
        assert_eq!(writer.wakes_at(), Instant::FAR_FUTURE, "not connected yet");
        assert_eq!((writer.offers(at_ms(5)), writer.wakes_at()), (1_000, at_ms(15)));
        writer.wrote(1_000, 1_000);
        assert_eq!(writer.offers(at_ms(14)), 0);
        assert_eq!((writer.offers(at_ms(37)), writer.wakes_at()), (3_000, at_ms(45)));
    }

    /// What a full socket does not take waits in the application; only room wakes it, and then all of it goes.
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
