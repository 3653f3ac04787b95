//! A web server of one file on fullpipe's TCP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;

use fullpipe_linux::stack_loop::{Application, Port, run};
use fullpipe_linux::{Clock, Stop};
use fullpipe_tcp::stack::siphash::Key;
use fullpipe_tcp::stack::{ConnId, IsnClock, Stack, StackConfig};
use fullpipe_tcp::{Config, Event};
use fullpipe_units::{Instant, draw};

const LEN: u64 = 3_000_000;

/// What every address of it has.
pub(crate) fn file() -> Vec<u8> {
    (0..LEN).map(|i| draw(3, 0, i) as u8).collect()
}

/// Serves on `local` while `work` goes on.
pub(crate) fn served<T>(port: &Port, local: SocketAddr, clock: Clock, work: impl FnOnce() -> T) -> T {
    let mut stack = Stack::new(StackConfig {
        key: Key::new([5; 16]),
        isn_clock: IsnClock::Linux,
        max_connections: 64,
        cut: port.cut(),
    });
    stack.add_address(local.ip());
    stack.listen(local, Config::default(), 16).expect("free");
    let (stack, stop) = (Mutex::new(stack), Stop::new().expect("an eventfd"));
    thread::scope(|scope| {
        let looping = scope.spawn(|| {
            let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {LEN}\r\nConnection: close\r\n\r\n");
            let answer = [head.into_bytes(), file()].concat();
            run(port, &stack, clock, &mut Web { local, answer, visitors: BTreeMap::new() }, &stop)
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.stop();
        looping.join().expect("no panic").unwrap_or_else(|error| panic!("{error}"));
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

struct Web {
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
