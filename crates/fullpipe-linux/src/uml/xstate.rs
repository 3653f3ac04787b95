//! Processor state of the guest's processes, on a host whose processor state is larger than User-Mode Linux
//! expects.
//!
//! ```text
//!   bytes 0 ... 511    x87 and SSE
//!         512 ... 575  header: a bit for each component whose content is stored
//!         576 ...      further components (AVX, AVX-512, AMX, ...), each at an offset that the processor states
//! ```
//!
//! Linux 6.1 as User-Mode Linux reads and writes the state of its processes with 2696 bytes, the size with
//! AVX-512. On a processor with AMX, the state has 11 008 bytes. The host's kernel returns the first part of
//! the state to a caller with less room, but accepts only a whole state.

use std::arch::x86_64::__cpuid_count;

/// Offset of the bits of the stored components.
const STORED: usize = 512;
/// Number of components in the legacy part.
const LEGACY: u32 = 2;

/// Memory of one whole processor state.
pub struct ProcessorState(Vec<u8>);

impl ProcessorState {
    /// Creates the memory of a state of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self(vec![0; size])
    }

    /// Returns the size of a whole state in bytes.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// Returns the whole state whose first bytes are `part`. Components after `part` are in their initial
    /// state; they stay in it as long as the guest's kernel does not support them.
    pub fn complete(&mut self, part: &[u8]) -> &mut [u8] {
        self.complete_with(part, |component| {
            // Linux returns the state in the standard format; CPUID reports the size and the offset of each component.
            let found = __cpuid_count(0xd, component);
            found.ebx as usize + found.eax as usize
        })
    }

    /// Like [`Self::complete`]; `end` returns the offset at which a component ends.
    fn complete_with(&mut self, part: &[u8], end: impl Fn(u32) -> usize) -> &mut [u8] {
        let len = part.len().min(self.0.len());
        let (begin, rest) = self.0.split_at_mut(len);
        begin.copy_from_slice(&part[..len]);
        rest.fill(0);
        if let Some(bits) = self.0.get_mut(STORED..STORED + 8) {
            let mut stored = [0; 8];
            stored.copy_from_slice(bits);
            let stored = u64::from_le_bytes(stored);
            let whole = (0..u64::BITS)
                .filter(|component| stored & (1 << component) != 0)
                .filter(|&component| component < LEGACY || end(component) <= len);
            let kept: u64 = whole.map(|component| 1 << component).sum();
            bits.copy_from_slice(&kept.to_le_bytes());
        }
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Components that end within the part are kept, others are in their initial state. No part of the
    /// previous state remains.
    #[test]
    fn components_beyond_the_part_are_in_their_initial_state() {
        let mut state = ProcessorState::new(2_048);
        let end = |component| [0, 0, 832, 1_088, 1_536][component as usize];
        let mut part = vec![7; 1_100];
        part[STORED..STORED + 8].copy_from_slice(&0b1_1111_u64.to_le_bytes());
        state.complete_with(&[1; 2_048], |_| 0);
        let whole = state.complete_with(&part, end);
        assert_eq!(whole[STORED..STORED + 8], 0b0_1111_u64.to_le_bytes());
        assert_eq!((&whole[..STORED], &whole[STORED + 8..1_100]), (&part[..STORED], &part[STORED + 8..]));
        assert!(whole.len() == 2_048 && whole[1_100..].iter().all(|&byte| byte == 0));
    }

    /// This processor's AVX state, if it has one, lies directly behind the header.
    #[test]
    fn the_processor_states_where_components_end() {
        if std::is_x86_feature_detected!("avx") {
            let mut part = vec![0; 832];
            part[STORED] = 0b111;
            assert_eq!(ProcessorState::new(4_096).complete(&part)[STORED], 0b111);
            assert_eq!(ProcessorState::new(4_096).complete(&part[..831])[STORED], 0b011);
        }
    }
}
