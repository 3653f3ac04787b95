//! The worker relays the connections of one port between fullpipe's TCP and the server. It runs in an
//! unprivileged process, which the keeper starts.
//!
//! ```text
//!   client ⇄ TUN ⇄ Stack ⇄ Half up, Half down ⇄ kernel socket ⇄ server
//!                    ▲
//!   admission ◄── health ◄── connections and probes
//! ```
//!
//! The worker never waits for one connection: every socket is non-blocking, and one epoll watches all of
//! them. Standard input is the socket to the keeper, and standard output is the TUN device.

mod report;
mod settings;
mod start;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Read;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use fullpipe_linux::stack_loop::{Service, Sockets};
use fullpipe_linux::{Error, Stop, WaitCondition};
use fullpipe_tcp::Event;
use fullpipe_tcp::stack::{Admission, ConnId, RESERVED_SHARE, Stack};
use fullpipe_tcp::wire::Headers;
use fullpipe_units::{Duration, Instant, Rate};
use socket2::Socket;

use crate::config::ClientAddress;
use crate::handover::Order;
use crate::health::{Attempt, Health};
use crate::memory::Pressure;
use crate::probes;
use crate::proxy;
use crate::relay::{End, Half, Input, Output, Progress};
use crate::upstream::{self, Server, Sources, is_temporary};

pub use report::{Beat, PathReport};
pub(crate) use settings::{PathLimits, WorkerSettings};
pub use start::{RunService, relay, relay_run, work};

/// Interval between two reports to the keeper. If reports are missing, the keeper treats the worker as
/// silent.
pub(crate) const BEAT: Duration = Duration::from_millis(100);
/// Maximum number of bytes that one connection moves in each direction per round of the loop.
const BURST: usize = 256 << 10;
/// Size of one read, about the size of a super-packet.
const READ: usize = 64 << 10;
/// Size of one read while only the reserved part of the memory is left, and the maximum memory of a connection that may
/// then read.
const SMALL_READ: usize = 4 << 10;
const SMALL: u64 = 16 << 10;
/// Maximum time for delivering the bytes that the server sent before a reset.
const LAST_BYTES: Duration = Duration::from_secs(5);
/// Interval between two attempts to connect to a Unix socket whose accept queue is full, and the time after which the
/// client is reset.
const RETRY: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Time for sending the resets of all connections before the worker ends.
const FAREWELL: Duration = Duration::from_millis(100);
/// Time within which the table disappears after the keeper has died. The answers to probes then reach the
/// kernel.
const TABLE_GONE: Duration = Duration::from_millis(300);

const CONTROL: u64 = 0;
const PROBE: u64 = 1;
const FIRST_CONNECTION: u64 = 2;

/// A client's connection, and the connection to the server that belongs to it.
#[derive(Debug)]
struct Relayed {
    id: ConnId,
    /// Time at which the connection to the server was begun.
    begun: Instant,
    server: Server,
    up: Half,
    down: Half,
    watched: Watched,
    /// Whether the client has ended its direction.
    client_ended: bool,
    /// Time by which the client's connection is reset, if the server has reset the connection to it.
    reset_by: Option<Instant>,
    /// Whether the memory budget keeps the connection from reading from its server.
    held_back: bool,
    /// Number of bytes moved in both directions up to the last report.
    reported: u64,
    /// Whether the connection is in the list of connections that can continue.
    queued: bool,
}

/// Conditions that epoll reports about the socket to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Nothing,
    Data,
    DataAndRoom,
}

/// The client's end of a connection.
struct Client<'a> {
    stack: &'a mut Stack,
    id: ConnId,
    now: Instant,
    ended: bool,
}

impl Relayed {
    /// Makes epoll watch the socket to the server for at least the condition `wanted`.
    fn watch(&mut self, sockets: &Sockets<'_>, number: u64, wanted: Watched) -> Result<(), Error> {
        let fd = self.server.as_fd();
        match (self.watched, wanted) {
            (Watched::DataAndRoom, _) | (_, Watched::Nothing) | (Watched::Data, Watched::Data) => {
                return Ok(());
            }
            (Watched::Nothing, Watched::Data) => sockets.watch(fd, number)?,
            (before, Watched::DataAndRoom) => sockets.watch_room(fd, number, before == Watched::Data)?,
        }
        self.watched = wanted;
        Ok(())
    }
}

/// Returns the part of a budget of `memory` bytes that the stack may use while `pending` bytes are buffered
/// outside the stack. The size of one read is subtracted as well: the next read may increase `pending` before the
/// limit of the stack is updated.
fn for_payload(memory: u64, pending: u64) -> u64 {
    memory.saturating_sub(pending + READ as u64)
}

impl End for Client<'_> {
    fn read(&mut self, room: &mut [u8]) -> Input {
        match self.stack.peek(self.id, room) {
            0 if self.ended => Input::End,
            0 if self.stack.connection(self.id).is_none() => Input::Reset,
            0 => Input::Wait,
            len => Input::Bytes(len),
        }
    }

    fn accepted(&mut self, len: usize) -> bool {
        self.stack.discard(self.now, self.id, len as u64);
        true
    }

    fn write(&mut self, bytes: &[u8]) -> Output {
        if self.stack.connection(self.id).is_none() {
            return Output::Reset;
        }
        Output::Accepted(self.stack.write(self.id, bytes))
    }

    fn shutdown(&mut self) {
        self.stack.shutdown(self.id);
    }
}

/// A connection attempt that checks whether the server accepts connections.
struct Probe {
    server: Server,
}

struct Worker {
    settings: WorkerSettings,
    /// Maximum rate of all connections together; `None` without a limit.
    limit: Option<Rate>,
    control: UnixStream,
    stop: Stop,
    relayed: BTreeMap<u64, Relayed>,
    numbers: BTreeMap<ConnId, u64>,
    next_number: u64,
    /// Connections that can continue without another event; the list has no duplicates.
    again: Vec<u64>,
    /// Connections that are being served in this round. The memory of both lists is reused, so a round
    /// allocates nothing.
    serving: Vec<u64>,
    /// Connections whose server has sent a reset.
    resetting: BTreeSet<u64>,
    /// Connections that wait for room in the accept queue of the server, and the time of the next attempt.
    waiting: VecDeque<u64>,
    next_attempt: Instant,
    sources: Sources,
    health: Health,
    probe: Option<Probe>,
    pressure: Pressure,
    /// Memory of the bytes that were read from servers and do not fit into the buffers of the stack.
    pending: u64,
    /// Raw socket for probes to the clients if the keeper dies, and for ICMP messages about the kernel's
    /// connections.
    raw: Option<Socket>,
    /// Probes to send before the worker ends, in groups for one report interval.
    last_probes: VecDeque<Vec<(IpAddr, Vec<u8>)>>,
    beat: Beat,
    /// Bytes of ended connections: those from the clients, and those from the server.
    carried: [u64; 2],
    /// Buffers for the memory use of the connections, and for the text of a report. Their memory is reused.
    held: Vec<u64>,
    line: Vec<u8>,
    beats: u64,
    /// Longest delay of the loop since the last report.
    delay: Duration,
    next_beat: Instant,
    /// Time at which the worker ends, because the keeper has ordered the end or has ended.
    ends_at: Option<Instant>,
    started: bool,
    scratch: Vec<u8>,
}

impl Worker {
    fn new(settings: WorkerSettings, control: UnixStream, raw: Option<Socket>, stop: Stop) -> Self {
        Self {
            limit: settings.limit.map(Rate::from_bps),
            settings,
            control,
            stop,
            relayed: BTreeMap::new(),
            numbers: BTreeMap::new(),
            next_number: FIRST_CONNECTION,
            again: Vec::new(),
            serving: Vec::new(),
            resetting: BTreeSet::new(),
            waiting: VecDeque::new(),
            next_attempt: Instant::ZERO,
            sources: Sources::default(),
            health: Health::default(),
            probe: None,
            pressure: Pressure::NONE,
            pending: 0,
            raw,
            last_probes: VecDeque::new(),
            beat: Beat::default(),
            carried: [0; 2],
            held: Vec::new(),
            line: Vec::new(),
            beats: 0,
            delay: Duration::ZERO,
            next_beat: Instant::ZERO,
            ends_at: None,
            started: false,
            scratch: vec![0; READ],
        }
    }

    /// Starts the connection to the server for each client whose handshake has completed.
    fn accept(&mut self, now: Instant, stack: &mut Stack) {
        while let Some(id) = stack.accept(self.settings.listen) {
            self.beat.accepted += 1;
            let Some(tuple) = stack.tuple(id) else { continue };
            if self.ends_at.is_some() {
                stack.abort(now, id);
                continue;
            }
            let client = match self.settings.client_address {
                ClientAddress::Transparent => Some(tuple.remote),
                ClientAddress::ProxyV2 | ClientAddress::Hidden => None,
            };
            let server = match Server::open(&self.settings.upstream, &mut self.sources, client) {
                Ok(server) => server,
                Err(error) => {
                    self.unreachable(now, upstream::attempt(&error));
                    stack.abort(now, id);
                    continue;
                }
            };
            let first = match self.settings.client_address {
                ClientAddress::ProxyV2 => proxy::header(tuple.remote, tuple.local),
                ClientAddress::Transparent | ClientAddress::Hidden => Vec::new(),
            };
            if !server.is_connecting() {
                self.health.succeeded(now);
            }
            let number = self.next_number;
            self.next_number += 1;
            if server.waits() {
                self.waiting.push_back(number);
            }
            let relayed = Relayed {
                id,
                begun: now,
                server,
                up: Half::starting_with(first),
                down: Half::default(),
                watched: Watched::Nothing,
                client_ended: false,
                reset_by: None,
                held_back: false,
                reported: 0,
                queued: false,
            };
            self.relayed.insert(number, relayed);
            self.numbers.insert(id, number);
            self.go_on(number);
        }
    }

    /// Repeats the attempts to connect to a server whose accept queue was full, in the order of the clients. Returns the
    /// time of the next attempt.
    fn connect_waiting(&mut self, now: Instant, stack: &mut Stack) -> Instant {
        while let Some(number) = self.waiting.front().copied() {
            if now < self.next_attempt {
                return self.next_attempt;
            }
            if let Some(relayed) = self.relayed.get_mut(&number) {
                let result = relayed.server.connect(&self.settings.upstream);
                let late = now >= relayed.begun + LONGEST_WAIT;
                match result {
                    Ok(()) if relayed.server.waits() && !late => {
                        self.next_attempt = now + RETRY;
                        return self.next_attempt;
                    }
                    Ok(()) if relayed.server.waits() => self.give_up(now, stack, number, Attempt::NoAnswer),
                    Ok(()) => {
                        self.health.succeeded(now);
                        self.go_on(number);
                    }
                    Err(error) => self.give_up(now, stack, number, upstream::attempt(&error)),
                }
            }
            self.waiting.pop_front();
        }
        Instant::FAR_FUTURE
    }

    /// Records that a connection to the server, begun at `begun`, has failed.
    fn unreachable(&mut self, begun: Instant, attempt: Attempt) {
        self.beat.unreachable += 1;
        if attempt == Attempt::Refused {
            self.health.failed(begun);
        }
    }

    /// Handles the events of the stack.
    fn events(&mut self, now: Instant, stack: &mut Stack) {
        while let Some((id, event)) = stack.poll_event() {
            let Some(&number) = self.numbers.get(&id) else {
                // The connection to the server has already ended, and the last bytes to the client are in
                // flight.
                if matches!(event, Event::Aborted | Event::Closed) {
                    stack.release(now, id);
                }
                continue;
            };
            match event {
                Event::Readable | Event::Writable => self.go_on(number),
                Event::PeerClosed | Event::Closed => {
                    if let Some(relayed) = self.relayed.get_mut(&number) {
                        relayed.client_ended = true;
                    }
                    self.go_on(number);
                }
                Event::Aborted => {
                    self.beat.resets += 1;
                    // The socket has zero linger, so the server sees a reset.
                    self.remove(number);
                    stack.release(now, id);
                }
                Event::Connected | Event::Finished | Event::SoftError => {}
            }
        }
    }

    /// Schedules a connection to be served in this round, or in the next round if this one is in progress.
    fn go_on(&mut self, number: u64) {
        if let Some(relayed) = self.relayed.get_mut(&number)
            && !std::mem::replace(&mut relayed.queued, true)
        {
            self.again.push(number);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Relayed> {
        self.resetting.remove(&number);
        let relayed = self.relayed.remove(&number)?;
        self.numbers.remove(&relayed.id);
        self.pending -= relayed.down.memory() as u64;
        self.carried[0] += relayed.up.carried();
        self.carried[1] += relayed.down.carried();
        Some(relayed)
    }

    /// Resets a connection at both ends.
    fn reset(&mut self, now: Instant, stack: &mut Stack, number: u64) {
        if let Some(relayed) = self.remove(number) {
            self.beat.resets += 1;
            stack.abort(now, relayed.id);
        }
    }

    /// Resets a connection for which the attempt to connect to the server has failed.
    fn give_up(&mut self, now: Instant, stack: &mut Stack, number: u64, attempt: Attempt) {
        if let Some(begun) = self.relayed.get(&number).map(|relayed| relayed.begun) {
            self.unreachable(begun, attempt);
            self.reset(now, stack, number);
        }
    }

    /// Moves bytes of one connection in both directions, and sets the events for which epoll watches its
    /// socket.
    fn pump(
        &mut self,
        now: Instant,
        stack: &mut Stack,
        sockets: &Sockets<'_>,
        number: u64,
    ) -> Result<(), Error> {
        let Some(relayed) = self.relayed.get_mut(&number) else { return Ok(()) };
        // Unix sockets that are not connected report events all the time.
        if relayed.server.waits() {
            return Ok(());
        }
        let connecting = relayed.server.is_connecting();
        // If the direction to the server were shut down while the connection is being established, the kernel would
        // abort the attempt.
        if connecting && relayed.client_ended && !relayed.server.has_connected() {
            return relayed.watch(sockets, number, Watched::DataAndRoom);
        }
        let id = relayed.id;
        let pending = relayed.down.memory() as u64;
        let held = || stack.memory_of(id) + pending;
        let left = self.settings.memory.saturating_sub(self.pending + stack.memory());
        // Many new connections together must not use up the memory that requests on other connections need.
        let plenty = left > self.settings.memory / RESERVED_SHARE + READ as u64;
        let chunk = if plenty { READ } else { SMALL_READ };
        let fits = plenty || left >= 2 * chunk as u64 && held() <= SMALL;
        let may_read = fits && (self.pressure.level.is_none() || self.pressure.admits(held()));
        let mut client = Client { stack: &mut *stack, id, now, ended: relayed.client_ended };
        let Relayed { server, up, down, .. } = relayed;
        let up_now = up.pump(&mut client, server, &mut self.scratch, BURST, true);
        let down_now = down.pump(server, &mut client, &mut self.scratch[..chunk], BURST, may_read);
        relayed.held_back = !may_read || stack.is_starved(id);
        self.pending = self.pending + relayed.down.memory() as u64 - pending;
        stack.set_memory_limit(for_payload(self.settings.memory, self.pending));
        if connecting && up_now == Progress::SinkReset && server.is_connecting() {
            let failure = server.failure().unwrap_or(Attempt::Refused);
            self.give_up(now, stack, number, failure);
            return Ok(());
        }
        if connecting && !server.is_connecting() {
            self.health.succeeded(now);
        }
        match (up_now, down_now) {
            (Progress::Done, Progress::Done) => {
                if let Some(relayed) = self.remove(number) {
                    relayed.server.close();
                    stack.release(now, id);
                }
                return Ok(());
            }
            // Either the client's connection is gone, or the server accepts no more data and has already sent
            // everything.
            (Progress::SourceReset, _) | (_, Progress::SinkReset) | (Progress::SinkReset, Progress::Done) => {
                self.reset(now, stack, number);
                return Ok(());
            }
            (_, Progress::SourceReset) => {
                relayed.reset_by.get_or_insert(now + LAST_BYTES);
                self.resetting.insert(number);
            }
            _ => {}
        }
        // The stack sends no event for a write that it cut short although it had room.
        let has_room = || stack.connection(id).is_some_and(|connection| !connection.is_full());
        let goes_on = up_now == Progress::GoesOn
            || down_now == Progress::GoesOn
            || (down_now == Progress::WaitsForRoom && !relayed.held_back && has_room());
        relayed.server.send_end();
        let full = up_now == Progress::WaitsForRoom;
        relayed.watch(sockets, number, if full { Watched::DataAndRoom } else { Watched::Data })?;
        if goes_on {
            self.go_on(number);
        }
        Ok(())
    }

    /// Handles the sockets that are ready.
    fn ready(&mut self, now: Instant, stack: &mut Stack, sockets: &Sockets<'_>) -> Result<(), Error> {
        for (number, change) in sockets.ready() {
            match number {
                CONTROL => self.listen_to_keeper(now, stack, sockets)?,
                PROBE => {
                    if let Some(mut probe) = self.probe.take() {
                        match probe.server.finish_connecting() {
                            Ok(()) => self.probe_accepted(now, probe),
                            Err(error) => self.probe_failed(now, stack, upstream::attempt(&error)),
                        }
                    }
                }
                number => {
                    let Some(relayed) = self.relayed.get_mut(&number) else { continue };
                    if relayed.server.is_connecting() {
                        if let Err(error) = relayed.server.finish_connecting() {
                            self.give_up(now, stack, number, upstream::attempt(&error));
                            continue;
                        }
                        self.health.succeeded(now);
                    }
                    if let Some(relayed) = self.relayed.get_mut(&number) {
                        relayed.server.became(change);
                        if change.failed {
                            // The client may not read the bytes that arrived before.
                            relayed.reset_by.get_or_insert(now + LAST_BYTES);
                            self.resetting.insert(number);
                        }
                    }
                    self.go_on(number);
                }
            }
        }
        Ok(())
    }

    /// Executes the keeper's orders, and resets all connections if the keeper has ended.
    fn listen_to_keeper(
        &mut self,
        now: Instant,
        stack: &mut Stack,
        sockets: &Sockets<'_>,
    ) -> Result<(), Error> {
        let mut said = [0; 256];
        let heard = self.control.read(&mut said);
        let wait = match heard {
            Err(error) if is_temporary(&error) => return Ok(()),
            Ok(len @ 1..) => {
                let mut ends = false;
                for order in Order::read(&said[..len]) {
                    match order {
                        Order::Mtu(mtu) => stack.set_mtu(now, self.settings.listen, mtu.into()),
                        Order::Limit(limit) => self.limit = limit,
                        Order::End => ends = true,
                    }
                }
                if !ends {
                    return Ok(());
                }
                FAREWELL
            }
            _ => {
                // The keeper is dead and its table disappears, so resets that the stack sends may be lost.
                let packets = stack.live_connections(now).filter_map(|(_, tuple, probe)| {
                    let packet = Headers::between(&probe.segment(), tuple.local, tuple.remote)?;
                    Some((tuple.remote.ip(), packet.as_bytes().to_vec()))
                });
                let packets: Vec<_> = packets.collect();
                // The worker does not learn which probes are lost, so it sends each probe twice.
                let rounds = [&packets, &packets].into_iter().flat_map(|round| round.chunks(probes::AT_ONCE));
                self.last_probes = rounds.map(<[_]>::to_vec).collect();
                // The next start of the service probes the clients again, because a firewall may keep their
                // answers from the kernel.
                stack.set_live_table(None);
                TABLE_GONE
            }
        };
        self.ends_at = Some(now + wait);
        let numbers: Vec<u64> = self.relayed.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.reset(now, stack, number));
        // The last data of a connection may be in flight although its server has already closed it.
        let released: Vec<_> = stack.live_connections(now).map(|(id, ..)| id).collect();
        released.into_iter().for_each(|id| stack.abort(now, id));
        // A reset would keep the client from retrying, but the kernel's listener will answer a retransmitted
        // SYN soon.
        stack.set_admission(now, self.settings.listen, Admission::Held);
        // Otherwise, every round would report the end of the socket again.
        sockets.change(self.control.as_fd(), CONTROL, WaitCondition::Data, WaitCondition::Nothing)
    }

    /// Sends the last probes, and then ends the worker.
    fn end(&mut self, now: Instant) {
        match (&self.raw, self.last_probes.pop_front()) {
            (Some(raw), Some(probes)) => {
                probes.iter().for_each(|(to, packet)| probes::send(raw, *to, packet));
                self.ends_at = Some(now + BEAT);
            }
            _ => self.stop.stop(),
        }
    }

    fn probe_accepted(&mut self, now: Instant, probe: Probe) {
        self.health.probe_ended(now, Attempt::Accepted);
        let mut server = probe.server;
        if self.settings.client_address == ClientAddress::ProxyV2 {
            // Without a header, the server would log a broken connection.
            server.write(&proxy::local());
        }
        server.close();
    }

    fn probe_failed(&mut self, now: Instant, stack: &mut Stack, attempt: Attempt) {
        self.health.probe_ended(now, attempt);
        if attempt == Attempt::NoAnswer {
            stack.drop_held_syns(self.settings.listen);
        }
    }

    /// Starts and finishes probes of the server, and applies the server's state to new connections.
    fn examine_server(
        &mut self,
        now: Instant,
        stack: &mut Stack,
        sockets: &Sockets<'_>,
    ) -> Result<(), Error> {
        if self.health.probe_is_late(now) {
            self.probe = None;
            self.probe_failed(now, stack, Attempt::NoAnswer);
        }
        let listen = self.settings.listen;
        if self.health.wants_probe(now, !self.started || stack.held_syns(listen) > 0) {
            self.started = true;
            self.health.probe_started(now);
            match Server::open(&self.settings.upstream, &mut self.sources, None) {
                Err(error) => self.probe_failed(now, stack, upstream::attempt(&error)),
                Ok(server) if server.waits() => self.probe_failed(now, stack, Attempt::NoAnswer),
                Ok(server) if server.is_connecting() => {
                    sockets.change(server.as_fd(), PROBE, WaitCondition::Nothing, WaitCondition::Room)?;
                    self.probe = Some(Probe { server });
                }
                Ok(server) => self.probe_accepted(now, Probe { server }),
            }
        }
        stack.set_admission(now, listen, self.health.state(now).admission());
        Ok(())
    }

    /// Resets connections whose server has sent a reset, once the client has acknowledged all bytes.
    fn finish_resets(&mut self, now: Instant, stack: &mut Stack) -> Instant {
        let mut next = Instant::FAR_FUTURE;
        if self.resetting.is_empty() {
            return next;
        }
        let mut due = Vec::new();
        for number in &self.resetting {
            let Some(relayed) = self.relayed.get(number) else { continue };
            let by = relayed.reset_by.unwrap_or(now);
            let acknowledged = stack
                .connection(relayed.id)
                .is_none_or(|connection| connection.acknowledged() >= relayed.down.carried());
            if relayed.down.is_done() && acknowledged || by <= now {
                due.push(*number);
            } else {
                next = next.min(by);
            }
        }
        due.into_iter().for_each(|number| self.reset(now, stack, number));
        next
    }
}

impl Service for Worker {
    fn limit(&self) -> Option<Rate> {
        self.limit
    }

    fn attend(&mut self, now: Instant, stack: &mut Stack, sockets: &Sockets<'_>) -> Result<Instant, Error> {
        self.delay = self.delay.max(sockets.delay());
        if !self.started {
            let (before, after) = (WaitCondition::Nothing, WaitCondition::Data);
            sockets.change(self.control.as_fd(), CONTROL, before, after)?;
        }
        self.ready(now, stack, sockets)?;
        self.accept(now, stack);
        let attempt = self.connect_waiting(now, stack);
        self.events(now, stack);
        while let Some(message) = stack.poll_unclaimed() {
            // A packet to one of the host's own addresses passes the loopback device and reaches the kernel.
            if let Some(raw) = &self.raw {
                probes::send(raw, self.settings.listen.ip(), &message);
            }
        }
        // A connection that can continue is served again in the next round, after the packets.
        std::mem::swap(&mut self.again, &mut self.serving);
        for place in 0..self.serving.len() {
            let number = self.serving[place];
            if let Some(relayed) = self.relayed.get_mut(&number) {
                relayed.queued = false;
                self.pump(now, stack, sockets, number)?;
            }
        }
        self.serving.clear();
        let resets = self.finish_resets(now, stack);
        if self.ends_at.is_none() {
            self.examine_server(now, stack, sockets)?;
        }
        if self.ends_at.is_some_and(|at| at <= now) {
            self.end(now);
        }
        if now >= self.next_beat {
            self.report(now, stack);
            self.next_beat = now + BEAT;
        }
        if !self.again.is_empty() {
            return Ok(now);
        }
        Ok(self.next_beat.min(resets).min(attempt).min(self.health.next(now)))
    }
}
