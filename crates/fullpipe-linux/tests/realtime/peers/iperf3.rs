//! An iperf3 server for a single test, which runs on fullpipe's TCP stack.
//!
//! ```text
//!   Cookie ─► Params ─► Streams ─► Running ─► Results ─► Done
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;

use fullpipe_iperf3::cookie::LENGTH;
use fullpipe_iperf3::frame::{self, PARAMS_MOST, RESULTS_MOST, Reader};
use fullpipe_iperf3::streams::{self, Direction};
use fullpipe_iperf3::{Cookie, Params, Results, State, StreamResult};
use fullpipe_linux::stack_loop::Application;
use fullpipe_tcp::Event;
use fullpipe_tcp::stack::{ConnId, Stack};
use fullpipe_units::{Bytes, Instant};

static BLOCK: [u8; 128 << 10] = [7; 128 << 10];

#[derive(Debug)]
enum Phase {
    Cookie,
    Params(Reader),
    Streams,
    Running,
    Results(Reader),
    Done,
}

/// A data connection of the iperf3 test.
struct Stream {
    number: u32,
    direction: Direction,
    bytes: u64,
}

pub(crate) struct Server {
    local: SocketAddr,
    phase: Phase,
    control: Option<(ConnId, Cookie)>,
    params: Params,
    /// Connections that have not sent their cookie yet.
    strangers: BTreeMap<ConnId, Vec<u8>>,
    streams: BTreeMap<ConnId, Stream>,
}

impl Server {
    pub(crate) fn new(local: SocketAddr) -> Self {
        Self {
            local,
            phase: Phase::Cookie,
            control: None,
            params: Params::default(),
            strangers: BTreeMap::new(),
            streams: BTreeMap::new(),
        }
    }

    /// Returns the numbers of bytes that the server has received and written.
    pub(crate) fn carried(&self) -> (u64, u64) {
        let of = |direction| {
            self.streams.values().filter(|stream| stream.direction == direction).map(|s| s.bytes).sum()
        };
        (of(Direction::Upload), of(Direction::Download))
    }

    /// Returns whether the client has received its results and closed the control connection.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    fn say(&self, stack: &mut Stack, bytes: &[u8]) {
        let (id, _) = self.control.expect("a control connection");
        assert_eq!(stack.write(id, bytes), bytes.len(), "the control connection is full");
    }

    fn greet(&mut self, now: Instant, stack: &mut Stack, id: ConnId) {
        let Some(said) = self.strangers.get_mut(&id) else { return };
        let mut rest = [0; LENGTH];
        let got = stack.read(now, id, &mut rest[said.len()..]);
        let at = said.len();
        said.extend_from_slice(&rest[at..at + got]);
        let Some(wire) = said.first_chunk::<LENGTH>() else { return };
        let cookie = Cookie::from_wire(wire).expect("a cookie");
        self.strangers.remove(&id);
        match self.control {
            None => {
                self.control = Some((id, cookie));
                self.phase = Phase::Params(Reader::new(PARAMS_MOST));
                self.say(stack, &[State::ParamExchange.byte()]);
            }
            Some((_, expected)) => {
                assert!(cookie == expected, "another test");
                let (number, direction) = streams::of(&self.params)[self.streams.len()];
                self.streams.insert(id, Stream { number, direction, bytes: 0 });
                if self.streams.len() == self.params.streams() as usize {
                    self.phase = Phase::Running;
                    self.say(stack, &[State::TestStart.byte(), State::TestRunning.byte()]);
                    for id in self.streams.keys().copied().collect::<Vec<_>>() {
                        self.send(stack, id);
                    }
                }
            }
        }
    }

    fn send(&mut self, stack: &mut Stack, id: ConnId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.direction == Direction::Download && matches!(self.phase, Phase::Running) {
            loop {
                let taken = stack.write(id, &BLOCK);
                stream.bytes += taken as u64;
                if taken < BLOCK.len() {
                    return;
                }
            }
        }
    }

    /// Handles one message on the control connection, and returns false if no message is available.
    fn hear(&mut self, now: Instant, stack: &mut Stack) -> bool {
        let Some((id, _)) = self.control else { return false };
        match &mut self.phase {
            Phase::Params(reader) => {
                if !fill(now, stack, id, reader) {
                    return false;
                }
                self.params = Params::from_json(&reader.value().expect("JSON")).expect("parameters");
                self.phase = Phase::Streams;
                self.say(stack, &[State::CreateStreams.byte()]);
            }
            Phase::Running => {
                let mut byte = [0];
                if stack.read(now, id, &mut byte) == 0 {
                    return false;
                }
                assert_eq!(State::from_byte(byte[0]).expect("a state"), State::TestEnd);
                for (&id, stream) in &mut self.streams {
                    stream.bytes += take(now, stack, id);
                    stack.shutdown(id);
                }
                self.phase = Phase::Results(Reader::new(RESULTS_MOST));
                self.say(stack, &[State::ExchangeResults.byte()]);
            }
            Phase::Results(reader) => {
                if !fill(now, stack, id, reader) {
                    return false;
                }
                Results::from_json(&reader.value().expect("JSON")).expect("results");
                let results = Results {
                    streams: self
                        .streams
                        .values()
                        .map(|stream| StreamResult {
                            id: stream.number,
                            bytes: Bytes::new(stream.bytes),
                            ..StreamResult::default()
                        })
                        .collect(),
                    ..Results::default()
                };
                self.say(stack, &frame::encode(&results.to_json()));
                self.say(stack, &[State::DisplayResults.byte()]);
                self.phase = Phase::Done;
                stack.shutdown(id);
            }
            Phase::Cookie | Phase::Streams | Phase::Done => return false,
        }
        true
    }
}

/// Reads the rest of a frame, and returns true once the frame is complete.
fn fill(now: Instant, stack: &mut Stack, id: ConnId, reader: &mut Reader) -> bool {
    while let missing @ 1.. = reader.missing().expect("a length that is allowed") {
        let mut bytes = vec![0; missing];
        let got = stack.read(now, id, &mut bytes);
        if got == 0 {
            return false;
        }
        reader.push(&bytes[..got]);
    }
    true
}

fn take(now: Instant, stack: &mut Stack, id: ConnId) -> u64 {
    stack.discard(now, id, u64::MAX)
}

impl Application for Server {
    fn attend(&mut self, now: Instant, stack: &mut Stack) -> Instant {
        while let Some(id) = stack.accept(self.local) {
            self.strangers.insert(id, Vec::new());
        }
        while let Some((id, event)) = stack.poll_event() {
            match event {
                Event::Readable => {
                    self.greet(now, stack, id);
                    if self.control.is_some_and(|(control, _)| control == id) {
                        while self.hear(now, stack) {}
                    } else if let Some(stream) = self.streams.get_mut(&id) {
                        stream.bytes += take(now, stack, id);
                    }
                }
                Event::Writable => self.send(stack, id),
                Event::Closed | Event::Aborted => stack.release(now, id),
                _ => {}
            }
        }
        Instant::FAR_FUTURE
    }
}
