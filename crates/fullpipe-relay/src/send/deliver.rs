//! A relay that sends: the driver of a copy on connections that the client opens.

use std::sync::Arc;

use fullpipe_units::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connection::Event;
use super::driver::Driver;
use super::links::{Connections, Links};
use super::tasks::{Tasks, find};
use super::{AHEAD, EVENTS};
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
    let (events, mut reported) = mpsc::unbounded_channel();
    let (requests, outgoing) = mpsc::unbounded_channel();
    let mut tasks = Tasks::new(events.clone());
    let begin = |tasks: &mut Tasks, driver: &mut Driver<'_>, joined: Joined<S>, requests| {
        let Joined { number, stream, readiness } = joined;
        let reader = tasks.send(driver, number, (stream, readiness), requests)?;
        tasks.receive(number, reader);
        Ok::<(), Error>(())
    };
    let started = Instant::now();
    // The client chooses the number of connections.
    let links = Links::new(Connections::new(MOST_CONNECTIONS, MOST_CONNECTIONS)?, None);
    let context = (started, links, None);
    let mut driver = Driver::new(peer, Arc::clone(&tasks.shared), requests, events, context, verify, &());
    begin(&mut tasks, &mut driver, Joined { number: 0, stream, readiness }, Some(outgoing))?;
    let (found, mut sources) = mpsc::channel(AHEAD);
    let ended: Result<(), Error> = async {
        find(walk?, found);
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
    tasks.end().await;
    let report = driver.report(&super::Carried::default());
    ended.map(|()| (report.files - report.same_files, Bytes::new(report.sent_bytes)))
}
