//! Applications of the flows on fullpipe's TCP stack, for all flows at one end of the emulated path.
//!
//! These applications behave like the applications on kernel sockets, but use a [`Stack`]. The same workloads
//! determine what the applications write and read. Only the sending applications answer requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use fullpipe_lab::scenario::{FlowSpec, Scenario};
use fullpipe_lab::sim::connection;
use fullpipe_lab::trace::{ReceiverInfo, SenderTruth, TcpInfo};
use fullpipe_lab::workload::{Reader, Writer};
use fullpipe_tcp::stack::siphash::Key;
use fullpipe_tcp::stack::{ConnId, Cut, IsnClock, Stack, StackConfig};
use fullpipe_tcp::{Bursts, Config, Connection, Event, Tunables};
use fullpipe_units::{Bytes, Instant, draw};

use super::{Flow, Half, LISTEN_PORT, Opener, Servers, WRITE, ZEROS};
use crate::error::Error;
use crate::stack_loop::{Application, locked};
use crate::wan::{RECEIVER, SENDER};

/// Number of the random stream for the stack's secret key, so that runs with the same seed have the same
/// initial sequence numbers.
const KEY_STREAM: u64 = 0x6b65_7900;

/// One end of a flow on fullpipe's TCP stack.
#[derive(Debug)]
pub(crate) struct Ours {
    stack: Arc<Mutex<Stack>>,
    config: Config,
    /// Number of the connection in the stack, set when the connection is opened or accepted.
    id: OnceLock<ConnId>,
}

/// Creates the TCP stack for all flows of `scenario` at one end: that of the sender (0) or of the receiver
/// (1).
pub(crate) fn stack(scenario: &Scenario, side: usize, cut: Cut) -> Stack {
    let secret = [0, 1].map(|half| draw(scenario.seed, KEY_STREAM + side as u64, half));
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&secret[0].to_le_bytes());
    octets[8..].copy_from_slice(&secret[1].to_le_bytes());
    let mut stack = Stack::new(StackConfig {
        key: Key::new(octets),
        isn_clock: IsnClock::Linux,
        max_connections: 2 * scenario.flows.len(),
        cut,
    });
    stack.add_address([SENDER, RECEIVER][side].into());
    stack
}

/// Returns the settings of one end of the flow `number`. On a busy machine, the thread of the stack wakes up late, so
/// the sender makes up for missed transmissions. A simulated sender is never late, so it needs no such rule.
fn config(scenario: &Scenario, number: usize, side: u64) -> Config {
    let config = connection(scenario, &scenario.flows[number], number, side);
    Config { tunables: Tunables { bursts: Bursts::REAL_TIME, ..config.tunables }, ..config }
}

impl Ours {
    pub(super) fn new(stack: &Arc<Mutex<Stack>>, scenario: &Scenario, number: usize, side: u64) -> Self {
        let config = config(scenario, number, side);
        Self { stack: stack.clone(), config, id: OnceLock::new() }
    }

    /// Applies `look` to the connection of this flow, or to an unopened connection if the flow has no
    /// connection yet.
    fn see<T>(&self, look: impl Fn(&Connection) -> T) -> T {
        let stack = locked(&self.stack);
        match self.id.get().and_then(|&id| stack.connection(id)) {
            Some(connection) => look(connection),
            None => look(&Connection::client(self.config.clone())),
        }
    }

    pub(super) fn sender(&self, now: Instant, spec: &FlowSpec) -> (TcpInfo, SenderTruth) {
        self.see(|connection| {
            let info = TcpInfo::of(&connection.snapshot(), spec.cc.of_fullpipe(), spec.max_pacing_rate);
            (info, SenderTruth::of(connection, now))
        })
    }

    pub(super) fn receiver(&self) -> Option<ReceiverInfo> {
        self.id.get().map(|_| self.see(|connection| connection.receiver_snapshot().into()))
    }

    pub(super) fn unacknowledged(&self) -> u64 {
        self.see(|connection| connection.snapshot().queued)
    }

    pub(super) fn repeats(&self) -> (u64, u64) {
        self.see(|connection| (connection.stats().retransmits, connection.stats().duplicates))
    }
}

fn listen(stack: &mut Stack, local: SocketAddr, config: Config, backlog: usize) -> Result<(), Error> {
    stack
        .listen(local, config, backlog)
        .map_err(|error| Error::system("listen", std::io::Error::other(error)))
}

/// Accepts all connections that wait at `local`, and determines their flows from the ports of the peers. `end` selects
/// the accepting end of a flow.
fn accept(
    stack: &mut Stack,
    local: SocketAddr,
    flows: &[Flow],
    end: fn(&Flow) -> &Half,
    numbers: &mut BTreeMap<ConnId, usize>,
) {
    while let Some(id) = stack.accept(local) {
        let port = stack.tuple(id).map_or(0, |tuple| tuple.remote.port());
        let number = Flow::of_port(flows, port);
        if let Some(ours) = flows.get(number).and_then(|flow| end(flow).ours()) {
            let _ = ours.id.set(id);
            numbers.insert(id, number);
        }
    }
}

/// The sending applications of all flows on fullpipe's TCP stack.
pub(crate) struct Senders<'a> {
    flows: &'a [Flow],
    specs: &'a [FlowSpec],
    writers: Vec<Writer>,
    /// For each flow, the number of bytes of its request that have not arrived yet; zero without a request.
    requests: Vec<u64>,
    /// Addresses at which the flows with a request are accepted.
    servers: Vec<SocketAddr>,
    numbers: BTreeMap<ConnId, usize>,
    /// Time at which the sending applications stop writing.
    end: Instant,
    /// First error that occurred; `None` if there was no error.
    pub(crate) failed: Option<Error>,
}

impl<'a> Senders<'a> {
    /// Starts to listen on `stack` for the flows with a request, because the first SYN may arrive before the loop
    /// runs.
    pub(crate) fn new(flows: &'a [Flow], scenario: &'a Scenario, stack: &mut Stack) -> Result<Self, Error> {
        let specs = &scenario.flows;
        let mut servers = Vec::new();
        for ((number, spec), port) in specs.iter().enumerate().zip(Servers::ports(specs)) {
            if Opener::of(spec) == Opener::Receiver {
                let local = SocketAddr::from((SENDER, port));
                listen(stack, local, config(scenario, number, 0), 1)?;
                servers.push(local);
            }
        }
        Ok(Self {
            flows,
            specs,
            writers: specs.iter().map(|spec| Writer::new(spec.workload.writing, spec.bytes)).collect(),
            requests: specs.iter().map(|spec| spec.workload.request.map_or(0, Bytes::get)).collect(),
            servers,
            numbers: BTreeMap::new(),
            end: Instant::ZERO + scenario.duration,
            failed: None,
        })
    }

    /// Reads the part of a request that has arrived, and answers the request once it is complete.
    fn hear_request(&mut self, now: Instant, stack: &mut Stack, number: usize, id: ConnId) {
        let left = &mut self.requests[number];
        if *left > 0 {
            *left -= stack.discard(now, id, *left);
            self.write(now, stack, number);
        }
    }

    fn write(&mut self, now: Instant, stack: &mut Stack, number: usize) {
        let Some(&id) = self.flows[number].sender.ours().and_then(|ours| ours.id.get()) else { return };
        if self.requests[number] > 0 {
            return;
        }
        let writer = &mut self.writers[number];
        loop {
            let mut offered = writer.offers(now);
            self.flows[number].offers(writer);
            let mut short = offered == 0;
            while offered > 0 {
                let block = offered.min(WRITE as u64) as usize;
                let taken = stack.write(id, &ZEROS[..block]);
                writer.wrote(block as u64, taken as u64);
                short = taken < block;
                offered = if short { 0 } else { offered - block as u64 };
            }
            if short || !writer.has_more() {
                break;
            }
        }
        if writer.is_done() {
            stack.shutdown(id);
        }
    }

    fn connect(&mut self, now: Instant, stack: &mut Stack, number: usize) {
        let Some(ours) = self.flows[number].sender.ours() else { return };
        let local = SocketAddr::from((SENDER, self.flows[number].port));
        match stack.connect(now, local, SocketAddr::from((RECEIVER, LISTEN_PORT)), ours.config.clone()) {
            Ok(id) => {
                let _ = ours.id.set(id);
                self.numbers.insert(id, number);
            }
            Err(error) => {
                let problem = Error::system("connect", std::io::Error::other(error));
                self.failed.get_or_insert(problem);
            }
        }
    }
}

impl Application for Senders<'_> {
    fn attend(&mut self, now: Instant, stack: &mut Stack) -> Instant {
        let begun = |flow: &Flow| flow.sender.ours().is_some_and(|ours| ours.id.get().is_some());
        let mut wakes = Instant::FAR_FUTURE;
        for number in 0..self.specs.len() {
            let start = Instant::ZERO + self.specs[number].start;
            match begun(&self.flows[number]) || Opener::of(&self.specs[number]) == Opener::Receiver {
                false if start <= now && self.failed.is_none() => self.connect(now, stack, number),
                false => wakes = wakes.min(start),
                true => {}
            }
        }
        for &server in &self.servers {
            accept(stack, server, self.flows, |flow| &flow.sender, &mut self.numbers);
        }
        while let Some((id, event)) = stack.poll_event() {
            let Some(&number) = self.numbers.get(&id) else { continue };
            match event {
                Event::Readable if now < self.end => self.hear_request(now, stack, number, id),
                Event::Connected | Event::Writable if now < self.end => self.write(now, stack, number),
                // The receiver has closed the connection, so the receiver has all data and its last ACK has
                // arrived.
                Event::PeerClosed => {
                    let _ = self.flows[number].finished.set(now);
                }
                Event::Aborted => {
                    let gone = std::io::Error::from(std::io::ErrorKind::ConnectionAborted);
                    self.failed.get_or_insert(Error::system(format_args!("carry flow {number}"), gone));
                }
                _ => {}
            }
        }
        for number in 0..self.writers.len() {
            if self.writers[number].wakes_at() <= now && now < self.end {
                self.write(now, stack, number);
            }
        }
        let writes = self.writers.iter().filter(|writer| !writer.is_done()).map(Writer::wakes_at).min();
        if now < self.end { wakes.min(writes.unwrap_or(Instant::FAR_FUTURE)) } else { Instant::FAR_FUTURE }
    }
}

/// The receiving applications of all flows on fullpipe's TCP stack.
pub(crate) struct Receivers<'a> {
    flows: &'a [Flow],
    readers: Vec<Reader>,
    /// For each flow, the number of bytes that its application has read.
    read: Vec<u64>,
    numbers: BTreeMap<ConnId, usize>,
    ended: Vec<bool>,
    local: SocketAddr,
}

impl<'a> Receivers<'a> {
    /// Starts to listen on `stack` immediately, because the first SYN may arrive before the loop runs.
    pub(crate) fn new(flows: &'a [Flow], scenario: &Scenario, stack: &mut Stack) -> Result<Self, Error> {
        let local = SocketAddr::from((RECEIVER, LISTEN_PORT));
        listen(stack, local, config(scenario, 0, 1), scenario.flows.len())?;
        let reader = |spec: &FlowSpec| Reader::new(spec.workload.reading, Instant::ZERO + spec.start);
        Ok(Self {
            flows,
            readers: scenario.flows.iter().map(reader).collect(),
            read: vec![0; scenario.flows.len()],
            numbers: BTreeMap::new(),
            ended: vec![false; scenario.flows.len()],
            local,
        })
    }

    fn read(&mut self, now: Instant, stack: &mut Stack, id: ConnId, number: usize) {
        let reader = &mut self.readers[number];
        loop {
            let taken = stack.discard(now, id, reader.takes(now));
            if taken == 0 {
                break;
            }
            reader.took(now, taken);
            self.read[number] += taken;
            self.flows[number].on_read(self.read[number], now);
        }
        let unread = stack.connection(id).map_or(0, Connection::readable);
        if self.ended[number] && unread == 0 {
            // By closing the connection, the receiver tells the sender that all data was read.
            stack.shutdown(id);
        }
    }
}

impl Application for Receivers<'_> {
    fn attend(&mut self, now: Instant, stack: &mut Stack) -> Instant {
        accept(stack, self.local, self.flows, |flow| &flow.receiver, &mut self.numbers);
        while let Some((id, event)) = stack.poll_event() {
            let Some(&number) = self.numbers.get(&id) else { continue };
            self.ended[number] |= event == Event::PeerClosed;
            if matches!(event, Event::Readable | Event::PeerClosed) {
                self.read(now, stack, id, number);
            }
        }
        let due: Vec<(ConnId, usize)> = self.numbers.iter().map(|(&id, &number)| (id, number)).collect();
        for (id, number) in due {
            if self.readers[number].wakes_at() <= now {
                self.read(now, stack, id, number);
            }
        }
        self.readers.iter().map(Reader::wakes_at).min().unwrap_or(Instant::FAR_FUTURE)
    }
}
