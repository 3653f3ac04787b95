//! A connection in virtual time whose peer is a script.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddrV4};

use fullpipe_tcp::wire::{
    Checksums, Flags, Headers, Packet, SackBlocks, Segment, SeqNum, SynOptions, Timestamps,
};
use fullpipe_tcp::{Connection, Event, State};
use fullpipe_units::Ecn;
use fullpipe_units::{Duration, Instant};

use crate::driver;

use super::language::{self, Line, OptionsText, Script, SegmentText, Statement, Time};

/// Time zero of every script on the virtual clock, late enough for a preceding handshake.
const ZERO: Instant = Instant::from_nanos(100_000_000_000);
const PORTS: (SocketAddrV4, SocketAddrV4) = (
    SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 1), 40_000),
    SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 2), 5_201),
);
/// Maximum number of timer expiries in one step. A larger number indicates an endless loop.
const ENDLESS: usize = 100_000;

pub(crate) struct World {
    conn: Connection,
    now: Instant,
    /// Time of the previous line of the script.
    base: Instant,
    /// Segments that the connection has sent, and that the script has not compared yet.
    sent: VecDeque<(Instant, Segment)>,
    reader: bool,
    isn: Option<SeqNum>,
    peer_isn: SeqNum,
    /// Timestamp clock of the peer at time zero; `clock` is that of the connection.
    peer_clock: u32,
    clock: Option<u32>,
    /// Timestamp that the peer echoes: the last timestamp that the connection sent.
    echo: u32,
    timestamps: bool,
    window: u16,
    events: Vec<Event>,
    /// Whether the socket is writable: false after a write that was accepted only in part, until the socket
    /// reports room.
    writable: bool,
    pub(crate) transcript: Vec<String>,
}

type Verdict = Result<(), String>;

/// Runs a script. An error contains the line, the reason and the transcript.
pub(crate) fn run(script: &Script) -> Result<(), (usize, String, Vec<String>)> {
    let mut world = World::new(script);
    let mut last = 0;
    let mut result = world.handshake(script);
    for line in &script.lines {
        if result.is_err() {
            break;
        }
        last = line.number;
        result = world.step(line);
    }
    if result.is_ok() {
        result = world.nothing_left();
    }
    result.map_err(|why| (last, why, world.transcript))
}

impl World {
    fn new(script: &Script) -> Self {
        let setup = &script.setup;
        let config = setup.config.clone();
        Self {
            conn: if setup.server { Connection::server(config) } else { Connection::client(config) },
            now: ZERO,
            base: ZERO,
            sent: VecDeque::new(),
            reader: setup.reader,
            isn: None,
            peer_isn: SeqNum(setup.peer_isn),
            peer_clock: setup.peer_clock,
            clock: None,
            echo: 0,
            timestamps: false,
            window: u16::MAX,
            events: Vec::new(),
            writable: true,
            transcript: Vec::new(),
        }
    }

    fn handshake(&mut self, script: &Script) -> Verdict {
        let Some((rtt, syn)) = &script.setup.established else { return Ok(()) };
        self.now = ZERO.saturating_sub(*rtt);
        if script.setup.server {
            self.inject(syn)?;
            self.now = ZERO;
            let ack = SegmentText { start: 1, end: 1, ack: Some(1), count: 1, ..SegmentText::default() };
            self.inject(&SegmentText { flags: Flags::ACK, ..ack })?;
        } else {
            self.conn.open();
            self.flush()?;
            self.now = ZERO;
            let answer = SegmentText { flags: Flags::SYN.with(Flags::ACK), ack: Some(1), ..syn.clone() };
            self.inject(&answer)?;
        }
        // A window given in the SYN applies only to that SYN.
        self.window = u16::MAX;
        if self.conn.state() != State::Established {
            return Err("the handshake came to nothing".into());
        }
        assert_eq!(self.take_events(), [Event::Connected]);
        self.sent.clear();
        Ok(())
    }

    fn step(&mut self, line: &Line) -> Verdict {
        let at = match line.time {
            Time::At(since) => ZERO + since,
            // An observation without a time applies to the current state.
            Time::After(Duration::ZERO) if line.statement.is_a_look() => self.now,
            Time::After(since) => self.base + since,
        };
        if let Statement::Outbound(text) = &line.statement {
            return self.expect_sent(at, line.early, text);
        }
        if at < self.now {
            return Err(format!("the clock is at {} already", clock_text(self.now)));
        }
        self.run_to(at)?;
        self.base = at;
        // Before the script has compared all sent segments, it may contain observations, but no other
        // statements.
        if !line.statement.is_a_look() {
            self.nothing_left()?;
        }
        match &line.statement {
            Statement::Outbound(_) | Statement::Nothing => Ok(()),
            Statement::Inbound(text) => self.inject(text),
            Statement::Open => {
                self.conn.open();
                self.flush()
            }
            Statement::Write(len, taken) => {
                let took = self.conn.write(*len);
                self.writable &= took == *len;
                self.flush()?;
                equal("bytes taken", &taken.to_string(), &took.to_string())
            }
            Statement::Read(len) => {
                let took = self.conn.read(self.now, len.unwrap_or(u64::MAX));
                self.flush()?;
                len.map_or(Ok(()), |len| equal("bytes read", &len.to_string(), &took.to_string()))
            }
            Statement::Close => {
                self.conn.close();
                self.flush()
            }
            Statement::Detach => {
                self.conn.detach(self.now);
                self.flush()
            }
            Statement::Icmp(complaint, quoted) => {
                let quoted = relative(self.isn.unwrap_or_default(), *quoted);
                self.conn.on_icmp(self.now, *complaint, quoted);
                self.flush()
            }
            Statement::Abort => {
                self.conn.abort(self.now);
                self.flush()
            }
            Statement::Expect(pairs) => pairs.iter().try_for_each(|(name, wanted)| self.expect(name, wanted)),
            Statement::Events(wanted) => {
                let seen: Vec<String> = self
                    .take_events()
                    .into_iter()
                    .filter(|event| !matches!(event, Event::Readable | Event::Writable))
                    .map(|event| format!("{event:?}").to_lowercase())
                    .collect();
                equal("events", &wanted.join(" "), &seen.join(" "))
            }
        }
    }

    fn nothing_left(&self) -> Verdict {
        match self.sent.front() {
            None => Ok(()),
            Some((at, segment)) => {
                Err(format!("sent and not expected: {} > {}", clock_text(*at), self.describe(segment)))
            }
        }
    }

    fn run_to(&mut self, until: Instant) -> Verdict {
        let mut steps = 0;
        while driver::run_timer(&mut self.conn, &mut self.now, until) {
            self.flush()?;
            steps += 1;
            if steps > ENDLESS {
                return Err("timers fire for ever".into());
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Verdict {
        if self.reader && self.conn.readable() > 0 {
            self.conn.read(self.now, u64::MAX);
        }
        for segment in driver::segments(&mut self.conn, self.now) {
            self.notice(&segment)?;
        }
        self.poll_events();
        self.conn.check();
        Ok(())
    }

    fn poll_events(&mut self) {
        while let Some(event) = self.conn.poll_event() {
            self.writable |= event == Event::Writable;
            if !self.events.contains(&event) {
                self.events.push(event);
            }
        }
    }

    /// Returns the events since the last call, each at most once, in the order of [`Event`].
    fn take_events(&mut self) -> Vec<Event> {
        self.poll_events();
        let mut events = std::mem::take(&mut self.events);
        events.sort_by_key(|event| *event as u8);
        events
    }

    /// Checks the encoding of an outgoing segment as octets, and records the segment.
    fn notice(&mut self, segment: &Segment) -> Verdict {
        through_octets(segment)?;
        if segment.flags.has(Flags::SYN) {
            self.isn = Some(segment.seq);
        }
        if let Some(timestamps) = segment.timestamps {
            let since = millis_since_zero(self.now);
            self.clock.get_or_insert(timestamps.value.wrapping_sub(since as u32));
            self.echo = timestamps.value;
        }
        let line = format!("{} > {}", clock_text(self.now), self.describe(segment));
        self.transcript.push(line);
        self.sent.push_back((self.now, segment.clone()));
        Ok(())
    }

    fn inject(&mut self, text: &SegmentText) -> Verdict {
        let step = (text.end - text.start) / i64::from(text.count);
        let mut ack = text.ack;
        for i in 0..i64::from(text.count) {
            let start = text.start + i * step;
            loop {
                let segment = self.inbound(text, start, step, ack);
                let line = format!("{} < {}", clock_text(self.now), self.describe_inbound(&segment));
                self.transcript.push(line);
                through_octets(&segment)?;
                if segment.flags.has(Flags::SYN) {
                    self.timestamps = segment.timestamps.is_some();
                }
                self.conn.handle_segment(self.now, &segment);
                self.flush()?;
                match (ack, text.ack_series) {
                    (Some(at), Some((last, by))) if at < last => ack = Some((at + by).min(last)),
                    _ => break,
                }
            }
        }
        Ok(())
    }

    fn inbound(&mut self, text: &SegmentText, start: i64, len: i64, ack: Option<i64>) -> Segment {
        let options = text.options.clone().unwrap_or_default();
        self.window = text.win.unwrap_or(self.window);
        let ours = self.isn.unwrap_or_default();
        let mut sack = SackBlocks::default();
        for &(from, to) in &options.sack {
            sack.push(relative(ours, from), relative(ours, to));
        }
        let syn = text.flags.has(Flags::SYN);
        let stamped =
            options.timestamps.is_some() || (self.timestamps && !syn && !text.flags.has(Flags::RST));
        let (value, echo) = options.timestamps.unwrap_or_default();
        let value = value.unwrap_or_else(|| millis_since_zero(self.now));
        let echo = match echo {
            // The echoed timestamp in the script is relative to this side's clock, whose zero follows from
            // the first timestamp sent.
            Some(echo) => self.clock.unwrap_or(0).wrapping_add(echo as u32),
            None => self.echo,
        };
        Segment {
            seq: relative(self.peer_isn, start),
            ack: ack.map_or_else(SeqNum::default, |ack| relative(ours, ack)),
            len: len as u32,
            window: self.window,
            flags: text.flags,
            timestamps: stamped
                .then(|| Timestamps { value: self.peer_clock.wrapping_add(value as u32), echo }),
            syn: syn.then(|| SynOptions {
                mss: options.mss.unwrap_or(0),
                window_scale: options.window_scale,
                sack_permitted: options.sack_permitted,
            }),
            sack,
            ecn: Ecn::NotEct,
        }
    }

    fn expect_sent(&mut self, at: Instant, early: Duration, text: &SegmentText) -> Verdict {
        if self.sent.is_empty() {
            self.run_to(at)?;
        }
        let step = (text.end - text.start) / i64::from(text.count);
        for i in 0..i64::from(text.count) {
            let Some((sent_at, segment)) = self.sent.pop_front() else {
                return Err(format!("nothing was sent by {}, {i} of {} seen", clock_text(at), text.count));
            };
            let came = format!("{} > {}", clock_text(sent_at), self.describe(&segment));
            if sent_at > at || sent_at < at.saturating_sub(early) {
                let from = at.saturating_sub(early);
                let range = if early.is_zero() { String::new() } else { format!("{} to ", clock_text(from)) };
                return Err(format!("expected at {range}{}, came {came}", clock_text(at)));
            }
            let start = text.start + i * step;
            self.compare(text, (start, start + step), &segment)
                .map_err(|why| format!("{why}; came {came}"))?;
            self.base = sent_at;
        }
        Ok(())
    }

    /// Compares a segment with a line of the script. It does not compare fields that the line omits. SACK
    /// blocks are an exception: if the line has none, the segment must not have any.
    fn compare(&self, text: &SegmentText, (start, end): (i64, i64), segment: &Segment) -> Verdict {
        let flags = segment.flags.without(Flags::PSH);
        equal("flags", &letters(text.flags.without(Flags::PSH)), &letters(flags))?;
        if text.flags.has(Flags::PSH) && !segment.flags.has(Flags::PSH) {
            return Err("expected PSH".into());
        }
        let at = self.relative_to_us(segment.seq);
        let range = format!("{at}:{}", at + i64::from(segment.len));
        equal("range", &format!("{start}:{end}"), &range)?;
        if let Some(ack) = text.ack {
            equal("ack", &ack.to_string(), &self.relative_to_peer(segment.ack).to_string())?;
        }
        if let Some(win) = text.win {
            equal("win", &win.to_string(), &segment.window.to_string())?;
        }
        let wanted = text.options.clone().unwrap_or_default();
        let blocks: Vec<(i64, i64)> = segment
            .sack
            .iter()
            .map(|(from, to)| (self.relative_to_peer(from), self.relative_to_peer(to)))
            .collect();
        equal("sack", &format!("{:?}", wanted.sack), &format!("{blocks:?}"))?;
        if text.options.is_some() {
            self.compare_options(&wanted, segment)?;
        }
        Ok(())
    }

    fn compare_options(&self, wanted: &OptionsText, segment: &Segment) -> Verdict {
        if let Some((value, echo)) = wanted.timestamps {
            let Some(seen) = segment.timestamps else { return Err("expected timestamps".into()) };
            if let Some(value) = value {
                let seen = seen.value.wrapping_sub(self.clock.unwrap_or(0)) as i32;
                equal("TS val", &value.to_string(), &seen.to_string())?;
            }
            if let Some(echo) = echo {
                // A SYN has no timestamp to echo. Its echo is zero, which is not converted to the peer's
                // clock.
                let seen = if seen.echo == 0 { 0 } else { seen.echo.wrapping_sub(self.peer_clock) as i32 };
                equal("TS ecr", &echo.to_string(), &seen.to_string())?;
            }
        }
        let Some(syn) = segment.syn else { return Ok(()) };
        // In a SYN, compare all options in their order on the wire.
        equal("options", &wanted.order.join(","), &order_on_the_wire(segment).join(","))?;
        let offer = |mss, scale| format!("mss {mss:?} wscale {scale:?}");
        let seen = offer(Some(syn.mss).filter(|mss| *mss > 0), syn.window_scale);
        equal("options", &offer(wanted.mss, wanted.window_scale), &seen)
    }

    fn expect(&self, name: &str, wanted: &str) -> Verdict {
        let seen = self.value(name)?;
        for (prefix, holds) in [(">=", u64::ge as fn(&u64, &u64) -> bool), ("<=", u64::le)] {
            if let Some(bound) = wanted.strip_prefix(prefix) {
                let number =
                    |text: &str| text.parse().map_err(|_| format!("'{text}' is no number to compare"));
                return if holds(&number(&seen)?, &number(bound)?) {
                    Ok(())
                } else {
                    Err(format!("expected {name} {wanted}, came {seen}"))
                };
            }
        }
        equal(name, wanted, &seen)
    }

    /// Returns the observable value that `tests/scripts/README.md` lists under `name`.
    fn value(&self, name: &str) -> Result<String, String> {
        let snapshot = self.conn.snapshot();
        let receiver = self.conn.receiver_snapshot();
        // Multiples of the segment size are given as a number of segments, all other values in bytes.
        let segments = |bytes: u64| match bytes {
            u64::MAX => "none".into(),
            bytes if bytes.is_multiple_of(snapshot.mss) => (bytes / snapshot.mss).to_string(),
            bytes => format!("{bytes}B"),
        };
        let time = |span: Option<Duration>| span.map_or_else(|| "none".into(), seconds_text);
        let timer = self.conn.poll_timeout();
        Ok(match name {
            "cwnd" => segments(snapshot.cwnd),
            "ssthresh" => segments(snapshot.ssthresh),
            "inflight" => segments(snapshot.inflight),
            "rwnd" => snapshot.rwnd.to_string(),
            "mss" => snapshot.mss.to_string(),
            "sndbuf" => snapshot.sndbuf.to_string(),
            "rcvbuf" => receiver.rcvbuf.to_string(),
            "delivered" => snapshot.delivered.to_string(),
            "lost" => snapshot.lost.to_string(),
            "acknowledged" => self.conn.acknowledged().to_string(),
            "received" => self.conn.received().to_string(),
            "readable" => self.conn.readable().to_string(),
            "retransmits" => snapshot.stats.retransmits.to_string(),
            "timeouts" => snapshot.stats.timeouts.to_string(),
            "probes" => snapshot.stats.probes.to_string(),
            "recoveries" => snapshot.stats.recoveries.to_string(),
            "recovering" => if snapshot.recovering { "yes" } else { "no" }.into(),
            "writable" => if self.writable { "yes" } else { "no" }.into(),
            "app-limited" => if snapshot.app_limited { "yes" } else { "no" }.into(),
            "isn" => self.isn.map_or_else(|| "none".into(), |isn| isn.0.to_string()),
            "limit" => snapshot.limit.name().into(),
            "state" => format!("{:?}", self.conn.state()).to_lowercase(),
            "srtt" => time(snapshot.srtt),
            "min-rtt" => time(snapshot.min_rtt),
            "pacing" => snapshot.pacing_rate.map_or_else(|| "none".into(), |rate| rate.as_bps().to_string()),
            "rate" => snapshot.delivery_rate.map_or_else(|| "none".into(), |rate| rate.as_bps().to_string()),
            "timer" if timer.is_never() => "none".into(),
            "timer" => seconds_text(timer.saturating_since(self.now)),
            other => return Err(format!("nothing is known as '{other}'")),
        })
    }

    fn relative_to_us(&self, seq: SeqNum) -> i64 {
        seq.distance_from(self.isn.unwrap_or_default()).into()
    }

    fn relative_to_peer(&self, seq: SeqNum) -> i64 {
        seq.distance_from(self.peer_isn).into()
    }

    fn describe(&self, segment: &Segment) -> String {
        let at = self.relative_to_us(segment.seq);
        let sack = segment.sack.iter().map(|(a, b)| (self.relative_to_peer(a), self.relative_to_peer(b)));
        in_words(segment, at, self.relative_to_peer(segment.ack), sack)
    }

    fn describe_inbound(&self, segment: &Segment) -> String {
        let at = self.relative_to_peer(segment.seq);
        let sack = segment.sack.iter().map(|(a, b)| (self.relative_to_us(a), self.relative_to_us(b)));
        in_words(segment, at, self.relative_to_us(segment.ack), sack)
    }
}

fn in_words(segment: &Segment, at: i64, ack: i64, sack: impl Iterator<Item = (i64, i64)>) -> String {
    let mut text = format!("{} {at}:{}", letters(segment.flags), at + i64::from(segment.len));
    if segment.flags.has(Flags::ACK) {
        write!(text, " ack {ack}").expect("a string takes it");
    }
    write!(text, " win {}", segment.window).expect("a string takes it");
    let blocks: Vec<String> = sack.map(|(from, to)| format!("{from}:{to}")).collect();
    if !blocks.is_empty() {
        write!(text, " <sack {}>", blocks.join(" ")).expect("a string takes it");
    }
    text
}

/// Checks that a segment is unchanged after encoding and parsing, so that scripts cannot contain impossible
/// segments.
fn through_octets(segment: &Segment) -> Verdict {
    let mut bytes = Headers::of(segment, PORTS.0, PORTS.1).as_bytes().to_vec();
    bytes.resize(bytes.len() + segment.len as usize, 0);
    let read = Packet::parse(&bytes, Checksums::Verify).map_err(|why| why.to_string())?.segment;
    let ack = if segment.flags.has(Flags::ACK) { segment.ack } else { SeqNum(0) };
    if read == (Segment { ack, ..segment.clone() }) {
        Ok(())
    } else {
        Err(format!("no packet says {segment:?}"))
    }
}

fn order_on_the_wire(segment: &Segment) -> Vec<&'static str> {
    let headers = Headers::of(segment, PORTS.0, PORTS.1);
    let mut bytes = &headers.as_bytes()[40..];
    let mut order = Vec::new();
    while let [kind, rest @ ..] = bytes {
        let (name, len) = match kind {
            1 => ("nop", 1),
            2 => ("mss", usize::from(rest[0])),
            3 => ("wscale", usize::from(rest[0])),
            4 => ("sackOK", usize::from(rest[0])),
            8 => ("TS", usize::from(rest[0])),
            _ => ("unknown", bytes.len()),
        };
        order.push(name);
        bytes = &bytes[len..];
    }
    order
}

fn equal(what: &str, wanted: &str, seen: &str) -> Verdict {
    let same = wanted == seen
        || matches!((language::seconds(wanted), language::seconds(seen)), (Ok(wanted), Ok(seen)) if wanted == seen);
    if same { Ok(()) } else { Err(format!("expected {what} {wanted}, came {seen}")) }
}

fn letters(flags: Flags) -> String {
    let names =
        [(Flags::SYN, 'S'), (Flags::FIN, 'F'), (Flags::RST, 'R'), (Flags::PSH, 'P'), (Flags::ACK, '.')];
    names.iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, letter)| letter).collect()
}

fn relative(origin: SeqNum, distance: i64) -> SeqNum {
    // Two's complement arithmetic reduces distances in both directions modulo 2^32.
    origin.plus(distance as u64)
}

fn millis_since_zero(now: Instant) -> i64 {
    now.as_nanos() as i64 / 1_000_000 - ZERO.as_nanos() as i64 / 1_000_000
}

fn clock_text(at: Instant) -> String {
    if at < ZERO {
        format!("-{}", seconds_text(ZERO.saturating_since(at)))
    } else {
        seconds_text(at.saturating_since(ZERO))
    }
}

fn seconds_text(span: Duration) -> String {
    let text = format!("{}.{:09}", span.as_nanos() / 1_000_000_000, span.as_nanos() % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').into()
}
