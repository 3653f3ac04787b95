//! Tests of the worker between a client's stack and a kernel server. A socket pair replaces the TUN device, so the
//! tests need no privileges.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use fullpipe_linux::stack_loop::{Application, Port, run as run_client, serve};
use fullpipe_linux::{Clock, Datapath};
use fullpipe_tcp::Config;
use fullpipe_tcp::memory::MemoryLimits;
use fullpipe_tcp::stack::siphash::Key;
use fullpipe_tcp::stack::{IsnClock, StackConfig};
use fullpipe_tcp::wire::{Checksums, Flags, Headers, Packet, Segment, SeqNum};
use fullpipe_units::draw;

use super::start::{configs, prepare, stack};
use super::*;
use crate::config::Upstream;
use crate::policies::Senders;
use crate::probes::{SLOT, SharedTable};
use crate::test_packets;

const LISTEN: ([u8; 4], u16) = ([192, 0, 2, 1], 443);
const CLIENT: ([u8; 4], u16) = ([198, 51, 100, 7], 40_000);
/// Maximum time that a test waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client that sends `upload`, ends its direction, and records the data that it receives.
#[derive(Debug, Default)]
struct Visitor {
    id: Option<ConnId>,
    upload: Vec<u8>,
    written: usize,
    received: Vec<u8>,
    /// Whether the client leaves the data of the server unread.
    idle: bool,
    ended: bool,
    reset: bool,
}

impl Visitor {
    fn is_over(&self) -> bool {
        self.ended || self.reset
    }

    fn write(&mut self, stack: &mut Stack, id: ConnId) {
        if self.written < self.upload.len() {
            self.written += stack.write(id, &self.upload[self.written..]);
        }
        if self.written == self.upload.len() {
            stack.shutdown(id);
        }
    }
}

impl Application for Visitor {
    fn attend(&mut self, now: Instant, stack: &mut Stack) -> Instant {
        if self.id.is_none() {
            let config = Config { keep_alive: None, ..Config::default() };
            self.id = stack.connect(now, CLIENT.into(), LISTEN.into(), config).ok();
        }
        while let Some((id, event)) = stack.poll_event() {
            match event {
                Event::Connected | Event::Writable => self.write(stack, id),
                Event::Readable if self.idle => {}
                Event::Readable => {
                    let mut room = [0; 16_384];
                    while let got @ 1.. = stack.read(now, id, &mut room) {
                        self.received.extend_from_slice(&room[..got]);
                    }
                }
                Event::PeerClosed => self.ended = true,
                Event::Aborted => self.reset = true,
                _ => {}
            }
        }
        Instant::FAR_FUTURE
    }
}

struct Shared(Arc<Mutex<Visitor>>);

impl Application for Shared {
    fn attend(&mut self, now: Instant, stack: &mut Stack) -> Instant {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).attend(now, stack)
    }
}

fn settings(upstream: SocketAddr, client_address: ClientAddress) -> WorkerSettings {
    // The function `run` removes the file.
    let (_, table) = tempfile::NamedTempFile::new().expect("a file").keep().expect("a file");
    fs::remove_file(&table).expect("a file");
    probes::create(&table, 100).expect("room");
    WorkerSettings {
        listen: LISTEN.into(),
        upstream: Upstream::Tcp(upstream),
        client_address,
        cc: "bbr1".into(),
        mtu: 1_500,
        memory: 64 << 20,
        connections: 100,
        table,
        identity: None,
        limit: None,
        paths: None,
        senders: Senders::default(),
    }
}

/// Runs a worker and a client that sends `upload`, until the client's connection has ended.
fn visit(settings: WorkerSettings, upload: Vec<u8>) -> Visitor {
    visit_until(settings, upload, |_| true).0
}

/// Runs a worker and a client that sends `upload`, until the client's connection has ended and `is_done` accepts a
/// report of the worker. Returns that report.
fn visit_until(
    settings: WorkerSettings,
    upload: Vec<u8>,
    is_done: impl Fn(&Beat) -> bool,
) -> (Visitor, Beat) {
    let mut last = Beat::default();
    let visitor = Visitor { upload, ..Visitor::default() };
    let (visitor, _) = run(settings, visitor, |keeper, visitor| {
        wait_until(|| locked(visitor).is_over());
        last = report(keeper, is_done);
    });
    (visitor, last)
}

fn locked<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `is_so` returns true, but at most [`PATIENCE`].
fn wait_until(is_so: impl Fn() -> bool) {
    let clock = Clock::starting_in(Duration::ZERO);
    while clock.now() < Instant::ZERO + PATIENCE && !is_so() {
        clock.sleep_until(clock.now() + Duration::from_millis(5));
    }
}

/// Returns the first report of the worker that `is_done` accepts, or the last one of a worker without such a report.
fn report(keeper: &UnixStream, is_done: impl Fn(&Beat) -> bool) -> Beat {
    let (clock, mut last) = (Clock::starting_in(Duration::ZERO), Beat::default());
    keeper.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("a socket");
    for line in BufReader::new(keeper).lines().map_while(Result::ok) {
        last = serde_json::from_str(&line).expect("a report");
        if is_done(&last) || clock.now() >= Instant::ZERO + PATIENCE {
            break;
        }
    }
    last
}

/// Returns the clients in the shared table.
fn clients(table: &Path) -> Vec<SocketAddr> {
    let connections = probes::connections(&fs::read(table).expect("a file"), LISTEN.into());
    connections.into_iter().map(|(client, _)| client).collect()
}

/// Runs a worker and a client until `during` returns. `during` gets the keeper's end of the socket to the worker, which
/// is then closed. Returns the client, and the clients that remain in the shared table.
fn run(
    settings: WorkerSettings,
    visitor: Visitor,
    during: impl FnOnce(&UnixStream, &Mutex<Visitor>),
) -> (Visitor, Vec<SocketAddr>) {
    let table = settings.table.clone();
    let [ours, theirs] = Port::pair(Datapath::Offload).expect("a socket pair");
    let clock = Clock::starting_in(Duration::ZERO);
    let (stop_worker, stop_client) = (Stop::new().expect("an eventfd"), Stop::new().expect("an eventfd"));
    let (control, keeper) = UnixStream::pair().expect("a socket pair");
    control.set_nonblocking(true).expect("a socket");
    let mut client = Stack::new(StackConfig {
        key: Key::new([3; 16]),
        isn_clock: IsnClock::Linux,
        max_connections: 4,
        cut: theirs.cut(),
    });
    client.add_address(CLIENT.0.into());
    let client = Mutex::new(client);
    let visitor = Arc::new(Mutex::new(visitor));
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let (stack, mut worker) = prepare(&ours, settings, control, None, &stop_worker)?;
            serve(&ours, &stack, clock, &mut worker, &stop_worker).map(drop)
        });
        let shared = Arc::clone(&visitor);
        let visiting = scope.spawn(|| {
            let mut shared = Shared(shared);
            run_client(&theirs, &client, clock, &mut shared, &stop_client)
        });
        during(&keeper, &visitor);
        // The worker ends when the keeper does.
        drop(keeper);
        worker.join().expect("no panic").unwrap_or_else(|error| panic!("{error}"));
        stop_client.stop();
        visiting.join().expect("no panic").unwrap_or_else(|error| panic!("{error}"));
    });
    let left = clients(&table);
    let _ = fs::remove_file(table);
    let visitor = std::mem::take(&mut *locked(&visitor));
    (visitor, left)
}

/// Reads the PROXY header of a connection; returns the client's address, or `None` for a health check.
fn read_header(stream: &mut std::net::TcpStream) -> Option<SocketAddr> {
    let mut fixed = [0; 16];
    stream.read_exact(&mut fixed).expect("a header");
    assert_eq!(fixed[..12], *b"\r\n\r\n\0\r\nQUIT\n");
    let mut addresses = vec![0; usize::from(u16::from_be_bytes([fixed[14], fixed[15]]))];
    stream.read_exact(&mut addresses).expect("addresses");
    if fixed[12] == 0x20 {
        return None;
    }
    let ip: [u8; 4] = addresses[..4].try_into().expect("an IPv4 address");
    Some((ip, u16::from_be_bytes([addresses[8], addresses[9]])).into())
}

/// Serves clients with `serve`, on a thread that ends with the test.
fn server(serve: impl Fn(std::net::TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            if let Some(client) = read_header(&mut stream) {
                assert_eq!(client, SocketAddr::from(CLIENT));
                serve(stream);
            }
        }
    });
    address
}

fn bytes(len: u64) -> Vec<u8> {
    (0..len).map(|i| draw(1, 0, i) as u8).collect()
}

/// All bytes of a client reach the server, followed by the end of the direction, and the answer arrives at the client.
/// The server answers only after the end of the client's direction, so the two directions end separately.
#[test]
fn both_directions_arrive_whole() {
    let upstream = server(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("no reset");
        stream.write_all(&all).expect("room");
    });
    let upload = bytes(3_000_000);
    let visitor = visit(settings(upstream, ClientAddress::ProxyV2), upload.clone());
    assert!(visitor.ended && !visitor.reset, "{:?}", (visitor.ended, visitor.reset));
    assert!(visitor.received == upload, "{} of {} bytes", visitor.received.len(), upload.len());
}

/// The report counts a connection that launches more than ten segments, and its prefix. Without the path memory, the report
/// contains no such counts. On a path without delay, surge launches ten segments; other algorithms launch what their profile
/// states.
#[test]
fn a_report_counts_launches() {
    let upstream = || server(|mut stream| stream.write_all(&bytes(100_000)).expect("room"));
    let profile = "launch.window = 44".parse().expect("TOML");
    let senders = Senders::read(Some("web"), Vec::new(), &[("web".into(), profile)]).expect("valid");
    let remembering = |paths| WorkerSettings {
        senders: senders.clone(),
        paths,
        ..settings(upstream(), ClientAddress::ProxyV2)
    };
    let limits = Some(MemoryLimits::DEFAULT.into());
    let (visitor, beat) = visit_until(remembering(limits), Vec::new(), |beat| {
        beat.paths.as_ref().is_some_and(|paths| paths.launches > 0)
    });
    assert!(visitor.ended && visitor.received == bytes(100_000), "{} bytes", visitor.received.len());
    let expected = PathReport { prefixes: 1, launches: 1, over_budget: 0, stopped: None };
    assert_eq!(beat.paths, Some(expected));
    assert_eq!(visit_until(remembering(None), Vec::new(), |beat| beat.accepted > 0).1.paths, None);
}

/// A profile sets the launch of all connections, and a policy that of some clients. Without the path memory, no connection
/// launches more than ten segments, because nothing limits the launches.
#[test]
fn a_policy_selects_the_profile_of_a_client() {
    let table = |window: u32| format!("launch.window = {window}").parse().expect("TOML");
    let profiles = [("web".into(), table(44)), ("careful".into(), table(10))];
    let launches = |clients: &str| {
        let upstream = server(|mut stream| stream.write_all(&bytes(100_000)).expect("room"));
        let policies = vec![(clients.into(), "careful".into())];
        let senders = Senders::read(Some("web"), policies, &profiles).expect("valid");
        let paths = Some(MemoryLimits::DEFAULT.into());
        let settings = WorkerSettings { senders, paths, ..settings(upstream, ClientAddress::ProxyV2) };
        // A report that counts the prefix also counts the launch.
        let (visitor, beat) = visit_until(settings, Vec::new(), |beat| {
            beat.paths.as_ref().is_some_and(|paths| paths.prefixes == 1)
        });
        assert!(visitor.received == bytes(100_000), "{} bytes", visitor.received.len());
        beat.paths.expect("a path memory").launches
    };
    assert_eq!((launches("203.0.113.0/24"), launches("198.51.100.0/24")), (1, 0));

    let senders = Senders::read(Some("web"), Vec::new(), &profiles).expect("valid");
    let without_memory =
        WorkerSettings { senders, ..settings(([127, 0, 0, 1], 9).into(), ClientAddress::ProxyV2) };
    let surge = WorkerSettings { cc: "surge".into(), ..without_memory.clone() };
    for settings in [&without_memory, &surge] {
        let (config, _) = configs(settings).expect("valid");
        assert_eq!((config.launch, config.initcwnd), (None, Some(10)));
    }
}

/// Data that the server sends before it resets the connection is delivered, and the client then sees a reset.
#[test]
fn a_reset_of_the_server_is_passed_on() {
    // A reset discards data that the server's kernel has not sent yet, so the answer must fit into one window.
    let upstream = server(|mut stream| {
        stream.write_all(&bytes(10_000)).expect("room");
        socket2::Socket::from(stream).set_linger(Some(std::time::Duration::ZERO)).expect("a socket");
    });
    let visitor = visit(settings(upstream, ClientAddress::ProxyV2), Vec::new());
    assert!(visitor.reset && !visitor.ended, "{:?}", (visitor.ended, visitor.reset));
    assert!(visitor.received == bytes(10_000), "{} bytes", visitor.received.len());
}

/// When the server sees a connection, its client is already in the shared table, so the keeper can probe it from then
/// on.
#[test]
fn a_connection_is_in_the_table_before_the_server_sees_it() {
    let (table, seen) = (Arc::new(OnceLock::new()), Arc::new(Mutex::new(Vec::new())));
    let (path, found) = (Arc::clone(&table), Arc::clone(&seen));
    let upstream = server(move |_| {
        let table: &std::path::PathBuf = path.get().expect("the worker runs");
        locked(&found).push(clients(table));
    });
    let settings = settings(upstream, ClientAddress::ProxyV2);
    table.set(settings.table.clone()).expect("it is set once");
    assert!(visit(settings, Vec::new()).is_over());
    assert_eq!(*locked(&seen), [[SocketAddr::from(CLIENT)]]);
}

/// If the keeper dies, the clients stay in the shared table for the next start of the service.
#[test]
fn the_table_outlives_a_dead_keeper() {
    let upstream = server(|mut stream| {
        stream.write_all(b"first").expect("room");
        // The connection stays open.
        thread::park();
    });
    let settings = settings(upstream, ClientAddress::ProxyV2);
    let (_, left) = run(settings, Visitor { upload: bytes(1), ..Visitor::default() }, |_, visitor| {
        wait_until(|| !locked(visitor).received.is_empty());
    });
    assert_eq!(left, [SocketAddr::from(CLIENT)]);
}

/// At the end of the service, a client is reset even if its server has already ended the connection and the last data
/// waits for the client.
#[test]
fn an_orderly_end_resets_clients_that_wait_for_the_last_data() {
    let upstream = server(|mut stream| stream.write_all(&bytes(150_000)).expect("room"));
    let settings = settings(upstream, ClientAddress::ProxyV2);
    let (visitor, left) =
        run(settings, Visitor { idle: true, ..Visitor::default() }, |mut keeper, visitor| {
            report(keeper, |beat| beat.accepted == 1 && beat.connections == 0);
            keeper.write_all(b"end\n").expect("room");
            wait_until(|| locked(visitor).is_over());
        });
    assert!(visitor.reset && !visitor.ended, "{:?}", (visitor.ended, visitor.reset));
    assert_eq!(left, []);
}

/// The server is read only while there is room for its data: for a client that does not read, at most the window of the
/// client, 128 KiB and one read.
#[test]
fn a_client_that_does_not_read_holds_its_server_back() {
    let upstream = server(|mut stream| drop(stream.write_all(&vec![7; 50_000_000])));
    let settings = settings(upstream, ClientAddress::ProxyV2);
    let (visitor, rounds) = (Visitor { idle: true, ..Visitor::default() }, Cell::new(0));
    let mut later = Beat::default();
    run(settings, visitor, |keeper, _| {
        report(keeper, |beat| beat.bytes_down >= 128 << 10);
        later = report(keeper, |_| rounds.replace(rounds.get() + 1) == 3);
    });
    let most = (64 << 10) + (128 << 10) + READ as u64;
    assert!((128 << 10..=most).contains(&later.bytes_down), "{} of {most} bytes", later.bytes_down);
}

/// If the server is down, a client is refused as the kernel would refuse it.
#[test]
fn a_server_that_is_down_refuses() {
    // The port is bound but does not listen, so no other test can use it.
    let bound = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    bound.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    let closed = bound.local_addr().ok().and_then(|local| local.as_socket()).expect("an address");
    let visitor = visit(settings(closed, ClientAddress::Hidden), bytes(10));
    assert!(visitor.reset && visitor.received.is_empty());
    assert_eq!(visitor.written, 0, "the handshake was not completed");
}

/// While the accept queue of the server is full, the kernel would drop a client's SYN. The client is served once the
/// server accepts again.
#[test]
fn a_server_that_is_busy_drops_syns() {
    let listener = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    listener.listen(0).expect("a listener");
    let address = listener.local_addr().ok().and_then(|local| local.as_socket()).expect("an address");
    // The queue has room for one connection more than `listen` states. The next one gets no reply.
    let timeout = std::time::Duration::from_millis(50);
    let queued: Vec<_> = (0..3).map(|_| std::net::TcpStream::connect_timeout(&address, timeout)).collect();
    assert!(queued[0].is_ok() && queued[2].is_err(), "{queued:?}");
    let server = thread::spawn(move || {
        // Longer than a probe waits.
        let clock = Clock::starting_in(Duration::ZERO);
        clock.sleep_until(clock.now() + Duration::from_millis(1_300));
        drop(queued);
        let listener = TcpListener::from(listener);
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut upload = Vec::new();
            // Probes and queued connections end without data.
            if stream.read_to_end(&mut upload).is_ok() && !upload.is_empty() {
                stream.write_all(&upload).expect("the client reads");
                break;
            }
        }
    });
    let visitor = visit(settings(address, ClientAddress::Hidden), bytes(10));
    assert!(visitor.ended && !visitor.reset, "{:?}", (visitor.ended, visitor.reset));
    assert_eq!(visitor.received, bytes(10));
    server.join().expect("no panic");
}

/// While the accept queue of a Unix socket is full, a client waits, as a client of a TCP socket does.
#[test]
fn a_client_waits_for_room_at_a_unix_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("server");
    let listener = Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("a socket");
    listener.bind(&socket2::SockAddr::unix(&path).expect("a path")).expect("a free path");
    // The queue has room for one connection. The worker's first probe fills it.
    listener.listen(0).expect("a listener");
    thread::spawn(move || {
        let clock = Clock::starting_in(Duration::ZERO);
        clock.sleep_until(clock.now() + Duration::from_millis(300));
        loop {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut upload = Vec::new();
            if stream.read_to_end(&mut upload).is_ok() && !upload.is_empty() {
                stream.write_all(&upload).expect("the client reads");
            }
        }
    });
    let unix = WorkerSettings {
        upstream: Upstream::Unix(path),
        ..settings(SocketAddr::from(([127, 0, 0, 1], 1)), ClientAddress::Hidden)
    };
    let visitor = visit(unix, bytes(10));
    assert!(visitor.ended && !visitor.reset, "{:?}", (visitor.ended, visitor.reset));
    assert_eq!(visitor.received, bytes(10));
}

/// Returns the memory use of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("a process");
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4_096
}

/// A client without a TCP stack, which sends single segments.
struct Bare {
    address: SocketAddr,
    seq: SeqNum,
    ack: SeqNum,
}

impl Bare {
    fn send(&mut self, stack: &mut Stack, flags: Flags, payload: &[u8]) {
        let bare = test_packets::segment(self.seq, self.ack, flags);
        let segment = Segment { len: payload.len() as u32, ..bare };
        let headers = Headers::between(&segment, self.address, LISTEN.into()).expect("one family");
        let packet = [headers.as_bytes(), payload].concat();
        stack.handle_packet(Instant::ZERO, &packet, Checksums::Skip);
        self.seq = self.seq.plus(u64::from(segment.len) + u64::from(flags.has(Flags::SYN)));
    }

    /// Receives everything that the stack sends.
    fn receive(&mut self, stack: &mut Stack) {
        while let Some(packet) = stack.poll_packet(Instant::ZERO) {
            let parts = [packet.headers.as_bytes(), packet.payload[0], packet.payload[1]].concat();
            let packet = Packet::parse(&parts, Checksums::Skip).expect("a packet").segment;
            let len = u64::from(packet.len) + u64::from(packet.flags.has(Flags::SYN));
            self.ack = packet.seq.plus(len);
        }
        while stack.poll_event().is_some() {}
    }
}

/// Returns a stack with `count` connections that have served a request and are idle.
fn idle(count: u32, relayed: &mut BTreeMap<u64, ConnId>) -> Stack {
    let [port, _] = Port::pair(Datapath::Offload).expect("a socket pair");
    let upstream = SocketAddr::from(([127, 0, 0, 1], 1));
    let settings =
        WorkerSettings { connections: 2 * count as usize, ..settings(upstream, ClientAddress::Hidden) };
    fs::remove_file(&settings.table).expect("a file");
    probes::create(&settings.table, settings.connections).expect("room");
    let mut stack = stack(&settings, &port).expect("a stack");
    let table = SharedTable::open(&settings.table).expect("a table");
    stack.set_live_table(Some(Box::new(table)));
    stack.set_admission(Instant::ZERO, LISTEN.into(), Admission::Open);
    for number in 0..count {
        // Clients arrive in no particular order.
        let host = number.wrapping_mul(0x9e37_79b1) >> 8;
        let address =
            SocketAddr::from((Ipv4Addr::from_bits(0x0a00_0000 | host), 40_000 + (number % 20_000) as u16));
        let mut client = Bare { address, seq: SeqNum(number), ack: SeqNum(0) };
        client.send(&mut stack, Flags::SYN, &[]);
        client.receive(&mut stack);
        client.send(&mut stack, Flags::ACK, &[1; 300]);
        let id = stack.accept(LISTEN.into()).expect("established");
        assert_eq!(stack.read(Instant::ZERO, id, &mut [0; 1_000]), 300);
        assert_eq!(stack.write(id, &[2; 5_000]), 5_000);
        client.receive(&mut stack);
        client.send(&mut stack, Flags::ACK, &[]);
        client.receive(&mut stack);
        assert_eq!(stack.connection(id).expect("open").acknowledged(), 5_000);
        stack.free_idle_memory(id);
        relayed.insert(u64::from(number), id);
    }
    let _ = fs::remove_file(settings.table);
    stack
}

/// Measures the memory of 100 000 connections that have served a request and are idle. The sockets to the server are
/// not included, because they use kernel memory.
#[test]
#[ignore = "a measurement: cargo test --release -p fullpipe-accelerate --lib idle_connections -- --ignored --nocapture"]
fn idle_connections_take_little_memory() {
    const COUNT: u32 = 100_000;
    let before = resident();
    let mut relayed = BTreeMap::new();
    let stack = idle(COUNT, &mut relayed);
    let each = (resident() - before) / u64::from(COUNT) + size_of::<Relayed>() as u64;
    assert_eq!(stack.connections(), COUNT as usize);
    println!(
        "{each} bytes for each idle connection, {} of them for the relay and {SLOT} for the shared table",
        size_of::<Relayed>()
    );
    assert!(each <= 3 << 10, "{each} bytes");
}

/// Measures the memory of 100 000 half-open connections. Their clients have only sent a SYN.
#[test]
#[ignore = "a measurement: cargo test --release -p fullpipe-accelerate --lib half_open_connections -- --ignored --nocapture"]
fn half_open_connections_take_little_memory() {
    const COUNT: u32 = 100_000;
    let mut stack = Stack::new(StackConfig {
        key: Key::new([3; 16]),
        isn_clock: IsnClock::Linux,
        max_connections: COUNT as usize,
        cut: fullpipe_tcp::stack::Cut::SuperPackets,
    });
    stack.add_address(LISTEN.0.into());
    stack.listen(LISTEN.into(), Config::default(), COUNT as usize).expect("free");
    let before = resident();
    for number in 0..COUNT {
        let host = 0x0a00_0000 | number.wrapping_mul(0x9e37_79b1) >> 8;
        let address = SocketAddr::from((Ipv4Addr::from_bits(host), 40_000 + (number % 20_000) as u16));
        let mut client = Bare { address, seq: SeqNum(number), ack: SeqNum(0) };
        client.send(&mut stack, Flags::SYN, &[]);
        client.receive(&mut stack);
    }
    let each = (resident() - before) / u64::from(COUNT);
    assert_eq!(stack.connections(), COUNT as usize);
    println!("{each} bytes for each half-open connection");
    assert!(each <= 512, "{each} bytes");
}
