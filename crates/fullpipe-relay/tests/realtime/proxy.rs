//! Proxies that cut or stall one of their connections, delay or slow down all of them, or note their order of arrival.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::wait;

/// The connection to cut: its number in order of arrival, the number of bytes after which
/// forwarding stops, and the time until the connection is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) connection: usize,
    pub(crate) after: u64,
    pub(crate) stall_ms: u64,
}

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
}

impl Proxy {
    /// Starts a proxy to `relay` that cuts the direction from the client.
    pub(crate) fn start(relay: SocketAddr, cut: Cut) -> Self {
        Self::cutting(relay, cut, (false, true))
    }

    /// Starts a proxy to `relay` that cuts the direction from the relay.
    pub(crate) fn backwards(relay: SocketAddr, cut: Cut) -> Self {
        Self::cutting(relay, cut, (true, true))
    }

    /// Starts a proxy to `relay` that stalls the direction from the client for a time.
    pub(crate) fn pausing(relay: SocketAddr, cut: Cut) -> Self {
        Self::cutting(relay, cut, (false, false))
    }

    fn cutting(relay: SocketAddr, cut: Cut, (backwards, closes): (bool, bool)) -> Self {
        let address = listen(relay, move |number, back, forth| {
            let limit = (number == cut.connection).then_some(cut);
            thread::spawn(move || forward(back.0, back.1, limit.filter(|_| backwards), closes));
            thread::spawn(move || forward(forth.0, forth.1, limit.filter(|_| !backwards), closes));
        });
        Self { address }
    }
}

/// One direction of a connection: its source and its destination.
type Direction = (TcpStream, TcpStream);

/// Starts a proxy to `relay`, and returns its address. For each connection, it calls `carry` with the number of the
/// connection and with the directions from and to the relay.
fn listen(relay: SocketAddr, carry: impl Fn(usize, Direction, Direction) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let client = client.expect("a connection");
            let relay = TcpStream::connect(relay).expect("the relay listens");
            let both = |stream: &TcpStream| stream.try_clone().expect("a second descriptor");
            carry(number, (both(&relay), both(&client)), (client, relay));
        }
    });
    address
}

/// Starts a proxy to `relay` that forwards at most 64 KiB per `pause_ms` from the relay on each connection, and returns
/// its address.
pub(crate) fn slow(relay: SocketAddr, pause_ms: u64) -> SocketAddr {
    listen(relay, move |_, (mut from, mut to), forth| {
        thread::spawn(move || forward(forth.0, forth.1, None, true));
        thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                wait(pause_ms);
                if to.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Write);
        });
    })
}

/// Starts a proxy to `relay`; returns its address, and the local ports of its clients in order of arrival.
pub(crate) fn noting(relay: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u16>>>) {
    let ports = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&ports);
    let address = listen(relay, move |_, back, forth| {
        noted.lock().expect("no panic").push(forth.0.peer_addr().expect("connected").port());
        for (from, to) in [back, forth] {
            thread::spawn(move || forward(from, to, None, true));
        }
    });
    (address, ports)
}

/// Starts a proxy to `relay` that delays each direction by `delay_ms`, and returns its address.
pub(crate) fn delaying(relay: SocketAddr, delay_ms: u64) -> SocketAddr {
    listen(relay, move |_, back, forth| {
        for stream in [&forth.0, &forth.1] {
            stream.set_nodelay(true).expect("an option");
        }
        delayed(back.0, back.1, delay_ms);
        delayed(forth.0, forth.1, delay_ms);
    })
}

#[expect(clippy::disallowed_methods, reason = "the kernel's time, not the engine's")]
fn delayed(mut from: TcpStream, mut to: TcpStream, delay_ms: u64) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read) = from.read(&mut buffer) {
            let due = Instant::now() + Duration::from_millis(delay_ms);
            if sender.send((due, buffer[..read].to_vec())).is_err() || read == 0 {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if bytes.is_empty() || to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}

/// Forwards one direction of a connection; after a stall, `closes` decides whether to close the
/// connection or to continue.
fn forward(mut from: TcpStream, mut to: TcpStream, mut cut: Option<Cut>, closes: bool) {
    let mut buffer = vec![0; 64 << 10];
    let mut forwarded = 0;
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
        forwarded += read as u64;
        if let Some(reached) = cut.take_if(|cut| forwarded >= cut.after) {
            wait(reached.stall_ms);
            if closes {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        }
    }
    let _ = to.shutdown(if cut.is_some() { Shutdown::Both } else { Shutdown::Write });
}
