//! Delays of the data of a paced writer.

use fullpipe_tcp::estimate::RttHistogram;
use fullpipe_units::{Duration, Instant};

use super::Writer;

/// Delays from the time at which a paced writer produces a chunk until the receiving application has read it.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    histogram: RttHistogram,
    /// Number of chunks that the receiving application has read completely.
    chunks: u64,
}

impl Delays {
    /// Records the chunks that are complete after the receiving application has read `read` bytes at `now`.
    pub fn on_read(&mut self, writer: &Writer, read: u64, now: Instant) {
        while let Some((produced, end)) = writer.chunk(self.chunks)
            && end <= read
        {
            self.histogram.add(now.saturating_since(produced));
            self.chunks += 1;
        }
    }

    /// Returns the 99th percentile; `None` if the writer has produced no chunk. For a chunk that was not read by `end`,
    /// the percentile uses the time from its production to `end`.
    pub fn p99(&self, writer: &Writer, end: Instant) -> Option<Duration> {
        let mut histogram = self.histogram.clone();
        let unread = (self.chunks..).map_while(|chunk| writer.chunk(chunk));
        for (produced, _) in unread.take_while(|(produced, _)| *produced < end) {
            histogram.add(end.saturating_since(produced));
        }
        histogram.permille(990)
    }
}
