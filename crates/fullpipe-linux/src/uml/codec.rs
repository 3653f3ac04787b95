//! Encodes the documents that fullpipe and a guest exchange, as bytes.
//!
//! ```text
//!   Order       fullpipe ──► guest's init, preloaded library      what to run
//!   GuestReport guest's init ──► fullpipe                         trace rows, ends of the flows
//!   PathReport  preloaded library ──► fullpipe                    samples and counters of the path, packets
//! ```
//!
//! All three programs come from the same build. A document therefore consists only of a hash of the layout
//! and of 64-bit integers in the order of the fields. A struct is listed with all of its fields, so that a
//! new field cannot be forgotten.

use fullpipe_lab::algorithm::{FlowAlgorithm, LinuxAlgorithm};
use fullpipe_lab::outcome::ResponseOutcome;
use fullpipe_lab::scenario::{
    DirectionSpec, FlowSpec, HostSpec, LimiterSpec, LossPattern, PathSpec, Scenario,
};
use fullpipe_lab::trace::{BbrInfo, Digest, PathState, ReceiverInfo, Row, TcpInfo};
use fullpipe_lab::workload::{Reading, Workload, Writing};
use fullpipe_path::{
    AggregatorConfig, CodelConfig, Counters, DetourConfig, Discipline, FqCodelConfig, JitterConfig,
    Opportunities, PacketKind, PieConfig, RedConfig, Scope, Spread, Verdict,
};
use fullpipe_tcp::Tunables;
use fullpipe_tcp::buffers::{Buffer, DrsRule, KernelVersion, WindowRule};
use fullpipe_tcp::cc::{Algorithm, SlowStart};
use fullpipe_units::{Bytes, Duration, Instant, Probability, Rate};

use fullpipe_lab::pair::PacketRecord;

use super::exchange::{GuestReport, Order, PathReport};
use crate::link::PathSample;
use crate::outcome::FlowEnd;

/// Kernel version of a decoded host, which the guest's kernel does not read.
const GUEST: KernelVersion = KernelVersion::new(6, 1);

/// Value that can be sent to another process of the same build.
pub(super) trait Encoded: Sized {
    fn put(&self, out: &mut Vec<u8>);

    /// Reads the value from the front of `from`; returns `None` if the bytes are not a value of this type.
    fn take(from: &mut &[u8]) -> Option<Self>;
}

/// Encodes a document, preceded by a hash of the layout of all structs.
pub(super) fn encode(value: &impl Encoded) -> Vec<u8> {
    let mut out = Vec::new();
    layout().put(&mut out);
    value.put(&mut out);
    out
}

/// Decodes a document; returns `None` if `bytes` is not exactly one document of this type and of this layout.
pub(super) fn decode<T: Encoded>(mut bytes: &[u8]) -> Option<T> {
    u64::take(&mut bytes).filter(|found| *found == layout())?;
    T::take(&mut bytes).filter(|_| bytes.is_empty())
}

/// Returns a hash of the names and the order of all fields and variants; a document from a program of another
/// build has a different hash.
fn layout() -> u64 {
    let mut hash = Digest::default();
    LAYOUT.bytes().chain(VARIANTS.bytes()).for_each(|byte| hash.add(byte.into()));
    hash.value()
}

impl Encoded for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (value, rest) = from.split_first_chunk()?;
        *from = rest;
        Some(Self::from_le_bytes(*value))
    }
}

/// Encodes a type by its conversion to and from `u64`.
macro_rules! integers {
    ($($type:ty: $to:expr, $from:expr;)*) => { $(
        impl Encoded for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let to: fn($type) -> u64 = $to;
                to(*self).put(out);
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                let of: fn(u64) -> Option<$type> = $from;
                of(u64::take(from)?)
            }
        }
    )* };
}

integers! {
    u32: u64::from, |n| n.try_into().ok();
    u8: u64::from, |n| n.try_into().ok();
    bool: u64::from, |n| Some(n != 0);
    f64: f64::to_bits, |n| Some(f64::from_bits(n));
    Instant: Instant::as_nanos, |n| Some(Instant::from_nanos(n));
    Duration: Duration::as_nanos, |n| Some(Duration::from_nanos(n));
    Bytes: Bytes::get, |n| Some(Bytes::new(n));
    Rate: Rate::as_bps, |n| Some(Rate::from_bps(n));
    Probability: Probability::threshold, Probability::from_threshold;
    Algorithm: |cc| cc as u64, |n| Algorithm::ALL.into_iter().find(|cc| *cc as u64 == n);
    LinuxAlgorithm: |cc| cc as u64, |n| number(n, &LinuxAlgorithm::ALL);
    SlowStart: |kind| kind as u64, |n| SlowStart::ALL.into_iter().find(|kind| *kind as u64 == n);
    Scope: |scope| u64::from(scope == Scope::PerFlow),
        |n| Some(if n == 0 { Scope::Aggregate } else { Scope::PerFlow });
    Spread: |spread| spread as u64, |n| number(n, &[Spread::Fixed, Spread::Uniform, Spread::Normal]);
    PacketKind: |kind| kind as u64, |n| number(n, &[PacketKind::Data, PacketKind::Ack, PacketKind::Control]);
    Verdict: |verdict| verdict as u64, |n| number(n, &[
        Verdict::Accepted, Verdict::Lost, Verdict::Policed, Verdict::QueueFull, Verdict::Managed, Verdict::Thinned,
    ]);
}

fn number<T: Copy>(n: u64, all: &[T]) -> Option<T> {
    all.get(usize::try_from(n).ok()?).copied()
}

impl<T: Encoded> Encoded for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<T: Encoded> Encoded for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let len = u64::take(from)?;
        (0..len).map(|_| T::take(from)).collect()
    }
}

impl Encoded for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend(self.as_bytes());
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let len = usize::try_from(u64::take(from)?).ok()?;
        let (text, rest) = from.split_at_checked(len)?;
        *from = rest;
        Self::from_utf8(text.into()).ok()
    }
}

/// Encodes a struct field by field.
macro_rules! structs {
    ($($type:ident { $($field:ident),* $(; $($fixed:ident: $value:expr),*)? })*) => {
        /// Names of all structs and fields.
        const LAYOUT: &str = concat!($(stringify!($type $($field)*),)*);
        $(
        impl Encoded for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: Encoded::take(from)?,)* $($($fixed: $value,)*)? })
            }
        }
    )* };
}

structs! {
    Order { scenario, logged, captured }
    Scenario { path, host, flows, duration, seed, sample_every }
    PathSpec { forward, backward, mtu }
    DirectionSpec {
        rate, trace, delay, loss, loss_pattern, duplicate, ack_thinning, policer, shaper, queue, discipline,
        detour, aggregation, jitter
    }
    LimiterSpec { rate, burst, queue, scope }
    DetourConfig { by, from, until }
    AggregatorConfig { within, packets }
    JitterConfig { most, spread, share, in_order }
    RedConfig { min, max, probability, gentle, ecn }
    PieConfig { target, update, burst, ecn }
    CodelConfig { target, interval, ecn }
    FqCodelConfig { codel, flows, quantum, packets }
    // A guest has the TCP of its kernel: the settings after the semicolon apply to fullpipe's TCP only, and
    // `check` refuses scenarios that change them.
    HostSpec {
        sndbuf, rcvbuf, window_clamp, fair_queue, ecn, sack, initcwnd, slow_start_after_idle, notsent_lowat;
        kernel: GUEST,
        window_rule: WindowRule::of(GUEST, None),
        drs_rule: DrsRule::of(GUEST),
        rx_merge: Duration::ZERO,
        tunables: Tunables::LINUX,
        path_memory: false
    }
    FlowSpec {
        cc, slow_start, access_rtt, start, bytes, max_pacing_rate, workload;
        stack: None,
        profile: None,
        initcwnd: None
    }
    Workload { writing, reading, request }
    GuestReport { release, hz, rows, ends }
    FlowEnd { finished, response, delay_p99 }
    ResponseOutcome { from_syn, from_request }
    Row { at, flow, sender, receiver; path: None, truth: None }
    TcpInfo {
        cc, mss, cwnd, ssthresh, inflight, flight_size, rwnd, pacing_rate, max_pacing_rate, delivery_rate,
        app_limited, srtt, min_rtt, delivered, retransmits, dsack_dups, recovering, notsent, sndbuf,
        sndbuf_used, bbr
    }
    BbrInfo { bw, min_rtt, pacing_gain_percent, cwnd_gain_percent }
    ReceiverInfo { received, unread, rcvbuf }
    PathReport { samples, forward, backward, packets }
    PathSample { states, counters }
    PathState { queue, link_busy, shaper_busy, policed, queue_drops, random_drops }
    Counters {
        offered, delivered_data, delivered_control, random_drops, policed, queue_drops, aqm_drops, marked,
        duplicated, reordered, acks_thinned
    }
    PacketRecord { at, outbound, flow, seq, ack, len, flags, verdict }
}

/// Encodes an enum as the number of its variant, followed by the variant's values.
macro_rules! enums {
    ($($type:ident { $($number:literal => $variant:ident $(($value:ident))? $({ $($field:ident),* })?),* $(,)? })*) => {
        /// Names of all enums, variants and fields of variants.
        const VARIANTS: &str = concat!($(stringify!($type $($number $variant $($value)? $($($field)*)?)*),)*);
        $(
        impl Encoded for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self { $(
                    Self::$variant $(($value))? $({ $($field),* })? => {
                        u64::put(&$number, out);
                        $($value.put(out);)?
                        $($($field.put(out);)*)?
                    }
                )* }
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                Some(match u64::take(from)? {
                    $($number => {
                        $(let $value = Encoded::take(from)?;)?
                        $($(let $field = Encoded::take(from)?;)*)?
                        Self::$variant $(($value))? $({ $($field),* })?
                    })*
                    _ => return None,
                })
            }
        }
        )*
    };
}

enums! {
    FlowAlgorithm { 0 => Fullpipe(algorithm), 1 => Linux(algorithm) }
    LossPattern { 0 => Independent, 1 => Bursts(length), 2 => SuperPackets }
    Buffer { 0 => Auto { max }, 1 => Fixed(size) }
    Discipline {
        0 => DropTail, 1 => Step(bytes), 2 => Red(config), 3 => Pie(config), 4 => Codel(config),
        5 => FqCodel(config),
    }
    Writing { 0 => Greedy, 1 => Paced { rate, chunk }, 2 => Granted }
    Reading {
        0 => Greedy, 1 => Paced { rate, chunk }, 2 => CurlLimit { rate }, 3 => Loop { buffer, every },
        4 => Granted,
    }
}

impl Encoded for Opportunities {
    fn put(&self, out: &mut Vec<u8>) {
        self.times().to_vec().put(out);
        self.period().put(out);
        self.bytes().put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Self::new(Encoded::take(from)?, Encoded::take(from)?, Encoded::take(from)?)
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_lab::experiment::Experiment;

    use super::*;

    /// An order arrives unchanged, whatever the path and the flows consist of.
    #[test]
    fn an_order_survives_the_way_to_the_guest() {
        let paths = [
            "loss = '1%'\nqueue = { aqm = 'red', min = '30KiB', max = '90KiB' }",
            "loss = { rate = '1%', burst = 3 }\nqueue = { aqm = 'fq_codel' }\nduplicate = '1%'",
            "policer = { rate = '5mbit', burst = '20kB' }\njitter = '2ms'\nqueue = { aqm = 'pie' }",
            "shaper = { rate = '5mbit', burst = '20kB', queue = '1MB' }\nqueue = { aqm = 'codel' }",
            "detour = { by = '10ms', at = '1s', until = '2s' }\n[path.backward]\nack_thinning = 2",
        ];
        for path in paths {
            let text = format!(
                "name = 'x'\nduration = '3s'\n[path]\nrate = '10mbit'\nrtt = '20ms'\n{path}\n\
                 [host]\nsndbuf = {{ fixed = '1MiB' }}\nrcvbuf = '2MiB'\ninitcwnd = 20\necn = true\n\
                 [[flow]]\ncc = 'bbr1'\nbytes = '1MB'\napp = {{ request = '200B' }}\n\
                 [[flow]]\ncc = 'cubic'\nslow_start = 'hystart'\nstart = '1s'\n\
                 [[flow]]\ncc = 'westwood'"
            );
            let experiment = Experiment::from_toml(&text).unwrap_or_else(|error| panic!("{error}: {path}"));
            let order =
                Order { scenario: experiment.points()[0].scenario.clone(), logged: true, captured: false };
            let bytes = encode(&order);
            let arrived: Order = decode(&bytes).expect("an order");
            assert_eq!(arrived.scenario.path, order.scenario.path);
            assert_eq!(arrived.scenario.flows, order.scenario.flows);
            assert_eq!(encode(&arrived), bytes);
            assert!(decode::<Order>(&bytes[1..]).is_none(), "a cut order is not an order");
        }
    }

    #[test]
    fn a_rate_trace_survives_the_way_to_the_guest() {
        let times = [1, 5, 5].map(Duration::from_millis).to_vec();
        let trace = Opportunities::new(times, Duration::from_millis(9), Bytes::new(1_500));
        assert_eq!(decode::<Option<Opportunities>>(&encode(&trace)), Some(trace));
    }
}
