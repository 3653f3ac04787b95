//! The two halves of a relayed connection: a state machine without I/O.
//!
//! ```text
//!   client ──read──► pending ──write──► server        up
//!   client ◄──write── pending ◄──read── server        down
//! ```
//!
//! A half reads only after everything that it read before has been written, so back-pressure passes from one
//! side to the other. The end of one direction (a FIN) is passed on after its last byte, and the other
//! direction continues. A reset by the server is passed on after the bytes that the server sent before it; a
//! reset by the client ends both directions at once.

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Number of bytes that were read, at least one.
    Bytes(usize),
    /// No data has arrived at the moment.
    Wait,
    /// The peer has ended this direction.
    End,
    /// The connection was reset.
    Reset,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Number of bytes that were accepted; the caller must write the rest later.
    Accepted(usize),
    /// The connection was reset.
    Reset,
}

/// One end of a relayed connection.
pub trait End {
    /// Reads bytes that have arrived from the peer.
    fn read(&mut self, room: &mut [u8]) -> Input;
    /// Records that the destination has accepted the first `len` bytes of the last read. Returns whether this
    /// end has kept the remaining bytes and will return them again in the next read.
    fn accepted(&mut self, len: usize) -> bool {
        let _ = len;
        false
    }
    /// Writes bytes to the peer.
    fn write(&mut self, bytes: &[u8]) -> Output;
    /// Ends the direction to the peer after all written bytes.
    fn shutdown(&mut self);
}

/// Progress of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The half waits for data from its source.
    WaitsForData,
    /// The half waits for room at its destination.
    WaitsForRoom,
    /// The half has moved the maximum number of bytes for one call, and can continue at once.
    GoesOn,
    /// The destination has received all bytes and the FIN.
    Done,
    /// The source was reset; the destination has accepted all bytes that arrived before the reset.
    SourceReset,
    /// The destination was reset.
    SinkReset,
}

/// One direction of a relayed connection.
#[derive(Debug, Default)]
pub struct Half {
    /// Bytes that were read but could not be written at once; those before index `at` have been written
    /// since.
    pending: Vec<u8>,
    at: usize,
    /// How the source has ended; `None` while it has not ended.
    ended: Option<Progress>,
    done: Option<Progress>,
    carried: u64,
}

impl Half {
    /// Returns a half that sends `first` to its destination before the bytes of the source.
    pub fn starting_with(first: Vec<u8>) -> Self {
        Self { pending: first, ..Self::default() }
    }

    /// Returns the number of bytes that the destination has accepted.
    pub fn carried(&self) -> u64 {
        self.carried
    }

    /// Returns the number of bytes that were read but not written yet.
    pub fn pending(&self) -> usize {
        self.pending.len() - self.at
    }

    /// Returns the memory of the buffer, in bytes.
    pub fn memory(&self) -> usize {
        self.pending.capacity()
    }

    /// Returns whether the direction has ended, in an orderly way or by a reset.
    pub fn is_done(&self) -> bool {
        self.done.is_some()
    }

    /// Frees the buffer if it is empty, to save memory while the connection is idle. The buffer is allocated
    /// again when bytes have to wait.
    pub fn free_idle_memory(&mut self) {
        if self.pending() == 0 {
            (self.pending, self.at) = (Vec::new(), 0);
        }
    }

    /// Moves at most `most` bytes from `source` to `sink`, through `scratch`. If `may_read` is false, the
    /// half only writes pending bytes.
    pub fn pump(
        &mut self,
        source: &mut impl End,
        sink: &mut impl End,
        scratch: &mut [u8],
        most: usize,
        may_read: bool,
    ) -> Progress {
        if let Some(done) = self.done {
            return done;
        }
        let mut moved = 0;
        loop {
            if self.pending() > 0 {
                match sink.write(&self.pending[self.at..]) {
                    Output::Reset => return self.end(Progress::SinkReset),
                    Output::Accepted(taken) => {
                        self.at += taken;
                        self.carried += taken as u64;
                        moved += taken;
                    }
                }
                if self.pending() > 0 {
                    return Progress::WaitsForRoom;
                }
                self.pending.clear();
                self.at = 0;
            }
            if let Some(ended) = self.ended {
                if ended == Progress::Done {
                    sink.shutdown();
                }
                return self.end(ended);
            }
            if !may_read {
                return Progress::WaitsForRoom;
            }
            if moved >= most {
                return Progress::GoesOn;
            }
            match source.read(scratch) {
                Input::Wait => return Progress::WaitsForData,
                Input::End => self.ended = Some(Progress::Done),
                Input::Reset => self.ended = Some(Progress::SourceReset),
                Input::Bytes(len) => match sink.write(&scratch[..len]) {
                    Output::Reset => return self.end(Progress::SinkReset),
                    Output::Accepted(taken) => {
                        self.carried += taken as u64;
                        moved += taken;
                        let keeps_rest = source.accepted(taken);
                        if taken < len {
                            if !keeps_rest {
                                self.pending.extend_from_slice(&scratch[taken..len]);
                            }
                            return Progress::WaitsForRoom;
                        }
                    }
                },
            }
        }
    }

    fn end(&mut self, how: Progress) -> Progress {
        self.done = Some(how);
        (self.pending, self.at) = (Vec::new(), 0);
        how
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const SEVENS: &[u8] = &[7; 50];

    /// An end with a script of inputs, and room for a given number of bytes.
    #[derive(Default)]
    struct Scripted {
        inputs: VecDeque<Result<&'static [u8], Input>>,
        room: usize,
        written: Vec<u8>,
        ended: bool,
        reset: bool,
    }

    impl Scripted {
        fn saying(inputs: impl IntoIterator<Item = Result<&'static [u8], Input>>) -> Self {
            Self { inputs: inputs.into_iter().collect(), ..Self::default() }
        }

        fn with_room(room: usize) -> Self {
            Self { room, ..Self::default() }
        }
    }

    impl End for Scripted {
        fn read(&mut self, room: &mut [u8]) -> Input {
            match self.inputs.pop_front() {
                None => Input::Wait,
                Some(Err(input)) => input,
                Some(Ok(bytes)) => {
                    room[..bytes.len()].copy_from_slice(bytes);
                    Input::Bytes(bytes.len())
                }
            }
        }

        fn write(&mut self, bytes: &[u8]) -> Output {
            assert!(!self.ended, "a write after the end");
            if self.reset {
                return Output::Reset;
            }
            let taken = bytes.len().min(self.room);
            self.room -= taken;
            self.written.extend_from_slice(&bytes[..taken]);
            Output::Accepted(taken)
        }

        fn shutdown(&mut self) {
            assert!(!self.ended, "the end comes once");
            self.ended = true;
        }
    }

    fn pump(half: &mut Half, source: &mut impl End, sink: &mut Scripted) -> Progress {
        half.pump(source, sink, &mut [0; 64], 1_000, true)
    }

    #[test]
    fn bytes_come_before_the_end() {
        let mut source = Scripted::saying([Ok(&b"hello "[..]), Ok(&b"world"[..]), Err(Input::End)]);
        let mut sink = Scripted::with_room(8);
        let mut half = Half::starting_with(b"> ".to_vec());
        assert_eq!(pump(&mut half, &mut source, &mut sink), Progress::WaitsForRoom);
        assert_eq!((sink.written.as_slice(), half.pending()), (&b"> hello "[..], 5));
        // While the destination is full, the half does not read from the source and does not pass on its end.
        assert_eq!(pump(&mut half, &mut source, &mut sink), Progress::WaitsForRoom);
        assert_eq!((source.inputs.len(), sink.ended), (1, false));
        sink.room = 100;
        assert_eq!(pump(&mut half, &mut source, &mut sink), Progress::Done);
        assert_eq!((sink.written.as_slice(), sink.ended), (&b"> hello world"[..], true));
        assert_eq!((half.carried(), half.is_done()), (13, true));
        assert_eq!(pump(&mut half, &mut source, &mut sink), Progress::Done, "the end comes once");
    }

    /// A reset is reported after the bytes before it, and never as an orderly end.
    #[test]
    fn a_reset_is_not_an_end() {
        let mut source = Scripted::saying([Ok(&b"half an answer"[..]), Err(Input::Reset)]);
        let mut sink = Scripted::with_room(5);
        let mut half = Half::default();
        assert_eq!(pump(&mut half, &mut source, &mut sink), Progress::WaitsForRoom);
        sink.room = 100;
        assert_eq!(pump(&mut half, &mut source, &mut sink), Progress::SourceReset);
        assert_eq!((sink.written.as_slice(), sink.ended), (&b"half an answer"[..], false));
    }

    #[test]
    fn a_destination_that_is_gone_ends_the_half() {
        let mut source = Scripted::saying([Ok(&b"to nobody"[..])]);
        let mut sink = Scripted { reset: true, ..Scripted::default() };
        let mut half = Half::default();
        assert_eq!(pump(&mut half, &mut source, &mut sink), Progress::SinkReset);
        assert!(half.is_done());
    }

    /// A call moves a bounded number of bytes, so one connection cannot occupy the loop.
    #[test]
    fn a_call_moves_a_bounded_number_of_bytes() {
        let mut source = Scripted::saying((0..100).map(|_| Ok(SEVENS)));
        let mut sink = Scripted::with_room(1 << 20);
        let mut half = Half::default();
        assert_eq!(pump(&mut half, &mut source, &mut sink), Progress::GoesOn);
        assert_eq!(sink.written.len(), 1_000);
    }

    /// A source that keeps its bytes until the destination accepts them returns the rest again, so the half needs no
    /// buffer.
    #[test]
    fn a_source_may_keep_what_was_not_accepted() {
        struct Keeping(&'static [u8]);
        impl End for Keeping {
            fn read(&mut self, room: &mut [u8]) -> Input {
                room[..self.0.len()].copy_from_slice(self.0);
                if self.0.is_empty() { Input::End } else { Input::Bytes(self.0.len()) }
            }
            fn accepted(&mut self, len: usize) -> bool {
                self.0 = &self.0[len..];
                true
            }
            fn write(&mut self, _: &[u8]) -> Output {
                Output::Reset
            }
            fn shutdown(&mut self) {}
        }
        let (mut source, mut sink, mut half) = (Keeping(b"hello"), Scripted::with_room(2), Half::default());
        assert_eq!(pump(&mut half, &mut source, &mut sink), Progress::WaitsForRoom);
        assert_eq!((half.memory(), source.0), (0, &b"llo"[..]));
        sink.room = 100;
        assert_eq!(pump(&mut half, &mut source, &mut sink), Progress::Done);
        assert_eq!((sink.written.as_slice(), sink.ended), (&b"hello"[..], true));
    }

    /// Under memory pressure, the half writes its pending bytes and reads nothing.
    #[test]
    fn a_half_that_may_not_read_only_writes() {
        let mut source = Scripted::saying([Ok(&b"later"[..])]);
        let mut sink = Scripted::with_room(100);
        let mut half = Half::starting_with(b"now".to_vec());
        let progress = half.pump(&mut source, &mut sink, &mut [0; 64], 1_000, false);
        assert_eq!((progress, sink.written.as_slice()), (Progress::WaitsForRoom, &b"now"[..]));
        assert_eq!(source.inputs.len(), 1);
    }
}
