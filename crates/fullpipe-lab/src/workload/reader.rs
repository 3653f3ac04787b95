//! The receiving application.

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use super::Reading;

/// How long `curl` keeps the point from which it takes its average (`MIN_RATE_LIMIT_PERIOD`).
pub const CURL_PERIOD: Duration = Duration::from_secs(3);
/// What `curl` reads at a time, unless the limit is less than this in a second (its `BUFFER_SIZE`).
pub const CURL_BUFFER: Bytes = Bytes::from_kib(100);

/// A receiving application at work.
#[derive(Clone, Debug)]
pub struct Reader {
    reading: Reading,
    /// Busy or asleep until then.
    until: Option<Instant>,
    /// Bytes read so far.
    total: u64,
    /// Bytes of the buffer that is being filled.
    in_buffer: u64,
    /// Where `curl`'s average begins: time and bytes read by then.
    average_from: (Instant, u64),
}

impl Reader {
    /// One that begins at `now`.
    pub fn new(reading: Reading, now: Instant) -> Self {
        Self { reading, until: None, total: 0, in_buffer: 0, average_from: (now, 0) }
    }

    /// It reads whatever there is, at once, and needs no timer.
    #[inline]
    pub fn is_greedy(&self) -> bool {
        self.reading == Reading::Greedy
    }

    /// The most it would read at `now`, zero while it is busy; to be asked when there is something to read
    /// and when [`Self::wakes_at`] has come.
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
        }
    }

    /// It got `len` bytes, no more than it asked for.
    pub fn took(&mut self, now: Instant, len: u64) {
        self.total += len;
        let pause = match self.reading {
            Reading::Greedy => Duration::ZERO,
            Reading::Paced { rate, .. } => rate.time_for(Bytes::new(len)),
            Reading::CurlLimit { rate } => {
                let (since, before) = self.average_from;
                // So long the bytes since then should have taken, and so long they did take.
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

    /// When it is no longer busy; [`Instant::FAR_FUTURE`] if it waits for data only.
    #[inline]
    pub fn wakes_at(&self) -> Instant {
        self.until.unwrap_or(Instant::FAR_FUTURE)
    }

    /// `curl` looks at its starting point when it goes to sleep and when it wakes. What it was behind or
    /// ahead by then is forgotten.
    fn move_average(&mut self, now: Instant) {
        if now.saturating_since(self.average_from.0) >= CURL_PERIOD {
            self.average_from = (now, self.total);
        }
    }
}

/// What `curl --limit-rate` reads at a time: a second's worth, at most [`CURL_BUFFER`].
pub fn curl_buffer(rate: Rate) -> Bytes {
    (rate * Duration::from_secs(1)).clamp(Bytes::new(1), CURL_BUFFER)
}
