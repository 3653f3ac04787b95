//! Computes the totals of an iperf3 test from the counters of both ends.

use fullpipe_iperf3::document::{
    Amount, CpuUtilization, Datagrams, End, EndReceiver, EndSender, EndStream, EndUdp, Extremes, Heard, Sum,
};
use fullpipe_iperf3::results::{Cpu, OmittedCounts};
use fullpipe_iperf3::{Protocol, Results, StreamResult};
use fullpipe_units::{Bytes, Duration, Instant};

use super::meter::{Meter, congestion_control};

/// Counters of one stream, from both ends of the stream.
struct Both {
    socket: i32,
    sender: bool,
    /// Counters of the sending end and of the receiving end; `None` if an end did not report its counters.
    sent: Option<StreamSums>,
    received: Option<StreamSums>,
    extremes: Extremes,
    /// Number of datagrams that arrived out of order; known only if this host receives.
    out_of_order: u64,
}

#[derive(Clone, Copy, Default)]
struct StreamSums {
    amount: Amount,
    retransmits: Option<u64>,
    packets: u64,
    lost: u64,
    jitter: Duration,
}

impl StreamSums {
    fn of(result: &StreamResult, length: Duration) -> Self {
        let OmittedCounts { errors, packets } = result.omitted.unwrap_or_default();
        // Versions of iperf3 before 3.7 send no times, so the duration that this host measured is used
        // instead.
        let told = result.end.saturating_sub(result.start);
        let length = if told.is_zero() { length } else { told };
        Self {
            amount: Amount { start: Instant::ZERO, end: Instant::ZERO + length, bytes: result.bytes },
            retransmits: result.retransmits,
            packets: result.packets.saturating_sub(packets),
            lost: result.errors.saturating_sub(errors),
            jitter: result.jitter,
        }
    }

    fn sum(all: impl Iterator<Item = Self>) -> Option<Self> {
        let mut several = 0;
        let total = all.reduce(|sum, one| {
            several += 1;
            Self {
                amount: Amount { bytes: sum.amount.bytes + one.amount.bytes, ..sum.amount },
                retransmits: sum.retransmits.zip(one.retransmits).map(|(a, b)| a + b),
                packets: sum.packets + one.packets,
                lost: sum.lost + one.lost,
                jitter: sum.jitter + one.jitter,
            }
        })?;
        Some(Self { jitter: total.jitter.mul_div(1, several + 1), ..total })
    }

    fn heard(&self) -> Heard {
        Heard { jitter: self.jitter, lost: self.lost }
    }
}

/// Returns the results of this host, in the form in which client and server exchange them.
pub(crate) fn results(meters: &[Meter], protocol: Protocol, cpu: Cpu) -> Results {
    let sends = meters.iter().any(|meter| meter.sends);
    Results {
        cpu,
        sender_has_retransmits: sends.then_some(protocol == Protocol::Tcp),
        congestion_used: meters.first().and_then(|meter| congestion_control(meter.stream.socket())),
        streams: meters.iter().map(Meter::result).collect(),
        server_output: None,
        trace: None,
    }
}

/// Computes the totals of a test. `theirs` is `None` if the test ended before the other end reported its
/// results. In a bidirectional test, `first` selects the streams of the main direction.
pub(crate) fn end(
    meters: &[Meter],
    protocol: Protocol,
    ours: &Results,
    theirs: Option<&Results>,
    first: impl Fn(&Meter) -> bool,
) -> End {
    let streams: Vec<(bool, Both)> = meters.iter().map(|meter| (first(meter), both(meter, theirs))).collect();
    let of = |main: bool| streams.iter().filter(move |(first, _)| *first == main).map(|(_, both)| both);
    let other = streams.iter().any(|(first, _)| !first);
    let sums = |main: bool| Sums::of(&of(main).collect::<Vec<_>>(), protocol);
    let forward = sums(true);
    let backward = if other { sums(false) } else { Sums::default() };
    let names = (ours.congestion_used.clone(), theirs.and_then(|theirs| theirs.congestion_used.clone()));
    let sends = meters.iter().find(|meter| first(meter)).is_none_or(|meter| meter.sends);
    let (sending, receiving) = if sends { names } else { (names.1, names.0) };
    End {
        streams: streams.iter().map(|(_, both)| both.document(protocol)).collect(),
        sum: forward.udp,
        sum_sent: forward.sent,
        sum_received: forward.received,
        sum_bidir_reverse: backward.udp,
        sum_sent_bidir_reverse: backward.sent,
        sum_received_bidir_reverse: backward.received,
        cpu_utilization_percent: Some(cpu(ours.cpu, theirs.map(|theirs| theirs.cpu))),
        sender_tcp_congestion: sending,
        receiver_tcp_congestion: receiving,
        fullpipe: None,
    }
}

fn both(meter: &Meter, theirs: Option<&Results>) -> Both {
    let own = meter.result();
    let length = own.end.saturating_sub(own.start);
    let ours = Some(StreamSums::of(&own, length));
    let theirs = theirs.and_then(|theirs| theirs.streams.iter().find(|stream| stream.id == meter.id));
    let theirs = theirs.map(|result| StreamSums::of(result, length));
    let (sent, received) = if meter.sends { (ours, theirs) } else { (theirs, ours) };
    Both {
        socket: meter.number,
        sender: meter.sends,
        sent,
        received,
        extremes: meter.extremes(),
        out_of_order: meter.out_of_order(),
    }
}

impl Both {
    fn document(&self, protocol: Protocol) -> EndStream {
        let &Self { socket, sender, sent, received, extremes, out_of_order } = self;
        if protocol == Protocol::Udp {
            let either = sent.or(received).unwrap_or_default();
            let datagrams = match received {
                Some(received) => Datagrams::received(either.packets, received.heard()),
                None => Datagrams::sent(either.packets),
            };
            let datagrams = datagrams.of_which_late(out_of_order);
            let received = received.map(|received| received.amount);
            return EndStream::Udp {
                udp: EndUdp { socket, amount: either.amount, datagrams, received, sender },
            };
        }
        let extremes = Some(extremes);
        EndStream::Tcp {
            sender: sent.map(|StreamSums { amount, retransmits, .. }| EndSender {
                socket,
                amount,
                retransmits,
                extremes,
                sender,
            }),
            receiver: received.map(|StreamSums { amount, .. }| EndReceiver { socket, amount, sender }),
        }
    }
}

/// Sums over all streams of one direction.
#[derive(Default)]
struct Sums {
    udp: Option<Sum>,
    sent: Option<Sum>,
    received: Option<Sum>,
}

impl Sums {
    fn of(streams: &[&Both], protocol: Protocol) -> Self {
        let sender = streams.iter().any(|both| both.sender);
        let sent = StreamSums::sum(streams.iter().filter_map(|both| both.sent));
        let received = StreamSums::sum(streams.iter().filter_map(|both| both.received));
        let sum =
            |StreamSums { amount, retransmits, .. }, udp, sender| Sum { amount, retransmits, udp, sender };
        if protocol == Protocol::Tcp {
            let received =
                received.map(|received| sum(StreamSums { retransmits: None, ..received }, None, sender));
            return Self { udp: None, sent: sent.map(|sent| sum(sent, None, sender)), received };
        }
        // A sender cannot observe losses, so its counts contain none.
        let unheard = |sent: StreamSums| Datagrams::received(sent.packets, Heard::default());
        let heard = |of: StreamSums, received: StreamSums| Datagrams::received(of.packets, received.heard());
        let bare = |of: StreamSums| StreamSums { retransmits: None, ..of };
        let whole = sent.or(received).map(|of| match received {
            Some(received) => sum(bare(of), Some(heard(of, received)), sender),
            None => sum(bare(of), Some(unheard(of)), sender),
        });
        Self {
            udp: whole,
            sent: sent.map(|sent| sum(bare(sent), Some(unheard(sent)), true)),
            received: received.map(|received| sum(bare(received), Some(heard(received, received)), false)),
        }
    }
}

fn cpu(ours: Cpu, theirs: Option<Cpu>) -> CpuUtilization {
    let theirs = theirs.unwrap_or_default();
    CpuUtilization {
        host_total: ours.total,
        host_user: ours.user,
        host_system: ours.system,
        remote_total: theirs.total,
        remote_user: theirs.user,
        remote_system: theirs.system,
    }
}

/// Returns the number of bytes that all streams of this host have counted, for comparison with the requested
/// amount (`-n`).
pub(crate) fn bytes_so_far(meters: &[Meter]) -> Bytes {
    meters.iter().fold(Bytes::ZERO, |sum, meter| sum + meter.stream.bytes())
}
