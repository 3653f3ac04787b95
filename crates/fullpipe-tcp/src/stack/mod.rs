//! TCP stack of a host with many connections: handles and returns packets, without I/O.
//!
//! ```text
//!   handle_packet ─► parse ─► connection of its two sockets ─► payload into its ring ─► events
//!                               │ none                                                    │
//!                               ├─► listener: half-open connection, or a SYN cookie       ▼
//!                               └─► reset                               read, write, shutdown, accept
//!                                                                                         │
//!   poll_packet  ◄─ headers, checksum, payload ◄─ cut ◄─ connections that are ready ◄─────┘
//! ```
//!
//! A connection handles only offsets; two [`stream`] rings of the stack store its bytes. The driver moves
//! packets, supplies the time, and
//!
//! 1. calls `handle_packet` when a packet arrives, `handle_timeout` when the time of `poll_timeout` is
//!    reached, and `read` or `write` when an event reports that they can proceed,
//! 2. then calls `poll_packet` until it returns `None`.
//!
//! ## Limits on state that unauthenticated peers can create
//!
//! | state | limit |
//! |---|---|
//! | connections in any state but TIME-WAIT; those in TIME-WAIT | [`StackConfig::max_connections`], each |
//! | half-open connections of a listener; established ones not yet accepted | its backlog, each |
//! | SYNs that wait for the admission of a listener | its backlog |
//! | queued replies that belong to no connection (resets, cookies) | [`MOST_REPLIES`] |
//! | ICMP messages about segments of no connection | [`MOST_UNCLAIMED`] |
//! | received payload of a connection | the advertised window, which its receive buffer bounds |
//! | written payload of a connection | its send buffer and 64 KiB |
//! | payload of all connections | [`Stack::set_memory_limit`] |
//! | queued events | one of each kind per connection |

mod admission;
mod budget;
mod cookie;
mod counters;
mod half_open;
mod icmp;
mod isn;
mod listener;
mod live;
mod mtu;
mod output;
mod policy;
pub mod siphash;
pub mod stream;
#[cfg(test)]
mod tests;
mod time_wait;
mod timers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use fullpipe_units::Instant;

use crate::conn::{Config, Connection, Event, Events, IpVersion, State};
use crate::memory::{MemorySummary, PathMemory, SenderTotals};
use crate::wire::{Checksums, Flags, Packet, PacketError, Segment};

pub use admission::Admission;
use budget::Budget;
pub use budget::RESERVED_SHARE;
pub use counters::Counters;
use half_open::{HalfOpen, Place};
pub use isn::IsnClock;
use listener::Listener;
pub use live::LiveTable;
pub use output::{Cut, Outgoing};
use output::{Cutting, Reply};
pub use policy::{ClientPrefix, InvalidPrefix, Policy};
use siphash::Key;
use stream::Ring;
use timers::Timers;

/// Maximum number of queued replies that belong to no connection (resets, SYN cookies). Further replies are
/// dropped.
pub const MOST_REPLIES: usize = 256;
/// Maximum number of ICMP messages that are kept for [`Stack::poll_unclaimed`]. Further messages are dropped.
pub const MOST_UNCLAIMED: usize = 64;
/// Capacity of a send ring beyond the send buffer, in bytes. As in Linux, a partly filled skb still accepts
/// data when the send buffer is full.
const BEGUN: u64 = 64 << 10;

/// Local and remote socket address of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FourTuple {
    /// Socket address of this stack.
    pub local: SocketAddr,
    /// Socket address of the peer.
    pub remote: SocketAddr,
}

/// Identifier of a connection within a stack. Identifiers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId {
    slot: u32,
    generation: u32,
}

/// Configuration of a TCP stack.
#[derive(Clone, Copy, Debug)]
pub struct StackConfig {
    /// Secret key for initial sequence numbers and SYN cookies. The key must be random if unauthenticated
    /// peers can reach the stack.
    pub key: Key,
    /// Clock for initial sequence numbers.
    pub isn_clock: IsnClock,
    /// Maximum number of simultaneous connections, including those that are closing. Released connections in
    /// TIME-WAIT do not count; up to this many of them may exist in addition.
    pub max_connections: usize,
    /// Packetization of transmissions, with or without segmentation offload.
    pub cut: Cut,
}

/// Reason why a connection or listener could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The local address is not an address of the stack.
    NotOurs,
    /// There is already a connection between the two sockets, or a listener on the local socket.
    InUse,
    /// The number of connections has reached its maximum.
    TooMany,
    /// The local address and the remote address have different IP versions.
    MixedVersions,
    /// The remote address is not the address of a single host (RFC 9293 MUST-46).
    NotOneHost,
}

impl core::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotOurs => "the local address does not belong to this stack",
            Self::InUse => "the local socket is already in use",
            Self::TooMany => "too many connections",
            Self::MixedVersions => "one address is IPv4, the other is IPv6",
            Self::NotOneHost => "the remote address is not the address of a single host",
        })
    }
}

impl std::error::Error for ConnectError {}

/// Owner of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The application owns the connection.
    Application,
    /// The listener on the local address of the connection owns it, because the connection is half-open.
    HalfOpen,
    /// The connection is established and waits in the accept queue of a listener.
    Waiting,
    /// The connection has no owner, because the application has released it.
    Nobody,
}

#[derive(Debug)]
struct Entry {
    id: ConnId,
    tuple: FourTuple,
    connection: Connection,
    owner: Owner,
    sending: Ring,
    receiving: Ring,
    /// Time at which the connection's timer entry expires. This time is never later than the connection's own
    /// timeout.
    armed: Instant,
    /// Whether the connection is in the queue of connections that may have data to send.
    ready: bool,
    /// Events that are queued or held back, at most one of each kind.
    told: Events,
    /// Events held back until the connection is accepted.
    kept: Events,
    /// Whether path memory has received the measurements of the connection.
    recorded: bool,
    /// Whether the connection has ended. The entry is removed after the last reset has been sent and the
    /// application has released the connection.
    over: bool,
    /// Whether a write was cut short because the memory of all connections was used up.
    starved: bool,
    /// State to which the connection can be folded; `None` once it is established.
    half_open: Option<Box<HalfOpen>>,
}

/// TCP stack of a host, with its connections, listeners and packets.
#[derive(Debug)]
pub struct Stack {
    config: StackConfig,
    addresses: BTreeSet<IpAddr>,
    slots: Vec<(u32, Place)>,
    free: Vec<u32>,
    by_tuple: BTreeMap<FourTuple, u32>,
    /// Number of connections that are reduced to their TIME-WAIT state.
    in_time_wait: usize,
    listeners: BTreeMap<SocketAddr, Listener>,
    timers: Timers,
    ready: VecDeque<u32>,
    events: VecDeque<(ConnId, Event)>,
    replies: VecDeque<Reply>,
    /// ICMP messages about segments that belong to no connection.
    unclaimed: VecDeque<Vec<u8>>,
    cutting: Option<Cutting>,
    counters: Counters,
    /// Path memory for the clients of the listeners.
    paths: Option<Box<dyn PathMemory>>,
    /// Sums over the connections that have ended.
    ended: SenderTotals,
    /// Memory of the rings of all connections.
    budget: Budget,
    /// Table in which another process finds the live connections.
    live: Option<Box<dyn LiveTable>>,
}

impl Stack {
    /// Returns a stack without addresses or connections.
    pub fn new(config: StackConfig) -> Self {
        Self {
            config,
            addresses: BTreeSet::new(),
            slots: Vec::new(),
            free: Vec::new(),
            by_tuple: BTreeMap::new(),
            in_time_wait: 0,
            listeners: BTreeMap::new(),
            timers: Timers::default(),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            replies: VecDeque::new(),
            unclaimed: VecDeque::new(),
            cutting: None,
            counters: Counters::default(),
            paths: None,
            ended: SenderTotals::default(),
            budget: Budget::default(),
            live: None,
        }
    }

    /// Sets the path memory that the connections accepted by listeners read and write.
    pub fn set_path_memory(&mut self, paths: Box<dyn PathMemory>) {
        self.paths = Some(paths);
    }

    /// Passes the sums over all connections to the kill switch of the path memory, and returns the state of
    /// the path memory. Returns `None` if there is no path memory. The driver calls this function about once
    /// per second, because its cost grows with the number of connections.
    pub fn observe_senders(&mut self, now: Instant) -> Option<MemorySummary> {
        let paths = self.paths.as_mut()?;
        let open = self.slots.iter().filter_map(|(_, place)| place.entry()).filter(|entry| !entry.recorded);
        let totals = open.fold(self.ended, |sum, entry| sum.plus(entry.connection.sender_totals()));
        paths.observe(now, totals);
        Some(paths.summary())
    }

    /// Adds `address` as a local address of this stack.
    pub fn add_address(&mut self, address: IpAddr) {
        self.addresses.insert(address);
    }

    /// Listens on `local` and configures new connections with `config`. At most `backlog` connections are
    /// half-open, and at most `backlog` established connections wait to be accepted.
    ///
    /// # Errors
    /// Fails if the address of `local` is not an address of the stack, or if `local` already has a listener.
    pub fn listen(&mut self, local: SocketAddr, config: Config, backlog: usize) -> Result<(), ConnectError> {
        if !self.addresses.contains(&local.ip()) {
            return Err(ConnectError::NotOurs);
        }
        if self.listeners.contains_key(&local) {
            return Err(ConnectError::InUse);
        }
        let config = Config { ip: version_of(local), ..config };
        self.listeners.insert(local, Listener::new(Arc::new(config), backlog));
        Ok(())
    }

    /// Starts a connection attempt; [`Event::Connected`] or [`Event::Aborted`] reports the outcome.
    ///
    /// # Errors
    /// Fails if the two sockets cannot be used; see [`ConnectError`].
    pub fn connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        config: Config,
    ) -> Result<ConnId, ConnectError> {
        let tuple = FourTuple { local, remote };
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(ConnectError::MixedVersions);
        }
        if !can_be_answered(remote) {
            return Err(ConnectError::NotOneHost);
        }
        if !self.addresses.contains(&local.ip()) {
            return Err(ConnectError::NotOurs);
        }
        if self.by_tuple.contains_key(&tuple) || self.listeners.contains_key(&local) {
            return Err(ConnectError::InUse);
        }
        let iss = self.config.isn_clock.isn(now, &tuple, self.config.key);
        let seed = self.seed(&config, &tuple);
        let mut connection = Connection::client(Config { ip: version_of(local), seed, ..config });
        connection.start_at(iss);
        connection.open();
        let slot = self.insert(tuple, connection, Owner::Application).ok_or(ConnectError::TooMany)?;
        self.touched(slot);
        Ok(self.id(slot))
    }

    /// Returns the next connection established on `local`. Events that the stack has held back for the
    /// connection become available from `poll_event`.
    pub fn accept(&mut self, local: SocketAddr) -> Option<ConnId> {
        let id = self.listeners.get_mut(&local)?.waiting.pop_front()?;
        let Self { slots, events, .. } = self;
        let entry = slots[id.slot as usize].1.entry_mut()?;
        entry.owner = Owner::Application;
        // These events occurred before the connection was accepted.
        while let Some(event) = entry.kept.take() {
            events.push_back((id, event));
        }
        Some(id)
    }

    /// Returns read-only access to the connection `id`.
    pub fn connection(&self, id: ConnId) -> Option<&Connection> {
        self.entry(id).map(|entry| &entry.connection)
    }

    /// Returns the local and remote socket address of the connection `id`.
    pub fn tuple(&self, id: ConnId) -> Option<FourTuple> {
        self.entry(id).map(|entry| entry.tuple)
    }

    /// Writes as much of `data` as the send buffer accepts, and returns the number of bytes written. After a
    /// partial write, [`Event::Writable`] reports when there is room again.
    pub fn write(&mut self, id: ConnId, data: &[u8]) -> usize {
        let Some(entry) = self.entry_mut(id) else { return 0 };
        let end = entry.sending.end();
        let mut most = (data.len() as u64).min(entry.sending.room());
        if !entry.sending.affords(end + most) {
            most = most.min(entry.sending.spare());
            entry.starved = true;
        }
        let taken = entry.connection.write(most) as usize;
        entry.sending.write(end, &data[..taken]);
        if taken < data.len() {
            entry.connection.wait_for_room();
        }
        self.touched(id.slot);
        taken
    }

    /// Reads in-order bytes into `data` and returns their number. Reading may open the receive window.
    pub fn read(&mut self, now: Instant, id: ConnId, data: &mut [u8]) -> usize {
        let len = self.peek(id, data);
        self.took(now, id, len as u64) as usize
    }

    /// Copies in-order bytes into `data` and returns their number. The bytes remain, until they are read or discarded.
    pub fn peek(&self, id: ConnId, data: &mut [u8]) -> usize {
        let Some(entry) = self.entry(id) else { return 0 };
        let from = entry.connection.read_offset();
        let len = entry.connection.readable().min(data.len() as u64);
        let mut at = 0;
        for part in entry.receiving.read(from, len) {
            data[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        at
    }

    /// Discards up to `most` in-order bytes and returns their number.
    pub fn discard(&mut self, now: Instant, id: ConnId, most: u64) -> u64 {
        self.took(now, id, most)
    }

    fn took(&mut self, now: Instant, id: ConnId, len: u64) -> u64 {
        let Some(entry) = self.entry_mut(id) else { return 0 };
        let taken = entry.connection.read(now, len);
        entry.receiving.advance(entry.connection.read_offset());
        self.touched(id.slot);
        taken
    }

    /// Closes the sending direction of a connection. Data already written is still sent.
    pub fn shutdown(&mut self, id: ConnId) {
        if let Some(entry) = self.entry_mut(id) {
            entry.connection.close();
            self.touched(id.slot);
        }
    }

    /// Releases a connection ([`Connection::detach`]). The stack still sends data already written, answers
    /// arriving data with a reset, and reports no more events.
    pub fn release(&mut self, now: Instant, id: ConnId) {
        if let Some(entry) = self.entry_mut(id) {
            entry.connection.detach(now);
            entry.owner = Owner::Nobody;
            self.touched(id.slot);
        }
    }

    /// Resets a connection and releases it.
    pub fn abort(&mut self, now: Instant, id: ConnId) {
        if let Some(entry) = self.entry_mut(id) {
            entry.connection.abort(now);
            entry.owner = Owner::Nobody;
            self.touched(id.slot);
            self.record(now, id.slot);
        }
    }

    /// Returns the next event, and the connection to which it belongs.
    pub fn poll_event(&mut self) -> Option<(ConnId, Event)> {
        loop {
            let (id, event) = self.events.pop_front()?;
            if let Some(entry) = self.entry_mut(id) {
                entry.told.remove(event);
                if entry.owner == Owner::Application {
                    return Some((id, event));
                }
            }
        }
    }

    /// Returns whether events wait for [`Self::poll_event`]. Sending may cause events, because it may make a
    /// socket writable.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Handles an arriving packet; `bytes` begins with the IP header.
    pub fn handle_packet(&mut self, now: Instant, bytes: &[u8], checksums: Checksums) {
        let packet = match Packet::parse(bytes, checksums) {
            Ok(packet) => packet,
            Err(PacketError::Protocol(_)) => return self.handle_icmp(now, bytes, checksums),
            Err(_) => {
                self.counters.refused += 1;
                return;
            }
        };
        if !self.addresses.contains(&packet.to.ip()) || !can_be_answered(packet.from) {
            self.counters.ignored += 1;
            return;
        }
        self.counters.packets_in += 1;
        let tuple = FourTuple { local: packet.to, remote: packet.from };
        match self.by_tuple.get(&tuple) {
            Some(&slot) => self.deliver(now, slot, &packet.segment, &bytes[packet.payload]),
            None => self.without_connection(now, tuple, &packet.segment, &bytes[packet.payload]),
        }
    }

    fn deliver(&mut self, now: Instant, slot: u32, segment: &Segment, payload: &[u8]) {
        self.unfold(slot);
        if let Some((tuple, least)) = self.reopened_by(slot, segment)
            && self.reopen(now, slot, tuple, segment, least)
        {
            return;
        }
        if let Place::TimeWait(_) = &self.slots[slot as usize].1 {
            return self.deliver_in_time_wait(now, slot, segment);
        }
        let Self { slots, listeners, counters, paths, .. } = self;
        let Some(entry) = slots[slot as usize].1.entry_mut() else { return };
        // A client that has reset a connection may reuse its port at once, before the application has released the
        // connection. As in the kernel, the old connection no longer occupies its two sockets.
        if entry.over && segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::ACK) {
            let tuple = entry.tuple;
            self.by_tuple.remove(&tuple);
            return self.without_connection(now, tuple, segment, payload);
        }
        if entry.owner == Owner::HalfOpen
            && completes(segment)
            && listeners.get(&entry.tuple.local).is_none_or(Listener::is_full)
        {
            // The peer considers the connection established (SYN-6). The stack does not answer the peer's
            // segments until the accept queue has room. The retransmitted SYN-ACK makes the peer try again.
            counters.accept_overflows += 1;
            self.fold(slot);
            return;
        }
        counters.out_of_memory += u64::from(!entry.take(now, segment, payload));
        if let (Owner::HalfOpen, Some(paths)) = (entry.owner, paths) {
            // This call has an effect only if the handshake has just completed.
            entry.connection.recall(now, paths.as_mut(), entry.tuple.remote.ip());
        }
        self.touched(slot);
        self.record(now, slot);
        self.keep_live(now, slot);
    }

    /// Passes the measurements of a connection to the path memory after the connection has ended.
    fn record(&mut self, now: Instant, slot: u32) {
        let Self { slots, paths, ended, .. } = self;
        let Some(entry) = slots[slot as usize].1.entry_mut() else { return };
        if entry.recorded || !(entry.over || entry.connection.state() == State::TimeWait) {
            return;
        }
        entry.recorded = true;
        *ended = ended.plus(entry.connection.sender_totals());
        if let (Some(paths), Some(visit)) = (paths, entry.connection.visit()) {
            paths.record(now, entry.tuple.remote.ip(), &visit);
        }
    }

    /// Handles a segment for which there is no connection between the two sockets.
    fn without_connection(&mut self, now: Instant, tuple: FourTuple, segment: &Segment, payload: &[u8]) {
        let Some(listener) = self.listeners.get_mut(&tuple.local) else {
            self.reset(tuple, segment);
            return;
        };
        let flags = segment.flags;
        if flags.has(Flags::RST) {
            return;
        }
        if flags.has(Flags::ACK) {
            let syn = if listener.expects_cookies(now) && completes(segment) {
                let syn = cookie::decode(self.config.key, now, &tuple, segment);
                self.counters.cookies_refused += u64::from(syn.is_none());
                syn
            } else {
                None
            };
            match syn {
                Some(_) if listener.is_full() => self.counters.accept_overflows += 1,
                Some(syn) => self.resume(now, tuple, &syn, segment, payload),
                None => self.reset(tuple, segment),
            }
            return;
        }
        if !flags.has(Flags::SYN) {
            return;
        }
        self.counters.syns_in += 1;
        match listener.admission {
            Admission::Open => {}
            Admission::Held => return listener.hold(tuple, segment),
            Admission::Refused => return self.reset(tuple, segment),
        }
        if listener.is_full() {
            self.counters.accept_overflows += 1;
            return;
        }
        if listener.is_flooded() || self.is_full() {
            return self.answer_with_cookie(now, tuple, segment);
        }
        self.half_open(now, tuple, segment, None);
    }

    /// Returns the time at which `handle_timeout` must be called, or [`Instant::FAR_FUTURE`] if no timer is
    /// set.
    pub fn poll_timeout(&self) -> Instant {
        self.timers.first().map_or(Instant::FAR_FUTURE, |(at, _)| at)
    }

    /// Handles all timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, slot)) = self.timers.first() {
            if at > now {
                return;
            }
            self.timers.remove(slot);
            self.unfold(slot);
            let Some(entry) = self.slots[slot as usize].1.entry_mut() else {
                self.time_wait_expires(now, slot);
                continue;
            };
            entry.armed = Instant::FAR_FUTURE;
            if entry.connection.poll_timeout() <= now {
                entry.connection.handle_timeout(now);
            }
            self.touched(slot);
            self.record(now, slot);
        }
    }

    /// Returns the packet and event counters of the stack.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of connections in any state.
    pub fn connections(&self) -> usize {
        self.by_tuple.len()
    }

    /// Returns the number of released connections in TIME-WAIT.
    pub fn in_time_wait(&self) -> usize {
        self.in_time_wait
    }

    /// Updates the owner, the events, the rings and the place in the send queue of a connection that has
    /// changed. If the connection has ended, it is removed when the send queue reaches it.
    fn touched(&mut self, slot: u32) {
        let Self { slots, listeners, events, ready, .. } = self;
        let Some(entry) = slots[slot as usize].1.entry_mut() else { return };
        let state = entry.connection.state();
        if entry.owner == Owner::HalfOpen
            && let Some(listener) = listeners.get_mut(&entry.tuple.local)
        {
            match state {
                State::SynReceived => {}
                // A connection whose passive open fails returns to LISTEN. The listener itself has never left
                // LISTEN (RFC 9293 MUST-11).
                State::Closed | State::Listen => {
                    listener.half_open -= 1;
                    entry.owner = Owner::Nobody;
                    entry.over = true;
                }
                _ => {
                    listener.half_open -= 1;
                    listener.waiting.push_back(entry.id);
                    entry.owner = Owner::Waiting;
                    entry.half_open = None;
                }
            }
        }
        entry.pass_events(events);
        entry.sending.advance(entry.connection.acknowledged());
        if entry.starved && 2 * entry.sending.spare() >= entry.sending.memory().max(1) as u64 {
            entry.starved = false;
            entry.report(Event::Writable, events);
        }
        if entry.over || state == State::TimeWait {
            entry.sending.release();
        }
        if entry.owner == Owner::Nobody {
            entry.receiving.release();
        }
        if !entry.ready {
            entry.ready = true;
            ready.push_back(slot);
        }
    }

    /// Sets the timer of a connection, to a time no later than the connection's own timeout.
    fn arm(&mut self, slot: u32) {
        let Some(entry) = self.slots[slot as usize].1.entry_mut() else { return };
        let due = entry.connection.poll_timeout();
        // If the timeout moves to a later time, the timer still expires at the earlier time, and the stack
        // then checks the timeout. This check is cheaper than moving the timer for each packet.
        if due < entry.armed {
            entry.armed = due;
            self.timers.set(slot, due);
        }
    }

    /// Returns the random seed for a connection between these sockets.
    fn seed(&self, config: &Config, tuple: &FourTuple) -> u64 {
        let chance = isn::hash(self.config.key, tuple, isn::Purpose::Chance, 0);
        config.seed ^ u64::from(chance)
    }

    fn insert(&mut self, tuple: FourTuple, connection: Connection, owner: Owner) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, Place::Free));
            // The maximum number of connections bounds the number of slots.
            (self.slots.len() - 1) as u32
        });
        let (generation, place) = &mut self.slots[slot as usize];
        let id = ConnId { slot, generation: *generation };
        *place = Place::Open(Box::new(Entry::new(id, tuple, connection, owner, self.budget.clone())));
        self.by_tuple.insert(tuple, slot);
        Some(slot)
    }

    fn remove(&mut self, slot: u32) {
        let (generation, place) = &mut self.slots[slot as usize];
        let tuple = match std::mem::replace(place, Place::Free) {
            Place::Open(entry) => entry.tuple,
            Place::TimeWait(rest) => {
                self.in_time_wait -= 1;
                rest.tuple
            }
            Place::Free | Place::Folded(_) => return,
        };
        *generation = generation.wrapping_add(1);
        self.timers.remove(slot);
        self.clear_live(slot);
        // A new connection may already occupy the same two sockets.
        if self.by_tuple.get(&tuple) == Some(&slot) {
            self.by_tuple.remove(&tuple);
        }
        self.free.push(slot);
    }

    /// Returns whether the number of connections has reached its maximum.
    fn is_full(&self) -> bool {
        self.by_tuple.len() - self.in_time_wait >= self.config.max_connections
    }

    fn id(&self, slot: u32) -> ConnId {
        ConnId { slot, generation: self.slots[slot as usize].0 }
    }

    fn entry(&self, id: ConnId) -> Option<&Entry> {
        let (generation, entry) = self.slots.get(id.slot as usize)?;
        entry.entry().filter(|_| *generation == id.generation)
    }

    fn entry_mut(&mut self, id: ConnId) -> Option<&mut Entry> {
        let (generation, entry) = self.slots.get_mut(id.slot as usize)?;
        entry.entry_mut().filter(|_| *generation == id.generation)
    }
}

impl Entry {
    fn new(id: ConnId, tuple: FourTuple, connection: Connection, owner: Owner, budget: Budget) -> Self {
        let (sndbuf, rcvbuf) = connection.buffer_limits();
        Self {
            id,
            tuple,
            connection,
            owner,
            sending: Ring::sharing(sndbuf.get().saturating_add(BEGUN), budget.clone()),
            receiving: Ring::sharing(rcvbuf.get().max(u64::from(u16::MAX)), budget),
            armed: Instant::FAR_FUTURE,
            ready: false,
            told: Events::default(),
            kept: Events::default(),
            recorded: false,
            over: false,
            starved: false,
            half_open: None,
        }
    }

    /// Passes the events of the connection to the application, or holds them back until the connection is
    /// accepted.
    fn pass_events(&mut self, events: &mut VecDeque<(ConnId, Event)>) {
        while let Some(event) = self.connection.poll_event() {
            self.over |= matches!(event, Event::Aborted | Event::Closed);
            self.report(event, events);
        }
    }

    /// Passes an event to the application, or holds it back until the connection is accepted.
    fn report(&mut self, event: Event, events: &mut VecDeque<(ConnId, Event)>) {
        if !self.told.has(event) {
            self.told.add(event);
            match self.owner {
                Owner::Application => events.push_back((self.id, event)),
                _ => self.kept.add(event),
            }
        }
    }

    /// Handles a segment and stores its payload. Returns false if there was no memory for the payload; only the rest of
    /// the segment is then handled.
    fn take(&mut self, now: Instant, segment: &Segment, payload: &[u8]) -> bool {
        let end = || Some(self.connection.arrived_at(segment)? + payload.len() as u64);
        if !payload.is_empty() && end().is_some_and(|end| !self.receiving.affords(end)) {
            // The FIN follows the payload, so the peer sends both again.
            let flags = segment.flags.without(Flags::FIN);
            self.connection.handle_segment(now, &Segment { len: 0, flags, ..segment.clone() });
            return false;
        }
        self.connection.handle_segment(now, segment);
        let Some(accepted) = self.connection.take_accepted() else { return true };
        let from = (accepted.range.start - accepted.start) as usize;
        let to = (accepted.range.end - accepted.start) as usize;
        if let Some(payload) = payload.get(from..to.min(payload.len())) {
            self.receiving.write(accepted.range.start, payload);
        }
        true
    }
}

fn version_of(address: SocketAddr) -> IpVersion {
    if address.is_ipv6() { IpVersion::V6 } else { IpVersion::V4 }
}

/// Returns whether `segment` is an ACK that can complete a handshake.
fn completes(segment: &Segment) -> bool {
    segment.flags.has(Flags::ACK) && !segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::RST)
}

/// Returns whether `from` is the address of a single host. The stack replies only to such senders (RFC 9293
/// section 3.9.2.3, MUST-57, MUST-63).
fn can_be_answered(from: SocketAddr) -> bool {
    let broadcast = matches!(from.ip(), IpAddr::V4(address) if address.is_broadcast());
    !from.ip().is_unspecified() && !from.ip().is_multicast() && !broadcast && from.port() != 0
}
