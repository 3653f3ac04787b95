//! A web server that serves one file, and a web client that fetches it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use fullpipe_linux::stack_loop::Application;
use fullpipe_tcp::stack::{ConnId, Stack};
use fullpipe_tcp::{Config, Event};
use fullpipe_units::{Instant, draw};

const LEN: u64 = 3_000_000;

/// Returns the content of the file that the server sends for every URL.
pub(crate) fn file() -> Vec<u8> {
    (0..LEN).map(|i| draw(3, 0, i) as u8).collect()
}

/// A web server on fullpipe's TCP stack.
pub(crate) struct Web {
    local: SocketAddr,
    answer: Vec<u8>,
    visitors: BTreeMap<ConnId, Visitor>,
}

#[derive(Default)]
struct Visitor {
    request: Vec<u8>,
    answered: usize,
}

impl Web {
    pub(crate) fn new(local: SocketAddr) -> Self {
        let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {LEN}\r\nConnection: close\r\n\r\n");
        Self { local, answer: [head.into_bytes(), file()].concat(), visitors: BTreeMap::new() }
    }

    fn answer(&mut self, stack: &mut Stack, id: ConnId) {
        let Some(visitor) = self.visitors.get_mut(&id) else { return };
        if !visitor.request.ends_with(b"\r\n\r\n") {
            return;
        }
        visitor.answered += stack.write(id, &self.answer[visitor.answered..]);
        if visitor.answered == self.answer.len() {
            stack.shutdown(id);
        }
    }
}

impl Application for Web {
    fn attend(&mut self, now: Instant, stack: &mut Stack) -> Instant {
        while let Some(id) = stack.accept(self.local) {
            self.visitors.insert(id, Visitor::default());
        }
        while let Some((id, event)) = stack.poll_event() {
            match event {
                Event::Readable => {
                    let mut read = [0; 4_096];
                    let got = stack.read(now, id, &mut read);
                    if let Some(visitor) = self.visitors.get_mut(&id) {
                        visitor.request.extend_from_slice(&read[..got]);
                    }
                    self.answer(stack, id);
                }
                Event::Writable => self.answer(stack, id),
                Event::Closed | Event::Aborted => {
                    self.visitors.remove(&id);
                    stack.release(now, id);
                }
                _ => {}
            }
        }
        Instant::FAR_FUTURE
    }
}

/// A web client that fetches the file over several connections, twice on each; the second request reuses the
/// connection.
pub(crate) struct Fetch {
    local: SocketAddr,
    remote: SocketAddr,
    connections: u16,
    under_way: BTreeMap<ConnId, Vec<u8>>,
    /// Complete responses on each connection, available once the server has closed the connection.
    pub(crate) answers: Vec<Vec<u8>>,
    pub(crate) failed: bool,
}

impl Fetch {
    pub(crate) fn new(local: SocketAddr, remote: SocketAddr, connections: u16) -> Self {
        let (under_way, answers) = (BTreeMap::new(), Vec::new());
        Self { local, remote, connections, under_way, answers, failed: false }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.failed || self.answers.len() == usize::from(self.connections)
    }
}

impl Application for Fetch {
    fn attend(&mut self, now: Instant, stack: &mut Stack) -> Instant {
        if self.under_way.is_empty() && self.answers.is_empty() {
            for port in 0..self.connections {
                let local = SocketAddr::new(self.local.ip(), self.local.port() + port);
                let id = stack.connect(now, local, self.remote, Config::default()).expect("free");
                self.under_way.insert(id, Vec::new());
            }
        }
        while let Some((id, event)) = stack.poll_event() {
            match event {
                Event::Connected => {
                    for last in ["", "Connection: close\r\n"] {
                        let request = format!("GET /file HTTP/1.1\r\nHost: test\r\n{last}\r\n");
                        assert_eq!(stack.write(id, request.as_bytes()), request.len());
                    }
                }
                Event::Readable => {
                    let Some(answer) = self.under_way.get_mut(&id) else { continue };
                    let mut read = [0; 65_536];
                    while let got @ 1.. = stack.read(now, id, &mut read) {
                        answer.extend_from_slice(&read[..got]);
                    }
                }
                Event::PeerClosed => stack.shutdown(id),
                Event::Closed => {
                    self.answers.extend(self.under_way.remove(&id));
                    stack.release(now, id);
                }
                Event::Aborted => self.failed = true,
                _ => {}
            }
        }
        Instant::FAR_FUTURE
    }
}
