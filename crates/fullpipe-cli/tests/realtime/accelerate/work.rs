//! Counts the memory allocations of the worker while it relays data.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use fullpipe::accelerate::worker::relay;
use fullpipe::linux::stack_loop::{Application, Port, run};
use fullpipe::linux::{Clock, Datapath, Stop};
use fullpipe::tcp::stack::siphash::Key;
use fullpipe::tcp::stack::{ConnId, IsnClock, Stack, StackConfig};
use fullpipe::tcp::{Config, Event, State};
use fullpipe::units;
use serde_json::{Value, json};

use super::scene::wait_for;
use crate::counting::count_in;
use crate::process::folder;

const LISTEN: ([u8; 4], u16) = ([192, 0, 2, 1], 443);
const CLIENT: [u8; 4] = [198, 51, 100, 7];
/// Number of connections, one after the other, in the second part of the test.
const VISITS: u64 = 50;
/// First byte on a connection: transfer data in both directions, or reply once.
const BULK: u8 = b'b';
const VISIT: u8 = b'v';

/// A client with one connection that transfers data in both directions, and with short connections, one after the
/// other.
struct Client {
    data: Vec<u8>,
    bulk: Option<ConnId>,
    visit: Option<ConnId>,
    visits: Arc<Visits>,
}

/// Numbers of short connections that the client is to make, and that it has completed.
#[derive(Default)]
struct Visits {
    wanted: AtomicU64,
    done: AtomicU64,
}

impl Client {
    fn connect(now: units::Instant, stack: &mut Stack, port: u64) -> ConnId {
        let near = SocketAddr::from((CLIENT, 40_000 + port as u16));
        stack.connect(now, near, LISTEN.into(), Config::default()).expect("a free port")
    }
}

impl Application for Client {
    fn attend(&mut self, now: units::Instant, stack: &mut Stack) -> units::Instant {
        let bulk = *self.bulk.get_or_insert_with(|| Self::connect(now, stack, 0));
        while let Some((id, event)) = stack.poll_event() {
            match event {
                Event::Connected if id == bulk => assert_eq!(stack.write(id, &[BULK]), 1),
                Event::Connected => assert_eq!(stack.write(id, &[VISIT]), 1),
                Event::PeerClosed if id != bulk => {
                    stack.shutdown(id);
                    stack.release(now, id);
                    self.visit = None;
                    self.visits.done.fetch_add(1, Relaxed);
                }
                Event::Readable => while stack.discard(now, id, 1 << 20) > 0 {},
                Event::Aborted => panic!("a reset"),
                _ => {}
            }
        }
        if stack.connection(bulk).is_some_and(|connection| connection.state() == State::Established) {
            while stack.write(bulk, &self.data) == self.data.len() {}
        }
        let done = self.visits.done.load(Relaxed);
        if self.visit.is_none() && done < self.visits.wanted.load(Relaxed) {
            self.visit = Some(Self::connect(now, stack, 1 + done));
        }
        now + units::Duration::from_millis(5)
    }
}

/// Serves one connection according to its first byte.
fn serve(mut stream: TcpStream) {
    let mut kind = [0];
    // A health check sends no data.
    if stream.read_exact(&mut kind).is_err() {
        return;
    }
    let mut room = vec![0; 1 << 16];
    if kind == [VISIT] {
        let _ = stream.write_all(&room[..1_000]);
        return;
    }
    let mut sending = stream.try_clone().expect("a descriptor");
    thread::spawn(move || while sending.write_all(&[7; 1 << 16]).is_ok() {});
    while stream.read(&mut room).is_ok_and(|len| len > 0) {}
}

/// Numbers that change while the worker runs.
#[derive(Clone, Copy, Debug)]
struct Counts {
    allocations: u64,
    packets: u64,
    accepted: u64,
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Returns the counts at a report of the worker, `skipped` reports from now.
fn counts(reports: &mut Lines<BufReader<UnixStream>>, skipped: usize) -> Counts {
    let line = reports.nth(skipped).expect("a report").expect("UTF-8");
    let report: Value = serde_json::from_str(&line).expect("JSON");
    let number = |name: &str| report[name].as_u64().expect("a number");
    Counts {
        allocations: ALLOCATIONS.load(Relaxed),
        packets: number("packets_in") + number("packets_out"),
        accepted: number("accepted"),
    }
}

/// After the warm-up, no packet of a bulk transfer in both directions causes an allocation, and each new connection causes
/// a bounded number of them.
#[test]
fn the_worker_allocates_nothing_per_packet() {
    let table = folder("accelerate-work").join("table");
    File::create(&table).and_then(|file| file.set_len(1 << 16)).expect("room");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let upstream = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.expect("a connection")));
        }
    });
    let settings = json!({
        "listen": SocketAddr::from(LISTEN), "senders": { "profile": null, "policies": [] }, "upstream": { "tcp": upstream }, "client_address": "hidden",
        "cc": "bbr1", "mtu": 1500, "memory": 1 << 28, "connections": 100, "table": table, "identity": null,
        "limit": null, "paths": null
    });
    let [ours, theirs] = Port::pair(Datapath::Offload).expect("a socket pair");
    let (control, mut keeper) = UnixStream::pair().expect("a socket pair");
    writeln!(keeper, "{settings}").expect("room");
    let [stop_worker, stop_client] = [0; 2].map(|_| Stop::new().expect("an eventfd"));
    let mut stack = Stack::new(StackConfig {
        key: Key::new([3; 16]),
        isn_clock: IsnClock::Linux,
        max_connections: 100,
        cut: theirs.cut(),
    });
    stack.add_address(CLIENT.into());
    let (stack, visits) = (Mutex::new(stack), Arc::new(Visits::default()));
    let mut client = Client { data: vec![7; 1 << 16], bulk: None, visit: None, visits: visits.clone() };
    thread::scope(|scope| {
        scope.spawn(|| {
            count_in(&ALLOCATIONS);
            relay(&ours, control, &stop_worker).expect("it serves");
        });
        scope.spawn(|| {
            run(&theirs, &stack, Clock::starting_in(units::Duration::ZERO), &mut client, &stop_client)
        });
        let mut reports = BufReader::new(keeper.try_clone().expect("a descriptor")).lines();
        // The warm-up: the buffers of the connection reach their sizes.
        let before = counts(&mut reports, 15);
        let after = counts(&mut reports, 9);
        let [allocations, packets] = [after.allocations - before.allocations, after.packets - before.packets];
        println!("{allocations} allocations for {packets} packets");

        let before = counts(&mut reports, 0);
        visits.wanted.store(VISITS, Relaxed);
        wait_for("all connections end", || (visits.done.load(Relaxed) == VISITS).then_some(()));
        // Reports have accumulated in the meantime.
        let all = |counts: &Counts| counts.accepted - before.accepted >= VISITS;
        let after = std::iter::repeat_with(|| counts(&mut reports, 0)).find(all).expect("a report");
        let [visited, accepted] = [after.allocations - before.allocations, after.accepted - before.accepted];
        println!("{visited} allocations for {accepted} connections");
        // The worker ends when the keeper does.
        drop((keeper, reports));
        stop_client.stop();
        assert!(before.allocations > 10, "the allocations of the start are counted");
        assert!(packets > 1_000 && allocations <= 10, "{allocations} for {packets} packets");
        assert!(accepted == VISITS && visited <= 20 * VISITS, "{visited} for {accepted} connections");
    });
}
