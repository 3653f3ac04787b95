//! One simulated flow: two connections, the applications at both ends, and the history from which its outcome
//! is computed.

use std::net::{IpAddr, Ipv4Addr};

use fullpipe_tcp::memory::{Memory, PathMemory};
use fullpipe_tcp::wire::{Flags, Segment};
use fullpipe_tcp::{Config, Connection, Event};
use fullpipe_units::{Bytes, Duration, Instant, draw};

use crate::history::{FinalState, History, Moment};
use crate::outcome::{FlowOutcome, ResponseOutcome, RttOutcome};
use crate::scenario::{FlowSpec, Scenario};
use crate::trace::{PathState, Row, SenderTruth, TcpInfo};
use crate::workload::{Delays, Reader, WRITE_BLOCK, WRITE_TIME, Writer};

/// Maximum payload of a merged (GRO) segment, in bytes. A merged segment consists of whole segments and fits
/// into the 64 KiB of an IP packet.
const MERGE_LIMIT: u32 = 65_000;

/// Address of the receiving host in the path memory (RFC 5737).
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

pub(crate) struct Flow {
    pub(crate) sender: Connection,
    pub(crate) receiver: Connection,
    spec: FlowSpec,
    starts_at: Instant,
    /// Whether the connection has been opened.
    opened: bool,
    /// Whether the sending application may write.
    is_connected: bool,
    /// Whether the sending application had nothing left to write at its last call.
    is_idle: bool,
    /// Request of the receiving application; `None` if the sender opens the connection and writes at once.
    request: Option<Request>,
    writer: Writer,
    /// Number of bytes that the application still has to write, while it is blocked in a write to a full
    /// buffer.
    offered: u64,
    /// Time at which a write into a full buffer completes; far future if no such write is in progress.
    writes_until: Instant,
    reader: Reader,
    /// Delays of the data of a paced writer; `None` for other writers.
    delays: Option<Box<Delays>>,
    /// Whether the receiver has received the sender's FIN.
    peer_closed: bool,
    finished_at: Option<Instant>,
    /// Time of the receiving application's last read; the start time of the flow before the first read.
    read_at: Instant,
    /// Payload in bytes that has crossed the path, including duplicates.
    arrived: u64,
    history: History,
    merge: Merge,
}

/// Progress of the request of a flow whose receiver opens the connection.
struct Request {
    /// Size of the request in bytes.
    bytes: u64,
    /// Number of bytes that the receiving application has not written yet.
    unwritten: u64,
    /// Time at which the receiving application began to write the request.
    sent_at: Option<Instant>,
    /// Whether the sending application has read the whole request and may reply.
    is_read: bool,
}

impl Request {
    fn new(bytes: Bytes) -> Self {
        Self { bytes: bytes.get(), unwritten: bytes.get(), sent_at: None, is_read: false }
    }
}

/// Receive merging (GRO): consecutive segments that arrive within the time `within` of the first one are
/// delivered as one segment.
struct Merge {
    within: Duration,
    held: Option<(Segment, Instant)>,
}

/// Returns the configuration of the connection at the sender (side 0) or the receiver (side 1) of flow
/// `number`. A profile applies to the sender.
///
/// # Panics
/// Panics if only Linux has the congestion control of the flow
/// ([`Point::check_simulated`](crate::experiment::Point::check_simulated)).
pub fn connection(scenario: &Scenario, spec: &FlowSpec, number: usize, side: u64) -> Config {
    let host = &scenario.host;
    let Some(cc) = spec.cc.of_fullpipe() else { panic!("fullpipe's TCP does not have {}", spec.cc) };
    let config = Config {
        mtu: scenario.path.mtu,
        cc,
        slow_start: spec.slow_start,
        initcwnd: spec.initcwnd.or(host.initcwnd),
        slow_start_after_idle: host.slow_start_after_idle,
        notsent_lowat: host.notsent_lowat,
        sndbuf: host.sndbuf,
        rcvbuf: host.rcvbuf,
        window_rule: host.window_rule,
        drs_rule: host.drs_rule,
        window_clamp: host.window_clamp,
        fair_queue: host.fair_queue,
        max_pacing_rate: spec.max_pacing_rate,
        ecn: host.ecn,
        sack: host.sack,
        tunables: host.tunables,
        seed: draw(scenario.seed, 0x666c_6f77, 2 * number as u64 + side),
        ..Config::default()
    };
    match &spec.profile {
        Some(profile) if side == 0 => profile.applied(config),
        _ => config,
    }
}

impl Flow {
    pub(crate) fn new(scenario: &Scenario, spec: &FlowSpec, number: usize) -> Self {
        let config = |side| connection(scenario, spec, number, side);
        let starts_at = Instant::ZERO + spec.start;
        let request = spec.workload.request.map(Request::new);
        let (sender, receiver) = match &request {
            None => (Connection::client(config(0)), Connection::server(config(1))),
            Some(_) => (Connection::server(config(0)), Connection::client(config(1))),
        };
        Self {
            sender,
            receiver,
            spec: spec.clone(),
            starts_at,
            opened: false,
            is_connected: false,
            is_idle: false,
            request,
            writer: Writer::new(spec.workload.writing, spec.bytes),
            delays: spec.workload.writing.is_paced().then(Box::default),
            offered: 0,
            writes_until: Instant::FAR_FUTURE,
            reader: Reader::new(spec.workload.reading, starts_at),
            peer_closed: false,
            finished_at: None,
            read_at: starts_at,
            arrived: 0,
            history: History::new(starts_at),
            merge: Merge { within: scenario.host.rx_merge, held: None },
        }
    }

    pub(crate) fn sender_takes(&mut self, now: Instant, segment: &Segment, memory: Option<&Memory>) {
        if let Some(memory) = memory {
            self.sender.expect(now, memory, CLIENT);
        }
        self.sender.handle_segment(now, segment);
    }

    pub(crate) fn sender_timeout(&mut self, now: Instant) {
        if !self.opened && self.request.is_none() && now >= self.starts_at {
            self.opened = true;
            self.sender.open();
        }
        self.sender.handle_timeout(now);
    }

    /// Lets the sending application write if its next write is due or the socket has room again. Returns true
    /// if it was woken. `memory` is that of the sending host.
    #[inline]
    pub(crate) fn sender_writes(&mut self, now: Instant, memory: Option<&mut dyn PathMemory>) -> bool {
        let (mut woken, mut memory) = (false, memory);
        if self.opened && self.writes_at() <= now {
            self.offer(now);
            woken = true;
        }
        while let Some(event) = self.sender.poll_event() {
            woken = true;
            match event {
                Event::Connected => {
                    self.is_connected = true;
                    if let Some(memory) = &mut memory {
                        self.sender.recall(now, *memory, CLIENT);
                    }
                    self.offer(now);
                }
                Event::Writable => self.offer(now),
                Event::Readable => self.hear_request(now),
                Event::Finished => {
                    self.finished_at = Some(now);
                    if let (Some(memory), Some(visit)) = (&mut memory, self.sender.visit()) {
                        memory.record(now, CLIENT, &visit);
                    }
                }
                Event::PeerClosed => {}
                Event::SoftError | Event::Aborted | Event::Closed => {}
            }
        }
        woken
    }

    /// Lets the receiving application write its request, if it has one, as far as its socket accepts it.
    #[cold]
    fn send_request(&mut self, now: Instant) {
        if let Some(request) = &mut self.request
            && request.unwritten > 0
        {
            request.sent_at.get_or_insert(now);
            request.unwritten -= self.receiver.write(request.unwritten);
        }
    }

    /// Lets the sending application read the request. The application replies as soon as the request is
    /// complete.
    #[cold]
    fn hear_request(&mut self, now: Instant) {
        self.sender.read(now, u64::MAX);
        let received = self.sender.received();
        if let Some(request) = &mut self.request
            && !request.is_read
            && received >= request.bytes
        {
            request.is_read = true;
            self.offer(now);
        }
    }

    /// Writes the data that the sending application offers, block by block, as long as the socket accepts it.
    /// Before the sending application has read the request, it offers nothing.
    #[inline(never)]
    fn offer(&mut self, now: Instant) {
        if self.request.as_ref().is_some_and(|request| !request.is_read) {
            return;
        }
        self.writes_until = Instant::FAR_FUTURE;
        loop {
            if self.offered == 0 {
                self.offered = self.writer.offers(now);
            }
            while self.offered > 0 {
                let block = self.offered.min(WRITE_BLOCK);
                let taken = self.sender.write(block);
                self.writer.wrote(block, taken);
                self.offered = if taken < block { 0 } else { self.offered - block };
                if self.offered > 0 && self.sender.is_full() {
                    self.writes_until = now + WRITE_TIME;
                    return;
                }
            }
            if !self.writer.has_more() || !self.sender.wait_for_room() {
                break;
            }
        }
        self.is_idle = !self.writer.has_more();
        if self.writer.is_done() {
            self.sender.close();
        }
    }

    /// Keeps the connection closed until the first grant of the program to which the flow belongs.
    pub(super) fn wait_for_team(&mut self) {
        self.starts_at = Instant::FAR_FUTURE;
    }

    /// Grants `bytes` to the sending application, and opens the connection if it is not open yet.
    pub(super) fn grant(&mut self, now: Instant, bytes: u64) {
        self.starts_at = self.starts_at.min(now);
        self.writer.grant(bytes);
        // Wake an idle writer if the socket has room; otherwise, an event wakes it later.
        if self.is_connected && self.is_idle && self.sender.wait_for_room() {
            self.writes_until = now;
        }
    }

    /// Revokes the granted bytes that the sending application has not written; returns their number.
    pub(super) fn revoke(&mut self) -> u64 {
        self.writer.revoke(self.offered)
    }

    /// Lets the receiving application read `bytes` more bytes.
    pub(super) fn receiver_may_read(&mut self, now: Instant, bytes: u64) {
        self.reader.grant(bytes);
        self.application_reads(now);
    }

    /// Returns the time at which the sending application continues to write, even without a socket event.
    fn writes_at(&self) -> Instant {
        self.writer.wakes_at().min(self.writes_until)
    }

    #[inline(always)]
    pub(crate) fn receiver_takes(&mut self, now: Instant, segment: &Segment) {
        self.arrived += u64::from(segment.len);
        if self.merge.within.is_zero() {
            self.receiver_handles(now, segment);
            return;
        }
        if let Some((held, _)) = &mut self.merge.held
            && mergeable(held, segment)
        {
            held.len += segment.len;
            held.ack = segment.ack;
            held.window = segment.window;
            return;
        }
        self.flush_merge(now);
        if segment.len > 0 && !segment.flags.has(Flags::FIN) && segment.syn.is_none() {
            self.merge.held = Some((segment.clone(), now + self.merge.within));
        } else {
            self.receiver_handles(now, segment);
        }
    }

    #[inline(never)]
    fn flush_merge(&mut self, now: Instant) {
        if let Some((segment, _)) = self.merge.held.take() {
            self.receiver_handles(now, &segment);
        }
    }

    #[inline(always)]
    fn receiver_handles(&mut self, now: Instant, segment: &Segment) {
        self.receiver.handle_segment(now, segment);
        while let Some(event) = self.receiver.poll_event() {
            match event {
                Event::Readable => self.application_reads(now),
                Event::PeerClosed => self.peer_closed = true,
                // The request is sent together with the ACK that completes the handshake.
                Event::Connected | Event::Writable => self.send_request(now),
                _ => {}
            }
        }
        // An application closes its socket when it reads end-of-file.
        if self.peer_closed && self.receiver.readable() == 0 {
            self.receiver.close();
        }
    }

    /// Reads as much of the available data as the receiving application currently wants.
    #[inline]
    fn application_reads(&mut self, now: Instant) {
        if self.reader.is_greedy() {
            self.receiver.read(now, u64::MAX);
            self.read_at = now;
            self.record_delays(now);
            return;
        }
        loop {
            let wanted = self.reader.takes(now).min(self.receiver.readable());
            if wanted == 0 {
                return;
            }
            let taken = self.receiver.read(now, wanted);
            self.reader.took(now, taken);
            self.read_at = now;
            self.record_delays(now);
        }
    }

    #[inline]
    fn record_delays(&mut self, now: Instant) {
        let read = self.read();
        if let Some(delays) = &mut self.delays {
            delays.on_read(&self.writer, read, now);
        }
    }

    /// Returns the number of bytes that the receiving application has read.
    fn read(&self) -> u64 {
        self.receiver.received() - self.receiver.readable()
    }

    pub(crate) fn receiver_timeout(&mut self, now: Instant) {
        if !self.opened && self.request.is_some() && now >= self.starts_at {
            self.opened = true;
            self.receiver.open();
        }
        if self.merge.held.as_ref().is_some_and(|&(_, due)| due <= now) {
            self.flush_merge(now);
        }
        self.receiver.handle_timeout(now);
        if self.reader.wakes_at() <= now {
            self.application_reads(now);
        }
    }

    /// Returns the time of the sending connection's next timer, or the start time of the flow if this
    /// connection has to be opened.
    #[inline]
    pub(crate) fn sender_timer(&self) -> Instant {
        if self.opened || self.request.is_some() {
            self.sender.poll_timeout().min(self.writes_at())
        } else {
            self.starts_at
        }
    }

    /// Returns the time of the receiving connection's next timer, or the start time of the flow if this
    /// connection has to be opened.
    #[inline]
    pub(crate) fn receiver_timer(&self) -> Instant {
        if !self.opened && self.request.is_some() {
            return self.starts_at;
        }
        let merge = self.merge.held.as_ref().map_or(Instant::FAR_FUTURE, |&(_, due)| due);
        self.receiver.poll_timeout().min(merge).min(self.reader.wakes_at())
    }

    /// Returns the current trace row of the flow. The row reuses the allocation `room` of an earlier row if
    /// there is one.
    pub(crate) fn row(
        &self,
        now: Instant,
        number: u32,
        path: PathState,
        room: Option<Box<SenderTruth>>,
    ) -> Row {
        let sender = self.sender.snapshot();
        let truth = SenderTruth::of(&self.sender, now);
        Row {
            at: now,
            flow: number,
            sender: TcpInfo::of(&sender, self.spec.cc.of_fullpipe(), self.spec.max_pacing_rate),
            receiver: Some(self.receiver.receiver_snapshot().into()),
            path: Some(path),
            truth: Some(match room {
                Some(mut room) => {
                    *room = truth;
                    room
                }
                None => Box::new(truth),
            }),
        }
    }

    pub(crate) fn remember(&mut self, row: &Row) {
        if self.finished_at.is_none() {
            self.history.remember(row.sender.cwnd, self.moment(row.at));
        }
    }

    pub(crate) fn outcome(&self, end: Instant) -> FlowOutcome {
        // Acknowledged data may not have been read yet.
        let all_read = self.receiver.readable() == 0;
        let end = self.finished_at.filter(|_| all_read).map_or(end, |finished| finished.max(self.read_at));
        let rtts = self.sender.rtts();
        let rtt = match (rtts.min(), rtts.mean(), rtts.percentile(50), rtts.percentile(95)) {
            (Some(min), Some(mean), Some(p50), Some(p95)) => Some(RttOutcome { min, mean, p50, p95 }),
            _ => None,
        };
        self.history.outcome(FinalState {
            cc: self.spec.cc,
            last: self.moment(end),
            finished: self.finished_at,
            segments_sent: Some(self.sender.stats().segments_sent),
            retransmits: self.sender.stats().retransmits,
            rtt,
            response: self.response(),
            delay_p99: self.delays.as_ref().and_then(|delays| delays.p99(&self.writer, end)),
        })
    }

    /// Returns the time that the response took; `None` if there is no request, or if the receiving
    /// application has not read the whole response.
    fn response(&self) -> Option<ResponseOutcome> {
        let sent_at = self.request.as_ref()?.sent_at?;
        let complete = self.read() >= self.spec.bytes?.get();
        complete.then(|| ResponseOutcome {
            from_syn: self.read_at.saturating_since(self.starts_at),
            from_request: self.read_at.saturating_since(sent_at),
        })
    }

    fn moment(&self, at: Instant) -> Moment {
        Moment {
            at,
            read: Bytes::new(self.read()),
            arrived: Bytes::new(self.arrived),
            limit_times: self.sender.limit_times(at),
        }
    }
}

fn mergeable(held: &Segment, next: &Segment) -> bool {
    next.len > 0
        && next.seq == held.seq.plus(held.len.into())
        && held.len + next.len <= MERGE_LIMIT
        && next.timestamps == held.timestamps
        && !next.flags.has(Flags::FIN)
        // ECN marks and CWR of one segment must not be applied to another segment.
        && next.ecn == held.ecn
        && !next.flags.has(Flags::CWR)
        && next.sack.is_empty()
        && held.sack.is_empty()
}
