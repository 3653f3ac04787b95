//! Tasks of one attempt at a copy: two for each connection, whether the client or the relay has opened it.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadHalf};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout};

use super::FAREWELL;
use super::connection::{Events, Sender, Shared, receive};
use super::driver::Driver;
use crate::error::Error;
use crate::frame::{MOST_CONNECTIONS, Request};
use crate::locked;
use crate::sources::Walk;
use crate::wire::Readiness;

/// Tasks of the connections, and the state that they share. The tasks end when this value is dropped.
pub(super) struct Tasks {
    running: JoinSet<()>,
    pub(super) shared: Arc<Shared>,
    pub(super) events: Events,
}

impl Tasks {
    pub(super) fn new(events: Events) -> Self {
        let shared = Arc::new(Shared::default());
        *locked(&shared.sent) = vec![0; MOST_CONNECTIONS as usize];
        Self { running: JoinSet::new(), shared, events }
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
        self.running.spawn(sender.run(writer, requests));
        Ok(reader)
    }

    /// Starts to read the replies of a connection.
    pub(super) fn receive(&mut self, number: u32, reader: impl AsyncRead + Unpin + Send + 'static) {
        self.spawn(receive(number, reader, self.events.clone()));
    }

    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(task);
    }

    /// Waits until the peer has read the last message of each connection. It does not wait for a connection
    /// that hangs, because every file has been placed.
    pub(super) async fn end(&mut self) {
        let ending = async { while self.running.join_next().await.is_some() {} };
        let _ = timeout(FAREWELL, ending).await;
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
