//! Announces a pipe, makes the bytes that were read from it available, and ends it.

use std::io;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::{Driver, OpenFile};
use crate::engine::{MOST_SIZE, block_count};
use crate::error::Error;
use crate::frame::PlacedPipe;
use crate::locked;
use crate::send::connection::Event;
use crate::send::pipe::Held;

/// Time for which a producer must have waited before the copy reports it to the user.
const NOTED: std::time::Duration = std::time::Duration::from_secs(1);

/// A pipe that is being read.
#[derive(Debug)]
pub(super) struct OpenPipe {
    pub(super) stream: u64,
    pub(super) held: Arc<Held>,
    /// Whether the relay has replied to the announcement.
    pub(super) is_opened: bool,
    /// Whether the user has been told that the producer waits.
    pub(super) is_noted: bool,
}

impl Driver<'_> {
    /// Announces a pipe. A pipe without a name cannot be continued, so reading starts at once.
    pub(in crate::send) fn pipe(&mut self, held: &Arc<Held>) -> Result<(), Error> {
        if !held.is_named() && held.from().is_none() {
            held.begin(&[])?;
        }
        self.total.files += 1;
        self.large.count += 1;
        let stream = self.add(OpenFile::file(0));
        self.request(self.opening(stream, &held.outgoing.source, true, Some(held.announcement())));
        locked(&self.shared.files).insert(stream, Arc::clone(&held.outgoing));
        self.pipe = Some(OpenPipe { stream, held: Arc::clone(held), is_opened: false, is_noted: false });
        Ok(())
    }

    /// Makes the bytes that were read from the pipe available to the connections.
    pub(in crate::send) fn piped(&mut self) -> Result<(), Error> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        if let Some(error) = pipe.held.failure() {
            return Err(Error::system("read the pipe", &error));
        }
        let (reading, stream, is_opened) = (pipe.held.reading(), pipe.stream, pipe.is_opened);
        let size = reading.size;
        if size > MOST_SIZE {
            let message = format!("the pipe has more than {MOST_SIZE} bytes");
            return Err(Error::usage(message, "copy the data in parts"));
        }
        if reading.blocked() >= NOTED && !std::mem::replace(&mut pipe.is_noted, true) {
            self.observer.note("the producer waits, because it writes faster than the copy sends");
        }
        pipe.held.report(self.observer);
        let Some(open) = self.open.get_mut(&stream) else { return Ok(()) };
        if size > open.size {
            let added = size - open.size;
            open.size = size;
            self.total.bytes += added;
            self.large.bytes += added;
            locked(&self.shared.dispatcher).grow(stream, size);
            self.shared.wake();
        }
        if reading.is_last
            && is_opened
            && let Some(file) = self.outgoing(stream)
        {
            locked(&file.values).end(size);
            self.finish(stream)?;
        }
        Ok(())
    }

    /// Starts or continues to read the pipe; the blocks in `durable` are not sent.
    pub(super) fn opened_pipe(&mut self, stream: u64, durable: &[(u64, u64)]) -> Result<(), Error> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let most = block_count(MOST_SIZE);
        if durable.iter().any(|(start, end)| start >= end || *end > most) {
            return Err(self.broken());
        }
        pipe.held.begin(durable)?;
        self.piped()?;
        let size = self.open.get(&stream).map_or(0, |open| open.size);
        locked(&self.shared.dispatcher).add(stream, size, durable);
        self.total.resumed += self.count(stream, durable);
        if let Some(pipe) = &mut self.pipe {
            pipe.is_opened = true;
        }
        self.piped()
    }

    /// Closes the pipe, whose file the relay has placed.
    pub(super) fn placed_pipe(&mut self, stream: u64, placed: PlacedPipe) -> Result<(), Error> {
        let Some(pipe) = &self.pipe else { return Ok(()) };
        let reading = pipe.held.reading();
        let is_begun = pipe.held.from().is_some();
        if is_begun && (reading.size, reading.is_last) != (placed.size, true) {
            return Err(self.broken());
        }
        let completed = pipe.held.complete(placed.size);
        completed.map_err(|error| Error::system("remove the spool", &error))?;
        self.last_hash = Some(placed.blake3);
        pipe.held.report(self.observer);
        if is_begun {
            return self.close(stream);
        }
        // An earlier process sent the whole stream, so the producer must have no more data.
        if let Some(open) = self.open.get_mut(&stream) {
            (open.size, open.durable) = (placed.size, placed.size);
            self.large.bytes += placed.size;
            self.total.bytes += placed.size;
            self.total.resumed += placed.size;
            self.durable_bytes += placed.size;
        }
        let (held, events) = (Arc::clone(&pipe.held), self.events.clone());
        spawn_blocking(move || {
            let _ = events.send(Event::Rest(stream, held.is_at_end()));
        });
        Ok(())
    }

    /// Closes a pipe that an earlier process has sent completely, or fails if the producer has more data.
    pub(super) fn rest(&mut self, stream: u64, is_at_end: io::Result<bool>) -> Result<(), Error> {
        if is_at_end.map_err(|error| Error::system("read the pipe", &error))? {
            return self.close(stream);
        }
        Err(Error::usage(
            "the stream is already complete, but the producer has written more data",
            "choose another --stream for other data",
        ))
    }

    /// Returns whether a stream is the pipe.
    pub(super) fn is_pipe(&self, stream: u64) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| pipe.stream == stream)
    }
}
