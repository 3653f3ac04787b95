//! Content of the files that are being sent, with its hash.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::SeekFrom;

use crate::engine::{BLOCK, Block, block_range};
use crate::error::Error;
use crate::frame::{DataHeader, HASH, HEADER, Header, Storage};
use crate::hash::{BlockValues, OPEN_END, block_value};
use crate::hex::Hex;
use crate::locked;
use crate::sources::{SourceFile, source_of};

/// A file that is sent in blocks.
#[derive(Debug)]
pub(super) struct Outgoing {
    file: Arc<File>,
    pub(super) source: SourceFile,
    pub(super) values: Mutex<BlockValues>,
    has_holes: bool,
    /// Whether the file is the memory or the spool of a pipe.
    is_pipe: bool,
    /// Offset of the content in the file.
    base: u64,
}

impl Outgoing {
    /// Opens a file.
    pub(super) fn open(source: SourceFile) -> Result<Self, (SourceFile, io::Error)> {
        match open(&source) {
            Ok((file, has_holes)) => {
                let values = Mutex::new(BlockValues::new(source.source.size));
                Ok(Self { file: Arc::new(file), source, values, has_holes, is_pipe: false, base: 0 })
            }
            Err(error) => Err((source, error)),
        }
    }

    /// Creates the content of a pipe, whose bytes begin at the offset `base` in `memory`.
    pub(super) fn pipe(source: SourceFile, memory: Arc<File>, base: u64) -> Self {
        let values = Mutex::new(BlockValues::new(OPEN_END));
        Self { file: memory, source, values, has_holes: false, is_pipe: true, base }
    }

    /// Replaces the content of `buffer` with the frame of a block, and adds the block to the hash.
    pub(super) fn frame(&self, block: Block, buffer: &mut Vec<u8>) -> io::Result<()> {
        let Block { stream, index, offset, length } = block;
        let storage = match self.has_holes {
            true => storage(&self.file, offset, length)?,
            false => Storage::Full,
        };
        let header = DataHeader { stream, offset, length, storage };
        buffer.clear();
        buffer.reserve_exact(HEADER + length);
        buffer.extend_from_slice(&Header::Data(header).encode());
        buffer.resize(HEADER + length, 0);
        let content = &mut buffer[HEADER..];
        // The buffer already contains the zeros of a hole.
        match storage {
            Storage::Hole => self.hashed(index, offset, content)?,
            Storage::Full | Storage::Sparse => self.read(index, offset, content)?,
        }
        buffer.truncate(HEADER + header.carried());
        Ok(())
    }

    /// Reads a block, and adds it to the hash.
    fn read(&self, index: u64, offset: u64, content: &mut [u8]) -> io::Result<()> {
        read(&self.file, content, self.base + offset)?;
        self.hashed(index, offset, content)
    }

    /// Adds a block to the hash.
    fn hashed(&self, index: u64, offset: u64, content: &[u8]) -> io::Result<()> {
        let size = if self.is_pipe { OPEN_END } else { self.source.source.size };
        let value = block_value(size, offset, content);
        // The block of a lost connection is read a second time. A block of a pipe may have been removed
        // since, because it has become durable; the relay then drops the second copy.
        if locked(&self.values).set(index, value) || self.is_pipe { Ok(()) } else { Err(changed()) }
    }

    /// Adds the blocks in `durable`, which are not sent, to the hash.
    pub(super) fn hash(&self, durable: &[(u64, u64)]) -> io::Result<()> {
        let mut content = Vec::new();
        for index in durable.iter().flat_map(|(start, end)| *start..*end) {
            let Some((offset, length)) = block_range(self.source.source.size, index) else { break };
            content.resize(length, 0);
            self.read(index, offset, &mut content)?;
        }
        Ok(())
    }

    /// Fails if the file has changed since it was listed.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.is_pipe { Ok(()) } else { check(&self.file, &self.source) }
    }
}

/// Appends the frame of a whole file to `buffer`; returns its hash.
pub(super) fn push_whole(buffer: &mut Vec<u8>, stream: u64, source: &SourceFile) -> io::Result<Hex<HASH>> {
    let (file, has_holes) = open(source)?;
    // The size is at most one block.
    let size = source.source.size as usize;
    let start = buffer.len();
    let sparse = has_holes && storage(&file, 0, size)? != Storage::Full;
    buffer.extend_from_slice(&Header::Whole { stream, length: HASH + size, sparse }.encode());
    let content = start + HEADER + HASH;
    buffer.resize(content + size, 0);
    let read = read(&file, &mut buffer[content..], 0).and_then(|()| check(&file, source));
    if let Err(error) = read {
        buffer.truncate(start);
        return Err(error);
    }
    let hash = *blake3::hash(&buffer[content..]).as_bytes();
    buffer[content - HASH..content].copy_from_slice(&hash);
    Ok(Hex(hash))
}

/// Returns the hash of a file.
pub(super) fn hash_file(source: &SourceFile) -> io::Result<Hex<HASH>> {
    let (file, _) = open(source)?;
    let mut hasher = blake3::Hasher::new();
    let (mut buffer, mut offset) = (Vec::new(), 0);
    while offset < source.source.size {
        let length = (source.source.size - offset).min(BLOCK) as usize;
        buffer.resize(length, 0);
        read(&file, &mut buffer, offset)?;
        hasher.update(&buffer);
        offset += length as u64;
    }
    check(&file, source)?;
    Ok(Hex(*hasher.finalize().as_bytes()))
}

/// Opens a file; returns whether it has holes, which means that it occupies less than its size.
fn open(source: &SourceFile) -> io::Result<(File, bool)> {
    let file = source.tree.open(&source.path)?;
    let metadata = file.metadata()?;
    if source_of(&metadata) != source.source {
        return Err(changed());
    }
    Ok((file, metadata.blocks() * 512 < metadata.len()))
}

/// Returns how a part of a file is stored. On file systems that do not record holes, the whole part counts as
/// stored.
fn storage(file: &File, offset: u64, length: usize) -> io::Result<Storage> {
    let end = offset + length as u64;
    let data = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(data) => data,
        // The rest of the file contains no data.
        Err(rustix::io::Errno::NXIO) => return Ok(Storage::Hole),
        Err(rustix::io::Errno::INVAL) => return Ok(Storage::Full),
        Err(error) => return Err(error.into()),
    };
    if data >= end {
        return Ok(Storage::Hole);
    }
    let hole = rustix::fs::seek(file, SeekFrom::Hole(offset))?;
    Ok(if data == offset && hole >= end { Storage::Full } else { Storage::Sparse })
}

fn check(file: &File, source: &SourceFile) -> io::Result<()> {
    if source_of(&file.metadata()?) == source.source { Ok(()) } else { Err(changed()) }
}

fn read(file: &File, content: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(content, offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => changed(),
        _ => error,
    })
}

/// Creates the error for a source that cannot be read, or has changed.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> Error {
    if error.get_ref().is_some_and(|inner| inner.is::<Changed>()) {
        return Error::runtime(
            format!("{} changed during the copy", path.display()),
            "run the same command again when no program writes to the file",
        );
    }
    Error::system(format_args!("read {}", path.display()), error)
}

/// Error for a file that has changed since it was listed.
#[derive(Debug)]
struct Changed;

impl std::fmt::Display for Changed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the file changed during the copy")
    }
}

impl std::error::Error for Changed {}

fn changed() -> io::Error {
    io::Error::other(Changed)
}
