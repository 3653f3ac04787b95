//! Tests of the limits that a relay sets for a client, and of connections that are far slower than the
//! others.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::{fs, io};

use fullpipe_relay::{Connections, CopyObserver, CopyOptions, Pacer, SocketSample, copy};
use fullpipe_units::{Bytes, Duration, Rate};

use crate::Fixture;
use crate::fetches::Sockets;
use crate::proxy::noting;

/// Notes of a copy.
#[derive(Default)]
struct Noted(std::sync::Mutex<Vec<String>>);

impl CopyObserver for Noted {
    fn note(&self, text: &str) {
        self.0.lock().expect("no panic").push(text.to_owned());
    }
}

/// The limit of a key applies to all connections together, in both directions. A relay that can neither sample nor pace
/// its sockets applies the same limit.
#[test]
fn a_relay_limits_the_rate_of_a_key() {
    const SIZE: usize = 2 << 20;
    let fixture = Fixture::with_rights("limit=16mbit");
    let source = fixture.source("large", SIZE);
    let noted = Noted::default();
    let upload = fixture.options(&source, "large", fixture.address);
    let download = fixture.fetching(&["large"], "large-again", fixture.address);
    for options in [upload, download] {
        let report = copy(&options, None, &noted).expect("copied");
        // The limit does not delay the data that is in the buffers of both ends when the last byte is read.
        let share = SIZE as f64 * 8.0 / 16e6 / report.wall_s;
        println!("{share:.3} of the limit");
        assert!((0.6..1.03).contains(&share), "{share}");
    }
    let notes = noted.0.into_inner().expect("no panic");
    assert_eq!(notes, ["the relay limits the key of this host to 16 Mbit/s"; 2]);
    assert!(fs::read(fixture.fetched("large-again")).expect("placed") == fs::read(source).expect("a file"));
}

/// A pacer that sets no rate, counts its calls, and reports the same RTT for all of them.
#[derive(Debug)]
pub(crate) struct CountingPacer {
    rtt: Duration,
    paced: AtomicUsize,
}

impl CountingPacer {
    pub(crate) fn new(rtt: Duration) -> Self {
        Self { rtt, paced: AtomicUsize::new(0) }
    }
}

impl Pacer for CountingPacer {
    fn pace(&self, _: BorrowedFd<'_>, _: Rate) -> io::Result<()> {
        self.paced.fetch_add(1, SeqCst);
        Ok(())
    }

    fn rtt(&self, _: BorrowedFd<'_>) -> io::Result<Duration> {
        Ok(self.rtt)
    }
}

/// All connections of a long path are paced, because their bursts would overflow shallow queues. Connections within a
/// data centre are not paced, because pacing costs more than it gains there.
#[test]
fn connections_of_a_long_path_are_paced() {
    for (rtt, all) in [(Duration::from_millis(50), true), (Duration::from_micros(100), false)] {
        let fixture = Fixture::new();
        let source = fixture.source("large", 8 << 20);
        let pacer = Arc::new(CountingPacer::new(rtt));
        let options = CopyOptions {
            pacer: Some(Arc::clone(&pacer) as Arc<dyn Pacer>),
            ..fixture.options(&source, "large", fixture.address)
        };
        copy(&options, None, &()).expect("copied");
        assert_eq!(pacer.paced.load(SeqCst) > 0, all, "{pacer:?}");
    }
}

/// One of four connections has a hundredth of the rate of the others until its local port changes.
#[test]
fn a_slow_connection_is_opened_anew_from_another_port() {
    // At 8 Mbit/s, the copy takes 9 s. The slow connection is opened anew after 5 s.
    let fixture = Fixture::with_rights("limit=8mbit");
    let source = fixture.source("large", 9 << 20);
    // Connection 0, which is never opened anew, must not be the slow one. A copy that chooses opens it alone, and the
    // others when its handshake has shown the RTT: as many as fill this link, which are all. It thus arrives first.
    let (proxy, ports) = noting(fixture.address);
    let options = CopyOptions {
        connections: Connections::new(1, 4).expect("a range"),
        link: Some(Rate::from_bps(1_000_000_000_000_000)),
        ..fixture.options(&source, "large", proxy)
    };
    let sockets = Sockets::new(move |sample: SocketSample| {
        let is_slow = ports.lock().expect("no panic").get(3) == Some(&sample.port);
        let rate = if is_slow { 1_000_000 } else { 100_000_000 };
        SocketSample { rate: Rate::from_bps(rate), memory: Bytes::ZERO, ..sample }
    });
    let noted = Noted::default();
    let report = copy(&options, Some(Box::new(sockets)), &noted).expect("copied");
    let notes = noted.0.into_inner().expect("no panic");
    let reopened: Vec<u32> = report.connections.iter().map(|connection| connection.reopened).collect();
    assert_eq!((reopened.len(), reopened.iter().sum::<u32>(), reopened[0]), (4, 1, 0), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("is opened anew from another port")), "{notes:?}");
    assert!(report.connections.iter().all(|connection| !connection.lost), "{report:?}");
    assert!(fs::read(fixture.placed("large")).expect("placed") == fs::read(source).expect("a file"));
}
