//! Sends files from a relay: drives a copy on connections that the client opens.

use std::sync::{Arc, Mutex};

use fullpipe_units::{Bytes, Rate};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::connection::{Accepted, Event, SharedSampler, sample};
use super::driver::Driver;
use super::links::{Connections, Links};
use super::pacing::{Kernel, Pacing, RateLimit};
use super::tasks::{Farewell, Tasks, find};
use super::{AHEAD, EVENTS};
use crate::engine::Buffers;
use crate::error::Error;
use crate::frame::{ChooseConnections, MOST_CONNECTIONS};
use crate::socket::{Direction, SocketOptions, fixed_buffer};
use crate::sources::Walk;
use crate::wire::Readiness;

/// A connection that joins a transfer.
#[derive(Debug)]
pub(crate) struct Joined<S> {
    pub(crate) number: u32,
    pub(crate) stream: S,
    pub(crate) readiness: Readiness,
}

/// How files are sent.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// Whether the receiver reads written files back from the disk.
    pub(crate) verify: bool,
    /// Range from which the number of connections is chosen; absent if the client opens the connections that
    /// it wants.
    pub(crate) choose: Option<ChooseConnections>,
    /// Rate of the slowest link of the path in bit/s, if it is known.
    pub(crate) link_bps: Option<u64>,
    /// Highest rate of the payload in bit/s.
    pub(crate) limit_bps: Option<u64>,
    /// Maximum memory of the sockets in bytes.
    pub(crate) memory_bytes: Option<u64>,
    /// Largest receive buffer of the client's sockets in bytes, if it is known.
    pub(crate) rcvbuf_bytes: Option<u64>,
    pub(crate) kernel: Option<Arc<dyn Kernel>>,
}

impl Delivery {
    /// Returns the sampler and the connections. Without a sampler, the number of connections is fixed, and their limits
    /// are not reported.
    fn links(&self) -> Result<(Option<SharedSampler>, Links), Error> {
        let link = self.link_bps.map(Rate::from_bps);
        let memory = self.memory_bytes.map(Bytes::new);
        let sampler = self.kernel.as_ref().and_then(|kernel| kernel.sampler(link));
        let links = match self.choose {
            Some(ChooseConnections { least, most }) => {
                let mut links = Links::new(Connections::new(least, most)?, link, memory);
                // Connection 0, on which the client has sent its request, is already open.
                links.next_to_open();
                links
            }
            None => Links::new(Connections::new(MOST_CONNECTIONS, MOST_CONNECTIONS)?, None, memory),
        };
        Ok((sampler.map(|sampler| Arc::new(Mutex::new(sampler))), links))
    }

    /// Returns the options of the sockets.
    pub(crate) fn sockets(&self) -> SocketOptions {
        let most = self.choose.map_or(MOST_CONNECTIONS, |choose| choose.most);
        let memory = self.memory_bytes.map(Bytes::new);
        let sndbuf = memory.and_then(|memory| fixed_buffer(memory, most, Direction::Sends));
        SocketOptions { sndbuf, ..SocketOptions::default() }
    }

    fn pacing(&self) -> Result<Option<Pacing>, Error> {
        let limit = self.limit_bps.map(Rate::from_bps);
        let Some(pacer) = self.kernel.as_ref().map(|kernel| kernel.pacer()) else {
            return match limit {
                None => Ok(None),
                Some(_) => Err(Error::usage("the relay does not support rate limits", "remove --limit")),
            };
        };
        Ok(Some(Pacing::new(&pacer, limit.map(RateLimit::new).transpose()?)))
    }
}

/// Sends the files of `walk` on connection 0, whose client has received `welcome`, and on connections that
/// join later. Returns the number of files and their payload.
pub(crate) async fn deliver<S: AsyncRead + AsyncWrite + Send + 'static>(
    walk: Result<Walk, Error>,
    delivery: Delivery,
    peer: String,
    (stream, readiness): (S, Readiness),
    mut joins: mpsc::UnboundedReceiver<Joined<S>>,
) -> Result<(u64, Bytes), Error> {
    let (events, mut reported) = mpsc::unbounded_channel();
    let (requests, outgoing) = mpsc::unbounded_channel();
    let mut tasks = Tasks::new(events.clone());
    let started = Instant::now();
    let prepared = delivery.links().and_then(|links| Ok((links, delivery.pacing()?)));
    let (((sampler, links), pacing), refused) = match prepared {
        Ok(prepared) => (prepared, None),
        // The reason is sent to the client below.
        Err(error) => (((None, Links::new(Connections::AUTO, None, None)), None), Some(error)),
    };
    // When the transfer ends, this set is dropped, and its task ends.
    let mut sampling = JoinSet::new();
    if let Some(sampler) = sampler {
        sampling.spawn(sample(sampler, events.clone()));
    }
    let (shared, context) = (Arc::clone(&tasks.shared), (started, links, pacing));
    let driver = Driver::new(peer, shared, requests, events, context, delivery.verify, &());
    // Other transfers share the memory of this process, so it does not count towards the budget.
    let mut driver = driver.with_memory(false, None);
    let sockets = delivery.sockets();
    let begin = |tasks: &mut Tasks, driver: &mut Driver<'_>, joined: Joined<S>, requests| {
        let Joined { number, stream, readiness } = joined;
        // If the option cannot be set, the memory samples still enforce the budget.
        let _ = sockets.apply(&readiness.socket());
        let reader = tasks.send(driver, number, (stream, readiness), requests)?;
        tasks.receive(number, reader);
        Ok::<(), Error>(())
    };
    if let Some(Ok(rtt)) = delivery.kernel.as_ref().map(|kernel| kernel.pacer().rtt(readiness.socket())) {
        let receive = delivery.rcvbuf_bytes.map(Bytes::new);
        driver.forecast(rtt, Buffers { send: sockets.send_buffer(), receive }, None);
    }
    begin(&mut tasks, &mut driver, Joined { number: 0, stream, readiness }, Some(outgoing))?;
    let (found, mut sources) = mpsc::channel(AHEAD);
    let ended: Result<(), Error> = async {
        if let Some(error) = refused {
            return Err(error);
        }
        find(walk?, found, &tasks.shared);
        driver.handle([Event::Accepted(Ok(Accepted::default()))])?;
        let mut batch = Vec::new();
        while !driver.is_complete() {
            driver.take_closing().into_iter().for_each(|number| drop(tasks.close(number)));
            driver.ask_for_connections();
            tokio::select! {
                // The driver holds a sender of this channel, so the channel cannot close.
                _ = reported.recv_many(&mut batch, EVENTS) => driver.handle(batch.drain(..))?,
                found = sources.recv(), if driver.has_room() => driver.found(found)?,
                Some(joined) = joins.recv() => begin(&mut tasks, &mut driver, joined, None)?,
            }
        }
        Ok(())
    }
    .await;
    match &ended {
        Ok(()) => {
            driver.tell_limit();
            driver.end();
        }
        Err(error) => driver.fail(error),
    }
    tasks.end(Farewell::Read).await;
    let report = driver.report(&super::Carried::default());
    ended.map(|()| (report.files - report.same_files, Bytes::new(report.sent_bytes)))
}
