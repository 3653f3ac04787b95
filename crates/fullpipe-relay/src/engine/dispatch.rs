//! The sender's choice of the next block for a connection.
//!
//! ```text
//!   pending ──next(connection)──► sent ──durable──► durable
//!      ▲                            │
//!      └────── lost(connection) ────┘
//! ```
//!
//! A connection asks for a block when its socket can send one. A slow connection therefore delays only its
//! own block and the data that is in flight on it. Files of at most one block are sent whole, several at
//! once, because a system call and a TLS record for each would cost more than their content.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{block_count, block_range};

/// Block of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) stream: u64,
    pub(crate) index: u64,
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

/// What a connection sends next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A block of a file.
    Block(Block),
    /// Streams of whole files.
    Files(Vec<u64>),
}

/// Maximum size of the whole files that a connection takes at once.
const BATCH: u64 = 256 << 10;
/// Size of the first such batch of a connection, which its initial window carries. Each further batch has twice the size,
/// up to the maximum. If the first batches were larger, the first connections would take the files that have been
/// announced by then, and the others would begin their slow start round trips later.
const FIRST_BATCH: u64 = 16 << 10;
/// Maximum number of whole files that a connection takes at once.
const MOST_BATCH: usize = 64;

/// Number of checks after which a connection that is still writing the same block is slow.
const SLOW_CHECKS: u32 = 2;

/// A file that is sent whole.
#[derive(Debug)]
struct Whole {
    size: u64,
    /// Connection that has taken the file.
    sent: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Sent { connection: u32 },
    Durable,
}

#[derive(Debug)]
struct Stream {
    size: u64,
    blocks: Vec<State>,
    /// Number below which no block is pending, except for the blocks in `returned`.
    next: u64,
    /// Blocks of lost connections, in the order in which they will be retransmitted.
    returned: VecDeque<u64>,
}

impl Stream {
    /// Returns whether a block is left to send.
    fn has_pending(&mut self) -> bool {
        if !self.returned.is_empty() {
            return true;
        }
        let rest = self.blocks.get(self.next as usize..).unwrap_or_default();
        match rest.iter().position(|state| *state == State::Pending) {
            Some(skipped) => {
                self.next += skipped as u64;
                true
            }
            None => {
                self.next = self.blocks.len() as u64;
                false
            }
        }
    }

    fn take(&mut self) -> Option<u64> {
        if !self.has_pending() {
            return None;
        }
        self.returned.pop_front().or_else(|| {
            self.next += 1;
            Some(self.next - 1)
        })
    }
}

/// Blocks and whole files of the open streams, and the connections that have taken them.
#[derive(Debug, Default)]
pub(crate) struct Dispatcher {
    streams: BTreeMap<u64, Stream>,
    whole: BTreeMap<u64, Whole>,
    /// Whole files that no connection has taken, or whose connection was lost.
    waiting: VecDeque<u64>,
    /// Lost connections. The task of a lost connection may ask for a block before it notices the loss.
    lost: BTreeSet<u32>,
    /// Connections that get nothing to send, because they are not needed at present.
    resting: BTreeSet<u32>,
    /// Whether no connection gets anything, because the memory budget is exceeded.
    is_held: bool,
    /// Block that each connection is writing, with the number of checks since it was taken.
    writing: BTreeMap<u32, (Block, u32)>,
    /// Size of the next batch of whole files on each connection; [`FIRST_BATCH`] if absent.
    batches: BTreeMap<u32, u64>,
}

impl Dispatcher {
    /// Adds a file of `size` bytes; the blocks in the ranges `durable` are not sent.
    pub(crate) fn add(&mut self, stream: u64, size: u64, durable: &[(u64, u64)]) {
        let blocks = vec![State::Pending; block_count(size) as usize];
        self.streams.insert(stream, Stream { size, blocks, next: 0, returned: VecDeque::new() });
        self.durable(stream, durable);
    }

    /// Grows a stream to `size` bytes. Its last block must not be partial.
    pub(crate) fn grow(&mut self, stream: u64, size: u64) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.size = size;
            stream.blocks.resize(block_count(size) as usize, State::Pending);
        }
    }

    /// Adds a file of `size` bytes that is sent whole.
    pub(crate) fn add_whole(&mut self, stream: u64, size: u64) {
        if self.whole.insert(stream, Whole { size, sent: None }).is_none() {
            self.waiting.push_back(stream);
        }
    }

    /// Returns what a connection sends next: whole files first, because each of them still needs a round
    /// trip, and then blocks of the streams in ascending order. A lost connection gets nothing.
    pub(crate) fn next(&mut self, connection: u32) -> Option<Next> {
        // A connection asks again only when its socket can send more, so its last block has been written.
        self.writing.remove(&connection);
        if self.is_held || self.lost.contains(&connection) || self.resting.contains(&connection) {
            return None;
        }
        let files = self.take_whole(connection);
        if !files.is_empty() {
            return Some(Next::Files(files));
        }
        let block = self.block(connection)?;
        self.writing.insert(connection, (block, 0));
        Some(Next::Block(block))
    }

    fn take_whole(&mut self, connection: u32) -> Vec<u64> {
        let (mut taken, mut size) = (Vec::new(), 0);
        let most = self.batches.get(&connection).copied().unwrap_or(FIRST_BATCH);
        while let Some(stream) = self.waiting.front() {
            let Some(file) = self.whole.get_mut(stream) else {
                self.waiting.pop_front();
                continue;
            };
            size += file.size;
            if !taken.is_empty() && (size > most || taken.len() >= MOST_BATCH) {
                break;
            }
            file.sent = Some(connection);
            taken.push(*stream);
            self.waiting.pop_front();
        }
        if !taken.is_empty() {
            self.batches.insert(connection, (2 * most).min(BATCH));
        }
        taken
    }

    fn block(&mut self, connection: u32) -> Option<Block> {
        for (number, stream) in &mut self.streams {
            let Some(index) = stream.take() else { continue };
            let (offset, length) = block_range(stream.size, index)?;
            stream.blocks[index as usize] = State::Sent { connection };
            return Some(Block { stream: *number, index, offset, length });
        }
        None
    }

    /// Gives the last blocks of slow connections to idle ones; the receiver keeps the copy that arrives
    /// first. Called at intervals of 250 ms; returns whether there is a block to send.
    ///
    /// A block is given to another connection if no other block is left to send, the block has been written
    /// on its connection for [`SLOW_CHECKS`] intervals, and a connection has nothing to do. The connections in `limited`
    /// are not slow: the rate limit of the copy paces them, and they get the shares of connections that have nothing to
    /// do. A second copy of a block would only use up the limit.
    pub(crate) fn rescue(&mut self, open: impl Iterator<Item = u32>, limited: &BTreeSet<u32>) -> bool {
        let is_left = self.streams.values_mut().any(Stream::has_pending);
        let mut free = open.filter(|number| {
            !self.writing.contains_key(number)
                && !self.resting.contains(number)
                && !self.lost.contains(number)
        });
        let is_free = free.next().is_some();
        drop(free);
        let mut is_given = false;
        for (connection, (block, checks)) in &mut self.writing {
            if limited.contains(connection) {
                continue;
            }
            *checks += 1;
            if is_left || !is_free || *checks != SLOW_CHECKS {
                continue;
            }
            let Some(stream) = self.streams.get_mut(&block.stream) else { continue };
            let state = &mut stream.blocks[block.index as usize];
            if *state == (State::Sent { connection: *connection }) {
                *state = State::Pending;
                stream.returned.push_back(block.index);
                is_given = true;
            }
        }
        is_given
    }

    /// Returns those of the connections `open` that have written their last block or file, if none is left to send.
    pub(crate) fn finished(&mut self, open: impl Iterator<Item = u32>) -> BTreeSet<u32> {
        let is_left = self.waiting.iter().any(|stream| self.whole.contains_key(stream))
            || self.streams.values_mut().any(Stream::has_pending);
        match is_left {
            true => BTreeSet::new(),
            false => open.filter(|number| !self.writing.contains_key(number)).collect(),
        }
    }

    /// Sets whether no connection gets anything to send.
    pub(crate) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Records that a lost connection has been opened anew.
    pub(crate) fn reopened(&mut self, connection: u32) {
        self.lost.remove(&connection);
        self.batches.remove(&connection);
    }

    /// Sets the connections that rest: they get nothing to send at present.
    pub(crate) fn rest(&mut self, connections: BTreeSet<u32>) {
        self.resting = connections;
    }

    /// Records blocks that survive a crash of the receiver; ignores unknown streams and blocks.
    pub(crate) fn durable(&mut self, stream: u64, ranges: &[(u64, u64)]) {
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        let count = stream.blocks.len() as u64;
        for (start, end) in ranges {
            for index in *start..(*end).min(count) {
                stream.blocks[index as usize] = State::Durable;
            }
        }
        let blocks = &stream.blocks;
        stream.returned.retain(|index| blocks[*index as usize] == State::Pending);
    }

    /// Makes blocks and files pending again if a lost connection had taken them and they are not durable.
    /// Returns their number.
    pub(crate) fn lost(&mut self, connection: u32) -> u64 {
        self.writing.remove(&connection);
        self.lost.insert(connection);
        let mut returned = 0;
        for stream in self.streams.values_mut() {
            for (index, state) in (0..).zip(&mut stream.blocks) {
                if *state == (State::Sent { connection }) {
                    *state = State::Pending;
                    stream.returned.push_back(index);
                    returned += 1;
                }
            }
        }
        for (number, file) in &mut self.whole {
            if file.sent == Some(connection) {
                file.sent = None;
                self.waiting.push_back(*number);
                returned += 1;
            }
        }
        returned
    }

    /// Removes a stream whose file has been placed.
    pub(crate) fn remove(&mut self, stream: u64) {
        self.streams.remove(&stream);
        self.whole.remove(&stream);
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_units::draw;

    use super::*;
    use crate::engine::BLOCK;

    #[test]
    fn a_connection_is_finished_when_no_block_is_left_for_it() {
        let mut dispatcher = Dispatcher::default();
        dispatcher.add(1, 3 * BLOCK, &[]);
        let finished =
            |dispatcher: &mut Dispatcher| dispatcher.finished(0..3).into_iter().collect::<Vec<_>>();
        assert!(dispatcher.next(0).is_some() && dispatcher.next(1).is_some());
        assert_eq!(finished(&mut dispatcher), [0; 0], "a block is left");
        assert!(dispatcher.next(0).is_some());
        assert_eq!(finished(&mut dispatcher), [2], "the others write their blocks");
        assert!(dispatcher.next(1).is_none());
        assert_eq!(finished(&mut dispatcher), [1, 2]);
        dispatcher.lost(0);
        assert_eq!(finished(&mut dispatcher), [0; 0], "two blocks of the lost connection are left");
    }

    #[test]
    fn the_last_block_of_a_slow_connection_is_sent_on_a_free_one() {
        let mut dispatcher = Dispatcher::default();
        dispatcher.add(1, 3 * BLOCK, &[]);
        let index = |next: Option<Next>| match next {
            Some(Next::Block(block)) => Some(block.index),
            _ => None,
        };
        assert_eq!([index(dispatcher.next(0)), index(dispatcher.next(1))], [Some(0), Some(1)]);
        let (open, none) = (|| 0..2, BTreeSet::new());
        assert!(!dispatcher.rescue(open(), &none) && !dispatcher.rescue(open(), &none), "a block is left");
        assert_eq!(index(dispatcher.next(1)), Some(2));
        assert!(!dispatcher.rescue(open(), &none), "no connection is free");
        assert_eq!(index(dispatcher.next(1)), None);
        dispatcher.add(2, 2 * BLOCK, &[]);
        assert_eq!([index(dispatcher.next(1)), index(dispatcher.next(1))], [Some(0), Some(1)]);
        assert_eq!(index(dispatcher.next(1)), None);
        assert_eq!(index(dispatcher.next(0)), None, "connection 0 is not slow any more");
        dispatcher.add(3, 2 * BLOCK, &[]);
        assert_eq!([index(dispatcher.next(0)), index(dispatcher.next(1))], [Some(0), Some(1)]);
        assert_eq!(index(dispatcher.next(1)), None);
        assert!(!dispatcher.rescue(open(), &none), "connection 0 has had one interval");
        for _ in 0..4 {
            assert!(!dispatcher.rescue(open(), &BTreeSet::from([0])), "the rate limit paces connection 0");
        }
        assert!(dispatcher.rescue(open(), &none), "connection 0 is slow");
        assert_eq!(index(dispatcher.next(1)), Some(0), "the free connection sends its block");
        assert_eq!(index(dispatcher.next(1)), None);
        assert!(!dispatcher.rescue(open(), &none), "only once");
        assert_eq!(dispatcher.lost(0), 1, "its last block belongs to the other connection");
        assert_eq!(dispatcher.lost(1), 6);
    }

    #[test]
    fn each_block_is_sent_once_and_in_order() {
        let mut dispatcher = Dispatcher::default();
        dispatcher.add(1, 2 * BLOCK + 5, &[]);
        dispatcher.add(2, 3, &[]);
        let sent: Vec<_> = std::iter::from_fn(|| dispatcher.block(0)).collect();
        let places: Vec<_> = sent.iter().map(|block| (block.stream, block.offset, block.length)).collect();
        let whole = BLOCK as usize;
        assert_eq!(places, [(1, 0, whole), (1, BLOCK, whole), (1, 2 * BLOCK, 5), (2, 0, 3)]);
    }

    #[test]
    fn a_stream_grows_while_it_is_sent() {
        let mut dispatcher = Dispatcher::default();
        dispatcher.add(1, 0, &[]);
        assert_eq!(dispatcher.block(0), None);
        for size in [BLOCK, 2 * BLOCK, 2 * BLOCK + 5] {
            dispatcher.grow(1, size);
            let (index, length) = ((size - 1) / BLOCK, if size % BLOCK == 5 { 5 } else { BLOCK as usize });
            assert_eq!(dispatcher.block(0), Some(Block { stream: 1, index, offset: index * BLOCK, length }));
            assert_eq!(dispatcher.block(0), None);
        }
        assert_eq!(dispatcher.lost(0), 3);
    }

    #[test]
    fn durable_blocks_are_not_sent() {
        let mut dispatcher = Dispatcher::default();
        dispatcher.add(1, 6 * BLOCK, &[(0, 2), (4, 99)]);
        let sent: Vec<_> = std::iter::from_fn(|| dispatcher.block(0)).map(|block| block.index).collect();
        assert_eq!(sent, [2, 3]);
    }

    #[test]
    fn blocks_of_a_lost_connection_are_sent_on_another() {
        let mut dispatcher = Dispatcher::default();
        dispatcher.add(1, 4 * BLOCK, &[]);
        for connection in [0, 1, 0] {
            dispatcher.block(connection);
        }
        dispatcher.durable(1, &[(0, 1)]);
        assert_eq!(dispatcher.lost(0), 1, "block 0 is durable, block 1 went to connection 1");
        assert_eq!(dispatcher.next(0), None, "a lost connection");
        let sent: Vec<_> = std::iter::from_fn(|| dispatcher.block(1)).map(|block| block.index).collect();
        assert_eq!(sent, [2, 3]);
        assert_eq!(dispatcher.lost(1), 3);
        assert_eq!(dispatcher.next(1), None, "connection 1 is lost");
        dispatcher.durable(1, &[(1, 4)]);
        assert_eq!(dispatcher.block(2), None, "blocks that became durable meanwhile are not sent");
    }

    #[test]
    fn a_resting_connection_gets_nothing() {
        let mut dispatcher = Dispatcher::default();
        dispatcher.add(1, 4 * BLOCK, &[]);
        dispatcher.rest(BTreeSet::from([1]));
        assert!(dispatcher.next(1).is_none() && dispatcher.next(0).is_some());
        dispatcher.rest(BTreeSet::new());
        assert!(dispatcher.next(1).is_some());
    }

    #[test]
    fn whole_files_are_sent_several_at_once_and_before_blocks() {
        let mut dispatcher = Dispatcher::default();
        dispatcher.add(1, 2 * BLOCK, &[]);
        for (stream, size) in [(2, 0), (3, FIRST_BATCH), (4, BLOCK), (5, 1)] {
            dispatcher.add_whole(stream, size);
        }
        dispatcher.remove(5);
        let files = |streams: &[u64]| Some(Next::Files(streams.to_vec()));
        assert_eq!(dispatcher.next(0), files(&[2, 3]));
        assert_eq!(dispatcher.next(1), files(&[4]), "larger than a batch");
        assert!(matches!(dispatcher.next(1), Some(Next::Block(_))), "stream 5 has been placed");
        dispatcher.remove(2);
        assert_eq!(dispatcher.lost(0), 1, "stream 2 has been placed");
        assert_eq!(dispatcher.next(1), files(&[3]));
        for stream in 10..10 + 2 * MOST_BATCH as u64 {
            dispatcher.add_whole(stream, 1);
        }
        let taken: Vec<_> = std::iter::from_fn(|| dispatcher.next(1)).collect();
        let lengths = taken.iter().filter_map(|next| match next {
            Next::Files(files) => Some(files.len()),
            Next::Block(_) => None,
        });
        assert_eq!(lengths.collect::<Vec<_>>(), [MOST_BATCH; 2]);
    }

    /// The first batch of each connection fits into its initial window, so that all connections begin to send at once.
    #[test]
    fn the_batches_of_a_connection_grow() {
        let mut dispatcher = Dispatcher::default();
        for stream in 0..200 {
            dispatcher.add_whole(stream, 10 << 10);
        }
        let mut lengths = |connection: u32, count: usize| -> Vec<usize> {
            let taken = std::iter::repeat_with(|| dispatcher.next(connection)).take(count);
            taken.map(|next| if let Some(Next::Files(files)) = next { files.len() } else { 0 }).collect()
        };
        assert_eq!(lengths(0, 6), [1, 3, 6, 12, 25, 25], "16, 32, 64, 128 and 256 KiB");
        assert_eq!(lengths(1, 2), [1, 3]);
        dispatcher.lost(1);
        dispatcher.reopened(1);
        assert!(matches!(dispatcher.next(1), Some(Next::Files(files)) if files.len() == 1));
    }

    /// Whichever connections fail and whichever blocks become durable, every block is durable in the end, and
    /// no block is sent by two live connections.
    #[test]
    fn no_block_is_forgotten() {
        for seed in 0..300 {
            let mut dispatcher = Dispatcher::default();
            let sizes: Vec<u64> = (0..4).map(|n| draw(seed, 0, n) % (9 * BLOCK)).collect();
            for (stream, size) in (0..).zip(&sizes) {
                dispatcher.add(stream, *size, &[]);
            }
            let all: u64 = sizes.iter().map(|size| block_count(*size)).sum();
            let (mut sent, mut durable) = (BTreeSet::new(), BTreeSet::new());
            let (mut connections, mut opened) = ([0, 1, 2], 3);
            for step in 0..10_000 {
                let place = (draw(seed, 1, step) % 3) as usize;
                let connection = connections[place];
                match draw(seed, 2, step) % 8 {
                    0 => {
                        let before = sent.len();
                        sent.retain(|(_, _, holder)| *holder != connection);
                        assert_eq!(dispatcher.lost(connection), (before - sent.len()) as u64);
                        assert_eq!(dispatcher.next(connection), None);
                        connections[place] = opened;
                        opened += 1;
                    }
                    1 | 2 => {
                        if let Some((stream, index, _)) = sent.pop_first() {
                            dispatcher.durable(stream, &[(index, index + 1)]);
                            durable.insert((stream, index));
                        }
                    }
                    _ => {
                        if let Some(Next::Block(block)) = dispatcher.next(connection) {
                            let other = sent.iter().any(|(s, i, _)| (*s, *i) == (block.stream, block.index));
                            assert!(!other && !durable.contains(&(block.stream, block.index)), "seed {seed}");
                            sent.insert((block.stream, block.index, connection));
                        }
                    }
                }
                if durable.len() as u64 == all {
                    break;
                }
            }
            assert_eq!(durable.len() as u64, all, "seed {seed}");
            assert_eq!(dispatcher.block(opened), None);
        }
    }
}
