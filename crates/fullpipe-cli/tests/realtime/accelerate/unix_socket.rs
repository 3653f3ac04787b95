//! Tests with a server that listens on a Unix socket.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use super::host::{Host, PORT};
use super::peers;
use super::scene::{now, signal, wait_for};

/// Maximum time until clients are refused or served after the server has ended or returned.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Maximum time that a client waits for a byte.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that replies to each upload with the same bytes, after the end of the upload. Uploads that the client has
/// not ended are reported with their number of bytes.
struct Server(PathBuf);

impl Server {
    fn new(path: &Path, ends: Sender<usize>) -> Self {
        let listener = UnixListener::bind(path).expect("a free path");
        // The worker runs as another user.
        fs::set_permissions(path, Permissions::from_mode(0o777)).expect("a file");
        thread::spawn(move || {
            for stream in listener.incoming() {
                let ends = ends.clone();
                thread::spawn(move || serve(stream.expect("a connection"), &ends));
            }
        });
        Self(path.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Without its file, the socket cannot be reached.
        let _ = fs::remove_file(&self.0);
    }
}

/// Reads a header of the PROXY protocol; returns the client's address, or `None` for a health check.
fn read_header(stream: &mut UnixStream) -> Option<SocketAddr> {
    let mut fixed = [0; 16];
    stream.read_exact(&mut fixed).expect("a header");
    let mut addresses = vec![0; usize::from(u16::from_be_bytes([fixed[14], fixed[15]]))];
    stream.read_exact(&mut addresses).expect("addresses");
    let [a, b, c, d, .., high, low, _, _] = addresses[..] else { return None };
    Some(([a, b, c, d], u16::from_be_bytes([high, low])).into())
}

fn serve(mut stream: UnixStream, ends: &Sender<usize>) {
    let Some(client) = read_header(&mut stream) else { return };
    stream.write_all(client.ip().to_string().as_bytes()).expect("room");
    let mut upload = Vec::new();
    stream.read_to_end(&mut upload).expect("an end");
    if stream.write_all(&upload).is_err() {
        ends.send(upload.len()).expect("the test runs");
    }
}

/// Connects, and reads the address that the server has seen.
fn connect(host: &Host) -> std::io::Result<TcpStream> {
    let mut stream = peers::connect(&host.scene.client, host.listen, AT_ONCE)?;
    let expected = host.scene.client_address().to_string();
    let mut seen = vec![0; expected.len()];
    stream.read_exact(&mut seen)?;
    assert_eq!(String::from_utf8_lossy(&seen), expected);
    Ok(stream)
}

/// Every byte arrives in both directions, and each direction ends separately. If the server ends, clients are refused;
/// if it returns, they are served. If the worker is killed, its clients are reset; the server sees the end of an upload,
/// because a Unix socket has no reset.
#[test]
fn a_server_on_a_unix_socket_is_accelerated() {
    let Some(host) = Host::new("accelerate-unix", false) else { return };
    let path = std::env::temp_dir().join(format!("fullpipe-{}.sock", std::process::id()));
    let (sender, ends) = channel();
    let server = Server::new(&path, sender.clone());
    let mut service = host.scene.accelerate(PORT, &format!("unix:{}", path.display()), "proxy-v2");
    let mut stream = connect(&host).expect("a connection");
    let upload: Vec<u8> = (0..3_000_000u32).map(|i| (i ^ i >> 8) as u8).collect();
    stream.write_all(&upload).expect("room");
    stream.shutdown(Shutdown::Write).expect("a socket");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert!(answer == upload, "{} of {} bytes", answer.len(), upload.len());

    drop(server);
    let begun = now();
    wait_for("a refusal", || {
        connect(&host).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused).then_some(())
    });
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    let _server = Server::new(&path, sender);
    let begun = now();
    let mut stream = wait_for("a connection", || connect(&host).ok());
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());

    stream.write_all(&upload[..1_000]).expect("room");
    wait_for("the upload is passed on", || {
        let status = host.scene.status(&service.keeper)?;
        (status["report"]["bytes_up"].as_u64()? >= 3_001_000).then_some(())
    });
    signal("-KILL", &[service.worker]);
    stream.set_read_timeout(Some(AT_ONCE)).expect("a socket");
    assert_eq!(stream.read(&mut [0]).expect_err("a reset").kind(), ErrorKind::ConnectionReset);
    assert_eq!(ends.recv_timeout(PATIENCE).expect("an end"), 1_000);
    service.worker = host.scene.worker(&service.keeper, service.worker);
    connect(&host).expect("a connection");
}
