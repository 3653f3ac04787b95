//! A small server of the kernel, and clients of it.
//!
//! The first byte of a connection says what the server does: `w` answers with the address that it sees, `e`
//! echoes, `d` sends until the client has gone, and `u` reads an upload and records how it has ended.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fullpipe::linux::namespace::Namespace;

/// Longest time that a client waits for a byte.
const PATIENCE: Duration = Duration::from_secs(10);

/// End of an upload: the number of bytes, and the error if the upload did not end in order.
type End = (u64, Option<ErrorKind>);

/// Ends of all uploads.
#[derive(Clone, Debug, Default)]
pub(super) struct Uploads(Arc<Mutex<Vec<End>>>);

impl Uploads {
    pub(super) fn taken(&self) -> Vec<End> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A listening socket with a thread that serves it.
pub(super) struct Server {
    listener: TcpStream,
    pub(super) uploads: Uploads,
}

impl Server {
    pub(super) fn new(namespace: &Namespace, address: &str) -> Self {
        let bind = || Ok(TcpListener::bind(address).expect("a free port"));
        let listener = namespace.run(bind).expect("a namespace");
        let copy = OwnedFd::from(listener.try_clone().expect("a descriptor"));
        let server = Self { listener: copy.into(), uploads: Uploads::default() };
        let uploads = server.uploads.clone();
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let uploads = uploads.clone();
                thread::spawn(move || serve(stream, &uploads));
            }
        });
        server
    }
}

impl Server {
    /// Ends the listening socket. Its connections continue.
    pub(super) fn close(&self) {
        // A listening socket that is shut down no longer listens, and its thread ends.
        let _ = self.listener.shutdown(Shutdown::Both);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}

fn serve(mut stream: TcpStream, uploads: &Uploads) {
    let mut kind = [0];
    // A health check sends nothing.
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
        _ => {
            let mut total = 0;
            let end = loop {
                match stream.read(&mut room) {
                    Ok(0) => break None,
                    Ok(len) => total += len as u64,
                    Err(error) => break Some(error.kind()),
                }
            };
            uploads.0.lock().unwrap_or_else(PoisonError::into_inner).push((total, end));
        }
    }
}

/// Connects from a namespace, within `longest`.
pub(super) fn connect(from: &Namespace, to: SocketAddr, longest: Duration) -> io::Result<TcpStream> {
    let stream = from.run(|| Ok(TcpStream::connect_timeout(&to, longest))).expect("a namespace")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Returns the address that the server sees. The connection must succeed with its first SYN.
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

/// Sends a byte, and returns the byte that comes back.
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
