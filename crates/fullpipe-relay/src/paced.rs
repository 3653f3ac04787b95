//! A stream on which a relay enforces the rate limit of a client.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use fullpipe_units::{Bytes, Duration, Instant, Rate};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::engine::Allowance;
use crate::{locked, span};

/// Rate limit of a client at a relay. All of its connections share the limit, separately for each direction.
#[derive(Debug)]
pub(crate) struct ClientLimit {
    rate: Rate,
    created: tokio::time::Instant,
    reading: Mutex<Allowance>,
    writing: Mutex<Allowance>,
}

impl ClientLimit {
    pub(crate) fn new(rate: Rate) -> Self {
        let allowance = || Mutex::new(Allowance::new(rate));
        Self { rate, created: tokio::time::Instant::now(), reading: allowance(), writing: allowance() }
    }

    /// Returns the rate.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    fn now(&self) -> Instant {
        Instant::ZERO + span(self.created.elapsed())
    }
}

/// A stream that reads and writes at the rate of a limit, in small parts. Because the receive window opens with each
/// part that is read, the peer sends in small parts, too.
#[derive(Debug)]
pub(crate) struct Paced<S> {
    stream: S,
    limit: Option<Arc<ClientLimit>>,
    read_wait: Option<Pin<Box<Sleep>>>,
    write_wait: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    /// Creates a stream; without a limit, it reads and writes as fast as `stream`.
    pub(crate) fn new(stream: S, limit: Option<Arc<ClientLimit>>) -> Self {
        Self { stream, limit, read_wait: None, write_wait: None }
    }
}

/// Waits until the next part is due.
fn poll_due(
    wait: &mut Option<Pin<Box<Sleep>>>,
    allowance: &Mutex<Allowance>,
    limit: &ClientLimit,
    context: &mut Context<'_>,
) -> Poll<()> {
    loop {
        if let Some(sleep) = wait {
            ready!(sleep.as_mut().poll(context));
            *wait = None;
        }
        // Another connection may have used up the allowance in the meantime.
        let due = locked(allowance).wait(limit.now());
        if due == Duration::ZERO {
            return Poll::Ready(());
        }
        *wait = Some(Box::pin(sleep(std::time::Duration::from_nanos(due.as_nanos()))));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(limit) = &this.limit else { return Pin::new(&mut this.stream).poll_read(context, buffer) };
        ready!(poll_due(&mut this.read_wait, &limit.reading, limit, context));
        let most = locked(&limit.reading).part().min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?;
        let read = part.filled().len();
        buffer.advance(read);
        locked(&limit.reading).take(limit.now(), Bytes::new(read as u64));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let Some(limit) = &this.limit else { return Pin::new(&mut this.stream).poll_write(context, bytes) };
        ready!(poll_due(&mut this.write_wait, &limit.writing, limit, context));
        let most = locked(&limit.writing).part().min(bytes.len());
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, &bytes[..most]))?;
        locked(&limit.writing).take(limit.now(), Bytes::new(written as u64));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
