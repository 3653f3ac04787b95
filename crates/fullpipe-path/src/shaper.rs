//! A shaper: what exceeds a rate and a burst waits its turn, up to a queue.
//!
//! Behind it packets are as far apart as the rate demands once the burst is used up: to a sender it looks
//! like a slower link, per flow or for all.

use std::collections::VecDeque;

use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::bucket::TokenBucket;
use crate::policer::Scope;

/// The parameters of a [`Shaper`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShaperConfig {
    /// Rate in bits of the packets as counted by their length.
    pub rate: Rate,
    /// What may pass at once.
    pub burst: Bytes,
    /// Most bytes that may wait, for each bucket.
    pub queue: Bytes,
    /// Whose bucket.
    pub scope: Scope,
}

/// Token buckets with a queue each.
#[derive(Clone, Debug)]
pub struct Shaper<T> {
    config: ShaperConfig,
    lanes: Vec<Lane<T>>,
}

#[derive(Clone, Debug)]
struct Lane<T> {
    bucket: TokenBucket,
    held: VecDeque<(Instant, u32, T)>,
    /// When the newest packet leaves.
    until: Instant,
    /// Time during which packets waited, up to `until`.
    waited: Duration,
    /// Bytes held. All of them wait: a packet is in no service here, it leaves whole.
    backlog: u64,
}

impl<T> Shaper<T> {
    /// An empty shaper.
    pub fn new(config: ShaperConfig) -> Self {
        Self { config, lanes: Vec::new() }
    }

    /// Takes a packet of `len` bytes of `flow`, or refuses it because the queue is full. A packet that need
    /// not wait is always taken.
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

    /// When the next packet leaves; [`Instant::FAR_FUTURE`] when empty.
    pub fn next_exit(&self) -> Instant {
        self.lanes.iter().map(Lane::next_exit).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// The next packet if it has left by `now`, with its exact exit time and length. Of packets that leave
    /// at the same time the one of the lower flow goes first.
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, u32, T)> {
        let lane = self.lanes.iter_mut().min_by_key(|lane| lane.next_exit())?;
        if lane.next_exit() > now {
            return None;
        }
        let popped = lane.held.pop_front()?;
        lane.backlog -= u64::from(popped.1);
        Some(popped)
    }

    /// How long packets of `flow` (of all, where they share a bucket) have been made to wait by `now`, over
    /// the whole run.
    pub fn busy(&self, now: Instant, flow: u32) -> Duration {
        let index = if self.config.scope == Scope::Aggregate { 0 } else { flow as usize };
        let lane = self.lanes.get(index);
        lane.map_or(Duration::ZERO, |lane| lane.waited - lane.until.saturating_since(now))
    }

    /// Bytes waiting at `now`.
    pub fn backlog(&self, now: Instant) -> Bytes {
        Bytes::new(self.lanes.iter().map(|lane| lane.backlog_at(now)).sum())
    }

    /// Packets inside.
    pub fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.held.len()).sum()
    }

    /// Nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Lane<T> {
    fn next_exit(&self) -> Instant {
        self.held.front().map_or(Instant::FAR_FUTURE, |&(exit, ..)| exit)
    }

    /// What is held and has not left by `now`, whether or not anybody took it out.
    fn backlog_at(&self, now: Instant) -> u64 {
        let left: u64 =
            self.held.iter().take_while(|&&(exit, ..)| exit <= now).map(|&(_, len, _)| u64::from(len)).sum();
        self.backlog - left
    }
}
