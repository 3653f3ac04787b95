//! The receiving application of a flow.

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::Reading;

/// Minimum time for which `curl` keeps the reference point of its average rate (`MIN_RATE_LIMIT_PERIOD`).
pub const CURL_PERIOD: Duration = Duration::from_secs(3);
/// Maximum size of `curl`'s reads (its `BUFFER_SIZE`). If the rate limit allows less than this per second,
/// the reads are smaller.
pub const CURL_BUFFER: Bytes = Bytes::from_kib(100);

/// State of a receiving application.
#[derive(Clone, Debug)]
pub struct Reader {
    reading: Reading,
    /// End of the application's current busy time or sleep.
    until: Option<Instant>,
    /// Number of bytes that the application has read so far.
    total: u64,
    /// Number of bytes in the small buffer that a loop reader is filling.
    in_buffer: u64,
    /// Number of bytes that the reader has been granted but has not read.
    granted: u64,
    /// Reference point of `curl`'s average rate: its time, and the number of bytes that had been read by
    /// then.
    average_from: (Instant, u64),
}

impl Reader {
    /// Creates a reader that starts to read at `now`.
    pub fn new(reading: Reading, now: Instant) -> Self {
        Self { reading, until: None, total: 0, in_buffer: 0, granted: 0, average_from: (now, 0) }
    }

    /// Returns whether the reader reads all available data at once and therefore needs no timer.
    #[inline]
    pub fn is_greedy(&self) -> bool {
        self.reading == Reading::Greedy
    }

    /// Returns the maximum number of bytes to read at `now`; zero while the reader is busy. The driver calls
    /// this function when data is available, and at [`Self::wakes_at`].
    pub fn takes(&mut self, now: Instant) -> u64 {
        if let Some(until) = self.until {
            if until > now {
                return 0;
            }
            self.until = None;
            self.move_average(now);
        }
        match self.reading {
            Reading::Greedy => u64::MAX,
            Reading::Paced { chunk, .. } => chunk.get(),
            Reading::CurlLimit { rate } => curl_buffer(rate).get(),
            Reading::Loop { buffer, .. } => buffer.get() - self.in_buffer,
            Reading::Granted => self.granted,
        }
    }

    /// Grants `bytes` more to a reader whose program grants its reads.
    pub fn grant(&mut self, bytes: u64) {
        self.granted = self.granted.saturating_add(bytes);
    }

    /// Records that the application has read `len` bytes. `len` must not exceed the result of
    /// [`Self::takes`].
    pub fn took(&mut self, now: Instant, len: u64) {
        self.total += len;
        let pause = match self.reading {
            Reading::Greedy => Duration::ZERO,
            Reading::Granted => {
                self.granted -= len;
                Duration::ZERO
            }
            Reading::Paced { rate, .. } => rate.time_for(Bytes::new(len)),
            Reading::CurlLimit { rate } => {
                let (since, before) = self.average_from;
                // The pause is the time that the bytes read since the reference point take at this rate,
                // minus the elapsed time.
                let due = rate.time_for(Bytes::new(self.total - before));
                due.saturating_sub(now.saturating_since(since))
            }
            Reading::Loop { buffer, every } => {
                self.in_buffer = (self.in_buffer + len) % buffer.get();
                if self.in_buffer == 0 && len > 0 { every } else { Duration::ZERO }
            }
        };
        if !pause.is_zero() {
            self.until = Some(now + pause);
            self.move_average(now);
        }
    }

    /// Returns the time at which the reader's busy time or sleep ends; [`Instant::FAR_FUTURE`] if the reader
    /// only waits for data.
    #[inline]
    pub fn wakes_at(&self) -> Instant {
        self.until.unwrap_or(Instant::FAR_FUTURE)
    }

    /// Moves the reference point of the average rate if it is old enough. `curl` checks this before and after
    /// each sleep. Moving the point discards any lead or lag that has accumulated.
    fn move_average(&mut self, now: Instant) {
        if now.saturating_since(self.average_from.0) >= CURL_PERIOD {
            self.average_from = (now, self.total);
        }
    }
}

/// Returns the size of the reads of `curl --limit-rate`: the data of one second, at most [`CURL_BUFFER`].
pub fn curl_buffer(rate: Rate) -> Bytes {
    (rate * Duration::from_secs(1)).clamp(Bytes::new(1), CURL_BUFFER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Reads until `end` from a socket that always has data, and returns the time and the size of each read.
    fn reads(reading: Reading, first: Instant, end: Instant) -> Vec<(Instant, u64)> {
        let mut reader = Reader::new(reading, Instant::ZERO);
        let (mut now, mut reads) = (first, Vec::new());
        while now < end {
            let len = reader.takes(now);
            if len > 0 {
                reads.push((now, len));
                reader.took(now, len);
            } else {
                now = reader.wakes_at();
            }
        }
        reads
    }

    /// curl reads the data of one second or 100 KiB, then sleeps until its average rate has dropped to the
    /// limit.
    #[test]
    fn curl_reads_its_buffer_and_sleeps() {
        // The limit is 200 KiB/s, as with `--limit-rate 200K`. The first average is below the limit, because
        // no data arrived for 100 ms.
        let limit = Rate::from_bytes_per_sec(200 * KIB);
        let found = reads(Reading::CurlLimit { rate: limit }, at_ms(100), at_ms(4_000));
        let expected = [100, 500, 1_000, 1_500, 2_000, 2_500, 3_000, 3_500].map(|ms| (at_ms(ms), 100 * KIB));
        assert_eq!(found, expected);
        // A low rate limit makes curl's reads small.
        let slow = reads(Reading::CurlLimit { rate: Rate::from_bytes_per_sec(KIB) }, at_ms(0), at_ms(2_500));
        assert_eq!(slow, [(at_ms(0), KIB), (at_ms(1_000), KIB), (at_ms(2_000), KIB)]);
    }

    /// After a stall, curl catches up without pausing as long as the reference point is older than the stall.
    /// After three seconds the reference point moves, and the rest of the backlog is discarded.
    #[test]
    fn curl_makes_up_for_a_stall_within_its_period() {
        let limit = Rate::from_bytes_per_sec(100 * KIB);
        let mut reader = Reader::new(Reading::CurlLimit { rate: limit }, Instant::ZERO);
        // No data arrived for 2.9 s. Two reads therefore follow without a pause; a pause of 100 ms follows
        // the third read.
        for pause in [None, None, Some(at_ms(3_000))] {
            assert_eq!(reader.takes(at_ms(2_900)), 100 * KIB);
            reader.took(at_ms(2_900), 100 * KIB);
            assert_eq!(reader.wakes_at(), pause.unwrap_or(Instant::FAR_FUTURE));
        }
        assert_eq!(reader.takes(at_ms(2_999)), 0);
        // The average rate is now computed from 3 s on, so a full second follows the next read.
        assert_eq!(reader.takes(at_ms(3_000)), 100 * KIB);
        reader.took(at_ms(3_000), 100 * KIB);
        assert_eq!(reader.wakes_at(), at_ms(4_000));
    }

    /// A smooth reader is busy in proportion to the number of bytes read, and never catches up.
    #[test]
    fn a_paced_reader_takes_its_time_for_each_byte() {
        let mut reader = Reader::new(Reading::smooth(Rate::from_bps(8_000_000)), Instant::ZERO);
        assert_eq!(reader.takes(at_ms(500)), 1_448, "a segment, for a millisecond brings less");
        reader.took(at_ms(500), 1_000);
        assert_eq!((reader.takes(at_ms(500)), reader.wakes_at()), (0, at_ms(501)));
        assert_eq!(reader.takes(at_ms(900)), 1_448);
        assert_eq!(reader.wakes_at(), Instant::FAR_FUTURE, "waits for data only");
    }

    /// A loop reader sleeps after each full buffer, regardless of the number of reads that filled the buffer.
    #[test]
    fn a_loop_fills_its_buffer_before_it_sleeps() {
        let reading = Reading::Loop { buffer: Bytes::new(KIB), every: Duration::from_millis(50) };
        let mut reader = Reader::new(reading, Instant::ZERO);
        reader.took(at_ms(10), 720);
        assert_eq!((reader.takes(at_ms(12)), reader.wakes_at()), (304, Instant::FAR_FUTURE));
        reader.took(at_ms(12), 304);
        assert_eq!((reader.takes(at_ms(61)), reader.wakes_at()), (0, at_ms(62)));
        assert_eq!(reader.takes(at_ms(62)), KIB);
    }
}
