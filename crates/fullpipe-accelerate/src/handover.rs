//! Passes the settings to the worker, together with a raw socket that the worker cannot open itself.
//!
//! The worker needs the raw socket to reset its clients if the keeper dies: packets that it writes to the TUN
//! device would then reach the kernel, which drops packets that arrive with one of its own addresses as
//! source.
//!
//! The keeper sends its later orders on the same socket, one line each.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use fullpipe_units::Rate;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// An order of the keeper to the running worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Reset all connections and exit.
    End,
    /// Use this MTU in bytes, because the MTU of the path to the clients has changed.
    Mtu(u32),
    /// Limit the total rate of all connections to this rate; `None` removes the limit.
    Limit(Option<Rate>),
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => writeln!(f, "end"),
            Self::Mtu(mtu) => writeln!(f, "mtu {mtu}"),
            Self::Limit(limit) => writeln!(f, "limit {}", limit.map_or(0, Rate::as_bps)),
        }
    }
}

impl Order {
    /// Returns the orders contained in the bytes of one read. The keeper writes each line with one call, so a
    /// read contains whole lines.
    pub(crate) fn read(bytes: &[u8]) -> Vec<Self> {
        let text = String::from_utf8_lossy(bytes);
        let order = |line: &str| match line.split_once(' ') {
            None if line == "end" => Some(Self::End),
            Some(("mtu", mtu)) => mtu.parse().ok().map(Self::Mtu),
            Some(("limit", bps)) => {
                let bps: u64 = bps.parse().ok()?;
                Some(Self::Limit((bps > 0).then_some(Rate::from_bps(bps))))
            }
            _ => None,
        };
        text.lines().filter_map(order).collect()
    }
}

/// Sends a line of settings and a file descriptor to the worker.
pub(crate) fn send(mut control: &UnixStream, line: &[u8], raw: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [raw];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = sendmsg(control, &[IoSlice::new(line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    control.write_all(&line[sent..])?;
    control.write_all(b"\n")
}

/// Receives the line of settings, without its line break, and the file descriptor.
pub(crate) fn receive(control: &UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let (mut line, mut raw) = (Vec::new(), None);
    loop {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let room = &mut [IoSliceMut::new(&mut byte)];
        let received = recvmsg(control, room, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                raw = raw.or(descriptors.last());
            }
        }
        match byte {
            _ if received.bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            [b'\n'] => return Ok((line, raw)),
            [other] => line.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn orders_are_lines() {
        let orders = [
            Order::Mtu(1_400),
            Order::Mtu(9_000),
            Order::Limit(Some(Rate::from_bps(980))),
            Order::Limit(None),
            Order::End,
        ];
        let text: String = orders.iter().map(ToString::to_string).collect();
        assert_eq!(text, "mtu 1400\nmtu 9000\nlimit 980\nlimit 0\nend\n");
        assert_eq!(Order::read(text.as_bytes()), orders);
        assert_eq!(Order::read(b"mtu\nmtu x\nlimit x\nno order\n"), []);
    }

    #[test]
    fn a_line_and_a_descriptor_arrive() {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let (mut far, near) = UnixStream::pair().expect("a socket pair");
        send(&ours, b"settings", near.as_fd()).expect("room");
        (&ours).write_all(b"more").expect("room");
        drop(near);
        let (line, raw) = receive(&theirs).expect("a line");
        assert_eq!(line, b"settings");
        let mut near = UnixStream::from(raw.expect("a descriptor"));
        near.write_all(b"alive").expect("room");
        let mut read = [0; 5];
        far.read_exact(&mut read).expect("five bytes");
        assert_eq!(read, *b"alive");
        // Data after the line stays in the socket.
        drop(ours);
        assert_eq!(receive(&theirs).expect_err("an end").kind(), io::ErrorKind::UnexpectedEof);
    }
}
