//! A proxy that cuts one of the connections that pass it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::wait;

/// Connection to cut: its number in the order of arrival, the amount of data after which nothing is
/// forwarded, and the time until it is closed.
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
    /// Starts a proxy to `relay`.
    pub(crate) fn start(relay: SocketAddr, cut: Cut) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let client = client.expect("a connection");
                let relay = TcpStream::connect(relay).expect("the relay listens");
                let both = |stream: &TcpStream| stream.try_clone().expect("a second descriptor");
                let (back, forth) = ((both(&relay), both(&client)), (client, relay));
                let limit = (number == cut.connection).then_some(cut);
                thread::spawn(move || forward(back.0, back.1, None));
                thread::spawn(move || forward(forth.0, forth.1, limit));
            }
        });
        Self { address }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, cut: Option<Cut>) {
    let mut buffer = vec![0; 64 << 10];
    let mut forwarded = 0;
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
        forwarded += read as u64;
        if let Some(cut) = cut
            && forwarded >= cut.after
        {
            wait(cut.stall_ms);
            let _ = from.shutdown(Shutdown::Both);
            break;
        }
    }
    let _ = to.shutdown(if cut.is_some() { Shutdown::Both } else { Shutdown::Write });
}
