//! A relay that sends: the driver of a copy on connections that the client opens.

use std::sync::Arc;
use std::time::Duration;

use fullpipe_units::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout};

use super::connection::{Event, Sender, Shared, receive};
use super::driver::Driver;
use super::links::{Connections, Links};
use super::{AHEAD, EVENTS, FAREWELL};
use crate::error::Error;
use crate::frame::MOST_CONNECTIONS;
use crate::sources::Walk;
use crate::wire::Readiness;

/// A connection that joins a transfer.
#[derive(Debug)]
pub(crate) struct Joined<S> {
    pub(crate) number: u32,
    pub(crate) stream: S,
    pub(crate) readiness: Readiness,
}

/// Sends the files of `walk` on connection 0, whose client has been welcomed, and on those that join. Returns
/// their number and the payload.
pub(crate) async fn deliver<S: AsyncRead + AsyncWrite + Send + 'static>(
    walk: Result<Walk, Error>,
    verify: bool,
    peer: String,
    (stream, readiness): (S, Readiness),
    mut joins: mpsc::UnboundedReceiver<Joined<S>>,
) -> Result<(u64, Bytes), Error> {
    let shared = Arc::new(Shared::default());
    *crate::locked(&shared.sent) = vec![0; MOST_CONNECTIONS as usize];
    let (events, mut reported) = mpsc::unbounded_channel();
    let (requests, outgoing) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    let begin = |tasks: &mut JoinSet<()>, driver: &mut Driver<'_>, joined: Joined<S>, requests| {
        let Joined { number, stream, readiness } = joined;
        let (reader, writer) = tokio::io::split(stream);
        let readiness = Arc::new(readiness);
        let wait = driver.opened_connection(number, &readiness)?;
        let start = Instant::now() + Duration::from_nanos(wait.as_nanos());
        let shared = Arc::clone(&shared);
        let sender = Sender { number, readiness, start, shared, events: events.clone() };
        tasks.spawn(sender.run(writer, requests));
        tasks.spawn(receive(number, reader, events.clone()));
        Ok::<(), Error>(())
    };
    let started = Instant::now();
    // The client chooses the number of connections.
    let links = Links::new(Connections::new(MOST_CONNECTIONS, MOST_CONNECTIONS)?);
    let context = (started, links, None);
    let mut driver = Driver::new(peer, Arc::clone(&shared), requests, events.clone(), context, verify, &());
    begin(&mut tasks, &mut driver, Joined { number: 0, stream, readiness }, Some(outgoing))?;
    let (found, mut sources) = mpsc::channel(AHEAD);
    let ended: Result<(), Error> = async {
        let walk = walk?;
        spawn_blocking(move || {
            for source in walk {
                if found.blocking_send(source).is_err() {
                    break;
                }
            }
        });
        driver.handle([Event::Accepted(Ok(()))])?;
        let mut batch = Vec::new();
        while !driver.is_complete() {
            tokio::select! {
                // The driver holds a sender, so the channel cannot end.
                _ = reported.recv_many(&mut batch, EVENTS) => driver.handle(batch.drain(..))?,
                found = sources.recv(), if driver.has_room() => driver.found(found)?,
                Some(joined) = joins.recv() => begin(&mut tasks, &mut driver, joined, None)?,
            }
        }
        Ok(())
    }
    .await;
    match &ended {
        Ok(()) => driver.end(),
        Err(error) => driver.fail(error),
    }
    let ending = async { while tasks.join_next().await.is_some() {} };
    let _ = timeout(FAREWELL, ending).await;
    let report = driver.report(&super::Carried::default());
    ended.map(|()| (report.files - report.same_files, Bytes::new(report.sent_bytes)))
}
