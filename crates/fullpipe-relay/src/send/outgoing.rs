//! Content of the files that are being sent, with its hash.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use crate::engine::block_range;
use crate::frame::{HASH, HEADER, Header};
use crate::hash::{BlockValues, block_value};
use crate::hex::Hex;
use crate::locked;
use crate::sources::{SourceFile, source_of};

/// A file that is sent in blocks.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) file: File,
    pub(super) source: SourceFile,
    pub(super) values: Mutex<BlockValues>,
}

impl Outgoing {
    /// Opens a file.
    pub(super) fn open(source: SourceFile) -> Result<Self, (SourceFile, io::Error)> {
        match open(&source) {
            Ok(file) => {
                let values = Mutex::new(BlockValues::new(source.source.size));
                Ok(Self { file, source, values })
            }
            Err(error) => Err((source, error)),
        }
    }

    /// Reads a block into the content of `buffer`, and adds it to the hash.
    pub(super) fn read(&self, index: u64, offset: u64, content: &mut [u8]) -> io::Result<()> {
        read(&self.file, content, offset)?;
        let value = block_value(self.source.source.size, offset, content);
        // A block of a lost connection is read a second time.
        if locked(&self.values).set(index, value) { Ok(()) } else { Err(changed()) }
    }

    /// Hashes the blocks that are not sent.
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
        check(&self.file, &self.source)
    }
}

/// Appends the frame of a whole file to `buffer`; returns its hash.
pub(super) fn push_whole(buffer: &mut Vec<u8>, stream: u64, source: &SourceFile) -> io::Result<Hex<HASH>> {
    let file = open(source)?;
    // At most one block.
    let size = source.source.size as usize;
    let start = buffer.len();
    buffer.extend_from_slice(&Header::Whole { stream, length: HASH + size }.encode());
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

fn open(source: &SourceFile) -> io::Result<File> {
    let file = File::open(&source.path)?;
    check(&file, source)?;
    Ok(file)
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

/// Kind of the error for a file that has changed.
#[derive(Debug)]
pub(super) struct Changed;

impl std::fmt::Display for Changed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it has changed while it was copied")
    }
}

impl std::error::Error for Changed {}

fn changed() -> io::Error {
    io::Error::other(Changed)
}
