//! A small server that uses kernel sockets, and clients of this server.
//!
//! The first byte on a connection selects the server's behaviour:
//!
//! | byte | the server |
//! |---|---|
//! | `w` | replies with the client address that it sees |
//! | `e` | echoes |
//! | `d` | sends until the client has gone |
//! | `u` | reads an upload, and records how it has ended |
//! | `g` and a length | sends that many bytes of the pattern, and ends |
//! | `r` and lengths | answers each length with as many bytes of the pattern |
//! | `p` | reads the pattern until the client's end, and replies with the number of correct bytes |
//! | `x` | resets the connection |

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fullpipe::linux::namespace::Namespace;
use fullpipe::units::draw;

use super::scene::sleep;

/// Maximum time that a client waits for a byte.
const PATIENCE: Duration = Duration::from_secs(10);
/// Length of the pattern, a prime number, so that bytes at a wrong position differ.
const PERIOD: usize = 65_521;
/// Two periods of the pattern.
static PATTERN: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..2 * PERIOD).map(|i| draw(3, 0, (i % PERIOD) as u64) as u8).collect());

/// Returns `len` bytes of the pattern from position `at`, but at most one period.
fn pattern(at: u64, len: usize) -> &'static [u8] {
    let at = (at % PERIOD as u64) as usize;
    &PATTERN[at..at + len.min(PERIOD)]
}

/// Returns whether `bytes` equal the pattern from position `at`.
fn is_pattern(mut at: u64, bytes: &[u8]) -> bool {
    bytes.chunks(PERIOD).all(|chunk| {
        let right = chunk == pattern(at, chunk.len());
        at += chunk.len() as u64;
        right
    })
}

/// Writes `len` bytes of the pattern.
fn write_pattern(stream: &mut TcpStream, len: u64) -> io::Result<()> {
    let mut at = 0;
    while at < len {
        let part = pattern(at, usize::try_from(len - at).unwrap_or(usize::MAX));
        stream.write_all(part)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Reads `len` bytes of the pattern, with a pause after each read.
fn read_pattern(stream: &mut TcpStream, len: u64, pause: Duration) -> io::Result<()> {
    let mut room = vec![0; 1 << 16];
    let mut at = 0;
    while at < len {
        let most = usize::try_from(len - at).unwrap_or(usize::MAX).min(room.len());
        match stream.read(&mut room[..most])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            got => {
                assert!(is_pattern(at, &room[..got]), "bytes {at} to {} are not right", at + got as u64);
                at += got as u64;
            }
        }
        if !pause.is_zero() {
            sleep(pause);
        }
    }
    Ok(())
}

/// End of an upload: the number of bytes, and the error if the upload did not end in an orderly way.
type End = (u64, Option<ErrorKind>);

/// Observations of a server.
#[derive(Debug, Default)]
pub(super) struct Seen {
    uploads: Mutex<Vec<End>>,
    /// Number of uploads whose first byte has arrived.
    pub(super) begun: AtomicU64,
    /// Number of accepted connections, including health checks.
    pub(super) accepted: AtomicU64,
    /// Number of bytes that were read.
    pub(super) received: AtomicU64,
    /// Number of bytes that were written.
    pub(super) sent: AtomicU64,
    live: Mutex<BTreeMap<u64, TcpStream>>,
}

impl Seen {
    /// Returns the ends of all uploads so far.
    pub(super) fn uploads(&self) -> Vec<End> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn live(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, TcpStream>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listening socket, and the thread that serves its connections.
pub(super) struct Server {
    listener: TcpStream,
    pub(super) seen: Arc<Seen>,
}

impl Server {
    pub(super) fn new(namespace: &Namespace, address: &str) -> Self {
        Self::with(namespace, address, Arc::default())
    }

    /// Selects the kernel's congestion control for new connections.
    pub(super) fn use_congestion_control(&self, name: &str) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_tcp_congestion(&self.listener, name)?)
    }

    /// Starts a server that continues the counters in `seen`.
    pub(super) fn with(namespace: &Namespace, address: &str, seen: Arc<Seen>) -> Self {
        let bind = || Ok(TcpListener::bind(address).expect("a free port"));
        let listener = namespace.run(bind).expect("a namespace");
        let copy = OwnedFd::from(listener.try_clone().expect("a descriptor"));
        let server = Self { listener: copy.into(), seen };
        let seen = server.seen.clone();
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let number = seen.accepted.fetch_add(1, Relaxed);
                let seen = seen.clone();
                thread::spawn(move || {
                    let copy = stream.try_clone().expect("a descriptor");
                    seen.live().insert(number, copy);
                    serve(stream, &seen);
                    seen.live().remove(&number);
                });
            }
        });
        server
    }

    /// Closes the listening socket. Its connections continue.
    pub(super) fn close(&self) {
        // After shutdown, the socket no longer listens, and its thread ends.
        let _ = self.listener.shutdown(Shutdown::Both);
    }

    /// Closes the listening socket and resets all connections, as if the server process had been killed.
    pub(super) fn kill(&self) {
        self.close();
        self.seen.live().values().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}

fn serve(mut stream: TcpStream, seen: &Seen) {
    let mut kind = [0];
    // A health check sends no data.
    if stream.read_exact(&mut kind).is_err() {
        return;
    }
    let mut room = vec![0; 1 << 16];
    match kind {
        [b'w'] => {
            let client = stream.peer_addr().expect("a peer");
            let _ = stream.write_all(client.ip().to_canonical().to_string().as_bytes());
        }
        [b'e'] => {
            while let Ok(len @ 1..) = stream.read(&mut room) {
                if stream.write_all(&room[..len]).is_err() {
                    break;
                }
            }
        }
        [b'd'] => while stream.write_all(&room).is_ok() {},
        [b'g'] => {
            let mut len = [0; 8];
            let len = stream.read_exact(&mut len).map(|()| u64::from_be_bytes(len));
            let _ = len.and_then(|len| write_pattern(&mut stream, len));
        }
        [b'r'] => {
            let mut len = [0; 8];
            seen.received.fetch_add(1, Relaxed);
            while stream.read_exact(&mut len).is_ok() {
                let len = u64::from_be_bytes(len);
                if write_pattern(&mut stream, len).is_err() {
                    break;
                }
                seen.received.fetch_add(8, Relaxed);
                seen.sent.fetch_add(len, Relaxed);
            }
        }
        [b'p'] => {
            let mut total = 0;
            while let Ok(len @ 1..) = stream.read(&mut room) {
                if !is_pattern(total, &room[..len]) {
                    return;
                }
                total += len as u64;
            }
            let _ = stream.write_all(&total.to_be_bytes());
        }
        // Closing a socket with unread bytes resets the connection.
        [b'x'] => drop(stream.peek(&mut [0; 2])),
        _ => {
            seen.begun.fetch_add(1, Relaxed);
            let mut total = 0;
            let end = loop {
                match stream.read(&mut room) {
                    Ok(0) => break None,
                    Ok(len) => total += len as u64,
                    Err(error) => break Some(error.kind()),
                }
            };
            seen.uploads.lock().unwrap_or_else(PoisonError::into_inner).push((total, end));
        }
    }
}

/// Connects from a namespace; the attempt takes at most `longest`.
pub(super) fn connect(from: &Namespace, to: SocketAddr, longest: Duration) -> io::Result<TcpStream> {
    let stream = from.run(|| Ok(TcpStream::connect_timeout(&to, longest))).expect("a namespace")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Returns the client address that the server sees. The connection must succeed with its first SYN.
pub(super) fn way(from: &Namespace, to: SocketAddr) -> String {
    let mut stream = connect(from, to, Duration::from_millis(900)).expect("a connection with the first SYN");
    stream.write_all(b"w").expect("room");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an address");
    text
}

/// Opens a connection and exchanges one byte.
pub(super) fn echo(from: &Namespace, to: SocketAddr) -> TcpStream {
    let mut stream = connect(from, to, PATIENCE).expect("a connection");
    stream.write_all(b"e").expect("room");
    assert_eq!(exchange(&mut stream).expect("an echo"), 7);
    stream
}

/// Sends a byte, and returns the byte that the server sends back.
pub(super) fn exchange(stream: &mut TcpStream) -> io::Result<u8> {
    stream.write_all(&[7])?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    Ok(byte[0])
}

/// Uploads until the connection breaks, and returns the error.
pub(super) fn upload(mut stream: TcpStream) -> ErrorKind {
    let bytes = vec![b'u'; 1 << 14];
    loop {
        if let Err(error) = stream.write_all(&bytes) {
            return error.kind();
        }
    }
}

/// Downloads until the connection breaks, with a pause after each read, and returns the error.
pub(super) fn download_for_ever(mut stream: TcpStream, pause: Duration) -> ErrorKind {
    let mut room = vec![0; 1 << 14];
    if let Err(error) = stream.write_all(b"d") {
        return error.kind();
    }
    loop {
        match stream.read(&mut room) {
            Ok(0) => return ErrorKind::UnexpectedEof,
            Ok(_) => sleep(pause),
            Err(error) => return error.kind(),
        }
    }
}

/// Downloads `len` bytes with a pause after each read, and checks all bytes and the end.
pub(super) fn download(mut stream: TcpStream, len: u64, pause: Duration) -> io::Result<()> {
    stream.write_all(&[&b"g"[..], &len.to_be_bytes()].concat())?;
    read_pattern(&mut stream, len, pause)?;
    match stream.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// Uploads `len` bytes and ends this direction. The server checks the bytes and replies with their number.
pub(super) fn upload_and_end(mut stream: TcpStream, len: u64) -> io::Result<()> {
    stream.write_all(b"p")?;
    write_pattern(&mut stream, len)?;
    stream.shutdown(Shutdown::Write)?;
    let mut right = [0; 8];
    stream.read_exact(&mut right)?;
    assert_eq!(u64::from_be_bytes(right), len, "all bytes are right");
    Ok(())
}

/// Opens a connection for several requests.
pub(super) fn converse(mut stream: TcpStream) -> io::Result<TcpStream> {
    stream.write_all(b"r")?;
    Ok(stream)
}

/// Requests `len` bytes, and checks all of them.
pub(super) fn request(stream: &mut TcpStream, len: u64) -> io::Result<()> {
    stream.write_all(&len.to_be_bytes())?;
    read_pattern(stream, len, Duration::ZERO)
}

/// Asks the server for a reset, and returns the error that the client sees.
pub(super) fn ask_for_reset(mut stream: TcpStream) -> io::Result<ErrorKind> {
    stream.write_all(b"x and bytes that the server does not read")?;
    Ok(stream.read(&mut [0]).map_or_else(|error| error.kind(), |_| ErrorKind::UnexpectedEof))
}
