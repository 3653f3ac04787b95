//! Rules for JSON logs, which have the RTT and the receive window in each report, as well as the iperf3
//! options.
//!
//! ```text
//!   in flight / snd_wnd > 0.8, and snd_wnd below Cwnd    the receive window is the limit
//!             below 0.7 of both                          neither: send buffer, application, rate cap
//!   srtt > 1.25 x the minimum RTT at a steady rate       standing queue: its link is the limit
//!   losses at one rate, no queue, and Cwnd is full       not decided: a policer or loss
//! ```
//!
//! The queue is checked first: if there is always a standing queue, the link behind it is always busy, and
//! any bound on data in flight only bounds the queue.

use fullpipe_measurement::thresholds::{
    link, queue,
    window::{self, FREE_IN_LOG as FREE, FULL_IN_LOG as FULL},
};
use fullpipe_units::{Duration, Rate};

use super::{Confidence, Exclusion, Explainer, Finding, Limit};

/// Minimum delay that counts as a queue; scheduling on the hosts can cause shorter delays.
const LEAST_QUEUE: Duration = Duration::from_millis(1);
/// iperf3 has reached its target rate (`-b`) if it sent at no less than this share of that rate.
const AS_ORDERED: f64 = 0.97;

/// A processor is the limit if each thread of iperf3 that carries data uses at least this share of one
/// processor.
/// Source: chosen; a thread that waits from time to time uses less.
/// Unit: percent
const BUSY: u32 = 97;

/// Queue at the bottleneck.
#[derive(Clone, Copy)]
pub(super) struct Queue {
    /// Smallest known RTT, taken as the RTT of the idle path.
    base: Duration,
    /// Mean RTT after the ramp.
    mean: Duration,
}

impl Explainer<'_> {
    /// Returns the standing queue in the steady state, if there is one.
    pub(super) fn queue(&self) -> Option<Queue> {
        let mean = self.measured.mean_rtt?;
        let base = self.least_rtt();
        let stands = |rtt: Duration| {
            rtt.as_secs_f64() > queue::STANDS * base.as_secs_f64() && rtt.saturating_sub(base) >= LEAST_QUEUE
        };
        // A queue that never drains keeps its link busy, regardless of how the application writes.
        let never_drains = self.series.least_rtt_at_last().is_some_and(stands);
        (never_drains || stands(mean) && self.series.is_flat()).then_some(Queue { base, mean })
    }

    /// Returns the smallest known RTT: the given RTT or a sample in the log.
    pub(super) fn least_rtt(&self) -> Duration {
        let own = self.facts.transfer.rtt.map_or(Duration::MAX, |rtt| rtt.min);
        self.measured.rtt.min(own)
    }

    /// Returns a clause with the RTTs in the log.
    pub(super) fn rtt_evidence(&self, mean: Duration) -> String {
        format!("the smoothed RTT is {mean} on average, and its minimum is {}", self.least_rtt())
    }

    /// Returns the findings for a standing queue.
    pub(super) fn standing_queue(&mut self, per_cwnd: Option<f64>) -> Vec<Finding> {
        let Some(Queue { base, mean }) = self.queue() else {
            return self.candidates();
        };
        let steady = self.measured.steady;
        let below_line = |link: &Rate| (steady.as_bps() as f64) < link::ROOM * link.as_bps() as f64;
        let elsewhere = self.facts.path.link.filter(below_line);
        let full = |ratio: Option<f64>| ratio.is_some_and(|ratio| ratio > FULL);
        let own = full(per_cwnd) || full(self.measured.inflight_per_wnd);
        let mut evidence = vec![format!(
            "{}, while the rate is constant at {steady}, so there is a standing queue of {}",
            self.rtt_evidence(mean),
            mean - base
        )];
        if own {
            evidence.push(format!(
                "this flow fills the queue: its window is full, with {} in flight",
                self.measured.inflight
            ));
        }
        if let Some(loss) = self.loss.filter(|loss| loss.events > 0) {
            evidence.push(format!("the queue overflows: {loss}"));
        }
        let mut could_not_tell = vec![
            "how long the queue gets, because the log has only one smoothed RTT per interval".to_owned(),
        ];
        if !own {
            could_not_tell
                .push("which flow fills the queue, because this flow does not fill its own window".into());
        }
        let (limit, what) = match elsewhere {
            Some(link) => {
                could_not_tell.push(format!(
                    "whether a shaper, a slower hop or other traffic keeps the rate below that of the link, {link}"
                ));
                (
                    Limit::Cap,
                    format!(
                        "a shaper or a slower hop near {steady}, with a queue before it, limits the rate"
                    ),
                )
            }
            None => {
                (Limit::Link, format!("a link of about {steady} is full, with a queue of {}", mean - base))
            }
        };
        let finding = Finding {
            limit,
            what,
            share: self.steady_share(),
            confidence: if own { Confidence::High } else { Confidence::Low },
            ceiling: Some(steady),
            evidence,
            could_not_tell,
            next_test: Some(
                "run iperf3 -P 10: an equal total means that the link is full; ping shows the queue during \
                 the test, and the idle path after it"
                    .into(),
            ),
        };
        let mut findings = vec![finding];
        if !own {
            findings.extend(self.candidates());
            findings.iter_mut().for_each(|finding| finding.confidence = Confidence::Low);
        }
        findings
    }

    /// Returns the end whose processor iperf3 keeps busy all the time, and the share of one processor that
    /// each of its threads uses, in percent. iperf3 sleeps while it waits for the network, so a slow network
    /// cannot keep a processor busy.
    pub(super) fn busy_host(&self) -> Option<(&'static str, u32)> {
        let cpu = self.facts.measurement.hosts.cpu?;
        let (local, remote) =
            if self.facts.made_by_sender() { ("sender", "receiver") } else { ("receiver", "sender") };
        let of_thread = |total: u32| total / cpu.threads.max(1);
        [(local, of_thread(cpu.local)), (remote, of_thread(cpu.remote))]
            .into_iter()
            .filter(|(_, percent)| *percent >= BUSY)
            .max_by_key(|(_, percent)| *percent)
    }

    pub(super) fn processor(&self) -> Finding {
        let (host, percent) = self.busy_host().unwrap_or_default();
        Finding {
            limit: Limit::Cpu,
            what: format!("the processor of the {host} is busy all the time"),
            share: self.steady_share(),
            confidence: Confidence::High,
            ceiling: Some(self.measured.steady),
            evidence: vec![format!(
                "iperf3 used {percent} % of a processor on the {host} (cpu_utilization_percent); while \
                 iperf3 waits for the network, it uses none"
            )],
            could_not_tell: vec!["the rate that the path would carry if the host were faster".into()],
            next_test: Some(format!(
                "run mpstat -P ALL 1 on the {host} during the transfer; with iperf3 3.16 and newer, -P 2 \
                 uses two processors"
            )),
        }
    }

    /// Returns whether iperf3 reached its target rate (`-b`).
    pub(super) fn keeps_to_order(&self) -> bool {
        let steady = self.measured.steady.as_bps() as f64;
        self.facts.transfer.offered.is_some_and(|order| steady >= AS_ORDERED * order.as_bps() as f64)
    }

    pub(super) fn ordered(&self) -> Finding {
        let order = self.facts.transfer.offered.unwrap_or_default();
        Finding {
            limit: Limit::App,
            what: format!("iperf3 was set to send at most {order} (-b)"),
            share: self.steady_share(),
            confidence: Confidence::Certain,
            ceiling: Some(order),
            evidence: vec![format!(
                "the rate after the ramp, {}, is the rate that -b sets",
                self.measured.steady
            )],
            could_not_tell: vec!["what would limit a transfer that is not limited by -b".into()],
            next_test: Some("repeat without -b".into()),
        }
    }

    /// Returns whether the receive window is known to be full.
    pub(super) fn window_is_full(&self, per_cwnd: f64) -> bool {
        self.measured.inflight_per_wnd.is_some_and(|ratio| ratio > FULL && ratio > per_cwnd)
    }

    /// Returns the findings if the log shows a full receive window.
    pub(super) fn told_window(&mut self, per_cwnd: f64) -> Vec<Finding> {
        let (Some(wnd), Some(ratio)) = (self.measured.snd_wnd, self.measured.inflight_per_wnd) else {
            return self.candidates();
        };
        if self.measured.cwnd.is_some() && per_cwnd < FREE {
            self.exclude_cwnd(per_cwnd);
        }
        let window = wnd.mul_div(1, self.measured.streams.max(1));
        let constant = self.series.wnd_is_constant();
        // A slow reader that reads smoothly also leaves the window nearly constant, but the window shrinks
        // from time to time.
        let shrinks = !self.series.wnd_never_shrinks();
        let mut evidence = vec![format!(
            "data in flight (rate x RTT) is {ratio:.2} times the receiver's window (snd_wnd), median after \
             the ramp: {} of {wnd} (the window is the limit above {FULL})",
            self.measured.inflight
        )];
        evidence.extend(
            self.measured.cwnd.map(|cwnd| format!("the Cwnd of {cwnd} would allow more data in flight")),
        );
        evidence.extend(self.received.map(|received| {
            format!("the receiving application keeps up: only {} of data is unread (Recv-Q)", received.unread)
        }));
        evidence.push(
            match (constant, shrinks) {
                (_, true) => {
                    "the window shrinks now and then, as with an application that reads slowly or in bursts"
                }
                (true, false) => "the window is constant, as with a receive buffer at its limit",
                (false, false) => "the window grows, as with a buffer that still grows",
            }
            .into(),
        );
        let plain = constant && per_cwnd < FREE && ratio <= window::SUSPICIOUS_IN_LOG;
        let rwnd = Finding {
            limit: Limit::Rwnd,
            what: format!("a receive window of {window} limits the rate"),
            share: self.steady_share(),
            confidence: if plain { Confidence::Certain } else { Confidence::High },
            ceiling: Some(self.ceiling(window)),
            evidence: evidence.clone(),
            could_not_tell: vec![
                "whether the receive buffer is too small or the application reads too slowly, because the \
                 sender sees only the window"
                    .into(),
            ],
            next_test: Some(
                "run ss -tmn on the receiver during the transfer: if Recv-Q is near 0, the buffer is the \
                 limit; if Recv-Q is near skmem rb, the application is"
                    .into(),
            ),
        };
        // The receiver observes both the window and Recv-Q.
        if self.received.is_some() {
            return vec![Finding { could_not_tell: Vec::new(), next_test: None, ..rwnd }];
        }
        if !shrinks {
            return vec![rwnd];
        }
        let app = self.app(Limit::ReceiverApp);
        vec![Finding { confidence: Confidence::Low, ..rwnd }, Finding { evidence, ..app }]
    }

    /// Returns whether the log shows that the receive window has room. If data waits behind holes, the window
    /// may be full although less than one window arrives per round trip.
    pub(super) fn window_has_room(&self) -> bool {
        self.measured.inflight_per_wnd.is_some_and(|ratio| ratio < FREE) && self.holes().is_none()
    }

    pub(super) fn exclude_window(&mut self) {
        if let (true, Some(ratio)) = (self.window_has_room(), self.measured.inflight_per_wnd) {
            self.excluded.push(Exclusion {
                limit: Limit::Rwnd,
                confidence: Confidence::Certain,
                evidence: format!(
                    "certainly not the receiver's window: data in flight, {}, is {ratio:.2} times the \
                     snd_wnd of {}, median after the ramp (below {FREE})",
                    self.measured.inflight,
                    self.measured.snd_wnd.unwrap_or_default()
                ),
            });
        }
    }

    /// Returns the rate at which most losses of a loss-based sender occurred, and the number of these losses,
    /// if a policer may have caused them.
    pub(super) fn losses_at_one_rate(&self) -> Option<(Rate, usize)> {
        let loss_based = !self.sender.algorithm().is_rate_based() && self.measured.streams == 1;
        self.series.losses_at_one_rate(self.least_rtt()).filter(|_| loss_based)
    }

    /// Returns the findings if the congestion window limits the flow: the cause is random loss or a policer.
    /// A log with intervals of whole seconds does not show which of the two, because a few random losses may
    /// also occur at one rate.
    pub(super) fn cwnd_or_policer(&mut self, ratio: f64) -> Vec<Finding> {
        let cwnd = self.cwnd(ratio);
        let Some((rate, alike)) = self.losses_at_one_rate() else {
            return match self.overshoot() {
                Some(overshoot) => self.cwnd_or_rate(cwnd, overshoot),
                None => vec![cwnd],
            };
        };
        let mut could_not_tell = vec!["whether random losses happened to occur at the same rate".to_owned()];
        if self.facts.path.link.is_none() {
            could_not_tell.push(
                "whether this is the rate of a link with a short queue (give its rate with \
                                 --link)"
                    .into(),
            );
        }
        let policer = Finding {
            limit: Limit::Policer,
            what: format!("a policer near {rate} limits the rate"),
            share: self.steady_share(),
            confidence: Confidence::Low,
            ceiling: Some(rate),
            evidence: vec![
                format!(
                    "{alike} loss episodes occurred within 5 % of {rate}, and no interval was much faster"
                ),
                format!(
                    "there was no standing queue before the losses: the smoothed RTT stayed near {}",
                    self.least_rtt()
                ),
            ],
            could_not_tell,
            next_test: Some(format!(
                "repeat with iperf3 -C bbr: if the rate stays near {rate}, a policer is the limit; a higher \
                 rate shows random loss"
            )),
        };
        vec![policer, Finding { confidence: Confidence::Low, ..cwnd }]
    }

    /// Returns the reason why the RTT during the test is unknown.
    pub(super) fn no_rtt(&self) -> &'static str {
        if self.is_text() { "the text log shows no RTT" } else { "this log has no RTT" }
    }

    /// Returns the reason why the receive window and the send buffer cannot be distinguished.
    pub(super) fn window_or_buffer(&self) -> &'static str {
        if self.is_text() {
            "whether the receive window or the send buffer is the limit, because the text log shows neither \
             snd_wnd nor the buffers"
        } else {
            "whether the receive window or the send buffer is the limit, because this log has no snd_wnd \
             (iperf3 3.11 and newer report it on kernel 5.4 and newer)"
        }
    }
}
