//! A stream of a test, and the readings of its counters and of its socket. The readings become trace rows,
//! interval reports and sums.
//!
//! ```text
//!   begin ──► warm-up (-O) ──► restart ──► report, report, ... ──► result
//! ```
//!
//! The counters of streams and sockets only increase. An interval report is the difference between two
//! consecutive readings. The result of a stream is the difference between the last reading and the reading at
//! `restart`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use fullpipe_iperf3::arrivals::Counts;
use fullpipe_iperf3::document::{Amount, Datagrams, Extremes, Heard, StreamInterval, TcpInterval};
use fullpipe_iperf3::results::OmittedCounts;
use fullpipe_iperf3::{Params, Protocol, StreamResult};
use fullpipe_lab::trace::{ReceiverSample, Row, TcpInfo};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::{Bytes, Duration, Instant};
use socket2::Socket;

use super::stream::{Sending, Stream};
use crate::clock::Clock;
use crate::error::Error;
use crate::poll::Stop;
use crate::tcp_info;

/// One stream of a test, with the readings of its counters.
pub(crate) struct Meter {
    /// Stream number as client and server exchange it.
    pub(crate) id: u32,
    /// Stream number in iperf3 JSON documents.
    pub(crate) number: i32,
    /// Whether this host sends on the stream.
    pub(crate) sends: bool,
    pub(crate) stream: Stream,
    protocol: Protocol,
    cc: Option<Algorithm>,
    /// Whether the pacing rate that the kernel computes is in effect for this socket.
    paced: bool,
    /// Reading of the counters at the start of the current part of the test (warm-up or measured part).
    base: Reading,
    last: Reading,
    seen: SocketExtremes,
}

/// Values of the counters of a stream at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    at: Instant,
    bytes: Bytes,
    datagrams: u64,
    arrived: Counts,
    retransmits: u64,
}

/// Minimum and maximum of socket values, sampled at the end of each interval report.
#[derive(Clone, Copy, Debug, Default)]
struct SocketExtremes {
    extremes: Extremes,
    rtt_sum: Duration,
    reports: u64,
}

impl Meter {
    /// Starts the stream `id` on `socket`. This host either sends as `plan` specifies, or counts received
    /// data.
    pub(crate) fn begin(
        id: u32,
        socket: Socket,
        sends: bool,
        params: &Params,
        plan: &Sending,
        clock: Clock,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let (number, wide) = (socket.as_raw_fd(), params.udp_counters_64bit);
        let stream = match (params.protocol, sends) {
            (Protocol::Tcp, true) => Stream::send(socket, plan.clone(), clock, stop),
            (Protocol::Tcp, false) => Stream::receive(socket, plan.block, stop),
            (Protocol::Udp, true) => Stream::send_datagrams(socket, plan.clone(), wide, clock, stop),
            (Protocol::Udp, false) => Stream::receive_datagrams(socket, wide, clock, stop),
        }?;
        let cc = congestion_control(stream.socket()).and_then(|name| name.parse().ok());
        let paced = params.fq_rate.is_some() || cc.is_some_and(Algorithm::is_rate_based);
        let (protocol, base) = (params.protocol, Reading { at: clock.now(), ..Reading::default() });
        Ok(Self {
            id,
            number,
            sends,
            stream,
            protocol,
            cc,
            paced,
            base,
            last: base,
            seen: SocketExtremes::default(),
        })
    }

    /// Samples the socket as a trace row of flow number `flow`; returns `None` for a receiving stream or UDP.
    pub(crate) fn row(&self, at: Instant, flow: u32) -> io::Result<Option<Row>> {
        if !self.sends || self.protocol == Protocol::Udp {
            return Ok(None);
        }
        let fd = self.stream.socket().as_fd();
        let told = tcp_info::sender(fd, self.paced)?;
        let bbr = if self.cc == Some(Algorithm::Bbr1) { tcp_info::bbr(fd)? } else { None };
        let sender = TcpInfo { cc: self.cc, bbr, ..told };
        Ok(Some(Row { at, flow, sender, receiver: None, path: None, truth: None }))
    }

    /// Samples the socket of a receiving stream; returns `None` for a sending stream or UDP.
    pub(crate) fn received(&self, at: Instant, flow: u32) -> io::Result<Option<ReceiverSample>> {
        if self.sends || self.protocol == Protocol::Udp {
            return Ok(None);
        }
        tcp_info::received(self.stream.socket().as_fd(), at, flow).map(Some)
    }

    /// Ends the warm-up of the stream: results exclude all data that was counted before this call.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.base = self.read(now);
        self.last = self.base;
        self.seen = SocketExtremes::default();
        self.stream.omitted();
    }

    /// Returns the report of the interval since the last report; `omitted` marks a report of the warm-up.
    pub(crate) fn report(&mut self, now: Instant, omitted: bool) -> StreamInterval {
        let (last, reading) = (self.last, self.read(now));
        let amount = self.amount(last, reading);
        let tcp = self.tcp(last, reading);
        let udp = (self.protocol == Protocol::Udp).then(|| self.datagrams(last, reading));
        self.last = reading;
        StreamInterval { socket: self.number, amount, tcp, udp, omitted, sender: self.sends, fullpipe: None }
    }

    /// Returns the result of the stream up to the last report, in the form that client and server exchange.
    pub(crate) fn result(&self) -> StreamResult {
        let (base, last) = (self.base, self.last);
        let of = |reading: Reading| if self.sends { reading.datagrams } else { reading.arrived.packets };
        StreamResult {
            id: self.id,
            bytes: last.bytes.saturating_sub(base.bytes),
            retransmits: (self.sends && self.protocol == Protocol::Tcp)
                .then(|| last.retransmits.saturating_sub(base.retransmits)),
            jitter: if self.sends { Duration::ZERO } else { self.stream.arrivals().jitter() },
            errors: last.arrived.lost,
            packets: of(last),
            omitted: Some(OmittedCounts { errors: base.arrived.lost, packets: of(base) }),
            start: Duration::ZERO,
            end: last.at.saturating_since(base.at),
        }
    }

    /// Returns the number of datagrams that arrived out of order; zero if this host sends on the stream.
    pub(crate) fn out_of_order(&self) -> u64 {
        self.last.arrived.since(self.base.arrived).out_of_order
    }

    /// Returns the extremes of the socket values, which were sampled at the end of each interval report.
    pub(crate) fn extremes(&self) -> Extremes {
        let mean_rtt = match self.seen.reports {
            0 => Duration::ZERO,
            reports => self.seen.rtt_sum.mul_div(1, reports),
        };
        Extremes { mean_rtt, ..self.seen.extremes }
    }

    fn read(&self, at: Instant) -> Reading {
        let fd = self.stream.socket().as_fd();
        let resent = (self.sends && self.protocol == Protocol::Tcp).then(|| tcp_info::repeats(fd));
        // If the state of the socket can no longer be queried, the last known value is kept.
        let retransmits = resent.map_or(0, |resent| resent.map_or(self.last.retransmits, |(sent, _)| sent));
        Reading {
            at,
            bytes: self.stream.bytes(),
            datagrams: self.stream.datagrams(),
            arrived: self.stream.arrivals().counts(),
            retransmits,
        }
    }

    fn amount(&self, from: Reading, to: Reading) -> Amount {
        let since = |at: Instant| Instant::ZERO + at.saturating_since(self.base.at);
        Amount { start: since(from.at), end: since(to.at), bytes: to.bytes.saturating_sub(from.bytes) }
    }

    fn tcp(&mut self, from: Reading, to: Reading) -> Option<TcpInterval> {
        if !self.sends || self.protocol == Protocol::Udp {
            return None;
        }
        let fd = self.stream.socket().as_fd();
        let info = tcp_info::sender(fd, self.paced).ok()?;
        let details = tcp_info::details(fd).unwrap_or_default();
        let rtt = info.srtt.unwrap_or_default();
        let SocketExtremes { extremes, rtt_sum, reports } = &mut self.seen;
        extremes.cwnd = extremes.cwnd.max(info.cwnd);
        extremes.wnd = extremes.wnd.max(info.rwnd);
        extremes.max_rtt = extremes.max_rtt.max(rtt);
        extremes.min_rtt = if *reports == 0 { rtt } else { extremes.min_rtt.min(rtt) };
        extremes.reorder = extremes.reorder.max(details.reord_seen);
        *rtt_sum += rtt;
        *reports += 1;
        Some(TcpInterval {
            retransmits: to.retransmits.saturating_sub(from.retransmits),
            snd_cwnd: info.cwnd,
            snd_wnd: info.rwnd,
            rtt,
            rttvar: details.rttvar,
            pmtu: details.pmtu,
            reorder: details.reord_seen,
        })
    }

    fn datagrams(&self, from: Reading, to: Reading) -> Datagrams {
        if self.sends {
            return Datagrams::sent(to.datagrams.saturating_sub(from.datagrams));
        }
        let counts = to.arrived.since(from.arrived);
        let heard = Heard { jitter: self.stream.arrivals().jitter(), lost: counts.lost };
        Datagrams::received(counts.packets, heard)
    }
}

/// Returns the kernel's name for the congestion control of a socket; returns `None` if the socket is not a
/// TCP socket.
pub(crate) fn congestion_control(socket: &Socket) -> Option<String> {
    let name = socket.tcp_congestion().ok()?;
    let name: Vec<u8> = name.into_iter().take_while(|&byte| byte != 0).collect();
    String::from_utf8(name).ok().filter(|name| !name.is_empty())
}
