//! File that this process writes through memory, and that another process reads after this one has died.
//!
//! A store into the file is an ordinary store into memory. It is complete even if the process is killed
//! directly afterwards, and costs no system call.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crate::sys;

const WORD: usize = size_of::<AtomicU64>();
/// Number of words for which the file system reserves storage at once.
const CHUNK: usize = 4 << 10;

/// File of a fixed length that is mapped into memory as 64-bit words in native byte order.
#[derive(Debug)]
pub struct SharedFile {
    file: File,
    start: NonNull<AtomicU64>,
    len: usize,
    /// Number of words for which storage is reserved.
    reserved: usize,
}

// SAFETY: the mapping belongs to this value, and its words are atomic.
unsafe impl Send for SharedFile {}

impl SharedFile {
    /// Maps a file that is open for reading and writing. The length of the file must not change later.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot map the file, for example because it is empty.
    pub fn map(file: File) -> io::Result<Self> {
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let start = sys::map_shared(file.as_fd(), bytes)?.cast();
        Ok(Self { file, start, len: bytes / WORD, reserved: 0 })
    }

    /// Returns `count` words from position `at`. The first call for a part of the file fills this part with
    /// zeros. Returns `None` if the words are beyond the end of the file, or if the file system is full.
    #[inline]
    pub fn words(&mut self, at: usize, count: usize) -> Option<&[AtomicU64]> {
        let end = at.checked_add(count)?;
        if end > self.reserved {
            self.reserve(end)?;
        }
        // SAFETY: the mapping consists of `len` words, is aligned to a page, and exists as long as this value.
        // Other processes may change it at any time, which atomic words permit.
        let words = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) };
        words.get(at..end)
    }

    /// Reserves storage up to the word `end`. A store without reserved storage would end the process with
    /// SIGBUS if the file system is full.
    #[cold]
    fn reserve(&mut self, end: usize) -> Option<()> {
        if end > self.len {
            return None;
        }
        while self.reserved < end {
            let count = CHUNK.min(self.len - self.reserved);
            self.file.write_all_at(&[0; CHUNK * WORD][..count * WORD], (self.reserved * WORD) as u64).ok()?;
            self.reserved += count;
        }
        Some(())
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, and no reference to its words outlives this value.
        unsafe { sys::unmap(self.start.cast(), self.len * WORD) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    /// A reader of the file sees each store at once. Words beyond the end do not exist, and storage is reserved
    /// only for the part that is used.
    #[test]
    fn stores_reach_the_file() {
        let file = tempfile::tempfile().expect("a file");
        let words = 3 * CHUNK + 1;
        file.set_len((words * WORD) as u64).expect("room");
        let reader = file.try_clone().expect("a descriptor");
        let mut shared = SharedFile::map(file).expect("a mapping");
        for (at, value) in [(0, 7), (CHUNK - 1, 8), (words - 2, 9)] {
            shared.words(at, 2).expect("room")[1].store(value, Relaxed);
            let mut bytes = [0; WORD];
            reader.read_exact_at(&mut bytes, ((at + 1) * WORD) as u64).expect("a word");
            assert_eq!(u64::from_ne_bytes(bytes), value);
        }
        assert_eq!(shared.words(1, 1).expect("room")[0].load(Relaxed), 7, "it is cleared only once");
        assert!(shared.words(words - 1, 2).is_none() && shared.words(usize::MAX, 2).is_none());
    }

    #[test]
    fn an_empty_file_cannot_be_mapped() {
        assert!(SharedFile::map(tempfile::tempfile().expect("a file")).is_err());
    }

    /// If the file system is full, there are no words, and the process continues.
    #[test]
    fn a_full_file_system_has_no_words() {
        let file = File::options().read(true).write(true).open("/dev/full").expect("a device");
        let mut shared = SharedFile { file, start: NonNull::dangling(), len: CHUNK, reserved: 0 };
        assert!(shared.words(0, 1).is_none());
        std::mem::forget(shared);
    }
}
