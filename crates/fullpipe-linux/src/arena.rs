//! Packet memory of an emulated path: fixed-size chunks that are filled in order and reused once they are
//! empty.
//!
//! Packets leave the path roughly in the order of their arrival, so a chunk becomes empty soon after its last
//! packet was stored. Once there are as many chunks as the path needs, no more chunks are allocated.

/// Size of a chunk in bytes. A chunk holds many packets, but is small in comparison with a bandwidth-delay
/// product.
const CHUNK: usize = 1 << 20;

/// Location of a packet stored in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    chunk: u32,
    at: u32,
    pub(crate) len: u32,
}

#[derive(Debug)]
struct Chunk {
    bytes: Box<[u8]>,
    /// Number of references to packets in this chunk; when it reaches zero, the chunk can be reused.
    pieces: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Arena {
    chunks: Vec<Chunk>,
    free: Vec<u32>,
    current: Option<(u32, usize)>,
}

impl Arena {
    /// Returns space for a packet of at most `most` bytes, which the caller fills and commits with
    /// [`Arena::keep`].
    pub(crate) fn room(&mut self, most: usize) -> &mut [u8] {
        if self.current.is_none_or(|(_, used)| used + most > CHUNK) {
            self.next_chunk();
        }
        let (chunk, used) = self.current.unwrap_or_default();
        &mut self.chunks[chunk as usize].bytes[used..used + most]
    }

    /// Commits the first `len` bytes of the space from `room` as one packet that has `pieces` references.
    pub(crate) fn keep(&mut self, len: usize, pieces: u32) -> Slot {
        let (chunk, used) = self.current.unwrap_or_default();
        self.chunks[chunk as usize].pieces += pieces;
        self.current = Some((chunk, used + len));
        Slot { chunk, at: used as u32, len: len as u32 }
    }

    pub(crate) fn bytes(&self, slot: Slot) -> &[u8] {
        &self.chunks[slot.chunk as usize].bytes[slot.at as usize..][..slot.len as usize]
    }

    /// Adds a reference to the stored packet.
    pub(crate) fn retain(&mut self, slot: Slot) {
        self.chunks[slot.chunk as usize].pieces += 1;
    }

    /// Drops a reference to the stored packet.
    pub(crate) fn release(&mut self, slot: Slot) {
        let chunk = &mut self.chunks[slot.chunk as usize];
        chunk.pieces -= 1;
        if chunk.pieces == 0 && self.current.is_none_or(|(current, _)| current != slot.chunk) {
            self.free.push(slot.chunk);
        }
    }

    fn next_chunk(&mut self) {
        // All packets in the current chunk may have left the path before the chunk was full.
        if let Some((last, _)) = self.current.take()
            && self.chunks[last as usize].pieces == 0
        {
            self.free.push(last);
        }
        let chunk = self.free.pop().unwrap_or_else(|| {
            self.chunks.push(Chunk { bytes: vec![0; CHUNK].into_boxed_slice(), pieces: 0 });
            (self.chunks.len() - 1) as u32
        });
        self.current = Some((chunk, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a packet stay valid until its last reference is dropped; after that, its chunk is reused.
    #[test]
    fn chunks_come_back_when_their_last_piece_leaves() {
        let mut arena = Arena::default();
        let mut held = std::collections::VecDeque::new();
        for n in 0u32..10_000 {
            let packet = [n as u8; 1_500];
            arena.room(65_545)[..1_500].copy_from_slice(&packet);
            let slot = arena.keep(1_500, 2);
            held.push_back((n, slot));
            if held.len() > 1_000 {
                let (n, slot) = held.pop_front().expect("held");
                assert!(arena.bytes(slot).iter().all(|&byte| byte == n as u8));
                arena.release(slot);
                assert!(arena.bytes(slot).iter().all(|&byte| byte == n as u8), "one piece is still there");
                arena.release(slot);
            }
        }
        // The expected number of chunks is enough for 1000 packets of 1500 bytes and for the unused space at
        // the end of each chunk.
        assert!(arena.chunks.len() <= 4, "{} chunks", arena.chunks.len());
    }
}
