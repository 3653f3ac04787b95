//! Reads the state of all TCP sockets of this host through netlink's `INET_DIAG`, as `ss` does.
//!
//! ```text
//!   Which ──► bytecode ──► kernel: walks its table once, runs it on each socket ──► messages ──► SocketState
//!   [Id]  ──► one request per socket, looked up by its addresses ─────────────────┘
//! ```
//!
//! The queries neither affect the sockets nor require privileges, because the kernel reports the sockets of a
//! network namespace to any process in it. Listing the sockets of one process ([`inodes_of`]) is permitted
//! only to the owner of that process and to root.
//!
//! A dump of all sockets walks the kernel's whole hash table, which has half a million buckets on a large
//! host. Sockets that are already known are therefore queried one by one.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;

use fullpipe_lab::trace::{ReceiverSample, TcpInfo};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::Bytes;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use crate::error::{Error, Kind};
use crate::sys;
use crate::tcp_info::{self, Memory, Raw, RawBbr};

mod bytecode;
mod port;

pub use port::PortSocket;

/// Netlink message types and flags from `linux/netlink.h` and `linux/sock_diag.h`.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// The older request type. Only this request type returns sockets of all address families in one walk of the
/// hash table.
const TCPDIAG_GETSOCK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
/// Netlink attributes from `linux/inet_diag.h`; a request selects attribute `n` with bit `n - 1`.
const INET_DIAG_REQ_BYTECODE: u16 = 1;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_SKMEMINFO: u16 = 7;
const INET_DIAG_BBRINFO: u16 = 16;
/// A request has no bit for BBRINFO. If VEGASINFO is selected, the kernel returns the information of the
/// socket's congestion control, whichever algorithm it is.
const INET_DIAG_VEGASINFO: u16 = 3;
const ASKED: u8 = 1 << (INET_DIAG_INFO - 1)
    | 1 << (INET_DIAG_VEGASINFO - 1)
    | 1 << (INET_DIAG_CONG - 1)
    | 1 << (INET_DIAG_SKMEMINFO - 1);
/// TCP states in which data may be in flight: ESTABLISHED, FIN-WAIT-1, CLOSE-WAIT, LAST-ACK,
/// CLOSING.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 8 | 1 << 9 | 1 << 11;
/// Sizes of `struct nlmsghdr`, `nlattr`, `inet_diag_sockid` and `inet_diag_msg`, in bytes.
const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;
const SOCKID: usize = 48;
const MESSAGE: usize = 4 + SOCKID + 20;
/// Number of requests that are sent together. All replies must fit into the socket's receive buffer, and
/// they are received together.
const AT_ONCE: usize = sys::MOST_MESSAGES;
/// Size of the receive buffer in bytes. A dump arrives in messages of up to 32 KiB; the reply about one
/// socket takes about 1 KiB.
const ROOM: usize = AT_ONCE * (4 << 10);

/// Identification of a socket in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// IP address and port on this host.
    pub local: SocketAddr,
    /// IP address and port of the peer.
    pub remote: SocketAddr,
    /// The kernel's cookie of the socket, which is unique until the next boot.
    pub cookie: u64,
    /// Whether the socket is an IPv6 socket; such a socket can also carry IPv4 connections.
    ipv6: bool,
    /// Index of the network device to which the socket is bound; zero if it is not bound to a device.
    device: u32,
}

/// State of one TCP socket of this host.
#[derive(Clone, Debug)]
pub struct SocketState {
    /// Identification of the socket in the kernel.
    pub id: Id,
    /// Inode number of the socket, as in `/proc/PID/fd`; 0 if no process has the socket open.
    pub inode: u32,
    /// User ID of the owner of the socket.
    pub user: u32,
    /// Name of the socket's congestion control.
    pub cc: CcName,
    /// State of the socket as a sender.
    pub sender: TcpInfo,
    /// State of the socket as a receiver, without time and flow number.
    pub receiver: ReceiverSample,
    /// Number of payload bytes that the peer has acknowledged; may also count the SYN as one byte.
    pub acked: Bytes,
    /// Number of bytes that were written but not yet acknowledged (`Send-Q`).
    pub queued: Bytes,
    /// Memory that the kernel needs for the socket, including the overhead of its packets (`skmem`).
    pub memory: Bytes,
}

/// Name of a congestion control in the kernel, at most 15 characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CcName([u8; 16]);

impl CcName {
    fn read(bytes: &[u8]) -> Self {
        let mut name = Self::default();
        let text = bytes.iter().take(name.0.len()).take_while(|byte| byte.is_ascii_graphic());
        name.0.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        name
    }

    /// Returns the name of the congestion control as text.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }

    /// Returns the congestion control algorithm if fullpipe implements it.
    fn algorithm(&self) -> Option<Algorithm> {
        match self.as_str() {
            "bbr" => Some(Algorithm::Bbr1),
            name => name.parse().ok(),
        }
    }
}

/// Selection of sockets in the network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// Peers of the selected sockets; if empty, sockets with any peer are selected.
    pub peers: Vec<Peer>,
    /// Inode numbers of the selected sockets; `None` for any inode number.
    pub inodes: Option<BTreeSet<u32>>,
}

/// Address and port of a peer, by which sockets are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// IP address of the peer; `None` for any address.
    pub address: Option<IpAddr>,
    /// Port of the peer; `None` for any port.
    pub port: Option<u16>,
}

/// A netlink socket for querying the TCP sockets of the network namespace in which it was opened.
pub struct SockDiag {
    socket: Socket,
    buffer: Vec<u8>,
    requests: Vec<u8>,
}

impl SockDiag {
    /// Opens the netlink socket and tests whether the kernel answers.
    ///
    /// # Errors
    /// Returns an error if the kernel, or the sandbox in which the process runs, does not answer; the error
    /// is of [`Kind::Rights`] if access is denied.
    pub fn open() -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
            socket.bind_auto()?;
            socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
            io::Result::Ok(Self { socket, buffer: vec![0; ROOM], requests: Vec::new() })
        };
        open().map_err(refused)
    }

    /// Stores in `seen` the current state of all sockets that `which` selects.
    ///
    /// # Errors
    /// Returns the same errors as [`SockDiag::open`].
    pub fn dump(&mut self, which: &Which, seen: &mut Vec<SocketState>) -> Result<(), Error> {
        seen.clear();
        let asked = self.socket.send(&request_for_all(&bytecode::of(&which.peers)), 0);
        asked.map_err(refused)?;
        self.answers(1, &mut |bytes| seen.extend(parse(bytes))).map_err(refused)?;
        if let Some(inodes) = &which.inodes {
            seen.retain(|socket| inodes.contains(&socket.inode));
        }
        Ok(())
    }

    /// Stores in `seen` the current state of the sockets `ids`. Sockets that no longer exist are omitted.
    ///
    /// # Errors
    /// Returns the same errors as [`SockDiag::open`].
    pub fn ask(&mut self, ids: &[Id], seen: &mut Vec<SocketState>) -> Result<(), Error> {
        seen.clear();
        for ids in ids.chunks(AT_ONCE) {
            self.requests.clear();
            ids.iter().for_each(|id| request_for(id, &mut self.requests));
            self.socket.send(&self.requests, 0).map_err(refused)?;
            self.answers(ids.len(), &mut |bytes| seen.extend(parse(bytes))).map_err(refused)?;
        }
        Ok(())
    }

    /// Reads messages until `requests` requests have been answered, and passes each socket to `on_socket`.
    /// The reply to a request is a socket, an error (the socket no longer exists), or the end of a dump.
    fn answers(&mut self, requests: usize, on_socket: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut open = requests;
        while open > 0 {
            let mut lengths = [0; AT_ONCE];
            let lengths = &mut lengths[..open.min(AT_ONCE)];
            let came = match sys::receive_several(self.socket.as_fd(), &mut self.buffer, lengths) {
                Ok(came) => came,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let pieces = self.buffer.chunks_exact(ROOM / lengths.len()).zip(&*lengths).take(came);
            for (piece, length) in pieces {
                if *length == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                open = open.saturating_sub(read(piece.get(..*length).unwrap_or(piece), on_socket)?);
            }
        }
        Ok(())
    }
}

/// Appends the sockets in a reply to `seen`; returns the number of requests that it answers.
pub(crate) fn answered(answer: &[u8], seen: &mut Vec<SocketState>) -> io::Result<usize> {
    read(answer, &mut |bytes| seen.extend(parse(bytes)))
}

/// Passes each socket in a reply to `on_socket`; returns the number of requests that the reply
/// answers.
fn read(answer: &[u8], on_socket: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
    let (mut rest, mut requests) = (answer, 0);
    while let Some((message, after)) = message(rest) {
        rest = after;
        match message {
            Message::Socket { dump, bytes } => {
                on_socket(bytes);
                requests += usize::from(!dump);
            }
            Message::Done => requests += 1,
            // Either the host has no IPv6, or the socket no longer exists.
            Message::Error(libc::ENOENT) => requests += 1,
            Message::Error(errno) => return Err(io::Error::from_raw_os_error(errno)),
            Message::Other => {}
        }
    }
    Ok(requests)
}

fn refused(error: io::Error) -> Error {
    let message = format!("cannot query the kernel's sockets (sock_diag): {error}");
    let (kind, hint) = match error.kind() {
        io::ErrorKind::PermissionDenied => (
            Kind::Rights,
            "run fullpipe outside the sandbox, which blocks netlink, or pass ss -tmi output as input",
        ),
        _ => (Kind::System, "load the kernel module tcp_diag, or pass ss -ti output as input"),
    };
    Error { kind, message, hint: hint.into() }
}

/// Builds a request for all sockets that pass `filter`, in both address families (`struct inet_diag_req`).
fn request_for_all(filter: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes.extend([libc::AF_UNSPEC as u8, 0, 0, ASKED]);
    bytes.extend([0; SOCKID]);
    bytes.extend(STATES.to_ne_bytes());
    bytes.extend([0; 4]);
    if !filter.is_empty() {
        bytes.extend(((ATTRIBUTE + filter.len()) as u16).to_ne_bytes());
        bytes.extend(INET_DIAG_REQ_BYTECODE.to_ne_bytes());
        bytes.extend(filter);
    }
    close(&mut bytes, 0, TCPDIAG_GETSOCK, NLM_F_DUMP);
    bytes
}

/// Appends a request for the socket `id` to `bytes` (`struct inet_diag_req_v2`).
fn request_for(id: &Id, bytes: &mut Vec<u8>) {
    let begin = bytes.len();
    let family = if id.ipv6 { libc::AF_INET6 } else { libc::AF_INET };
    bytes.extend_from_slice(&[0; HEADER]);
    bytes.extend_from_slice(&[family as u8, libc::IPPROTO_TCP as u8, ASKED, 0]);
    bytes.extend_from_slice(&STATES.to_ne_bytes());
    bytes.extend_from_slice(&id.local.port().to_be_bytes());
    bytes.extend_from_slice(&id.remote.port().to_be_bytes());
    bytes.extend_from_slice(&address(id.local.ip(), id.ipv6));
    bytes.extend_from_slice(&address(id.remote.ip(), id.ipv6));
    bytes.extend_from_slice(&id.device.to_ne_bytes());
    bytes.extend_from_slice(&(id.cookie as u32).to_ne_bytes());
    bytes.extend_from_slice(&((id.cookie >> 32) as u32).to_ne_bytes());
    close(bytes, begin, SOCK_DIAG_BY_FAMILY, 0);
}

/// Writes the netlink header of a request, which starts at `begin` and extends to the end of `bytes`.
fn close(bytes: &mut [u8], begin: usize, kind: u16, flags: u16) {
    let request = &mut bytes[begin..];
    let length = request.len() as u32;
    request[..4].copy_from_slice(&length.to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
}

/// Encodes an IP address as the 16 bytes that a socket ID contains.
fn address(address: IpAddr, ipv6: bool) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) if ipv6 => address.to_ipv6_mapped().octets(),
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
    }
}

/// A netlink message in the kernel's reply.
enum Message<'a> {
    /// The state of a socket; `dump` is true if the message belongs to a dump.
    Socket {
        dump: bool,
        bytes: &'a [u8],
    },
    /// The end of a dump of sockets.
    Done,
    /// An error of the kernel, with its `errno`.
    Error(i32),
    Other,
}

/// Splits the first message off `bytes`; returns `None` if the header of the message is incomplete. A message
/// that is longer than the buffer is truncated. (The truncated part can consist of TCP-MD5 keys, which are
/// reported only to root. These keys precede the BBR attribute and follow all other attributes.)
fn message(bytes: &[u8]) -> Option<(Message<'_>, &[u8])> {
    const NLM_F_MULTI: u16 = 2;
    let length = u32_at(bytes, 0)? as usize;
    let content = bytes.get(HEADER..length.min(bytes.len()))?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    let errno = || u32_at(content, 0).map_or(0, |errno| (errno as i32).wrapping_neg());
    let message = match u16_at(bytes, 4)? {
        SOCK_DIAG_BY_FAMILY | TCPDIAG_GETSOCK => {
            Message::Socket { dump: u16_at(bytes, 6)? & NLM_F_MULTI != 0, bytes: content }
        }
        NLMSG_DONE if errno() != 0 => Message::Error(errno()),
        NLMSG_DONE => Message::Done,
        NLMSG_ERROR => Message::Error(errno()),
        _ => Message::Other,
    };
    Some((message, rest))
}

/// Parses the addresses of a socket from `struct inet_diag_msg`.
fn id_of(fixed: &[u8]) -> Option<Id> {
    let ipv6 = *fixed.first()? == libc::AF_INET6 as u8;
    let port = |at: usize| Some(u16::from_be_bytes(fixed.get(at..at + 2)?.try_into().ok()?));
    let ip = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = fixed.get(at..at + 16)?.try_into().ok()?;
        // If an IPv6 socket has an IPv4 peer, the mapped address of the peer is converted to IPv4.
        Some(if ipv6 {
            Ipv6Addr::from(bytes).to_canonical()
        } else {
            Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()
        })
    };
    let word = |at: usize| u32_at(fixed, at);
    Some(Id {
        local: SocketAddr::new(ip(8)?, port(4)?),
        remote: SocketAddr::new(ip(24)?, port(6)?),
        device: word(40)?,
        cookie: u64::from(word(44)?) | u64::from(word(48)?) << 32,
        ipv6,
    })
}

/// Parses the state of a socket from `struct inet_diag_msg` and its attributes; returns `None` if the kernel
/// omitted `TCP_INFO`.
fn parse(bytes: &[u8]) -> Option<SocketState> {
    let fixed = bytes.get(..MESSAGE)?;
    let id = id_of(fixed)?;
    let word = |at: usize| u32_at(fixed, at);
    let (unread, queued, user, inode) = (word(56)?, word(60)?, word(64)?, word(68)?);
    let (mut raw, mut memory, mut bbr, mut cc) = (None, None, None, CcName::default());
    let mut rest = &bytes[MESSAGE..];
    while let (Some(length), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let length = usize::from(length);
        let Some(content) = rest.get(ATTRIBUTE..length) else { break };
        match kind {
            INET_DIAG_INFO => raw = Some(Raw::read(content)),
            INET_DIAG_SKMEMINFO => memory = Some(Memory::read(content)),
            INET_DIAG_BBRINFO => bbr = RawBbr::read(content).info(),
            INET_DIAG_CONG => cc = CcName::read(content),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    let (raw, memory) = (raw?, memory.unwrap_or_default());
    let known = cc.algorithm();
    // The kernel computes a pacing rate for every socket, but applies it only to sockets with a rate-based
    // algorithm or a pacing limit.
    let paced = known.is_some_and(Algorithm::is_rate_based) || raw.has_pacing_limit();
    Some(SocketState {
        id,
        inode,
        user,
        cc,
        sender: TcpInfo { cc: known, bbr, ..tcp_info::sender_of(&raw, &memory, paced) },
        receiver: tcp_info::received_of(&raw, &memory, Bytes::new(unread.into())),
        acked: raw.acked(),
        queued: Bytes::new(queued.into()),
        memory: memory.used(),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Returns the inode numbers of the sockets that a process has open.
///
/// # Errors
/// Returns an error of [`Kind::Settings`] if the process does not exist, or of [`Kind::Rights`] if its files
/// are not accessible.
pub fn inodes_of(process: u32) -> Result<BTreeSet<u32>, Error> {
    let folder = format!("/proc/{process}/fd");
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => Error {
            kind: Kind::Rights,
            message: format!("cannot read the open files of process {process}: permission denied"),
            hint: "run fullpipe as root or as the owner of that process, or use --dst ADDR, which needs no \
                   privileges"
                .into(),
        },
        _ => Error::settings(
            format!("there is no process {process}"),
            "list the processes with ps -e, or use --dst ADDR, which needs no process",
        ),
    };
    let mut inodes = BTreeSet::new();
    for entry in Path::new(&folder).read_dir().map_err(failed)? {
        // If the process has closed the file in the meantime, the link cannot be read.
        let target = entry.and_then(|entry| entry.path().read_link());
        let target = match target {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(failed(error)),
            Err(_) => continue,
            Ok(target) => target,
        };
        let number = target.to_str().and_then(|name| name.strip_prefix("socket:[")?.strip_suffix(']'));
        inodes.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    Ok(inodes)
}

#[cfg(test)]
mod tests;
