//! Candidate limits of a flow with room in its congestion window.
//!
//! Each candidate predicts a rate: the receive window per RTT, the usable part of the send buffer per RTT, or
//! the rate of the control measurement. Candidates are ranked by how close their prediction is to the
//! measured rate; a text log cannot prove any of them.

use fullpipe_measurement::measurement::Role;
use fullpipe_measurement::segment::HEADERS;
use fullpipe_measurement::thresholds::{link, queue, rate, send_buffer, window};
use fullpipe_tcp::buffers::{DEFAULT_WMEM, OLDER_DEFAULT_RMEM, WindowRule, default_rmem};
use fullpipe_units::{Bytes, Duration, Rate};

use super::series::Series;
use super::{
    BufferSource, Buffers, Confidence, Exclusion, Explainer, Facts, Finding, Limit, MeasuredFigures, Sender,
};

/// Average share of a limiting send buffer that is in flight.
/// Source: 3.93 of 4.19 MB, measured.
const TYPICAL_USABLE: f64 = 0.94;

/// Share of the estimated data in flight that a buffer is certain to have held. The share is below one
/// because rate x RTT is an imprecise estimate.
const SURELY_HELD: (u64, u64) = (9, 10);
/// A prediction explains the measured rate if it is at most this multiple of that rate. It may be higher than
/// the measured rate, because windows are not always full.
const FIT: f64 = 1.4;
/// A prediction explains the measured rate if it is at least this share of that rate. It may be slightly
/// lower than the measured rate, because the log is coarse.
const GRAIN: f64 = 0.95;
/// A control measurement of up to this multiple of the steady rate counts as equal to it.
const SAME: f64 = 1.25;
/// A control measurement of at least this multiple of the steady rate rules out a rate cap on the host.
const EXCLUDES: f64 = 1.5;

/// A rate cap dropped nothing if less than this share of the segments was retransmitted. Because BBR's probes
/// exceed the cap, BBR retransmits 7 % of its segments at a policer, and 1 % at a shaper with a queue of 1
/// BDP. This constant is a tenth of the smaller share, so a cap of either kind retransmits more.
/// Source: `experiments/flow-cap.toml`.
const DROPPED_AT_A_CAP: f64 = 0.001;

/// Returns the assumed buffers: from the dump, or else the kernel's defaults, and at least as large as the
/// log proves.
pub(super) fn buffers(
    facts: &Facts<'_>,
    series: &Series,
    measured: &MeasuredFigures,
    older_dump: bool,
) -> Buffers {
    let sender = facts.sender().map(|(host, _)| host);
    let receiver = facts.receiver().map(|(host, _)| host);
    let kernel =
        facts.hosts.kernel.or(receiver.and_then(|host| host.kernel)).or(facts.measurement.hosts.kernel);
    // Kernels since 6.6 ignore tcp_adv_win_scale. If the dump lacks the kernel release, the release in the
    // log is used, provided that the dump is from the host that made the log or applies to both hosts.
    let of_another_host = !facts.hosts.one_for_both() && facts.measurement.made_by_sender();
    let of_dump = if of_another_host { facts.hosts.kernel } else { kernel };
    let rule = match (receiver.and_then(|host| host.window_rule(of_dump)), kernel) {
        (Some(rule), _) => rule,
        (None, Some(kernel)) => WindowRule::of(kernel, None),
        (None, None) => WindowRule::AdvWinScale(1),
    };
    let of_sender = if older_dump { BufferSource::OlderDump } else { BufferSource::Dump };
    // A separate dump of the receiver may be newer than the sender's.
    let of_receiver = if facts.hosts.one_for_both() { of_sender } else { BufferSource::Dump };
    let default_rmem = kernel.map_or(OLDER_DEFAULT_RMEM, default_rmem);
    let choose = |(dump, source): (Option<[Bytes; 3]>, _), default: Bytes, least: Bytes| match dump {
        Some(triple) if triple[2] >= least => (triple[2], source),
        _ if default >= least => (default, BufferSource::KernelDefault),
        _ => (least, BufferSource::Log),
    };
    let held = per_flow(measured.inflight, measured).mul_div(SURELY_HELD.0, SURELY_HELD.1);
    let full = measured.inflight_per_wnd.is_some_and(|ratio| ratio >= window::FREE_IN_LOG);
    let told = measured.snd_wnd.filter(|_| full).map(|wnd| rule.space(per_flow(wnd, measured)));
    let seen = series.largest_wnd().map_or(Bytes::ZERO, |wnd| per_flow(wnd, measured));
    let (rcvbuf, rcvbuf_source) = match (told, facts.measurement.hosts.set_buffers) {
        (Some(space), _) => (space, BufferSource::Window),
        // iperf3 also applies the client's -w on the server.
        (None, Some(set)) if rule.window(set.rcvbuf) >= held => (set.rcvbuf, BufferSource::Socket),
        _ => choose(
            (receiver.and_then(|host| host.tcp_rmem), of_receiver),
            default_rmem,
            rule.space(held.max(seen)),
        ),
    };
    let (sndbuf, sndbuf_source) = match facts.measurement.hosts.set_buffers {
        Some(set) if set.sndbuf >= held => (set.sndbuf, BufferSource::Socket),
        _ => choose((sender.and_then(|host| host.tcp_wmem), of_sender), DEFAULT_WMEM, held),
    };
    // iperf3 sets both ends with -w. A size that contradicts the log is not in effect.
    let set = facts.measurement.hosts.set_buffers.is_some();
    let rcvbuf_fixed = set && matches!(rcvbuf_source, BufferSource::Socket | BufferSource::Window);
    let sndbuf_fixed = set && sndbuf_source == BufferSource::Socket;
    Buffers { rcvbuf, rcvbuf_source, sndbuf, sndbuf_source, rcvbuf_fixed, sndbuf_fixed, rule }
}

fn per_flow(bytes: Bytes, measured: &MeasuredFigures) -> Bytes {
    bytes.mul_div(1, measured.streams.max(1))
}

impl Explainer<'_> {
    /// Returns the candidates, best first; never empty.
    pub(super) fn candidates(&mut self) -> Vec<Finding> {
        let steady = self.measured.steady.as_bps() as f64;
        let flat = self.series.is_flat();
        let window = self.ceiling(self.buffers.window());
        let sndbuf = self.ceiling(self.buffers.sndbuf);
        let rwnd_fits = fits(window.as_bps() as f64, window.as_bps() as f64, steady);
        let sndbuf_fits =
            fits(send_buffer::LEAST_USABLE * sndbuf.as_bps() as f64, sndbuf.as_bps() as f64, steady);
        let holes = self.holes();
        let control = self.control_verdict();
        let cap_excluded = control == Control::Excludes;

        // A finding with a rank below 1 sorts before every buffer that fits, and a finding with a
        // rank above 2 after all of them.
        let distance = |predicted: f64| (predicted / steady).ln().abs();
        let mut ranked: Vec<(f64, Finding)> = Vec::new();
        ranked.extend(holes.map(|holes| (0.5, self.holes_in_the_window(holes))));
        if let Some(link) = self.facts.path.link.filter(|link| self.nearly_fills(*link)) {
            ranked.push((0.4, self.nearly_full(link)));
            ranked.iter_mut().for_each(|(_, finding)| finding.confidence = Confidence::Low);
        }
        let mut add = |fits: bool, predicted: f64, finding: Finding| {
            ranked.push(((if fits { 1.0 } else { 3.0 }) + distance(predicted).min(0.99), finding));
        };
        if !self.window_has_room() && holes.is_none() {
            add(rwnd_fits, window.as_bps() as f64, self.rwnd(window, rwnd_fits, flat, cap_excluded));
        }
        let typical = TYPICAL_USABLE * sndbuf.as_bps() as f64;
        add(sndbuf_fits, typical, self.sndbuf(sndbuf, sndbuf_fits, flat));
        if cap_excluded {
            let control = self.facts.hosts.control.unwrap_or_default();
            self.excluded.push(Exclusion {
                limit: Limit::Cap,
                confidence: Confidence::High,
                evidence: format!(
                    "the host has no rate cap, because one of its flows reached {control} in the control measurement"
                ),
            });
        } else {
            let (cap, rank) = self.cap();
            ranked
                .push((if control == Control::Same { 0.0 } else { rank }, self.rate_cap(control, cap, flat)));
        }
        if self.facts.path.link.is_none() && !self.path_is_excluded() {
            ranked.push((2.7, self.unknown_link()));
        }
        if !flat {
            ranked.push((0.9, self.app(Limit::App)));
            ranked.push((0.95, self.app(Limit::ReceiverApp)));
        } else if (!rwnd_fits || self.window_has_room()) && !sndbuf_fits {
            // No known setting explains the rate. An application causes no drops, whereas a rate cap may.
            let drops = self.retransmitted().is_some_and(|share| share > DROPPED_AT_A_CAP);
            ranked.push((if drops { 2.6 } else { 2.3 }, self.app(Limit::App)));
            ranked.push((4.2, self.app(Limit::ReceiverApp)));
        }
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranked.into_iter().map(|(_, finding)| finding).collect()
    }

    /// Returns the findings if Cwnd is unknown, as in a receiver's log. Their confidence is low, unless gaps
    /// in the received data show that loss limits the flow.
    pub(super) fn without_cwnd(&mut self) -> Vec<Finding> {
        let flat = self.series.is_flat();
        let mut findings = self.candidates();
        let gaps = self.gaps();
        let by_loss = gaps.as_ref().is_some_and(|(_, confidence)| *confidence > Confidence::Low);
        let cwnd = Finding {
            limit: Limit::Cwnd,
            what: if by_loss { "loss holds cwnd down" } else { "the congestion window limits the rate" }
                .into(),
            share: self.steady_share(),
            confidence: Confidence::Low,
            ceiling: None,
            evidence: vec![if let Some((gaps, _)) = gaps {
                gaps
            } else if flat {
                "the only evidence is that loss limits most slow transfers".into()
            } else {
                "the rate rises and falls, as it does with a loss-based sender".into()
            }],
            could_not_tell: Vec::new(),
            next_test: None,
        };
        let first_fits = !by_loss && flat && findings.first().is_some_and(|f| f.limit != Limit::Link);
        findings.insert(usize::from(first_fits), cwnd);
        let (lacks, test) = match self.facts.transfer.role {
            Role::Receiver if self.received.is_some() => (
                "the receiving end sees neither Cwnd nor the send buffer",
                "measure from the sending host: fullpipe iperf3 there without -R, or fullpipe iperf3 -s there",
            ),
            Role::Receiver if self.facts.measurement.packets().is_none() => (
                "a receiver's log shows neither Cwnd nor retransmissions",
                "take the log on the sending host: iperf3 -c HOST without -R",
            ),
            _ if self.facts.measurement.packets().is_some() => {
                ("a capture shows no Cwnd", "check the sender's socket during the transfer: ss -tmi")
            }
            _ => (
                "this build of iperf3 prints no Cwnd",
                "repeat with iperf3 3.1 or newer on Linux, which prints Cwnd; on another system, capture the transfer: \
                 tcpdump -s 96 -w F tcp port 5201",
            ),
        };
        for finding in &mut findings {
            finding.confidence = Confidence::Low;
            finding.could_not_tell.insert(0, lacks.into());
            finding.next_test = Some(test.into());
        }
        if by_loss {
            findings[0].confidence = Confidence::High;
        }
        findings
    }

    /// Returns how long BBR stayed in Startup after the rate had levelled off; `None` for other senders.
    fn startup(&self) -> Option<Duration> {
        let bbr = self.sender.algorithm().is_rate_based();
        self.series.stays_in_startup(self.measured.rtt).filter(|_| bbr)
    }

    /// Returns the rate that `window` bytes in flight per flow allow.
    pub(super) fn ceiling(&self, window: Bytes) -> Rate {
        let total = window.mul_div(self.measured.streams.max(1), 1);
        Rate::of(total, self.measured.rtt)
    }

    /// Returns whether the rate is near that of the control measurement, so that a rate cap on the
    /// host explains it.
    pub(super) fn meets_the_control_rate(&self) -> bool {
        self.control_verdict() == Control::Same && self.cap.is_some()
    }

    fn control_verdict(&self) -> Control {
        let Some(control) = self.facts.hosts.control else {
            return Control::Unknown;
        };
        let (control, steady) = (control.as_bps() as f64, self.measured.steady.as_bps() as f64);
        match control / steady {
            // `Explainer::control_cap` has already noted why the control measurement is ignored.
            ratio if ratio < rate::CONTROL_TOO_LOW => Control::Unknown,
            ratio if ratio <= SAME => Control::Same,
            ratio if ratio >= EXCLUDES => Control::Excludes,
            _ => Control::Unknown,
        }
    }

    fn common_evidence(&self, flat: bool) -> Vec<String> {
        let mut evidence: Vec<String> =
            self.measured.inflight_per_cwnd.map(|ratio| self.not_cwnd(ratio)).into_iter().collect();
        if flat {
            evidence.push(format!("the rate is flat at {} after the ramp", self.measured.steady));
        } else {
            evidence.push(format!("the rate varies around {} after the ramp", self.measured.steady));
        }
        if let (true, Some(ratio)) =
            (self.sender.algorithm().is_rate_based(), self.measured.inflight_per_cwnd)
        {
            let gain = 1.0 / ratio;
            evidence.push(format!(
                "Cwnd is {gain:.1} times the data in flight, as with BBR: 2.9 times in Startup, 2 times later"
            ));
        }
        evidence
    }

    /// Returns the open question whether the receive window or the send buffer is the limit, if the log does
    /// not show the window.
    fn alike(&self) -> Option<String> {
        self.measured.snd_wnd.is_none().then(|| self.window_or_buffer().into())
    }

    /// Returns the reason why a buffer size is uncertain.
    fn doubt(&self, source: BufferSource) -> Option<String> {
        match source {
            BufferSource::Dump | BufferSource::Socket | BufferSource::Window | BufferSource::Trace => None,
            BufferSource::OlderDump => Some(
                "which buffers were in effect, because this sysctl dump is older than the log (it does \
                      not list bbr)"
                    .into(),
            ),
            BufferSource::KernelDefault => {
                Some("which buffers were in effect; the kernel's defaults are assumed".into())
            }
            BufferSource::Log => {
                Some("which buffers were in effect, because the known buffers contradict the log".into())
            }
        }
    }

    fn rwnd(&self, ceiling: Rate, fits: bool, flat: bool, cap_excluded: bool) -> Finding {
        let Buffers { rcvbuf, rcvbuf_source, rule, .. } = self.buffers;
        let window = self.buffers.window();
        let mut evidence = self.common_evidence(flat);
        evidence.push(format!(
            "tcp_rmem[2] {rcvbuf} gives a window of {window} ({rule}), which allows {ceiling} at an RTT of {}",
            self.measured.rtt
        ));
        // An outdated dump matters less if the kernel's defaults lead to the same window.
        let by_default = WindowRule::AdvWinScale(1).window(OLDER_DEFAULT_RMEM);
        if rcvbuf_source == BufferSource::OlderDump && by_default == window {
            evidence.push(format!(
                "kernels from 2012 to 6.15 have the same window by default (tcp_rmem[2] \
                 {OLDER_DEFAULT_RMEM} with tcp_adv_win_scale 1)"
            ));
        }
        let mut could_not_tell = Vec::from_iter(self.doubt(rcvbuf_source));
        could_not_tell.extend(self.alike());
        if cap_excluded {
            could_not_tell.push(
                "whether a policer on the path caps each flow, because the control measurement did not use this path"
                    .into(),
            );
        }
        if !fits {
            could_not_tell.push(
                "why the rate differs from the rate that this window allows; the sysctl dump may be from \
                 another host"
                    .into(),
            );
        }
        if self.startup().is_some() {
            could_not_tell.push(
                "why BBR stays in Startup; this suggests that the send buffer is the limit, not the receive window"
                    .into(),
            );
        }
        let high = fits && flat && self.startup().is_none() && (rcvbuf_source.is_fact() || cap_excluded);
        Finding {
            limit: Limit::Rwnd,
            what: if fits {
                format!("a receive window near {window} limits the rate")
            } else {
                format!(
                    "a receive window near {} limits the rate",
                    per_flow(self.measured.inflight, &self.measured)
                )
            },
            share: self.steady_share(),
            confidence: if high { Confidence::High } else { Confidence::Low },
            ceiling: fits.then_some(ceiling),
            evidence,
            could_not_tell,
            next_test: Some(
                "run ss -tmi dst RECEIVER on the sender during the transfer: if unacked x mss is near \
                 snd_wnd, the receive window is the limit; if skmem w is near tb, the send buffer is"
                    .into(),
            ),
        }
    }

    fn sndbuf(&self, ceiling: Rate, fits: bool, flat: bool) -> Finding {
        let Buffers { sndbuf, sndbuf_source, .. } = self.buffers;
        let least = Rate::from_bps((send_buffer::LEAST_USABLE * ceiling.as_bps() as f64) as u64);
        let mut evidence = self.common_evidence(flat);
        evidence.push(format!(
            "a send buffer of {sndbuf} keeps data until the receiver acknowledges it; with 0.67 to 1.0 of \
             the buffer in flight, the rate is {least} to {ceiling} at an RTT of {}",
            self.measured.rtt
        ));
        if let Some(held) = self.startup() {
            // tcp_bbr.c, bbr_check_full_bw_reached(): application-limited samples do not count.
            evidence.push(format!(
                "while the rate is level, Cwnd stays for {held} at the size that BBR allows in Startup: BBR \
                 does not notice the end of Startup while the sender has nothing to send, as with a full \
                 send buffer or a slow application"
            ));
        }
        let mut could_not_tell = Vec::from_iter(self.doubt(sndbuf_source));
        could_not_tell.extend(self.alike());
        let alone = self.window_has_room() && self.measured.inflight_per_cwnd.is_some();
        if alone && fits && !flat {
            could_not_tell.push(
                "whether the send buffer or the sending application is the limit, because \
                                 both leave room in every window"
                    .into(),
            );
        }
        Finding {
            limit: Limit::Sndbuf,
            what: if fits {
                format!("a send buffer of {sndbuf} limits the rate")
            } else {
                "a send buffer smaller than the known size limits the rate".into()
            },
            share: self.steady_share(),
            confidence: if alone && fits && flat { Confidence::High } else { Confidence::Low },
            ceiling: fits.then_some(ceiling),
            evidence,
            could_not_tell,
            next_test: Some(
                "run ss -tmi dst RECEIVER on the sender during the transfer: if skmem w is 0.67 to 1.0 of \
                 tb, and snd_wnd is well above unacked x mss, the send buffer is the limit"
                    .into(),
            ),
        }
    }

    /// Returns the share of the segments that were retransmitted, if the log counts them.
    fn retransmitted(&self) -> Option<f64> {
        let again = self.loss.and(self.measured.retransmits)?;
        Some(again as f64 / self.segments().max(1) as f64)
    }

    /// Returns the number of full segments needed to carry the data in the log.
    fn segments(&self) -> u64 {
        let log = self.facts.transfer;
        let bytes = log.sent.map_or_else(|| log.bytes(), |sent| sent.bytes);
        bytes.get().div_ceil(self.measured.mss.get().max(1))
    }

    /// Returns whether the congestion window rules out a queue beyond the sending host: if there is a queue,
    /// a loss-based sender increases its window until a packet is lost. BBR keeps its window constant by
    /// design.
    fn path_is_excluded(&self) -> bool {
        let loss_based =
            !matches!(self.sender, Sender::Assumed(_)) && !self.sender.algorithm().is_rate_based();
        let lossless = self.measured.retransmits == Some(0);
        loss_based && lossless && self.series.cwnd_is_constant()
    }

    /// Excludes link and policer, if the congestion window rules them out. A shaper on the sending host is
    /// not excluded: it delays packets before they count as sent.
    pub(super) fn exclude_the_path(&mut self) {
        if self.path_is_excluded() {
            let evidence = format!(
                "no queue on the path is the limit, because Cwnd stays at {} without a loss, whereas {} \
                 would increase Cwnd until a queue overflows",
                self.measured.cwnd.unwrap_or_default(),
                self.sender.algorithm()
            );
            for limit in [Limit::Link, Limit::Policer] {
                let evidence = evidence.clone();
                self.excluded.push(Exclusion { limit, confidence: Confidence::High, evidence });
            }
        }
    }

    /// Returns the kind of rate cap that fits the log, and its rank: drops suggest a policer, a queue
    /// suggests a shaper.
    fn cap(&self) -> (Cap, f64) {
        if self.path_is_excluded() {
            return (Cap::Host, 2.8);
        }
        let share = self.retransmitted();
        let bbr = self.sender.algorithm().is_rate_based() && !matches!(self.sender, Sender::Assumed(_));
        if !bbr || share.is_none_or(|share| share > DROPPED_AT_A_CAP) {
            return (Cap::Any, 2.5);
        }
        let base = self.least_rtt().as_secs_f64();
        let level =
            self.facts.transfer.rtt.is_some_and(|rtt| rtt.max.as_secs_f64() < queue::NONE_IN_LOG * base);
        if level { (Cap::Host, 3.95) } else { (Cap::WithoutDrops, 2.8) }
    }

    fn rate_cap(&self, control: Control, cap: Cap, flat: bool) -> Finding {
        let mut evidence = self.common_evidence(flat);
        let near = match (control, self.facts.hosts.control) {
            (Control::Same, Some(rate)) => {
                evidence.push(format!(
                    "one flow of the same host reached only {rate} in the control measurement, which \
                     neither the link nor the RTT limits"
                ));
                rate
            }
            _ => self.measured.steady,
        };
        let again = self.measured.retransmits.unwrap_or(0);
        if cap != Cap::Any && self.loss.is_some() && self.sender.algorithm().is_rate_based() {
            evidence.push(format!(
                "a policer is unlikely, because only {again} of {} segments were retransmitted: BBR \
                 retransmits about 7 % behind a policer, and 1 % behind a shaper with a queue of 1 BDP \
                 (simulated, experiments/flow-cap.toml)",
                self.segments()
            ));
        } else if self.loss.is_some_and(|loss| loss.rate.as_f64() < 1e-4) {
            evidence.push(format!(
                "only {again} segments were retransmitted, as with a shaper or a slow host; a policer would drop more"
            ));
        }
        if let (Cap::Host, Some(rtt)) = (cap, self.facts.transfer.rtt) {
            evidence.push(format!(
                "a shaper is unlikely, because its queue would raise the smoothed RTT, which stays between {} and {}",
                rtt.min, rtt.max
            ));
        }
        let (what, open) = match cap {
            Cap::Any => (
                "a rate cap on one flow or on the host",
                "a cap on one flow, a cap on the host and a shaper on the path look alike",
            ),
            Cap::WithoutDrops => (
                "a shaper or a bottleneck in the host",
                "a shaper with a deep queue and a bottleneck in the host look alike, because neither drops packets",
            ),
            Cap::Host => (
                "a bottleneck in the host",
                "a bottleneck in the host (processor, virtual switch) is not excluded, because it neither \
                 drops packets nor builds a queue on the path",
            ),
        };
        let mut could_not_tell = vec![format!("what enforces the cap: {open}")];
        if control != Control::Same {
            could_not_tell.push(
                "the rate that one flow of this host reaches on a short path (give it with --control \
                       RATE)"
                    .into(),
            );
        }
        Finding {
            limit: Limit::Cap,
            what: format!("{what} near {near} limits the rate"),
            share: self.steady_share(),
            confidence: if control == Control::Same { Confidence::High } else { Confidence::Low },
            ceiling: (control == Control::Same).then_some(near),
            evidence,
            could_not_tell,
            next_test: Some(
                "measure one flow to a host near the sender and give its rate with --control, and run \
                 iperf3 -P 2 on the path: a doubled total excludes a cap on the host"
                    .into(),
            ),
        }
    }

    /// Returns whether the rate is near the rate of `link`. A flow that starts slowly may fill the link
    /// only later.
    fn nearly_fills(&self, link: Rate) -> bool {
        let mss = self.measured.mss.get();
        let most = link.mul_div(mss, mss + HEADERS);
        self.measured.steady.as_bps() as f64 >= link::FULL_IN_ROWS * most.as_bps() as f64
    }

    fn nearly_full(&self, link: Rate) -> Finding {
        Finding {
            limit: Limit::Link,
            what: format!("a link of {link} is full"),
            share: self.steady_share(),
            confidence: Confidence::Low,
            ceiling: None,
            evidence: vec![format!(
                "the rate after the ramp, {}, is nearly that of the link, {link}",
                self.measured.steady
            )],
            could_not_tell: vec![
                "whether the link was full after slow start, because the test is too short".into(),
            ],
            next_test: Some(
                "measure for longer: iperf3 -t 60; if the link is full, the rate comes closer to that of the \
                 link"
                    .into(),
            ),
        }
    }

    fn unknown_link(&self) -> Finding {
        Finding {
            limit: Limit::Link,
            what: format!("a link of about {} is full", self.measured.steady),
            share: self.steady_share(),
            confidence: Confidence::Low,
            ceiling: None,
            evidence: vec![format!(
                "the rate of the link is not known; {} may be all that the link carries",
                self.measured.steady
            )],
            could_not_tell: vec!["whether the link is faster (give its rate with --link)".into()],
            next_test: Some(
                "run iperf3 -P 10: a total well above the rate of one flow excludes the link".into(),
            ),
        }
    }

    pub(super) fn app(&self, limit: Limit) -> Finding {
        let (what, test) = match limit {
            Limit::App => (
                "the sending application offers no more data",
                "run ss -tmi on the sender: if the send queue is empty (notsent 0, skmem w far below tb), \
                 the application is the limit",
            ),
            _ => (
                "the receiving application reads too slowly",
                "run ss -tn on the receiver: if Recv-Q stays full, the application is the limit",
            ),
        };
        Finding {
            limit,
            what: what.into(),
            share: self.steady_share(),
            confidence: Confidence::Low,
            ceiling: None,
            evidence: self.common_evidence(self.series.is_flat()),
            could_not_tell: vec![
                "whether the application was active all the time, because the log does not show it".into(),
            ],
            next_test: Some(test.into()),
        }
    }
}

/// Kind of rate cap, inferred from retransmissions and RTTs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cap {
    /// Any kind: the log does not show which.
    Any,
    /// Not a policer: almost nothing was dropped.
    WithoutDrops,
    /// Neither a policer nor a shaper: almost nothing was dropped, and there was never a standing queue.
    Host,
}

/// Conclusion about a rate cap from the control measurement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Control {
    /// No conclusion, or no control measurement.
    Unknown,
    /// The control measurement has nearly the same rate as the log.
    Same,
    /// The control measurement is so fast that the host cannot have a rate cap.
    Excludes,
}

/// Returns whether a limit that allows rates from `least` to `most` explains the rate `measured`.
fn fits(least: f64, most: f64, measured: f64) -> bool {
    most >= GRAIN * measured && least <= FIT * measured
}
