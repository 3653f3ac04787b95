//! Tasks of one attempt at a copy: two for each connection, whether the client or the relay has opened it.

use std::collections::BTreeMap;
use std::sync::Arc;
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
use crate::sources::Walk;
use crate::wire::Readiness;

/// Time between two checks of whether tasks have ended.
const CHECKS: Duration = Duration::from_millis(1);

/// Tasks of the connections, and the state that they share. The tasks end when this value is dropped.
pub(super) struct Tasks {
    running: JoinSet<()>,
    /// Tasks of each connection.
    handles: BTreeMap<u32, Vec<AbortHandle>>,
    pub(super) shared: Arc<Shared>,
    pub(super) events: Events,
}

impl Tasks {
    pub(super) fn new(events: Events) -> Self {
        let shared = Arc::new(Shared::default());
        *locked(&shared.sent) = vec![0; MOST_CONNECTIONS as usize];
        Self { running: JoinSet::new(), handles: BTreeMap::new(), shared, events }
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
        let sending = self.running.spawn(sender.run(writer, requests));
        self.handles.insert(number, vec![sending]);
        Ok(reader)
    }

    /// Starts to read the replies of a connection.
    pub(super) fn receive(&mut self, number: u32, reader: impl AsyncRead + Unpin + Send + 'static) {
        self.spawn_for(number, receive(number, reader, self.events.clone()));
    }

    /// Starts a task that ends when its connection is closed.
    pub(super) fn spawn_for(&mut self, number: u32, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.running.spawn(task);
        self.handles.entry(number).or_default().push(handle);
    }

    /// Closes a connection. Returns its tasks, which end at their next wait.
    pub(super) fn close(&mut self, number: u32) -> Vec<AbortHandle> {
        let handles = self.handles.remove(&number).unwrap_or_default();
        handles.iter().for_each(AbortHandle::abort);
        handles
    }

    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(task);
    }

    /// Waits until the peer has read the last message of each connection. The wait is limited to
    /// [`FAREWELL`], because every file has been placed, and a connection may hang.
    pub(super) async fn end(&mut self) {
        let ending = async { while self.running.join_next().await.is_some() {} };
        let _ = timeout(FAREWELL, ending).await;
    }
}

/// Waits until tasks that were aborted have ended.
pub(super) async fn ended(tasks: Vec<AbortHandle>) {
    while !tasks.iter().all(AbortHandle::is_finished) {
        tokio::time::sleep(CHECKS).await;
    }
}

/// Finds the files of a copy until the receiver of `found` is dropped.
pub(super) fn find(walk: Walk, found: mpsc::Sender<<Walk as Iterator>::Item>) {
    spawn_blocking(move || {
        for source in walk {
            if found.blocking_send(source).is_err() {
                break;
            }
        }
    });
}
