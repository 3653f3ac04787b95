//! A hash over all rows of a trace: identical for identical runs, on every machine and in every build.

use fullpipe_units::Duration;

use super::{Row, Sink};

/// A 64-bit FNV-1a hash over a sequence of integers.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Adds one integer to the hash.
    pub fn add(&mut self, value: u64) {
        for byte in value.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Returns the hash over the integers added so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

impl Sink for Digest {
    fn row(&mut self, row: &Row) {
        let sender = &row.sender;
        let optional = |span: Option<Duration>| span.map_or(u64::MAX, Duration::as_nanos);
        for value in [
            row.at.as_nanos(),
            row.flow.into(),
            sender.cwnd.get(),
            sender.ssthresh.map_or(u64::MAX, |ssthresh| ssthresh.get()),
            sender.inflight.get(),
            sender.rwnd.get(),
            sender.pacing_rate.map_or(0, |rate| rate.as_bps()),
            optional(sender.srtt),
            optional(sender.min_rtt),
            sender.delivered.get(),
            sender.retransmits,
            sender.flight_size.get(),
            sender.notsent.get(),
            row.receiver.map_or(0, |receiver| receiver.received.get()),
            row.path.map_or(0, |path| path.queue.get()),
            row.truth.as_ref().map_or(0, |truth| truth.lost.get()),
            row.truth.as_ref().map_or(u64::MAX, |truth| truth.send_limit as u64),
        ] {
            self.add(value);
        }
    }
}
