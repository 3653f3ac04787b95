//! Tests of copies that one end refuses, and of peers that are not clients.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullpipe_relay::{AllowList, Identity, Kind, ServeObserver, ServeOptions, copy, serve};

use crate::{Fixture, wait};

#[test]
fn a_key_that_is_not_pinned_is_refused() {
    let fixture = Fixture::new();
    let source = fixture.source("a", 5);
    let mut options = fixture.options(&source, "a", fixture.address);
    options.peer = None;
    let error = copy(&options, None, &()).expect_err("no key is pinned");
    assert_eq!(error.kind, Kind::Rights);
    assert!(error.hint.ends_with(&format!("add --peer {}", fixture.relay)), "{}", error.hint);
    options.peer = Some(fixture.client.fingerprint());
    let error = copy(&options, None, &()).expect_err("another key is pinned");
    assert!(error.kind == Kind::Rights && error.message.contains(" instead of sha256:"), "{error}");
    assert!(fixture.names().is_empty());
}

#[test]
fn a_client_that_is_not_allowed_is_refused() {
    let fixture = Fixture::new();
    let source = fixture.source("a", 5);
    let mut options = fixture.options(&source, "a", fixture.address);
    options.identity = Identity::load_or_create(&fixture.folder.path().join("other.key")).expect("a key");
    let error = copy(&options, None, &()).expect_err("not in the allow list");
    assert_eq!((error.kind, error.message.ends_with("rejects the key of this host")), (Kind::Rights, true));
    assert_eq!(error.hint, format!("start the relay with --allow {}", options.identity.fingerprint()));
}

#[test]
fn targets_outside_the_root_are_refused() {
    let fixture = Fixture::new();
    let source = fixture.source("a", 5);
    let outside = tempfile::tempdir().expect("a folder");
    symlink(outside.path(), fixture.placed("link")).expect("a link");
    for target in ["../a", "x/../../a", ".fullpipe/journal", "link/a"] {
        let error = fixture.copy(&source, target).expect_err(target);
        assert!(!error.message.is_empty(), "{target}");
        let hint = "choose a path below the folder that the relay serves";
        assert_eq!(error.hint.starts_with(hint), target == "link/a", "{target}: {}", error.hint);
    }
    assert_eq!(fs::read_dir(outside.path()).expect("a folder").count(), 0);
    fs::create_dir(fixture.placed("folder")).expect("a folder");
    let error = fixture.copy(&source, "folder").expect_err("a folder has the name");
    assert!(error.message.contains("is not a regular file"), "{error}");
    fixture.source("dir/inner/a", 5);
    fs::write(fixture.placed("file"), "").expect("written");
    fs::create_dir(fixture.placed("dir")).expect("a folder");
    fs::write(fixture.placed("dir/inner"), "").expect("written");
    for target in ["file", "dir"] {
        let error =
            fixture.copy(&fixture.folder.path().join("out/dir"), target).expect_err("a file has the name");
        assert!(error.message.ends_with("a file has this name") && !error.hint.is_empty(), "{error}");
    }
}

/// A peer that does not speak TLS, or sends nothing, loses its own connection but does not disturb others.
#[test]
fn peers_that_are_no_client_do_not_disturb_others() {
    let fixture = Fixture::new();
    let silent: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(fixture.address).expect("a connection")).collect();
    let mut other = TcpStream::connect(fixture.address).expect("a connection");
    other.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("sent");
    other.set_read_timeout(Some(Duration::from_secs(5))).expect("an option");
    let mut answer = Vec::new();
    let _ = other.read_to_end(&mut answer);
    assert!(answer.len() < 64, "at most an alert: {answer:?}");
    // Eight connections of an address may be without a key; the last one was the eighth until it was refused.
    let (displaced, kept) = silent.split_at(13);
    for mut peer in displaced {
        peer.set_read_timeout(Some(Duration::from_secs(5))).expect("an option");
        assert_eq!(peer.read(&mut [0; 64]).ok(), Some(0), "a newer connection took its place");
    }
    for mut peer in kept {
        peer.set_nonblocking(true).expect("an option");
        let open = peer.read(&mut [0; 64]).expect_err("nothing to read").kind();
        assert_eq!(open, ErrorKind::WouldBlock);
    }
    let source = fixture.source("a", 5);
    fixture.copy(&source, "a").expect("the relay still serves");
}

/// A peer that proves no key within ten seconds loses its connection, whether it sends nothing or one octet per second.
#[test]
#[expect(clippy::disallowed_methods, reason = "the kernel's time, not the engine's")]
fn a_peer_has_ten_seconds_for_its_key() {
    let fixture = Fixture::new();
    let begin = Instant::now();
    let connect = || {
        let peer = TcpStream::connect(fixture.address).expect("a connection");
        peer.set_read_timeout(Some(Duration::from_secs(20))).expect("an option");
        peer
    };
    let (mut silent, mut slow) = (connect(), connect());
    let mut writer = slow.try_clone().expect("a second descriptor");
    std::thread::spawn(move || {
        // The header of a TLS record, and the body that it announces.
        for octet in [0x16, 3, 1, 0x10, 0].into_iter().chain(std::iter::repeat_n(0, 20)) {
            if writer.write_all(&[octet]).is_err() {
                return;
            }
            wait(1000);
        }
    });
    for peer in [&mut silent, &mut slow] {
        let ended = peer.read(&mut [0; 64]);
        let is_closed = ended.as_ref().is_ok_and(|read| *read == 0)
            || ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
        assert!(is_closed, "{ended:?}");
        let after = begin.elapsed();
        assert!((Duration::from_secs(9)..Duration::from_secs(15)).contains(&after), "{after:?}");
    }
}

/// A server of iperf3 waits for its cookie of 37 bytes, and refuses a client with the byte 0xff. The client ends with one
/// line and a hint.
#[test]
fn a_server_with_another_protocol_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut peer in listener.incoming().map_while(Result::ok) {
            // The client may have given up.
            let _ = peer.read_exact(&mut [0; 37]).and_then(|()| peer.write_all(&[0xff]));
        }
    });
    let fixture = Fixture::new();
    let source = fixture.source("a", 5);
    let error = copy(&fixture.options(&source, "a", address), None, &()).expect_err("no relay");
    assert_eq!(error.kind, Kind::Network, "{error}");
    let name = format!("127.0.0.1 port {}", address.port());
    assert!(error.message.contains(&name) && !error.message.contains('\n'), "{error}");
    assert!(!error.hint.is_empty(), "{error}");
}

/// A port that accepts connections and says nothing is given up after one attempt, in either direction of a copy.
#[test]
#[expect(clippy::disallowed_methods, reason = "the kernel's time, not the engine's")]
fn a_silent_port_is_given_up_after_one_attempt() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let fixture = Fixture::new();
    let source = fixture.source("a", 5);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for options in [fixture.options(&source, "a", address), fixture.fetching(&["a"], "b", address)] {
            scope.spawn(move || {
                let error = copy(&options, None, &()).expect_err("no relay");
                assert!(error.message.ends_with(" did not answer within 15 s"), "{error}");
                assert!(error.kind == Kind::Network && !error.hint.is_empty(), "{error}");
            });
        }
    });
    let after = begin.elapsed();
    assert!((Duration::from_secs(14)..Duration::from_secs(25)).contains(&after), "{after:?}");
}

/// The peer sends the start of a handshake with a message of 60 KiB, split into valid records.
#[test]
fn a_peer_without_a_key_may_send_little() {
    let fixture = Fixture::new();
    let mut peer = TcpStream::connect(fixture.address).expect("a connection");
    peer.set_read_timeout(Some(Duration::from_secs(5))).expect("an option");
    // A TLS record with the start of a ClientHello message (RFC 8446 sections 4 and 5.1).
    let mut record = vec![0x16, 3, 1, 0x10, 0, 1, 0, 0xf0, 0];
    record.resize(5 + (4 << 10), 0);
    for _ in 0..8 {
        // The relay may have closed the connection already.
        if peer.write_all(&record).is_err() {
            break;
        }
        record[5..9].fill(0);
    }
    let mut answer = Vec::new();
    let ended = peer.read_to_end(&mut answer);
    let is_closed = ended.as_ref().is_ok_and(|read| *read < 64)
        || ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
    assert!(is_closed, "{ended:?}");
    fixture.copy(&fixture.source("a", 5), "a").expect("the relay still serves");
}

pub(crate) struct Nothing;

impl ServeObserver for Nothing {
    fn listening(&self, _: std::net::SocketAddr) {}

    fn report(&self, _: &str) {}
}

#[test]
fn a_folder_has_one_relay() {
    let fixture = Fixture::new();
    let identity = Identity::load_or_create(&fixture.folder.path().join("relay.key")).expect("a key");
    let mut allow = AllowList::default();
    let listen = "127.0.0.1:0".parse().expect("an address");
    let root = fixture.folder.path().join("in");
    let mut options = ServeOptions { listen, root, identity, allow: allow.clone(), kernel: None };
    let error = serve(&options, Arc::new(Nothing)).expect_err("nobody is allowed");
    assert_eq!(error.message, "a relay without --allow accepts no client");
    allow.add(fixture.client.fingerprint());
    options.allow = allow.clone();
    let error = serve(&options, Arc::new(Nothing)).expect_err("the other relay has the journal");
    assert!(error.hint.starts_with("only one relay can serve a folder at a time"), "{error}: {}", error.hint);
    let inside = format!("{} root={}", fixture.relay, fixture.folder.path().join("out").display());
    allow.add_file(&inside).expect("valid");
    options.allow = allow;
    options.root = fixture.folder.path().to_path_buf();
    let error = serve(&options, Arc::new(Nothing)).expect_err("one root contains the other");
    assert!(error.message.ends_with("contains the other"), "{error}");
}
