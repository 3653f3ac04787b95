//! Samples the sockets of this process for `fullpipe copy`, with the classifier that `diagnose --watch` uses, and
//! limits their rates.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fullpipe_analysis::classify::{Limit, SocketFacts};
use fullpipe_analysis::{Memory, SocketReport, Sockets};
use fullpipe_linux::sock_diag::{SocketState, Which};
use fullpipe_linux::watch;
use fullpipe_relay::{Kernel, Pacer, Room, Sampler, SocketSample};
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::Error;
use crate::watch::take;

/// Length of an interval, which contains several samples so that the classifier sees changes of the counters.
pub(crate) const INTERVAL: Duration = Duration::from_millis(250);

/// Sockets of this process, and their limits.
pub struct OwnSockets {
    watch: watch::Watch,
    sockets: Sockets,
    seen: Vec<SocketState>,
    /// Start of the present interval.
    begin: Option<Instant>,
}

impl OwnSockets {
    /// Starts to watch the sockets of this process.
    ///
    /// # Errors
    /// Returns an error if the kernel does not report sockets.
    pub fn begin(host: SocketFacts) -> Result<Self, Error> {
        let watch = watch::Watch::begin(Which::default(), Some(std::process::id()))?;
        Ok(Self { watch, sockets: Sockets::new(host).without_words(), seen: Vec::new(), begin: None })
    }
}

impl Sampler for OwnSockets {
    fn sample(&mut self) -> Vec<SocketSample> {
        // If a round of sampling fails, the copy continues without its samples.
        let Ok(round) = self.watch.round(&mut self.seen) else { return Vec::new() };
        take(&mut self.sockets, round, &self.seen, true);
        let begin = *self.begin.get_or_insert(round.at);
        if round.at.saturating_since(begin) < INTERVAL {
            return Vec::new();
        }
        self.begin = Some(round.at);
        let interval = round.at.saturating_since(begin);
        let reports = self.sockets.interval(None, Memory::Unknown);
        let complete = |report: &SocketReport| {
            let own =
                |state: &&SocketState| (state.id.local, state.id.remote) == (report.local, report.remote);
            let Some(state) = self.seen.iter().find(own) else { return sample(report, interval) };
            let sent = state.acked + Bytes::new(report.inflight_bytes);
            SocketSample { memory: state.memory, sent, ..sample(report, interval) }
        };
        reports.iter().map(complete).collect()
    }
}

pub(crate) fn sample(report: &SocketReport, interval: Duration) -> SocketSample {
    let rtt = Duration::from_secs_f64(report.rtt_ms.unwrap_or_default() / 1e3);
    SocketSample {
        port: report.local.port(),
        peer: SocketAddr::new(report.remote.ip().to_canonical(), report.remote.port()),
        acked: report.achieved * interval,
        rate: report.achieved,
        rtt,
        retransmits: report.retransmits,
        limit: report.limit.map(|limit| limit.to_string()),
        is_growing: report.retransmits == 0
            && matches!(report.limit, Some(Limit::Cwnd | Limit::Pacing | Limit::Policer | Limit::Link)),
        is_window_limited: matches!(
            report.limit,
            Some(Limit::Cwnd | Limit::Policer | Limit::Cap | Limit::Link)
        ),
        room: report.limit.map_or(Room::Starting, |limit| room(limit, report)),
        memory: Bytes::ZERO,
        sent: Bytes::ZERO,
    }
}

/// RTT, as a multiple of the minimum RTT, above which a queue at the link is assumed.
const QUEUE: f64 = 1.25;
/// RTT, as a multiple of the minimum RTT, above which the link counts as full even if a send buffer or a
/// receive window is the limit. A burst that a window or buffer releases waits for less than one minimum
/// RTT, if the link transmits it before ACKs release more.
const FULL: f64 = 2.0;

/// Two segments, for whose ACK a receiver waits, and the longest time for which Linux delays an ACK. At the rate of a
/// connection with a small window, this raises the RTT without a queue.
const DELAYED: Bytes = Bytes::new(2 * 1448);
const MOST_DELAYED_MS: f64 = 40.0;

/// Returns whether another connection may increase the total rate.
fn room(limit: Limit, report: &SocketReport) -> Room {
    // With a queue at the link, larger congestion windows would not increase the rate. A burst that a send
    // buffer or a receive window releases also queues, although the link is not full; in this case, a trial
    // of more connections decides.
    let delayed = report.achieved.time_for(DELAYED).as_secs_f64() * 1e3;
    let is_queueing = |factor: f64| match (report.rtt_ms, report.min_rtt_ms) {
        (Some(rtt), Some(least)) => rtt > least * factor + delayed.min(MOST_DELAYED_MS),
        _ => false,
    };
    match limit {
        Limit::Cwnd if is_queueing(QUEUE) => Room::Shared,
        Limit::Sndbuf | Limit::Rwnd if is_queueing(FULL) => Room::Shared,
        Limit::Cwnd | Limit::Sndbuf | Limit::Rwnd | Limit::Cap | Limit::Policer | Limit::Pacing => {
            Room::PerConnection
        }
        Limit::SlowStart | Limit::Unknown => Room::Starting,
        Limit::App | Limit::ReceiverApp | Limit::Cpu | Limit::Link => Room::Shared,
    }
}

/// Limits the rate of sockets with the pacing of the host's kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelPacer;

impl Pacer for KernelPacer {
    fn pace(&self, socket: BorrowedFd<'_>, rate: Rate) -> io::Result<()> {
        fullpipe_linux::pacing::limit(socket, rate)
    }

    fn rtt(&self, socket: BorrowedFd<'_>) -> io::Result<Duration> {
        fullpipe_linux::pacing::rtt(socket)
    }
}

/// The kernel of this host, as used by a relay that sends.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostKernel;

impl Kernel for HostKernel {
    fn sampler(&self, link: Option<Rate>) -> Option<Box<dyn Sampler>> {
        let own = OwnSockets::begin(SocketFacts { link, ..SocketFacts::default() }).ok()?;
        Some(Box::new(own))
    }

    fn pacer(&self) -> Arc<dyn Pacer> {
        Arc::new(KernelPacer)
    }
}
