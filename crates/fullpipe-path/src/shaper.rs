//! A shaper: delays packets that exceed a rate and a burst size, in a queue of limited size.
//!
//! Once the burst is used up, packets leave at the shaper's rate. To a sender, the shaper looks like a slower
//! link, either for one flow or for all flows together.

use std::collections::VecDeque;

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::bucket::TokenBucket;
use crate::policer::Scope;

/// The parameters of a [`Shaper`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShaperConfig {
    /// Shaper rate in bits per second, applied to the packet length.
    pub rate: Rate,
    /// Number of bytes that may pass at once: the burst size of the token bucket.
    pub burst: Bytes,
    /// Capacity of each bucket's queue in bytes.
    pub queue: Bytes,
    /// Whether all flows share one token bucket or each flow has its own bucket.
    pub scope: Scope,
}

/// A set of token buckets with one queue each.
#[derive(Clone, Debug)]
pub struct Shaper<T> {
    config: ShaperConfig,
    lanes: Vec<Lane<T>>,
}

#[derive(Clone, Debug)]
struct Lane<T> {
    bucket: TokenBucket,
    held: VecDeque<(Instant, u32, T)>,
    /// Time at which the newest packet leaves the shaper.
    until: Instant,
    /// Total time during which packets waited in the shaper, up to `until`.
    waited: Duration,
    /// Number of bytes in the queue. All bytes in the queue are waiting, because a shaper releases each
    /// packet as a whole and never has one in service.
    backlog: u64,
}

impl<T> Shaper<T> {
    /// Creates an empty shaper.
    pub fn new(config: ShaperConfig) -> Self {
        Self { config, lanes: Vec::new() }
    }

    /// Accepts a packet of `flow` with `len` bytes, or returns `false` if the queue is full. A packet is
    /// always accepted if no other packet is waiting.
    pub fn push(&mut self, now: Instant, flow: u32, len: u32, payload: T) -> bool {
        let index = match self.config.scope {
            Scope::Aggregate => 0,
            Scope::PerFlow => flow as usize,
        };
        while self.lanes.len() <= index {
            let bucket = TokenBucket::new(self.config.rate, self.config.burst);
            self.lanes.push(Lane {
                bucket,
                held: VecDeque::new(),
                until: Instant::ZERO,
                waited: Duration::ZERO,
                backlog: 0,
            });
        }
        let lane = &mut self.lanes[index];
        let waiting = lane.backlog_at(now);
        if waiting > 0 && waiting + u64::from(len) > self.config.queue.get() {
            return false;
        }
        let exit = lane.bucket.take_when_ready(now, Bytes::new(len.into()));
        lane.waited += exit.saturating_since(lane.until.max(now));
        lane.until = exit;
        lane.backlog += u64::from(len);
        lane.held.push_back((exit, len, payload));
        true
    }

    /// Returns the time at which the next packet leaves the shaper, or [`Instant::FAR_FUTURE`] if the shaper
    /// is empty.
    pub fn next_exit(&self) -> Instant {
        self.lanes.iter().map(Lane::next_exit).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Returns the next packet if it has left by `now`, with its exact exit time and length. Of packets that
    /// leave at the same time, the one with the lowest flow number comes first.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, u32, T)> {
        let lane = self.lanes.iter_mut().min_by_key(|lane| lane.next_exit())?;
        if lane.next_exit() > now {
            return None;
        }
        let popped = lane.held.pop_front()?;
        lane.backlog -= u64::from(popped.1);
        Some(popped)
    }

    /// Returns the total time up to `now` for which packets of `flow` have waited. If all flows share a
    /// bucket, the time includes the packets of all flows.
    pub fn busy(&self, now: Instant, flow: u32) -> Duration {
        let index = if self.config.scope == Scope::Aggregate { 0 } else { flow as usize };
        let lane = self.lanes.get(index);
        lane.map_or(Duration::ZERO, |lane| lane.waited - lane.until.saturating_since(now))
    }

    /// Returns the number of bytes waiting at `now`.
    pub fn backlog(&self, now: Instant) -> Bytes {
        Bytes::new(self.lanes.iter().map(|lane| lane.backlog_at(now)).sum())
    }

    /// Returns the number of packets in the shaper.
    pub fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.held.len()).sum()
    }

    /// Returns whether the shaper is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Lane<T> {
    fn next_exit(&self) -> Instant {
        self.held.front().map_or(Instant::FAR_FUTURE, |&(exit, ..)| exit)
    }

    /// Returns the number of bytes that have not left by `now`, excluding packets that are due but not yet
    /// popped.
    fn backlog_at(&self, now: Instant) -> u64 {
        let left: u64 =
            self.held.iter().take_while(|&&(exit, ..)| exit <= now).map(|&(_, len, _)| u64::from(len)).sum();
        self.backlog - left
    }
}
