//! Sends and receives frames on a connection, and sets the options of its socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fullpipe_units::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::frame::{self, FrameError, HEADER, Header};

/// Number of unsent bytes below which a socket reports that it can take more data (`TCP_NOTSENT_LOWAT`). With 128 KiB,
/// a flow with a send buffer of 4 MiB reached the same goodput as without this option, and held 195 kB of unsent data
/// instead of 3.4 MB.
const UNSENT: u32 = 128 << 10;
/// Time after which a connection counts as lost if its data is not acknowledged, or its keep-alive probes are not
/// answered.
const SILENCE: Duration = Duration::from_secs(30);
/// Time between keep-alive probes of an idle connection.
const PROBES: Duration = Duration::from_secs(10);

fn invalid(error: FrameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Reads a header; returns `None` if the peer has closed the connection between two frames.
pub(crate) async fn read_header(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Header>> {
    let mut bytes = [0; HEADER];
    let mut filled = 0;
    while filled < HEADER {
        match reader.read(&mut bytes[filled..]).await? {
            0 if filled == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Header::parse(&bytes).map(Some).map_err(invalid)
}

/// Reads the content of a frame.
pub(crate) async fn read_content(
    reader: &mut (impl AsyncRead + Unpin),
    length: usize,
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Reads the message whose header announced `length` bytes.
pub(crate) async fn read_message<T: DeserializeOwned>(
    reader: &mut (impl AsyncRead + Unpin),
    length: usize,
) -> io::Result<T> {
    frame::decode(&read_content(reader, length).await?).map_err(invalid)
}

/// Reads a frame that must be a message; returns `None` at the end of the connection.
pub(crate) async fn next_message<T: DeserializeOwned>(
    reader: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<T>> {
    match read_header(reader).await? {
        None => Ok(None),
        Some(Header::Control { length }) => read_message(reader, length).await.map(Some),
        Some(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "the peer sent data instead of a message")),
    }
}

/// Returns whether `buffer` begins with a complete message, which can be read without waiting.
pub(crate) fn has_message(buffer: &[u8]) -> bool {
    let Some((header, content)) = buffer.split_first_chunk::<HEADER>() else { return false };
    matches!(Header::parse(header), Ok(Header::Control { length }) if content.len() >= length)
}

/// Appends a message to `buffer`.
pub(crate) fn push_message(buffer: &mut Vec<u8>, message: &impl Serialize) -> io::Result<()> {
    buffer.extend_from_slice(&frame::encode(message).map_err(invalid)?);
    Ok(())
}

/// Writes a message to the socket.
pub(crate) async fn write_message(
    writer: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    writer.write_all(&frame::encode(message).map_err(invalid)?).await?;
    writer.flush().await
}

/// Sets the options of a new connection.
pub(crate) fn prepare(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let socket = SockRef::from(tcp);
    socket.set_tcp_notsent_lowat(UNSENT)?;
    socket.set_tcp_user_timeout(Some(SILENCE))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBES).with_interval(PROBES).with_retries(2))
}

/// A connection on which the peer may send only a limited number of bytes until its key has been accepted.
#[derive(Debug)]
pub(crate) struct Bounded {
    tcp: TcpStream,
    /// Number of bytes that may still be read; `None` without a limit.
    left: Option<usize>,
}

impl Bounded {
    /// Creates a connection on which the peer may send `most` bytes.
    pub(crate) fn new(tcp: TcpStream, most: usize) -> Self {
        Self { tcp, left: Some(most) }
    }

    /// Removes the limit.
    pub(crate) fn accept(&mut self) {
        self.left = None;
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(left) = self.left else { return Pin::new(&mut self.tcp).poll_read(context, buffer) };
        if left == 0 {
            return Poll::Ready(Err(io::Error::other(
                "the peer sent too much data before its key was accepted",
            )));
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(left.min(buffer.remaining())));
        ready!(Pin::new(&mut self.tcp).poll_read(context, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        self.left = Some(left - read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}

/// Second descriptor of a connection's socket, which reports when the socket can send more. TLS owns the
/// first one.
#[derive(Debug)]
pub(crate) struct Readiness {
    socket: TcpStream,
}

impl Readiness {
    /// Splits a connection into the stream for TLS and the descriptor that reports readiness.
    pub(crate) fn of(tcp: TcpStream) -> io::Result<(TcpStream, Self)> {
        let tcp = tcp.into_std()?;
        let socket = TcpStream::from_std(tcp.try_clone()?)?;
        Ok((TcpStream::from_std(tcp)?, Self { socket }))
    }

    /// Returns the local port and the peer's address, which together identify a connection of this host.
    pub(crate) fn ends(&self) -> Option<(u16, SocketAddr)> {
        let (local, peer) = (self.socket.local_addr().ok()?, self.socket.peer_addr().ok()?);
        Some((local.port(), SocketAddr::new(peer.ip().to_canonical(), peer.port())))
    }

    /// Returns the socket.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the maximum segment size.
    pub(crate) fn mss(&self) -> io::Result<Bytes> {
        SockRef::from(&self.socket).tcp_mss().map(|mss| Bytes::new(mss.into()))
    }

    /// Waits until the socket has less unsent data than [`UNSENT`] and room in its send buffer.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket.async_io(Interest::WRITABLE, || self.check()).await
    }

    /// Fails with `WouldBlock` while the socket cannot send more. The runtime's own readiness state is that of the last
    /// event, and TLS may have filled the send buffer since then.
    fn check(&self) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], Some(&now))?;
        if ready > 0 { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}
