//! Assumptions of a diagnosis, and notes about its input.

use fullpipe_measurement::input::sysctl::HostSettings;
use fullpipe_measurement::measurement::Format;
use fullpipe_measurement::segment::DEFAULT_MSS;
use fullpipe_measurement::thresholds::window;
use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_tcp::cc::Algorithm;

use super::assumption::Assumption;
use super::{Explainer, RttSource, Sender};

/// The RTT is probably in the wrong unit if data in flight is below this share of Cwnd, because flows rarely
/// use so little of Cwnd.
const BARELY_USED: f64 = 0.1;

impl Explainer<'_> {
    pub(super) fn state_assumptions(&mut self) {
        self.assumptions.push(self.sender.into());
        self.assumptions.extend(self.buffers.assumed().map(Assumption::from));
        self.assumptions.extend(self.facts.whose_dumps().into_iter().map(Assumption::from));
        if self.measured.rtt_source == RttSource::Bound {
            self.assume(format!(
                "no RTT is given, so an RTT of {} is assumed, which is an upper bound: a window at most doubles \
                 per round trip, and contains at least rate x RTT",
                self.measured.rtt
            ));
        }
        if let (RttSource::Log, Some(own)) = (self.measured.rtt_source, self.facts.transfer.rtt) {
            let of_trace = self.facts.is_traced();
            self.assume(if of_trace {
                format!(
                    "the RTT of the path is the smallest RTT of the connection, {}, which includes any \
                     queue that was there from the first packet on; to exclude such a queue, run ping \
                     before the test, and give its RTT with --rtt",
                    own.min
                )
            } else {
                format!(
                "the RTT of the path is the smallest smoothed RTT in the log, {}, which includes any queue \
                 that was there from the first report on; to exclude such a queue, run ping before the \
                 test, and give its RTT with --rtt",
                own.min
                )
            });
        }
        if let (Some(kernel), None) = (self.facts.measurement.hosts.kernel, self.known_kernel()) {
            self.assume(format!("kernel {kernel} on both hosts, the version on the host that wrote the log"));
        }
        if self.facts.transfer.mss.is_none() {
            self.assume(format!("segments of {} bytes", DEFAULT_MSS.get()));
        }
    }

    fn assume(&mut self, sentence: String) {
        self.assumptions.push(sentence.into());
    }

    pub(super) fn state_notes(&mut self) {
        let (log, origin) = (self.facts.transfer, &self.facts.measurement.origin);
        let ratio = self.measured.inflight_per_cwnd;
        if let Some(ratio) =
            ratio.filter(|ratio| *ratio > window::SUSPICIOUS_IN_LOG && self.measured.mean_rtt.is_some())
        {
            self.notes.push(format!(
                "rate x RTT is {ratio:.1} times Cwnd, so the samples at the ends of the intervals are not \
                 representative"
            ));
        }
        if let (Some(name), false) = (&log.congestion_control, matches!(self.sender, Sender::Named(_))) {
            self.notes.push(format!(
                "the log names the congestion control {name}, which the simulator does not have; {} is \
                 simulated instead",
                self.sender.algorithm()
            ));
        }
        if let Some(opposite) = self.facts.measurement.opposite() {
            self.notes.push(format!(
                "the test ran in both directions; this diagnosis is for the direction in which this host \
                 sent. The other direction carried {}, and its data delayed the ACKs of this direction",
                opposite.mean_rate()
            ));
        }
        if ratio.is_some_and(|ratio| ratio < BARELY_USED) && self.measured.mean_rtt.is_none() {
            self.notes.push(format!(
                "at an RTT of {}, the data in flight is far below Cwnd; check --rtt",
                self.measured.rtt
            ));
        }
        if origin.truncated {
            self.notes
                .push(format!("the log ends after {} intervals, without a summary", log.intervals.len()));
        }
        if let Some(error) = &origin.error {
            self.notes.push(format!("iperf3 ended with an error: {error}"));
        }
        if self.older_dump {
            self.notes.push(
                "this sysctl dump is older than the log (it does not list bbr), so its buffer sizes are assumptions"
                    .into(),
            );
        }
        let dump_cc = self.facts.sender().and_then(|(host, _)| host.congestion_control.as_deref());
        if dump_cc == Some("bbr") && self.sender == Sender::Inferred(Algorithm::Cubic) {
            self.notes.push(
                "the sysctl dump names bbr, but Cwnd in the log is that of a loss-based congestion control; \
                 either the dump is from another time, or the socket had another congestion control"
                    .into(),
            );
        }
        // Window scaling requires both endpoints, whereas only the receiver's settings determine how the
        // receive buffer grows.
        let (sender, receiver) = (self.facts.sender(), self.facts.receiver());
        let no_scaling = |(host, _): &(&HostSettings, _)| host.window_scaling == Some(false);
        if sender.iter().chain(&receiver).any(no_scaling) {
            self.notes
                .push("tcp_window_scaling is off, so no window exceeds 64 KiB on new connections".into());
        }
        if receiver.is_some_and(|(host, _)| host.moderate_rcvbuf == Some(false)) {
            self.notes.push("tcp_moderate_rcvbuf is off, so the receive buffer stays at tcp_rmem[1]".into());
        }
        if self.received.is_some() {
            self.notes.push(
                "the ladder assumes a path without loss, because a receiver does not count losses".into(),
            );
        }
        if log.streams > 1 {
            self.notes.push(format!(
                "{} streams are diagnosed together; limits per flow are multiplied by the number of streams",
                log.streams
            ));
        }
    }
    pub(super) fn is_text(&self) -> bool {
        self.facts.measurement.origin.format == Format::Text
    }

    /// Returns the receiver's kernel release, as given by the user or found in the dump; the window size
    /// depends on it.
    fn known_kernel(&self) -> Option<KernelVersion> {
        self.facts.hosts.kernel.or(self.facts.receiver().and_then(|(host, _)| host.kernel))
    }
}
