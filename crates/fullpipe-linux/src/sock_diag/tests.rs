use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use fullpipe_units::{Duration, Instant};

use super::*;
use crate::Clock;

/// Opens a connection over the loopback device; one end has sent 20 000 bytes, and the other end has read
/// 5000 of them.
fn connection(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((address, 0)).expect("a port");
    let mut near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (mut far, _) = listener.accept().expect("a connection");
    near.write_all(&[7; 20_000]).expect("room");
    far.read_exact(&mut [0; 5_000]).expect("data");
    (near, far)
}

fn peer_of(stream: &TcpStream) -> Peer {
    let address = stream.peer_addr().expect("an address");
    Peer { address: Some(address.ip()), port: Some(address.port()) }
}

fn dump(peers: Vec<Peer>) -> Vec<SocketState> {
    let mut seen = Vec::new();
    let which = Which { peers, inodes: None };
    SockDiag::open().expect("sock_diag").dump(&which, &mut seen).expect("an answer");
    seen
}

/// Repeats `look` until its result satisfies `wanted`, for at most one minute, and returns the last result.
fn until<T>(mut look: impl FnMut() -> T, wanted: impl Fn(&T) -> bool) -> T {
    let clock = Clock::starting_in(Duration::ZERO);
    loop {
        let seen = look();
        if wanted(&seen) || clock.now() > Instant::ZERO + Duration::from_secs(60) {
            return seen;
        }
    }
}

/// For each socket, a dump reports the same values as the socket options of that socket.
#[test]
fn a_socket_is_seen_as_it_sees_itself() {
    for address in ["127.0.0.1", "::1"] {
        let (near, far) = connection(address);
        let seen = until(
            || dump(vec![peer_of(&near)]),
            |seen| seen.iter().all(|socket| socket.sender.flight_size.is_zero()),
        );
        let [seen] = seen.as_slice() else { panic!("one socket is connected there: {seen:#?}") };
        assert_eq!(seen.id.local, near.local_addr().expect("an address"));
        assert_eq!(seen.id.remote, near.peer_addr().expect("an address"));
        assert_eq!(seen.acked, Bytes::new(20_001), "with the SYN");
        let own = tcp_info::sender(std::os::fd::AsFd::as_fd(&near), false).expect("info");
        let fd = std::os::fd::AsFd::as_fd(&near);
        let bbr = if seen.cc.as_str() == "bbr" { tcp_info::bbr(fd).expect("info") } else { None };
        assert_eq!(seen.sender.bbr, bbr, "as the socket itself tells");
        let told = TcpInfo { cc: None, pacing_rate: None, bbr: None, ..seen.sender };
        assert_eq!(TcpInfo { cc: None, ..own }, told);
        let reader = dump(vec![peer_of(&far)]);
        let receiver = reader[0].receiver.receiver;
        assert_eq!((receiver.received.get(), receiver.unread.get()), (20_000, 15_000));
        assert!(receiver.rcvbuf.get() >= 20_000, "{receiver:?}");
    }
}

/// A truncated message still answers its request, and the part that fits is reported.
#[test]
fn a_long_answer_is_cut_off() {
    let (near, _far) = connection("127.0.0.1");
    let mut diag = SockDiag::open().expect("sock_diag");
    let id = dump(vec![peer_of(&near)])[0].id;
    request_for(&id, &mut diag.requests);
    diag.socket.send(&diag.requests, 0).expect("a request");
    let mut lengths = [0];
    sys::receive_several(diag.socket.as_fd(), &mut diag.buffer, &mut lengths).expect("an answer");
    let whole = &mut diag.buffer[..lengths[0]];
    let seen_in = |answer: &[u8]| {
        let mut seen = Vec::new();
        let requests = answered(answer, &mut seen).expect("no error");
        (requests, seen.first().map(|seen| (seen.id, seen.sender.mss)))
    };
    let of_whole = seen_in(whole);
    let longer = (whole.len() as u32 + 8_000).to_ne_bytes();
    whole[..4].copy_from_slice(&longer);
    assert_eq!(seen_in(whole), of_whole);
    assert_eq!(seen_in(&whole[..HEADER + MESSAGE]), (1, None));
    assert_eq!(of_whole.1.map(|(id, _)| id), Some(id));
}

/// With every form of filter, the kernel omits the sockets that do not match.
#[test]
fn the_kernel_filters() {
    let (a, _a) = connection("127.0.0.1");
    let (b, _b) = connection("127.0.0.1");
    let (c, _c) = connection("::1");
    let ports = |seen: &[SocketState]| {
        let mut ports: Vec<u16> = seen.iter().map(|socket| socket.id.remote.port()).collect();
        ports.sort_unstable();
        ports
    };
    let port_of = |stream: &TcpStream| peer_of(stream).port.expect("a port");
    let wanted = |streams: &[&TcpStream]| {
        let mut ports: Vec<u16> = streams.iter().map(|stream| port_of(stream)).collect();
        ports.sort_unstable();
        ports
    };
    assert_eq!(ports(&dump(vec![peer_of(&a)])), wanted(&[&a]));
    assert_eq!(ports(&dump(vec![peer_of(&a), peer_of(&c)])), wanted(&[&a, &c]));
    assert_eq!(ports(&dump(vec![peer_of(&a), peer_of(&b), peer_of(&c)])), wanted(&[&a, &b, &c]));
    let by_port = Peer { address: None, port: Some(port_of(&c)) };
    assert_eq!(ports(&dump(vec![by_port])), wanted(&[&c]));
    let nobody = Peer { address: Some(Ipv4Addr::new(192, 0, 2, 1).into()), port: None };
    assert_eq!(dump(vec![nobody]).len(), 0);
    let all = dump(Vec::new());
    assert!(all.len() >= 6);
    let here = dump(vec![Peer { address: Some(Ipv4Addr::LOCALHOST.into()), port: None }]);
    assert!(here.iter().all(|socket| socket.id.remote.ip() == Ipv4Addr::LOCALHOST));
    assert!(here.len() >= 4);
}

/// Known sockets are queried one by one, and sockets that no longer exist are omitted.
#[test]
fn known_sockets_are_asked_for_one_by_one() {
    let (a, _a) = connection("127.0.0.1");
    let (b, b_far) = connection("::1");
    let ids = [dump(vec![peer_of(&a)])[0].id, dump(vec![peer_of(&b)])[0].id];
    let mut diag = SockDiag::open().expect("sock_diag");
    let mut seen = Vec::new();
    diag.ask(&ids, &mut seen).expect("an answer");
    assert_eq!(seen.iter().map(|socket| socket.id).collect::<Vec<_>>(), ids);
    assert!(
        seen.iter().all(|socket| socket.sender.mss.get() > 0 && !socket.cc.as_str().is_empty()),
        "{seen:#?}"
    );
    drop((b, b_far));
    // The end that closes first stays in TIME-WAIT, a state that does not count as a connection.
    let left = until(
        || {
            diag.ask(&ids, &mut seen).expect("an answer");
            seen.len()
        },
        |left| *left == 1,
    );
    assert_eq!(left, 1, "{seen:#?}");
    // A hundred requests do not fit into one batch.
    diag.ask(&[ids[0]; 100], &mut seen).expect("an answer");
    assert_eq!(seen.len(), 100);
}

#[test]
fn a_process_has_its_sockets() {
    let (near, far) = connection("127.0.0.1");
    let inodes = inodes_of(std::process::id()).expect("this process");
    let which = Which { peers: Vec::new(), inodes: Some(inodes) };
    let mut seen = Vec::new();
    SockDiag::open().expect("sock_diag").dump(&which, &mut seen).expect("an answer");
    for end in [&near, &far] {
        let local = end.local_addr().expect("an address");
        assert!(seen.iter().any(|socket| socket.id.local == local), "file {}", end.as_raw_fd());
    }
    let error = inodes_of(u32::MAX).expect_err("no such process");
    assert_eq!((error.kind, error.message.as_str()), (Kind::Settings, "there is no process 4294967295"));
}

/// The shorter structures of older kernels are parsed, and no input causes a panic.
#[test]
fn short_and_odd_answers_are_read() {
    let (near, _far) = connection("127.0.0.1");
    let diag = SockDiag::open().expect("sock_diag");
    let filter = bytecode::of(&[peer_of(&near)]);
    diag.socket.send(&request_for_all(&filter), 0).expect("asked");
    let mut whole = Vec::with_capacity(ROOM);
    diag.socket.recv(&mut whole, 0).expect("an answer");
    let Some((Message::Socket { bytes, .. }, _)) = message(&whole) else { panic!("a socket") };
    assert!(parse(bytes).is_some());
    for cut in 0..bytes.len() {
        let _ = parse(&bytes[..cut]);
        let _ = message(&whole[..cut]);
    }
    for at in 0..whole.len() {
        let mut odd = whole.clone();
        odd[at] = 0xff;
        let mut rest = odd.as_slice();
        while let Some((found, after)) = message(rest) {
            if let Message::Socket { bytes, .. } = found {
                let _ = parse(bytes);
            }
            if after.len() >= rest.len() {
                break;
            }
            rest = after;
        }
    }
    // `tcpi_snd_wnd` was added in Linux 5.4; earlier kernels already reported the memory that the buffers
    // use.
    let old = Raw::read(&[1; 192]);
    assert_eq!(tcp_info::sender_of(&old, &Memory::default(), false).rwnd, Bytes::ZERO);
}

/// `cargo test -p fullpipe-linux --lib sock_diag -- --ignored --nocapture` samples 1000 loopback
/// connections ten times per second, and prints the CPU usage of each method.
#[test]
#[ignore = "a figure, not a fact"]
fn a_thousand_sockets_at_ten_samples_a_second() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let ends: Vec<_> = (0..1_000)
        .map(|_| (TcpStream::connect(address).expect("a connection"), listener.accept().expect("one").0))
        .collect();
    let which =
        Which { peers: vec![Peer { address: Some(address.ip()), port: Some(address.port()) }], inodes: None };
    let mut diag = SockDiag::open().expect("sock_diag");
    let mut seen = Vec::new();
    diag.dump(&which, &mut seen).expect("an answer");
    let ids: Vec<Id> = seen.iter().map(|socket| socket.id).collect();
    assert_eq!(ids.len(), ends.len());
    let mut figure = |what: &str, work: &mut dyn FnMut(&mut SockDiag, &mut Vec<SocketState>)| {
        let before = crate::clock::thread_cpu();
        for _ in 0..100 {
            work(&mut diag, &mut seen);
        }
        let spent = crate::clock::thread_cpu().saturating_sub(before).as_secs_f64();
        println!("{what}: {:.2} % of a core", 100.0 * spent / 10.0);
    };
    figure("a dump, filtered", &mut |diag, seen| diag.dump(&which, seen).expect("an answer"));
    figure("the kernel's part of it", &mut |diag, _| {
        let filter = bytecode::of(&which.peers);
        diag.socket.send(&request_for_all(&filter), 0).expect("asked");
        let mut answer = Vec::with_capacity(ROOM);
        loop {
            answer.clear();
            diag.socket.recv(&mut answer, 0).expect("an answer");
            if u16_at(&answer, 4) == Some(NLMSG_DONE) {
                break;
            }
        }
    });
    figure("a dump of all", &mut |diag, seen| diag.dump(&Which::default(), seen).expect("an answer"));
    figure("one by one", &mut |diag, seen| diag.ask(&ids, seen).expect("an answer"));
    figure("ten of them", &mut |diag, seen| diag.ask(&ids[..10], seen).expect("an answer"));
}
