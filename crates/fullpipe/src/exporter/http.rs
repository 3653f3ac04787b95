//! A small HTTP server that does a bounded amount of work, whatever its clients send.
//!
//! ```text
//!   connection ─► a thread, of at most 64 ─► head within 5 s and 8 KiB ─► answer, `Connection: close` ─► end
//!                    └─ one more: closes the oldest connection that has not sent its request
//! ```
//!
//! A scrape sends its request in the first packet. Silent connections therefore evict each other, but never a
//! scrape. The server does not support keep-alive, because Prometheus scrapes are seconds apart.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration as Timeout;

use fullpipe_linux::Clock;
use fullpipe_units::{Duration, Instant};

/// Maximum number of concurrent connections, because each connection has a thread.
const CONNECTIONS: usize = 64;
/// Timeout for receiving the head of an HTTP request.
const HEAD: Duration = Duration::from_secs(5);
/// Timeout for each write of an HTTP response.
const WRITE: Timeout = Timeout::from_secs(10);
/// Maximum size in bytes of the head of an HTTP request.
const HEAD_MOST: usize = 8 << 10;
/// Maximum number of header lines in an HTTP request.
const HEADERS_MOST: usize = 64;
/// Maximum number of bytes that the server reads and discards after it has sent the response. Closing a
/// socket with unread data would reset the connection, and the client would lose the response.
const REST_MOST: usize = 64 << 10;
const REST: Timeout = Timeout::from_secs(1);
/// Delay before the server calls accept again after a failure, for example when no file descriptors are left.
const PAUSE: Duration = Duration::from_millis(50);

/// Head of an HTTP request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) url: String,
    /// Value of the header field `X-Prometheus-Scrape-Timeout-Seconds`.
    pub(super) scrape_timeout: Option<String>,
}

/// HTTP response with status, content type and body.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) body: String,
}

/// Open connections: those that have not sent a complete request, in the order of arrival, and the total
/// number.
#[derive(Default)]
struct Connections {
    next: u64,
    waiting: BTreeMap<u64, TcpStream>,
    all: usize,
}

/// Accepts connections on `listener` and sends the result of `answer` to each request, until the process
/// ends.
pub(super) fn serve(listener: &TcpListener, answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) {
    let answer = Arc::new(answer);
    let connections = Arc::new(Mutex::new(Connections::default()));
    let clock = Clock::starting_in(Duration::ZERO);
    loop {
        let accepted = listener.accept().and_then(|(stream, _)| Ok((stream.try_clone()?, stream)));
        let Ok((kept, stream)) = accepted else {
            clock.sleep_until(clock.now() + PAUSE);
            continue;
        };
        // If every open connection is waiting for its response, which may take seconds, the new connection
        // is closed.
        let Some(number) = enter(&connections, kept) else { continue };
        let (answer, entered) =
            (Arc::clone(&answer), ConnectionSlot { number, connections: Arc::clone(&connections) });
        let of_connection = move || {
            // The client may already have disconnected, so errors are ignored.
            let _ = converse(stream, &entered, &*answer, clock);
        };
        // If no thread can be started, the closure is dropped, which closes the connection and removes its
        // entry.
        let _ = thread::Builder::new().name("http".into()).spawn(of_connection);
    }
}

fn lock(connections: &Mutex<Connections>) -> MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a connection. If there are too many connections, closes the connection that has been silent for
/// the longest time.
fn enter(connections: &Mutex<Connections>, stream: TcpStream) -> Option<u64> {
    let mut connections = lock(connections);
    if connections.all >= CONNECTIONS {
        let (_, oldest) = connections.waiting.pop_first()?;
        // The thread of the closed connection then reads end-of-file and ends.
        let _ = oldest.shutdown(Shutdown::Both);
    }
    connections.next += 1;
    connections.all += 1;
    let number = connections.next;
    connections.waiting.insert(number, stream);
    Some(number)
}

/// Entry of an open connection in the list of connections; dropping this value removes the entry.
struct ConnectionSlot {
    number: u64,
    connections: Arc<Mutex<Connections>>,
}

impl ConnectionSlot {
    /// Records that the connection has sent a complete request, so that the connection is no longer evicted.
    fn has_asked(&self) {
        lock(&self.connections).waiting.remove(&self.number);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut connections = lock(&self.connections);
        connections.waiting.remove(&self.number);
        connections.all -= 1;
    }
}

fn converse(
    mut stream: TcpStream,
    entered: &ConnectionSlot,
    answer: &dyn Fn(&Request) -> Answer,
    clock: Clock,
) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE))?;
    let deadline = clock.now() + HEAD;
    let head = head(&mut stream, deadline, clock)?;
    entered.has_asked();
    let (said, whole) = match &head {
        Ok(request) => (answer(request), request.method != "HEAD"),
        Err(bad) => {
            (Answer { status: *bad, kind: super::PLAIN, body: "this is not a valid request\n".into() }, true)
        }
    };
    let line = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        said.status,
        reason(said.status),
        said.kind,
        said.body.len()
    );
    stream.write_all(line.as_bytes())?;
    if whole {
        stream.write_all(said.body.as_bytes())?;
    }
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(REST))?;
    let mut rest = (&stream).take(REST_MOST as u64);
    io::copy(&mut rest, &mut io::sink()).map(drop)
}

/// Reads the head of an HTTP request until `deadline`; the head may arrive in several pieces. Returns the
/// HTTP error status if the head is invalid.
fn head(stream: &mut TcpStream, deadline: Instant, clock: Clock) -> io::Result<Result<Request, u16>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 1 << 10];
    loop {
        let left = deadline.saturating_since(clock.now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(Timeout::from_nanos(left.as_nanos().max(1_000_000))))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => bytes.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        match parsed(&bytes) {
            Ok(Some(request)) => return Ok(Ok(request)),
            Ok(None) if bytes.len() < HEAD_MOST => {}
            Ok(None) => return Ok(Err(431)),
            Err(status) => return Ok(Err(status)),
        }
    }
}

/// Parses a request head; `None` while it is incomplete.
pub(super) fn parsed(bytes: &[u8]) -> Result<Option<Request>, u16> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MOST];
    let mut head = httparse::Request::new(&mut headers);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(431),
        Err(_) => return Err(400),
    }
    let scrape = |header: &&httparse::Header<'_>| {
        header.name.eq_ignore_ascii_case("X-Prometheus-Scrape-Timeout-Seconds")
    };
    let scrape_timeout = head.headers.iter().find(scrape);
    Ok(Some(Request {
        method: head.method.unwrap_or_default().to_owned(),
        url: head.path.unwrap_or_default().to_owned(),
        scrape_timeout: scrape_timeout.map(|header| String::from_utf8_lossy(header.value).into_owned()),
    }))
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_a_request_once_it_is_whole() {
        let whole = b"GET /probe?target=x HTTP/1.1\r\nHost: y\r\nx-prometheus-scrape-timeout-seconds: 4.5\r\n\r\nrest";
        let request = parsed(whole).expect("a request").expect("whole");
        assert_eq!((request.method.as_str(), request.url.as_str()), ("GET", "/probe?target=x"));
        assert_eq!(request.scrape_timeout.as_deref(), Some("4.5"));
        for len in 0..whole.len() - 6 {
            assert_eq!(parsed(&whole[..len]), Ok(None), "{len}");
        }
        assert_eq!(parsed(b"\x16\x03\x01\x02\x00 TLS\r\n\r\n"), Err(400));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MOST + 1));
        assert_eq!(parsed(many.as_bytes()), Err(431));
    }
}
