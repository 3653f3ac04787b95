//! Tasks of one attempt at a copy: two for each connection, whether the client or the relay has opened it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadHalf};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout};

use super::FAREWELL;
use super::connection::{Events, Sender, Shared, receive};
use super::driver::Driver;
use crate::error::Error;
use crate::frame::{MOST_CONNECTIONS, Request};
use crate::locked;
use crate::sources::{Found, Walk};
use crate::wire::Readiness;

/// Time between two checks of whether tasks have ended.
const CHECKS: Duration = Duration::from_millis(1);

/// What to wait for at the end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    /// Every message has been passed to the kernel, which delivers it even after the end of this process.
    Sent,
    /// The peer has read the last message of each connection, and has closed the connections.
    Read,
}

/// Tasks of the connections, and the state that they share. The tasks end when this value is dropped.
pub(super) struct Tasks {
    /// Tasks that send.
    sending: JoinSet<()>,
    /// Tasks that read replies.
    reading: JoinSet<()>,
    /// Closed when no connection waits for the peer to accept it any more: each of them has a sender.
    accepting: mpsc::Sender<()>,
    accepted: mpsc::Receiver<()>,
    /// Tasks of each connection.
    handles: BTreeMap<u32, Vec<AbortHandle>>,
    pub(super) shared: Arc<Shared>,
    pub(super) events: Events,
}

impl Tasks {
    pub(super) fn new(events: Events) -> Self {
        let shared = Arc::new(Shared::default());
        *locked(&shared.sent) = vec![0; MOST_CONNECTIONS as usize];
        let (accepting, accepted) = mpsc::channel(1);
        let (sending, reading) = (JoinSet::new(), JoinSet::new());
        Self { sending, reading, accepting, accepted, handles: BTreeMap::new(), shared, events }
    }

    /// Returns a value that a connection keeps until the peer has accepted it.
    pub(super) fn accepting(&self) -> mpsc::Sender<()> {
        self.accepting.clone()
    }

    /// Starts to send on a connection, and returns the half from which its replies are read.
    pub(super) fn send<S: AsyncRead + AsyncWrite + Send + 'static>(
        &mut self,
        driver: &mut Driver<'_>,
        number: u32,
        (stream, readiness): (S, Readiness),
        requests: Option<mpsc::UnboundedReceiver<Request>>,
    ) -> Result<ReadHalf<S>, Error> {
        let (reader, writer) = tokio::io::split(stream);
        let readiness = Arc::new(readiness);
        let wait = driver.opened_connection(number, &readiness)?;
        let start = Instant::now() + Duration::from_nanos(wait.as_nanos());
        let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
        let sender = Sender { number, readiness, start, shared, events };
        let sending = self.sending.spawn(sender.run(writer, requests));
        self.handles.insert(number, vec![sending]);
        Ok(reader)
    }

    /// Starts to read the replies of a connection.
    pub(super) fn receive(&mut self, number: u32, reader: impl AsyncRead + Unpin + Send + 'static) {
        self.spawn_for(number, receive(number, reader, self.events.clone()));
    }

    /// Starts a task that ends when its connection is closed.
    pub(super) fn spawn_for(&mut self, number: u32, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.reading.spawn(task);
        self.handles.entry(number).or_default().push(handle);
    }

    /// Closes a connection. Returns its tasks, which end at their next wait.
    pub(super) fn close(&mut self, number: u32) -> Vec<AbortHandle> {
        let handles = self.handles.remove(&number).unwrap_or_default();
        handles.iter().for_each(AbortHandle::abort);
        handles
    }

    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.reading.spawn(task);
    }

    /// Waits for the end of the connections. The wait is limited to [`FAREWELL`], because every file has been placed,
    /// and a connection may hang. A connection that the peer has not accepted yet is never closed, because the peer would
    /// regard this as an error.
    pub(super) async fn end(self, farewell: Farewell) {
        let Self { mut sending, mut reading, accepting, mut accepted, .. } = self;
        drop(accepting);
        let ending = async {
            while sending.join_next().await.is_some() {}
            while accepted.recv().await.is_some() {}
            while farewell == Farewell::Read && reading.join_next().await.is_some() {}
        };
        let _ = timeout(FAREWELL, ending).await;
    }
}

/// Waits until tasks that were aborted have ended.
pub(super) async fn ended(tasks: Vec<AbortHandle>) {
    while !tasks.iter().all(AbortHandle::is_finished) {
        tokio::time::sleep(CHECKS).await;
    }
}

/// Finds the files of a copy until the receiver of `found` is dropped, and adds up their sizes.
pub(super) fn find(walk: Walk, found: mpsc::Sender<<Walk as Iterator>::Item>, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    spawn_blocking(move || {
        for source in walk {
            if let Ok(Found::File(file)) = &source {
                shared.found.fetch_add(file.source.size, Ordering::Relaxed);
            }
            if found.blocking_send(source).is_err() {
                break;
            }
        }
    });
}
