//! Exchanges data between fullpipe's TCP stack and the kernel's, in both directions, and verifies every byte.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use fullpipe_linux::namespace::Namespace;
use fullpipe_linux::stack_loop::{Application, LoopReport, Port, run};
use fullpipe_linux::{Clock, Stop};
use fullpipe_tcp::buffers::Buffer;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_tcp::stack::siphash::Key;
use fullpipe_tcp::stack::{ConnId, IsnClock, Stack, StackConfig};
use fullpipe_tcp::{Config, Event, Stats};
use fullpipe_units::{Bytes, Instant, draw};

/// Number of bytes that an end writes, reads and compares at once.
const BLOCK: usize = 128 << 10;
/// Timeout for an end of the exchange that receives no data.
const SILENCE: Duration = Duration::from_secs(60);
/// Period of the byte pattern, a prime number, so that it does not align with other sizes.
const PERIOD: u64 = 65_521;

/// Expected bytes of a stream; each byte depends only on its offset.
pub(crate) struct Pattern(Vec<u8>);

impl Pattern {
    pub(crate) fn new(seed: u64) -> Self {
        Self((0..PERIOD + BLOCK as u64).map(|i| draw(seed, 0, i % PERIOD) as u8).collect())
    }

    /// Returns the expected bytes of the stream from `offset` on.
    fn at(&self, offset: u64, len: u64) -> &[u8] {
        &self.0[(offset % PERIOD) as usize..][..len.min(BLOCK as u64) as usize]
    }

    fn check(&self, offset: u64, bytes: &[u8]) {
        if self.at(offset, bytes.len() as u64) != bytes {
            let wrong = bytes.iter().zip(self.at(offset, bytes.len() as u64)).position(|(a, b)| a != b);
            panic!("byte {} is another", offset + wrong.unwrap_or(0) as u64);
        }
    }
}

/// The stack that opens the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opens {
    Ours,
    Kernel,
}

/// A TCP connection between the two stacks that transfers `bytes` in each direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub(crate) opens: Opens,
    pub(crate) ours: SocketAddr,
    pub(crate) kernel: SocketAddr,
    /// Number of bytes from fullpipe's TCP stack to the kernel's, and number of bytes in the other direction.
    pub(crate) bytes: [u64; 2],
    pub(crate) cc: Algorithm,
    /// Congestion control at the kernel's end; `None` for the kernel's default.
    pub(crate) kernel_cc: Option<&'static str>,
    pub(crate) buffers: Bytes,
    pub(crate) mtu: u64,
}

/// Statistics of a completed exchange between the two stacks.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) stats: Stats,
    pub(crate) report: LoopReport,
    pub(crate) refused: u64,
}

impl Exchange {
    fn config(&self) -> Config {
        Config {
            mtu: self.mtu,
            cc: self.cc,
            sndbuf: Buffer::Auto { max: self.buffers },
            rcvbuf: Buffer::Auto { max: self.buffers },
            ..Config::default()
        }
    }

    /// Runs the exchange between `port` and the kernel of `namespace`, and panics if a byte is missing or
    /// wrong.
    pub(crate) fn run(&self, port: &Port, namespace: &Namespace, clock: Clock) -> Done {
        let mut stack = Stack::new(StackConfig {
            key: Key::new(
                draw(clock.now().as_nanos(), 1, 2).to_le_bytes().repeat(2).try_into().expect("16 octets"),
            ),
            isn_clock: IsnClock::Linux,
            max_connections: 16,
            cut: port.cut(),
        });
        stack.add_address(self.ours.ip());
        if self.opens == Opens::Kernel {
            stack.listen(self.ours, self.config(), 16).expect("free");
        }
        let stack = Mutex::new(stack);
        let stop = Stop::new().expect("an eventfd");
        let (to_kernel, from_kernel) = (Pattern::new(1), Pattern::new(2));
        thread::scope(|scope| {
            let listener = match self.opens {
                Opens::Ours => Some(inside(namespace, || TcpListener::bind(self.kernel).expect("free"))),
                Opens::Kernel => None,
            };
            let mut ours = Ours {
                exchange: *self,
                sends: &to_kernel,
                expects: &from_kernel,
                id: None,
                begun: false,
                written: 0,
                read: 0,
                ended: [false; 2],
                stats: Stats::default(),
                buffer: vec![0; BLOCK],
                stop: &stop,
            };
            let (stack, stop) = (&stack, &stop);
            let looping = scope.spawn(move || {
                let report = run(port, stack, clock, &mut ours, stop);
                (ours, report)
            });
            let _ended = StopAtEnd(stop);
            let socket = match listener {
                Some(listener) => listener.accept().expect("a connection").0,
                None => inside(namespace, || TcpStream::connect(self.ours).expect("a connection")),
            };
            // If the congestion control cannot be set, fullpipe's end is stopped too.
            if let Some(cc) = self.kernel_cc {
                let set = socket2::SockRef::from(&socket).set_tcp_congestion(cc.as_bytes());
                set.unwrap_or_else(|error| panic!("this kernel has no {cc}: {error}"));
            }
            socket.set_read_timeout(Some(SILENCE)).expect("a socket");
            socket.set_write_timeout(Some(SILENCE)).expect("a socket");
            let writes = scope.spawn({
                let (socket, from_kernel) = (socket.try_clone().expect("a file"), &from_kernel);
                move || kernel_writes(socket, from_kernel, self.bytes[1])
            });
            kernel_reads(socket, &to_kernel, self.bytes[0]);
            writes.join().expect("it writes");
            let (ours, report) = looping.join().expect("our end fails");
            assert_eq!((ours.written, ours.read), (self.bytes[0], self.bytes[1]));
            Done {
                stats: ours.stats,
                report: report.unwrap_or_else(|error| panic!("{error}")),
                refused: stack.lock().expect("no panic").counters().refused,
            }
        })
    }
}

/// Stops fullpipe's loop when the kernel's end has failed; after a success, the loop has already ended.
struct StopAtEnd<'a>(&'a Stop);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// Opens a socket in a thread inside the namespace, so that the socket belongs to the namespace.
fn inside<T: Send>(namespace: &Namespace, open: impl FnOnce() -> T + Send) -> T {
    namespace.run(|| Ok(open())).unwrap_or_else(|error| panic!("{error}"))
}

fn kernel_writes(mut socket: TcpStream, pattern: &Pattern, bytes: u64) {
    let mut written = 0;
    while written < bytes {
        let block = pattern.at(written, bytes - written);
        socket.write_all(block).expect("a connection");
        written += block.len() as u64;
    }
    socket.shutdown(Shutdown::Write).expect("a connection");
}

fn kernel_reads(mut socket: TcpStream, pattern: &Pattern, bytes: u64) {
    let (mut buffer, mut read) = (vec![0; BLOCK], 0);
    loop {
        let got = socket.read(&mut buffer).expect("a connection");
        if got == 0 {
            break;
        }
        pattern.check(read, &buffer[..got]);
        read += got as u64;
    }
    assert_eq!(read, bytes, "bytes that the kernel read");
}

/// fullpipe's end of the exchange.
struct Ours<'a> {
    exchange: Exchange,
    sends: &'a Pattern,
    expects: &'a Pattern,
    id: Option<ConnId>,
    begun: bool,
    written: u64,
    read: u64,
    /// Whether the peer has acknowledged all data of fullpipe's end, and whether the kernel's end has closed
    /// the connection.
    ended: [bool; 2],
    stats: Stats,
    buffer: Vec<u8>,
    stop: &'a Stop,
}

impl Application for Ours<'_> {
    fn attend(&mut self, now: Instant, stack: &mut Stack) -> Instant {
        let Exchange { opens, ours, kernel, bytes, .. } = self.exchange;
        if !std::mem::replace(&mut self.begun, true) && opens == Opens::Ours {
            self.id = Some(stack.connect(now, ours, kernel, self.exchange.config()).expect("free"));
        }
        self.id = self.id.or_else(|| stack.accept(ours));
        while let Some((_, event)) = stack.poll_event() {
            assert_ne!(event, Event::Aborted);
            self.ended[0] |= event == Event::Finished;
            self.ended[1] |= event == Event::PeerClosed;
        }
        let Some(id) = self.id else { return Instant::FAR_FUTURE };
        while self.written < bytes[0] {
            let block = self.sends.at(self.written, bytes[0] - self.written);
            let taken = stack.write(id, block);
            self.written += taken as u64;
            if taken < block.len() {
                break;
            }
        }
        if self.written == bytes[0] {
            stack.shutdown(id);
        }
        loop {
            let got = stack.read(now, id, &mut self.buffer);
            if got == 0 {
                break;
            }
            self.expects.check(self.read, &self.buffer[..got]);
            self.read += got as u64;
        }
        if self.ended == [true; 2] {
            self.stats = stack.connection(id).map(|connection| connection.stats()).unwrap_or_default();
            self.stop.stop();
        }
        Instant::FAR_FUTURE
    }
}
