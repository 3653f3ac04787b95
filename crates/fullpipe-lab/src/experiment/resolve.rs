//! Converts the fields of an experiment file into scenarios: fills in defaults, and converts multiples of the
//! BDP to bytes.

use fullpipe_path::{Discipline, Scope};
use fullpipe_tcp::buffers::{DEFAULT_WMEM, DrsRule, KernelVersion, WindowRule, default_rmem};
use fullpipe_tcp::cc::Repair;
use fullpipe_tcp::{ProbeTimeout, ReoWnd, Retries, RtoRule, Tunables};
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use super::ExperimentError;
use super::design::{Settings, Tables};
use super::file::{DirectionFile, FlowFile, HostFile, LimiterFile, PathFile, TunablesFile};
use super::impairments::{Aggregation, Detour, JitterSpec, LinkRate, Share, Thinning, Traces};
use super::profiles::missing_profile;
use super::queue::Queue;
use super::swept::{Picker, Sweep};
use super::value::{Amount, App, BufferSize, Loss, Value};
use crate::profile::Profiles;
use crate::scenario::{DirectionSpec, FlowSpec, HostSpec, LimiterSpec, PathSpec, Scenario};

/// Maximum number of flows per point. The number of flows is limited because each flow needs memory for its
/// window.
const MOST_FLOWS: usize = 10_000;
/// Returns the scenario for the field values that `picker` picks.
pub(super) fn scenario(
    tables: &Tables,
    Settings { traces, profiles, duration, sample_every }: Settings<'_>,
    picker: &mut Picker<'_>,
) -> Result<Scenario, ExperimentError> {
    let duration = picker.pick("duration", Some(duration)).unwrap_or(Duration::ZERO);
    if !(Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&duration) {
        return Err(ExperimentError::new(
            format!("duration {duration} is out of range"),
            "allowed: 1ms to 86400s",
        ));
    }
    let path = path(&tables.path, traces, picker)?;
    let host = host(&tables.host, path.bdp(), picker)?;
    let mut flows = Vec::new();
    for (i, flow) in tables.flows.iter().enumerate() {
        // The keys of the first flow have no prefix, so that conditions for a file with one flow can use
        // plain keys such as `cc`.
        let prefix = if i == 0 { String::new() } else { format!("flow{}.", i + 1) };
        flows.extend(self::flows(flow, &prefix, path.bdp(), profiles, picker)?);
    }
    if flows.len() > MOST_FLOWS {
        return Err(ExperimentError::new(
            format!("{} flows exceed the limit", flows.len()),
            format!("allowed: up to {MOST_FLOWS} per point"),
        ));
    }
    if let Some(late) = flows.iter().find(|flow| flow.start >= duration) {
        return Err(ExperimentError::new(
            format!("a flow starts at {}, after the end of the run at {duration}", late.start),
            "start the flow earlier or increase duration",
        ));
    }
    Ok(Scenario { path, host, flows, duration, seed: 0, sample_every })
}

fn path(file: &PathFile, traces: &Traces, picker: &mut Picker<'_>) -> Result<PathSpec, ExperimentError> {
    let rate = picker.pick("rate", file.rate.as_ref());
    let rtt = picker.pick("rtt", file.rtt.as_ref()).map(|delay| delay.0);
    let loss = picker.pick("loss", file.loss.as_ref());
    let queue = picker.pick("queue", file.queue.as_ref());
    let duplicate = picker.pick("duplicate", file.duplicate.as_ref());
    let detour = picker.pick("detour", file.detour.as_ref());
    let jitter = picker.pick("jitter", file.jitter.as_ref());
    let mtu = picker.pick("mtu", file.mtu.as_ref()).map_or(1500, |mtu| mtu.0);
    let policer = limiter("policer", &file.policer, picker);
    let shaper = limiter("shaper", &file.shaper, picker);
    let forward = direction("forward", &file.forward, picker);
    let backward = direction("backward", &file.backward, picker);

    let (forward_delay, backward_delay) = delays(rtt, forward.delay, backward.delay)?;
    let rtt = forward_delay + backward_delay;
    let Some(forward_rate) = forward.rate.clone().or(rate.clone()) else {
        return Err(ExperimentError::new("[path] has no rate", "add rate = \"340mbit\""));
    };
    let backward_rate = backward.rate.clone().or(rate).unwrap_or_else(|| forward_rate.clone());
    // The data direction inherits from the path all fields that it does not set itself. The ACK direction
    // inherits only the rate. ACKs are small, and their loss rarely limits a transfer, so by default no ACK
    // is lost or dropped.
    let of_data = Direction {
        rate: Some(forward_rate),
        loss: forward.loss.or(loss),
        queue: Some(forward.queue.or(queue).unwrap_or(Queue::ONE_BDP)),
        duplicate: forward.duplicate.or(duplicate),
        detour: forward.detour.or(detour),
        jitter: forward.jitter.or(jitter),
        policer: forward.policer.or(policer),
        shaper: forward.shaper.or(shaper),
        ..forward
    };
    let of_acks = Direction { rate: Some(backward_rate), ..backward };
    Ok(PathSpec {
        forward: of_data.resolve(forward_delay, rtt, mtu, traces)?,
        backward: of_acks.resolve(backward_delay, rtt, mtu, traces)?,
        mtu,
    })
}

/// Fields of one direction, as set by `[path.forward]` or `[path.backward]`.
struct Direction {
    rate: Option<LinkRate>,
    loss: Option<Loss>,
    queue: Option<Queue>,
    delay: Option<Duration>,
    duplicate: Option<Share>,
    detour: Option<Detour>,
    jitter: Option<JitterSpec>,
    ack_thinning: Option<Thinning>,
    aggregation: Option<Aggregation>,
    policer: Option<Limiter>,
    shaper: Option<Limiter>,
}

impl Direction {
    /// Converts the fields into the specification of a direction; multiples of the BDP use the direction's
    /// own rate.
    fn resolve(
        self,
        delay: Duration,
        rtt: Duration,
        mtu: u64,
        traces: &Traces,
    ) -> Result<DirectionSpec, ExperimentError> {
        let rate = self.rate.as_ref().and_then(|rate| traces.resolve(rate));
        let Some((rate, trace)) = rate else {
            return Err(ExperimentError::new("a trace file of the path is missing", LinkRate::EXAMPLE));
        };
        let bdp = rate * rtt;
        let loss = self.loss.unwrap_or(Loss::NONE);
        let (queue, discipline) = match self.queue {
            Some(queue) => queue.resolve(bdp)?,
            None => (Bytes::MAX, Discipline::DropTail),
        };
        let limiter = |name, limiter: Option<Limiter>| {
            limiter.map(|limiter| limiter.resolve(name, rtt, bdp, mtu)).transpose()
        };
        Ok(DirectionSpec {
            rate,
            trace,
            delay,
            loss: loss.rate,
            loss_pattern: loss.pattern,
            duplicate: self.duplicate.map_or(Probability::ZERO, |share| share.0),
            ack_thinning: self.ack_thinning.map_or(1, |thinning| thinning.0),
            policer: limiter("policer", self.policer)?,
            shaper: limiter("shaper", self.shaper)?,
            queue,
            discipline,
            aggregation: self.aggregation.map(|aggregation| aggregation.0),
            detour: self.detour.map(|detour| detour.0),
            jitter: self.jitter.map(|jitter| jitter.0),
        })
    }
}

/// Fields that a `[policer]` or `[shaper]` table sets.
struct Limiter {
    rate: Option<Rate>,
    burst: Option<Amount>,
    queue: Option<Amount>,
    per_flow: bool,
}

impl Limiter {
    /// Converts the fields into the specification of a limiter. The BDP is computed from the smaller of the
    /// limiter's rate and the direction's rate. The default queue of a shaper is one BDP.
    fn resolve(
        self,
        name: &str,
        rtt: Duration,
        bdp: Bytes,
        mtu: u64,
    ) -> Result<LimiterSpec, ExperimentError> {
        let Some(rate) = self.rate else {
            return Err(ExperimentError::new(
                format!("the {name} has no rate"),
                format!("add rate = \"110mbit\" to the {name}"),
            ));
        };
        if name == "policer" && self.queue.is_some() {
            return Err(ExperimentError::new("a policer does not queue", "remove queue, or use a shaper"));
        }
        let own_bdp = (rate * rtt).min(bdp);
        // A policer drops every packet that is larger than its bucket.
        let least_burst = Bytes::new(BURST_PACKETS * mtu);
        Ok(LimiterSpec {
            rate,
            burst: self.burst.map_or(least_burst, |burst| burst.resolve(own_bdp)).max(least_burst),
            queue: self.queue.unwrap_or(Amount::ONE_BDP).resolve(own_bdp),
            scope: if self.per_flow { Scope::PerFlow } else { Scope::Aggregate },
        })
    }
}

/// Minimum and default burst size of a token bucket, in packets of the path's MTU.
const BURST_PACKETS: u64 = 2;

fn limiter(prefix: &str, file: &LimiterFile, picker: &mut Picker<'_>) -> Option<Limiter> {
    let key = |name: &str| format!("{prefix}.{name}");
    let rate = picker.pick(&key("rate"), file.rate.as_ref());
    let burst = picker.pick(&key("burst"), file.burst.as_ref());
    let queue = picker.pick(&key("queue"), file.queue.as_ref());
    let per_flow = picker.pick(&key("per_flow"), file.per_flow.as_ref());
    let given = rate.is_some() || burst.is_some() || queue.is_some() || per_flow.is_some();
    given.then(|| Limiter { rate, burst, queue, per_flow: per_flow.unwrap_or(false) })
}

fn direction(name: &str, file: &DirectionFile, picker: &mut Picker<'_>) -> Direction {
    fn pick<T: Value>(picker: &mut Picker<'_>, name: &str, key: &str, field: Option<&Sweep<T>>) -> Option<T> {
        picker.pick(&format!("{name}.{key}"), field)
    }
    Direction {
        rate: pick(picker, name, "rate", file.rate.as_ref()),
        loss: pick(picker, name, "loss", file.loss.as_ref()),
        queue: pick(picker, name, "queue", file.queue.as_ref()),
        delay: pick(picker, name, "delay", file.delay.as_ref()).map(|delay| delay.0),
        duplicate: pick(picker, name, "duplicate", file.duplicate.as_ref()),
        detour: pick(picker, name, "detour", file.detour.as_ref()),
        jitter: pick(picker, name, "jitter", file.jitter.as_ref()),
        ack_thinning: pick(picker, name, "ack_thinning", file.ack_thinning.as_ref()),
        aggregation: pick(picker, name, "aggregation", file.aggregation.as_ref()),
        policer: limiter(&format!("{name}.policer"), &file.policer, picker),
        shaper: limiter(&format!("{name}.shaper"), &file.shaper, picker),
    }
}

/// Returns the one-way delay of each direction, from the RTT of the path and the delays that the directions
/// set.
fn delays(
    rtt: Option<Duration>,
    forward: Option<Duration>,
    backward: Option<Duration>,
) -> Result<(Duration, Duration), ExperimentError> {
    let (forward, backward) = match (rtt, forward, backward) {
        (_, Some(forward), Some(backward)) => (forward, backward),
        (Some(rtt), Some(forward), None) => (forward, rtt - forward),
        (Some(rtt), None, Some(backward)) => (rtt - backward, backward),
        (Some(rtt), None, None) => (rtt / 2, rtt - rtt / 2),
        (None, _, _) => return Err(ExperimentError::new("[path] has no rtt", "add rtt = \"140ms\"")),
    };
    if let Some(rtt) = rtt.filter(|rtt| *rtt != forward + backward) {
        return Err(ExperimentError::new(
            format!("the delays of the directions do not add up to the rtt of {rtt}"),
            "remove rtt, or the delay of one direction",
        ));
    }
    if forward + backward < Duration::from_micros(1) {
        return Err(ExperimentError::new("the rtt is zero", "allowed: 1us to 100s"));
    }
    Ok((forward, backward))
}

fn host(file: &HostFile, bdp: Bytes, picker: &mut Picker<'_>) -> Result<HostSpec, ExperimentError> {
    let kernel = picker.pick("kernel", file.kernel.as_ref()).unwrap_or(KernelVersion::new(6, 18));
    let scale = picker.pick("adv_win_scale", file.adv_win_scale.as_ref()).map(|scale| scale.0);
    let ratio = picker.pick("window_ratio", file.window_ratio.as_ref()).map(|ratio| ratio.0);
    let sndbuf = picker.pick("sndbuf", file.sndbuf.as_ref());
    let rcvbuf = picker.pick("rcvbuf", file.rcvbuf.as_ref());
    let window = picker.pick("window", file.window.as_ref());
    let fair_queue = picker.pick("fair_queue", file.fair_queue.as_ref()).unwrap_or(false);
    let rx_merge = picker.pick("rx_merge", file.rx_merge.as_ref()).unwrap_or(Duration::ZERO);
    let ecn = picker.pick("ecn", file.ecn.as_ref()).unwrap_or(false);
    let sack = picker.pick("sack", file.sack.as_ref()).unwrap_or(true);
    let initcwnd = picker.pick("initcwnd", file.initcwnd.as_ref()).map(|segments| segments.0);
    let after_idle = picker.pick("slow_start_after_idle", file.slow_start_after_idle.as_ref());
    let notsent_lowat = picker.pick("notsent_lowat", file.notsent_lowat.as_ref());
    let path_memory = picker.pick("path_memory", file.path_memory.as_ref()).unwrap_or(false);
    let tunables = tunables(&file.tunables, picker)?;

    let measured = kernel >= KernelVersion::PER_SOCKET_RATIO;
    if scale.is_some() && measured {
        return Err(ExperimentError::new(
            format!("kernel {kernel} ignores adv_win_scale"),
            "set window_ratio, or a kernel before 6.6",
        ));
    }
    if ratio.is_some() && !measured {
        return Err(ExperimentError::new(
            format!("kernel {kernel} has no window_ratio"),
            "set adv_win_scale, or a kernel from 6.6 on",
        ));
    }
    let window_rule = ratio.map_or(WindowRule::of(kernel, scale), WindowRule::ScalingRatio);
    Ok(HostSpec {
        kernel,
        window_rule,
        drs_rule: DrsRule::Since616,
        sndbuf: sndbuf.unwrap_or(BufferSize::auto(DEFAULT_WMEM)).resolve(bdp),
        rcvbuf: rcvbuf.unwrap_or(BufferSize::auto(default_rmem(kernel))).resolve(bdp),
        window_clamp: window.map(|window| window.0.resolve(bdp)),
        fair_queue,
        rx_merge,
        ecn,
        sack,
        initcwnd,
        slow_start_after_idle: after_idle.unwrap_or(true),
        notsent_lowat: notsent_lowat.map(|lowat| lowat.0.resolve(bdp)),
        tunables,
        path_memory,
    })
}

/// Returns Linux's tunables, with the values that the file sets.
fn tunables(file: &TunablesFile, picker: &mut Picker<'_>) -> Result<Tunables, ExperimentError> {
    fn pick<T: Value>(picker: &mut Picker<'_>, key: &str, field: Option<&Sweep<T>>) -> Option<T> {
        picker.pick(&format!("tunables.{key}"), field)
    }
    const LINUX: Tunables = Tunables::LINUX;
    let rto_min = pick(picker, "rto_min", file.rto_min.as_ref());
    let rto_prompt = pick(picker, "rto_min_prompt", file.rto_min_prompt.as_ref());
    let rto_max = pick(picker, "rto_max", file.rto_max.as_ref());
    let rto_linear = pick(picker, "rto_linear", file.rto_linear.as_ref());
    let loss_window = pick(picker, "loss_window", file.loss_window.as_ref());
    let least_window = pick(picker, "least_window", file.least_window.as_ref());
    let factor = pick(picker, "tlp_factor", file.tlp_factor.as_ref());
    let floor = pick(picker, "tlp_floor", file.tlp_floor.as_ref());
    let ack_delay = pick(picker, "tlp_ack_delay", file.tlp_ack_delay.as_ref());
    let share = pick(picker, "reo_wnd", file.reo_wnd.as_ref());
    let on_evidence = pick(picker, "reo_wnd_on_evidence", file.reo_wnd_on_evidence.as_ref());
    let syn_ack_early = pick(picker, "syn_ack_early", file.syn_ack_early.as_ref());
    let second_copy = pick(picker, "second_copy", file.second_copy.as_ref());
    let tail_copies = pick(picker, "tail_copies", file.tail_copies.as_ref());
    let syn = pick(picker, "syn_retries", file.syn_retries.as_ref());
    let syn_ack = pick(picker, "syn_ack_retries", file.syn_ack_retries.as_ref());
    let data = pick(picker, "retries", file.retries.as_ref());
    let orphan = pick(picker, "orphan_retries", file.orphan_retries.as_ref());
    let tunables = Tunables {
        rto: rto_min.map_or(LINUX.rto, |floor| RtoRule::Slack { floor }),
        rto_prompt,
        rto_max: rto_max.unwrap_or(LINUX.rto_max),
        rto_linear: rto_linear.map_or(LINUX.rto_linear, |tries| tries.0),
        loss_window: loss_window.map_or(LINUX.loss_window, |segments| segments.0),
        least_window: least_window.map_or(LINUX.least_window, |segments| segments.0),
        probe_timeout: ProbeTimeout {
            srtt_percent: factor.map_or(LINUX.probe_timeout.srtt_percent, |factor| factor.0),
            floor,
            ack_delay: ack_delay.unwrap_or(LINUX.probe_timeout.ack_delay),
        },
        reo_wnd: ReoWnd {
            share: share.map_or(LINUX.reo_wnd.share, |share| share.0),
            on_evidence: on_evidence.unwrap_or(LINUX.reo_wnd.on_evidence),
        },
        syn_ack_early,
        copies: Repair {
            second_copy: second_copy.unwrap_or(LINUX.copies.second_copy),
            tail_copies: tail_copies.map_or(LINUX.copies.tail_copies, |copies| copies.0),
        },
        retries: Retries {
            syn: syn.map_or(LINUX.retries.syn, |tries| tries.0),
            syn_ack: syn_ack.map_or(LINUX.retries.syn_ack, |tries| tries.0),
            data: data.map_or(LINUX.retries.data, |tries| tries.0),
            orphan: orphan.map_or(LINUX.retries.orphan, |tries| tries.0),
        },
        ..LINUX
    };
    match tunables.check() {
        Ok(()) => Ok(tunables),
        Err(error) => Err(ExperimentError::new(error.to_string(), format!("allowed: {}", error.allowed()))),
    }
}

fn flows(
    file: &FlowFile,
    prefix: &str,
    bdp: Bytes,
    profiles: &Profiles,
    picker: &mut Picker<'_>,
) -> Result<Vec<FlowSpec>, ExperimentError> {
    let key = |name: &str| format!("{prefix}{name}");
    let count = picker.pick(&key("count"), file.count.as_ref()).map_or(1, |count| count.0);
    let every = picker.pick(&key("every"), file.every.as_ref()).unwrap_or(Duration::ZERO);
    let access_rtt = picker.pick(&key("access_rtt"), file.access_rtt.as_ref());
    let max_pacing_rate = picker.pick(&key("max_pacing"), file.max_pacing.as_ref());
    let bytes = picker.pick(&key("bytes"), file.bytes.as_ref()).map(|bytes| bytes.0.resolve(bdp));
    let start = picker.pick(&key("start"), file.start.as_ref()).unwrap_or(Duration::ZERO);
    let workload = picker.pick(&key("app"), file.app.as_ref()).map(App::workload).unwrap_or_default();
    let Some(cc) = picker.pick(&key("cc"), file.cc.as_ref()) else {
        return Err(ExperimentError::new("a [[flow]] has no cc", "add cc = \"cubic\""));
    };
    let slow_start = picker.pick(&key("slow_start"), file.slow_start.as_ref());
    if slow_start.is_some() && cc.slow_start().is_none() {
        return Err(ExperimentError::new(
            format!("slow_start applies only to reno and cubic; {cc} has its own slow start"),
            "remove slow_start from flows with another cc",
        ));
    }
    let stack = picker.pick(&key("stack"), file.stack.as_ref());
    let profile = match picker.pick(&key("profile"), file.profile.as_ref()) {
        None => None,
        Some(name) => Some(*profiles.get(&name).ok_or_else(|| missing_profile(name))?),
    };
    let flow = FlowSpec {
        cc,
        slow_start,
        access_rtt: access_rtt.map_or(Duration::ZERO, |delay| delay.0),
        start,
        bytes,
        max_pacing_rate,
        workload,
        stack,
        profile,
        initcwnd: None,
    };
    Ok((0..count).map(|number| FlowSpec { start: start + every * number, ..flow.clone() }).collect())
}
