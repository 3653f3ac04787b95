//! Tests a mixed load for a long time: requests, half-closes, resets by both sides, slow readers, and a
//! server that is killed repeatedly.

use std::env;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use fullpipe::units::draw;

use super::host::{Host, UPSTREAM};
use super::peers::{self, Server};
use super::scene::{now, sleep, wait_for};
use super::usage::{cpu, load, resident};

/// Maximum growth of the memory of both processes after the first quarter of the test.
const FLAT: u64 = 16 << 20;
/// Time for which a killed server is down.
const MISSING: Duration = Duration::from_millis(300);
/// Number of requests whose bytes are compared on all sides.
const COUNTED: u64 = 100;

/// Size and duration of a test.
struct Size {
    lasting: Duration,
    clients: u64,
    /// Pause of a client after each connection.
    pause: Duration,
    /// Time between two kills of the server.
    deaths: Duration,
}

/// Results that the clients have observed.
#[derive(Default)]
struct Tally {
    connected: AtomicU64,
    visits: AtomicU64,
    /// Number of connections that ended because the server was killed.
    cut: AtomicU64,
    /// Number of kills and restarts of the server, which is odd while the server is down.
    changes: AtomicU64,
}

/// Makes one connection as a client; `chance` selects its behaviour.
fn visit(chance: u64, connect: impl Fn() -> io::Result<TcpStream>) -> io::Result<()> {
    let stream = connect()?;
    let len = 1 + (chance >> 8) % 50_000;
    match chance % 12 {
        // Sends several requests over one connection.
        0 => {
            let mut stream = peers::converse(stream)?;
            (0..5).try_for_each(|_| peers::request(&mut stream, len))
        }
        // The client ends its direction first, and the server answers afterwards.
        1 | 2 => peers::upload_and_end(stream, 2 * len),
        // The client resets the connection by closing a socket with unread bytes.
        3 => {
            let mut stream = stream;
            stream.write_all(b"d")?;
            stream.read_exact(&mut [0; 1_000])
        }
        4 => match peers::ask_for_reset(stream)? {
            ErrorKind::ConnectionReset => Ok(()),
            other => Err(other.into()),
        },
        // The client reads slowly.
        5 => peers::download(stream, 300_000, Duration::from_millis(10)),
        _ => peers::download(stream, len, Duration::ZERO),
    }
}

fn endure(name: &str, size: &Size) {
    let Some(host) = Host::new(name, false) else { return };
    let service = host.accelerate();
    let Host { scene, listen, mut server, fallback: _fallback } = host;
    let seen = server.seen.clone();
    let processes = [service.keeper.0.id().into(), service.worker];
    let memory = || processes.map(resident).iter().sum::<u64>();
    let tally = Tally::default();
    let connect = || {
        let stream = peers::connect(&scene.client, listen, Duration::from_secs(5));
        // If the server is down, a connection is accepted and then reset, perhaps before the client has
        // noticed that it was accepted.
        if stream.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true) {
            tally.connected.fetch_add(1, Relaxed);
        }
        stream
    };
    let (begun, busy, mut early) = (now(), cpu(service.worker), 0);
    thread::scope(|scope| {
        for client in 0..size.clients {
            let (tally, connect, service, scene) = (&tally, &connect, &service, &scene);
            scope.spawn(move || {
                for number in 0.. {
                    if begun.elapsed() >= size.lasting {
                        break;
                    }
                    let before = tally.changes.load(Relaxed);
                    if let Err(error) = visit(draw(5, client, number), connect) {
                        let same = tally.changes.load(Relaxed) == before && before % 2 == 0;
                        assert!(
                            !same,
                            "visit {number} of client {client}: {error:?} {:?} {:?} {:?}",
                            begun.elapsed(),
                            service.notes(),
                            scene.status(&service.keeper)
                        );
                        tally.cut.fetch_add(1, Relaxed);
                    }
                    tally.visits.fetch_add(1, Relaxed);
                    sleep(size.pause);
                }
            });
        }
        let mut next_death = size.deaths / 2;
        while begun.elapsed() < size.lasting {
            sleep(Duration::from_millis(20));
            if early == 0 && begun.elapsed() >= size.lasting / 4 {
                early = memory();
            }
            if begun.elapsed() >= next_death {
                next_death += size.deaths;
                tally.changes.fetch_add(1, Relaxed);
                server.kill();
                sleep(MISSING);
                server = Server::with(&scene.server, UPSTREAM, seen.clone());
                let returned = now();
                wait_for("the server is reached again", || {
                    peers::download(connect().ok()?, 1, Duration::ZERO).ok()
                });
                assert!(returned.elapsed() < Duration::from_secs(1), "{:?}", returned.elapsed());
                tally.changes.fetch_add(1, Relaxed);
            }
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    let worker = (cpu(service.worker) - busy) / seconds;
    let grown = memory().saturating_sub(early);
    let report = |name: &str| scene.status(&service.keeper)?["report"][name].as_u64();
    wait_for("no connection is stuck", || (report("connections") == Some(0)).then_some(()));
    let connected = || tally.connected.load(Relaxed);
    wait_for("every connection is counted", || (report("accepted") == Some(connected())).then_some(()));
    // Resets discard bytes that only one side has counted, so the counts are compared in a period without
    // resets.
    let names = ["bytes_up", "bytes_down"];
    let ours = || names.map(|name| report(name).expect("a number"));
    let servers = || [&seen.received, &seen.sent].map(|bytes| bytes.load(Relaxed));
    let before = [ours(), servers()];
    let mut clients = [0, 0];
    for number in 0..COUNTED {
        let len = draw(6, 0, number) % 100_000;
        let mut stream = peers::converse(connect().expect("a connection")).expect("room");
        peers::request(&mut stream, len).expect("an answer");
        clients = [clients[0] + 9, clients[1] + len];
    }
    let added = |after: [u64; 2], before: [u64; 2]| [0, 1].map(|i| after[i] - before[i]);
    wait_for("all sides have counted the same", || {
        let counted = [added(ours(), before[0]), added(servers(), before[1])];
        (counted == [clients; 2]).then_some(())
    });
    let [visits, cut] = [&tally.visits, &tally.cut].map(|count| count.load(Relaxed));
    println!(
        "{visits} visits in {seconds:.0} s, {cut} ended by {} deaths of the server; memory of both processes \
         {:.1} MiB, {:.1} MiB more than after a quarter of the time; worker {:.0} % of a core; load {}",
        tally.changes.load(Relaxed) / 2,
        memory() as f64 / 1_048_576.0,
        grown as f64 / 1_048_576.0,
        100.0 * worker,
        load()
    );
    assert!(early > 0 && grown <= FLAT, "{grown} bytes");
    assert_eq!(scene.status(&service.keeper).expect("a service")["starts"], 1);
}

/// The test mostly waits, so that it can run in parallel with other tests for two minutes.
#[test]
fn mixed_load_leaves_nothing_behind() {
    let [lasting, deaths] = [120, 25].map(Duration::from_secs);
    endure("accelerate-mixed", &Size { lasting, clients: 4, pause: Duration::from_millis(150), deaths });
}

/// The load of a busy server, for an hour. `FULLPIPE_SECONDS` sets another duration, and `FULLPIPE_DEATHS` the time
/// between two deaths of the server in seconds.
#[test]
#[ignore = "a long test: cargo test --release -p fullpipe-cli --test realtime long_mixed_load -- --ignored --nocapture"]
fn long_mixed_load_leaves_nothing_behind() {
    let seconds = env::var("FULLPIPE_SECONDS").map_or(3_600, |text| text.parse().expect("a number"));
    let deaths = env::var("FULLPIPE_DEATHS").map_or(60, |text| text.parse().expect("a number"));
    let [lasting, deaths] = [seconds, deaths].map(Duration::from_secs);
    endure("accelerate-long", &Size { lasting, clients: 16, pause: Duration::from_millis(2), deaths });
}
