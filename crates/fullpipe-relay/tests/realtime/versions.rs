//! Tests with an end that speaks the protocol by hand: another version, and limits that this host does not have.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::DerefMut;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use fullpipe_relay::frame::{
    ChooseConnections, Fetch, HEADER, Header, Reply, Request, SocketLimits, decode, encode,
};
use fullpipe_relay::{
    Buffers, Connections, CopyObserver, CopyOptions, Error, Hex, Kernel, Kind, Pacer, Reached, Sampler, copy,
    probe, serve_once,
};
use fullpipe_units::{Bytes, Rate};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ClientConnection};
use rustls::crypto::verify_tls13_signature_with_raw_key;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, ServerConnection};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ConnectionCommon, DigitallySignedStruct, DistinguishedName, ServerConfig, SideData,
    SignatureScheme, StreamOwned,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Fixture;
use crate::limits::CountingPacer;

/// Name of the protocol in the TLS handshake, of this version and of a later one.
const PRESENT: &[u8] = b"fullpipe-copy/1";
const LATER: &[u8] = b"fullpipe-copy/2";
/// Hint for each difference between the versions.
const HINT: &str = "install the same version of fullpipe at both ends";

/// Accepts any key.
#[derive(Debug)]
struct AnyKey;

/// Methods that the verifiers of both ends have in common.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(rustls::Error::General("TLS 1.2".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let key = SubjectPublicKeyInfoDer::from(key.as_ref());
            let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
            verify_tls13_signature_with_raw_key(message, &key, signed, &algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    signatures!();
}

/// Reads the key of an end of the fixture.
fn key(file: &Path) -> Arc<CertifiedKey> {
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(fs::read(file).expect("a key")));
    let provider = rustls::crypto::ring::default_provider();
    let key = provider.key_provider.load_private_key(der).expect("a key");
    let public = key.public_key().expect("a public key").as_ref().to_vec();
    Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key))
}

/// A connection whose frames a test reads and writes.
struct Connection<C>(StreamOwned<C, TcpStream>);

impl<C, S> Connection<C>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    fn new(tls: C, tcp: TcpStream) -> Self {
        tcp.set_read_timeout(Some(Duration::from_secs(10))).expect("an option");
        Self(StreamOwned::new(tls, tcp))
    }

    fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.0.write_all(&encode(message).expect("a short message"))?;
        self.0.flush()
    }

    /// Reads the next message.
    fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut header = [0; HEADER];
        self.0.read_exact(&mut header)?;
        let Ok(Header::Control { length }) = Header::parse(&header) else {
            return Err(io::Error::other("not a message"));
        };
        let mut text = vec![0; length];
        self.0.read_exact(&mut text)?;
        decode(&text).map_err(io::Error::other)
    }
}

impl Fixture {
    /// Connects to the relay of the fixture as its client, which offers the protocol `alpn`.
    fn connect(&self, alpn: &[u8]) -> Connection<ClientConnection> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let key = key(&self.folder.path().join("client.key"));
        let mut config = builder
            .expect("TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyKey))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
        config.alpn_protocols = vec![alpn.to_vec()];
        let name = ServerName::try_from("relay.invalid").expect("a name");
        let tls = ClientConnection::new(Arc::new(config), name).expect("a configuration");
        Connection::new(tls, TcpStream::connect(self.address).expect("a connection"))
    }

    /// Starts a relay with the key of the fixture's relay, which accepts the protocol `alpn` and answers each `hello`
    /// with `answer`, if it returns a message. Returns its address, and the connections: `None` for a connection
    /// without `hello`.
    fn other_relay(
        &self,
        alpn: &'static [u8],
        answer: impl Fn(u32) -> Option<Value> + Send + Sync + 'static,
    ) -> (SocketAddr, Arc<Mutex<Vec<Option<u32>>>>) {
        let seen = Arc::<Mutex<Vec<Option<u32>>>>::default();
        let all = Arc::clone(&seen);
        let address = self.relay_by_hand(alpn, move |connection, number| {
            all.lock().expect("no panic").push(number);
            if let Some(answer) = number.and_then(&answer) {
                // The client may have given up.
                let _ = connection.send(&answer);
                let _ = connection.0.read_to_end(&mut Vec::new());
            }
        });
        (address, seen)
    }

    /// Starts a relay with the key of the fixture's relay, which accepts the protocol `alpn`. Each connection, whose
    /// number is `None` without `hello`, ends when `serve` returns. Returns the address of the relay.
    fn relay_by_hand(
        &self,
        alpn: &'static [u8],
        serve: impl Fn(&mut Connection<ServerConnection>, Option<u32>) + Send + Sync + 'static,
    ) -> SocketAddr {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let key = key(&self.folder.path().join("relay.key"));
        let mut config = builder
            .expect("TLS 1.3")
            .with_client_cert_verifier(Arc::new(AnyKey))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
        config.alpn_protocols = vec![alpn.to_vec()];
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for tcp in listener.incoming().map_while(Result::ok) {
                let (config, serve) = (Arc::clone(&config), Arc::clone(&serve));
                thread::spawn(move || {
                    let tls = ServerConnection::new(config).expect("a configuration");
                    let mut connection = Connection::new(tls, tcp);
                    let hello = connection.receive::<Request>();
                    let number = match &hello {
                        Ok(Request::Hello { versions, connection, .. }) => {
                            assert_eq!(versions, &[1]);
                            Some(*connection)
                        }
                        _ => None,
                    };
                    serve(&mut connection, number);
                });
            }
        });
        address
    }
}

/// Creates the answer to a `hello`.
type Answer = fn() -> Value;

/// A hello of a client that speaks these versions, with fields that this version does not know.
fn hello(versions: &[u32], fetch: Option<Fetch>) -> Value {
    let transfer = Hex([7; 16]);
    let fetch = serde_json::to_value(fetch).expect("JSON");
    json!({
        "type": "hello", "versions": versions, "transfer": transfer, "connection": 0, "fetch": fetch,
        "cc": null, "colour": { "of": "later" },
    })
}

fn is_about_versions(error: &Error) {
    assert_eq!((error.kind, error.hint.as_str()), (Kind::Network, HINT), "{error}");
    assert!(error.message.contains("version") && !error.message.contains('\n'), "{error}");
}

/// A relay of another version refuses the protocol in the TLS handshake, or a `hello` without its own version, or chooses
/// a version that was not offered. In each case, the client ends at once, in both directions of a copy.
#[test]
fn a_client_names_the_version_of_its_relay() {
    let fixture = Fixture::new();
    let source = fixture.source("a", 5);
    let failed = || {
        let message = "the relay supports only version 2 of the protocol";
        json!({ "type": "failed", "message": message, "hint": HINT })
    };
    let welcome = || json!({ "type": "welcome", "version": 2 });
    let cases = [(LATER, None), (PRESENT, Some(failed as Answer)), (PRESENT, Some(welcome))];
    for (alpn, answer) in cases {
        let (address, seen) = fixture.other_relay(alpn, move |_| answer.map(|answer| answer()));
        let sending = fixture.options(&source, "a", address);
        for options in [fixture.fetching(&["a"], "b", address), sending.clone()] {
            is_about_versions(&copy(&options, None, &()).expect_err("another version"));
        }
        is_about_versions(&probe(&sending).expect_err("another version"));
        let seen = seen.lock().expect("no panic");
        assert!(seen.len() <= 3 + 3 + 1, "one attempt of each command: {seen:?}");
        assert_eq!(seen.iter().all(Option::is_none), answer.is_none(), "{seen:?}");
    }
    assert!(!fixture.fetched("b").exists());
}

/// Sends the notes of a copy.
struct NotesTo(mpsc::Sender<String>);

impl CopyObserver for NotesTo {
    fn note(&self, text: &str) {
        self.0.send(text.into()).expect("the test waits");
    }
}

/// A relay that ends a transfer closes all connections, and its reason on connection 0 may arrive last. The copy then
/// reports the reason alone. If the copy goes on, it reports the loss.
#[test]
fn a_refused_copy_reports_only_the_reason() {
    let fixture = Fixture::new();
    let source = fixture.source("large", 2 << 20);
    for wait_ms in [300, 1500] {
        let address = fixture.relay_by_hand(PRESENT, move |connection, number| {
            // The client may have given up.
            let _ = connection.send(&json!({ "type": "welcome", "version": 1 }));
            if number == Some(0) {
                crate::wait(wait_ms);
                let _ = connection.send(&json!({ "type": "failed", "message": "no space", "hint": "h" }));
                let _ = connection.0.read_to_end(&mut Vec::new());
            } else {
                crate::wait(100);
            }
        });
        let options = CopyOptions {
            connections: Connections::new(2, 2).expect("a range"),
            ..fixture.options(&source, "large", address)
        };
        let (sender, notes) = mpsc::channel();
        let error = copy(&options, None, &NotesTo(sender)).expect_err("refused");
        assert!(error.message.ends_with(": no space"), "{error}");
        let notes: Vec<String> = notes.try_iter().collect();
        let is_loss = |note: &String| note.starts_with("lost connection 1 (");
        assert!(notes.iter().all(is_loss) && notes.len() == usize::from(wait_ms > 1000), "{notes:?}");
    }
}

/// A TLS server with a certificate, as on the port of a web server, is not a relay.
#[test]
fn a_tls_server_that_is_not_a_relay_is_named() {
    let fixture = Fixture::new();
    let key = key(&fixture.folder.path().join("relay.key"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let resolver = SingleCertAndKey::from(CertifiedKey::clone(&key));
    let config = builder.expect("TLS 1.3").with_no_client_auth().with_cert_resolver(Arc::new(resolver));
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (accepted, all) = mpsc::channel();
    thread::spawn(move || {
        for tcp in listener.incoming().map_while(Result::ok) {
            // The test may have ended.
            let _ = accepted.send(());
            let tls = ServerConnection::new(Arc::clone(&config)).expect("a configuration");
            let _ = Connection::new(tls, tcp).0.read(&mut [0]);
        }
    });
    let options = CopyOptions {
        connections: Connections::new(1, 1).expect("a range"),
        ..fixture.options(&fixture.source("a", 5), "a", address)
    };
    let error = copy(&options, None, &()).expect_err("no relay");
    assert!(error.message.ends_with("speaks TLS, but is not a relay of fullpipe"), "{error}");
    assert_eq!((error.kind, error.hint.is_empty(), all.try_iter().count()), (Kind::Network, false, 1));
}

/// The same for a client of another version. A client that also speaks the present version is served.
#[test]
fn a_relay_names_the_version_of_its_client() {
    let fixture = Fixture::new();
    for fetch in [None, Some(Fetch::default())] {
        let mut later = fixture.connect(LATER);
        let error = later.send(&hello(&[2], fetch.clone())).and_then(|()| later.receive::<Value>());
        let error = error.expect_err("the protocol is not known");
        assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
        for versions in [&[2][..], &[], &[0, 2]] {
            let mut other = fixture.connect(PRESENT);
            other.send(&hello(versions, fetch.clone())).expect("sent");
            let Ok(Reply::Failed { message, hint, temporary: false }) = other.receive() else {
                panic!("a reason is sent");
            };
            assert_eq!((message.contains("version 1 of"), hint.as_str()), (true, HINT), "{message}");
        }
        let mut both = fixture.connect(PRESENT);
        both.send(&hello(&[1, 2], fetch)).expect("sent");
        let welcome = both.receive::<Reply>().expect("a reply");
        assert!(matches!(welcome, Reply::Welcome { version: 1, .. }), "{welcome:?}");
    }
    fixture.copy(&fixture.source("a", 5), "a").expect("the relay still serves");
}

/// Over ssh, the versions are compared before a connection is opened.
#[test]
fn a_relay_over_ssh_names_the_version_of_its_client() {
    let fixture = Fixture::new();
    let folder = fixture.folder.path().join("in");
    for reads in [false, true] {
        let call = json!({
            "versions": [2], "client": fixture.client.fingerprint().to_string(), "folder": folder, "reads": reads,
        });
        let mut output = Vec::new();
        let input = io::Cursor::new(format!("{call}\n").into_bytes());
        serve_once(input, &mut output, None, Arc::new(crate::refusals::Nothing)).expect("it answers");
        let text = String::from_utf8(output).expect("UTF-8");
        let answer: Value =
            serde_json::from_str(text.strip_prefix("fullpipe-relay ").expect("a mark")).expect("JSON");
        assert_eq!(answer["failed"]["hint"], HINT, "{text}");
        assert_eq!(answer["failed"]["message"], "this host supports only version 1 of the protocol");
        assert_eq!(answer["failed"]["versions"], json!([1]));
    }
}

/// Reads a limit of this host's kernel: the largest buffer that it chooses.
fn largest(name: &str) -> Option<Bytes> {
    let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
    text.split_whitespace().nth(2)?.parse().ok().map(Bytes::new)
}

/// Sends what the first connection has shown.
struct Seen(mpsc::Sender<Reached>);

impl CopyObserver for Seen {
    fn connected(&self, reached: &Reached) {
        self.0.send(reached.clone()).expect("the test waits");
    }
}

#[test]
fn each_end_knows_the_buffers_of_the_other() {
    let fixture = Fixture::new();
    let source = fixture.source("a", 5);
    let (sender, receiver) = mpsc::channel();
    let own = Buffers { send: largest("tcp_wmem"), receive: largest("tcp_rmem") };
    let cc = Some("reno".to_owned());
    let sending = fixture.options(&source, "a", fixture.address);
    for options in [sending, fixture.fetching(&["a"], "b", fixture.address)] {
        let options = CopyOptions { cc: cc.clone(), ..options };
        let probed = probe(&options).expect("reached");
        assert_eq!((probed.buffers, &probed.cc), (own, &cc), "no file is copied");
        copy(&options, None, &Seen(sender.clone())).expect("copied");
        let reached = receiver.try_recv().expect("it is reported before the end");
        assert_eq!((reached.buffers, &reached.cc), (own, &cc));
    }
    // An older relay reports no limits.
    let (address, _) = fixture.other_relay(PRESENT, |_| Some(json!({ "type": "welcome", "version": 1 })));
    let probed = probe(&fixture.options(&source, "a", address)).expect("reached");
    assert_eq!(probed.buffers, Buffers { receive: None, ..own });
    let probed = probe(&fixture.fetching(&["a"], "b", address)).expect("reached");
    assert_eq!((probed.buffers, probed.cc), (Buffers { send: None, ..own }, None));
}

/// With a receive buffer of one byte, even 16 connections do not fill a link of 100 Mbit/s, at any RTT. With the send
/// buffer alone, one connection fills it at an RTT of up to 0.3 s.
#[test]
fn the_receive_buffer_of_the_other_host_counts_for_the_first_number_of_connections() {
    let fixture = Fixture::new();
    let source = fixture.source("large", 2 << 20);
    let limits = SocketLimits { rcvbuf_bytes: Some(1), ..SocketLimits::default() };
    for (limits, expected) in [(Some(limits), 16), (None, 1)] {
        let (opened, all) = mpsc::channel();
        let opened = Mutex::new(opened);
        let (address, _) = fixture.other_relay(PRESENT, move |number| {
            // The test may have ended.
            let _ = opened.lock().expect("no panic").send(number);
            let limits = limits.clone().filter(|_| number == 0);
            Some(serde_json::to_value(Reply::Welcome { version: 1, notes: vec![], limits }).expect("JSON"))
        });
        let options = CopyOptions {
            connections: Connections::AUTO,
            link: Some(Rate::from_bps(100_000_000)),
            ..fixture.options(&source, "large", address)
        };
        // The relay does not request the file, so the copy waits until the end of the test.
        thread::spawn(move || copy(&options, None, &()));
        for _ in 0..expected {
            all.recv_timeout(Duration::from_secs(10)).expect("another connection");
        }
        assert!(all.recv_timeout(Duration::from_millis(300)).is_err(), "more than {expected}");
    }
}

/// A kernel that reports no sockets, and an RTT of 100 ms.
#[derive(Debug)]
struct LongPath;

impl Kernel for LongPath {
    fn sampler(&self, _: Option<Rate>) -> Option<Box<dyn Sampler>> {
        None
    }

    fn pacer(&self) -> Arc<dyn Pacer> {
        Arc::new(CountingPacer::new(fullpipe_units::Duration::from_millis(100)))
    }
}

/// The same for a relay that sends: a window of 0.6 of 160 KiB per round trip is 8.2 Mbit/s.
#[test]
fn the_receive_buffer_of_the_client_counts_for_the_relay() {
    let fixture = Fixture::with_kernel(Arc::new(LongPath));
    fixture.source("../in/large", 2 << 20);
    for (rcvbuf_bytes, expected) in [(Some(160 << 10), 6), (None, 2)] {
        let fetch = Fetch {
            sources: vec![(Path::new("large").into(), Path::new("large").into())],
            choose: Some(ChooseConnections { least: 2, most: 16 }),
            link_bps: Some(50_000_000),
            rcvbuf_bytes,
            ..Fetch::default()
        };
        let mut client = fixture.connect(PRESENT);
        client.send(&hello(&[1], Some(fetch))).expect("sent");
        let welcome = client.receive::<Reply>().expect("a reply");
        assert!(matches!(welcome, Reply::Welcome { limits: Some(_), .. }), "{welcome:?}");
        let mut asked = Vec::new();
        while let Ok(request) = client.receive::<Request>() {
            match request {
                Request::Connect { connection } => asked.push(connection),
                Request::Open { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(asked, (1..expected).collect::<Vec<_>>());
    }
}
