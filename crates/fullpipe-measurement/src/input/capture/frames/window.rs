//! Window that slides through a file: each block is contiguous in one buffer, whose size does not depend on
//! the file size.

use std::io::{self, Read};

use crate::input::InputError;

/// Number of bytes per read, small enough to stay in the processor cache until they are parsed.
const BUFFER: usize = 256 << 10;

pub(super) struct Window<R> {
    source: R,
    buffer: Vec<u8>,
    /// Start of the bytes that were read but not yet consumed.
    begin: usize,
    end: usize,
}

impl<R: Read> Window<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, buffer: vec![0; BUFFER], begin: 0, end: 0 }
    }

    /// Returns the next bytes, at least `least` of them unless the file ends first.
    ///
    /// # Errors
    /// Returns an error if the source cannot be read.
    #[inline]
    pub(super) fn ahead(&mut self, least: usize) -> Result<&[u8], InputError> {
        if self.end - self.begin < least {
            self.refill(least).map_err(|e| {
                let hint = "copy the file again; if the file is compressed, check it with gzip -t FILE";
                InputError::new(format!("cannot be read to its end: {e}"), hint)
            })?;
        }
        Ok(&self.buffer[self.begin..self.end])
    }

    /// Consumes `octets` bytes, which [`Self::ahead`] must have returned.
    #[inline]
    pub(super) fn consume(&mut self, octets: usize) {
        self.begin += octets;
        debug_assert!(self.begin <= self.end);
    }

    /// Reads until at least `least` bytes are available: a pipe returns few bytes per read.
    #[cold]
    fn refill(&mut self, least: usize) -> io::Result<()> {
        self.buffer.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        self.begin = 0;
        if self.buffer.len() < least {
            self.buffer.resize(least.next_power_of_two(), 0);
        }
        while self.end < least {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(more) => self.end += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
