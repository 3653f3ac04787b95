//! Path memory: measurements of earlier connections on the paths to their clients, and the size of the first flight
//! that follows from these measurements.
//!
//! ```text
//!   end of a connection ─► record ─► prefix: RTT, rate, window, loss, launch level (governor)
//!   new connection ─► recall ─► launch window, loss ─► grant ─► octets above ten segments (budgets)
//! ```
//!
//! Clients in one /24 (IPv4) or /48 (IPv6) share an entry, because they usually share the bottleneck. The table has a
//! fixed size, and a keyed hash selects the position of an entry, so that a client cannot choose which entries it
//! displaces. The driver passes the time and the key; this module does no I/O.
//!
//! Three rules keep larger first flights safe. They apply to all connections together:
//!
//! | rule | effect |
//! |---|---|
//! | governor | a prefix on which first flights lose more than later data launches with fewer segments |
//! | budgets | octets above ten segments are limited per client, per prefix and for the device |
//! | kill switch ([`KillSwitch`]) | no launch above ten segments while much more is sent than needed |

use core::fmt;
use std::net::IpAddr;

use fullpipe_units::{Bytes, Duration, Instant, Probability, Rate, draw};

use crate::cc::{INITIAL_SEGMENTS, Launch};

mod kill_switch;
mod limits;
mod table;

pub use kill_switch::{KillSwitch, SenderTotals, TripReason};
pub use limits::MemoryLimits;
use table::Table;

/// Streams of the keyed hash: one selects the set of an entry, the other computes the tag of the entry.
const SET_STREAM: u64 = 0x7365_7473;
const TAG_STREAM: u64 = 0x7461_6773;

/// Launch windows of the governor in segments, from the smallest one. The last one is the default of surge.
const LEVELS: [u32; 4] = [10, 20, 32, Launch::DEFAULT.window];
/// Threshold for the loss of a first flight minus the later loss, above which the launch is considered too large:
/// 2 %.
const EXCESS: f64 = 0.02;
/// Weight of the latest launch in the mean excess. For a step down, the loss of one launch must exceed that of later
/// data by 16 percentage points. A smaller excess causes a step down only after several launches. With random loss of 3
/// %, the mean over launches of 44 segments exceeds 2 % once in a thousand launches.
const EXCESS_WEIGHT: f64 = 0.125;
/// Number of clean launches after which the governor takes a step up.
const CLEAN_LAUNCHES: u32 = 10;
/// Time for which a prefix launches with ten segments after a warning. A warning is a congestive loss in a first flight
/// that used a remembered capacity, or after which the capacity is still not known.
const FLAGGED: Duration = Duration::from_secs(600);

/// Minimum number of lost segments in a first flight for a congestive loss to be a warning. An ECN mark without a
/// loss is also a warning.
const LEAST_WARNING: u64 = 3;

/// Time for which path memory keeps RTT and loss. [`CAPACITY_LIFE`] is the time for the capacity. RFC 9959 requires
/// that stored values expire.
const LIFE: Duration = Duration::from_secs(3_600);
const CAPACITY_LIFE: Duration = Duration::from_secs(600);
/// Minimum time between two connections of one prefix that resume a stored window.
const RESUME_EVERY: Duration = Duration::from_secs(10);
/// Minimum window that is worth resuming, as a multiple of ten segments.
const LEAST_RESUMED: u64 = 4;
/// Share of the rate of a measured bottleneck that a launch may use. The rest is for the other flows on the path: a
/// launch at the full rate fills the queue with the data that they send meanwhile.
const LAUNCH_SHARE: (u64, u64) = (3, 4);
/// Divisor of the remembered rate and window: a new connection may use one half at once (RFC 9959 section 3.3).
const RESUMED_SHARE: u64 = 2;
/// Weight of the latest connection in the mean loss.
const LOSS_WEIGHT: f64 = 0.25;
/// Minimum amount of data in a connection for a measurement of its loss, in segments.
const LEAST_SAMPLE: u64 = 100;

/// Longest time over which the device's budget accumulates.
const DEVICE_BURST: Duration = Duration::from_millis(100);
/// RTT assumed for a budget if the RTT of the connection is not known.
const ASSUMED_RTT: Duration = Duration::from_millis(100);

/// Interface to path memory, for the owner of the connections.
pub trait PathMemory: fmt::Debug + Send {
    /// Returns the smallest RTT of the last connection to the prefix of `client`, if it is known. The call changes
    /// nothing, because a forged SYN can cause it.
    fn rtt(&self, now: Instant, client: IpAddr) -> Option<Duration>;

    /// Returns the known values of the path to `client`.
    fn recall(&mut self, now: Instant, client: IpAddr) -> Recollection;

    /// Records the measurements of a connection to `client`; called when the connection ends.
    fn record(&mut self, now: Instant, client: IpAddr, visit: &Visit);

    /// Returns how many of the `wanted` octets above ten segments a new connection to `client` with this RTT may
    /// launch.
    fn grant(&mut self, now: Instant, client: IpAddr, wanted: Bytes, rtt: Option<Duration>) -> Bytes;

    /// Passes the sums over all connections of the sender to the [`KillSwitch`].
    fn observe(&mut self, now: Instant, totals: SenderTotals);

    /// Returns the state of the memory, with the reason if larger launches are forbidden.
    fn summary(&self) -> MemorySummary;
}

/// State of a path memory, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemorySummary {
    /// Number of prefixes with an entry.
    pub prefixes: usize,
    /// Number of connections that launched more than ten segments.
    pub launches: u64,
    /// Number of connections that had to launch fewer segments than their prefix permits, because a budget was
    /// exhausted.
    pub over_budget: u64,
    /// Reason why the kill switch has acted.
    pub tripped: Option<TripReason>,
}

/// Values known about a path before the first byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recollection {
    /// Largest launch window in segments that the governor permits; `None` permits the launch window of the
    /// configuration.
    pub window: Option<u32>,
    /// Smallest RTT of the last connection.
    pub rtt: Option<Duration>,
    /// RTT variation of the last connection.
    pub rttvar: Duration,
    /// Mean random loss; zero if it is not known.
    pub loss: Probability,
    /// Rate and window of an earlier connection.
    pub capacity: Option<Capacity>,
    /// Whether a new connection may use half of the capacity at once. Otherwise the capacity may only slow down a
    /// launch.
    pub resumes: bool,
    /// Whether the kill switch has acted.
    pub halted: bool,
}

impl Recollection {
    /// No knowledge about the path; permits the launch of the configuration.
    pub const NONE: Self = Self {
        window: None,
        rtt: None,
        rttvar: Duration::ZERO,
        loss: Probability::ZERO,
        capacity: None,
        resumes: false,
        halted: false,
    };
}

/// Rate that a path has carried, and the amount of data in flight at that rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Delivery rate.
    pub rate: Rate,
    /// Data in flight at `rate` when the queue is empty: the rate times the smallest RTT.
    pub cwnd: Bytes,
    /// Whether the path limited the rate. Otherwise, the path may carry more.
    pub is_bottleneck: bool,
}

/// Measurements of one connection when it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Visit {
    /// Smallest RTT.
    pub rtt: Duration,
    /// RTT variation.
    pub rttvar: Duration,
    /// Rate and window, if the connection was long enough to measure them.
    pub capacity: Option<Capacity>,
    /// Segments of the first flight. `launch_lost` is the number of these segments that were lost.
    pub launched: u64,
    /// Lost segments out of `launched`.
    pub launch_lost: u64,
    /// Segments sent after the first flight. `later_lost` is the number of these segments that were lost.
    pub later: u64,
    /// Lost segments out of `later`.
    pub later_lost: u64,
    /// Whether a loss in the first flight was congestive.
    pub congested: bool,
    /// Whether the first flight used a capacity from path memory.
    pub informed: bool,
}

impl Visit {
    /// Returns whether congestion in the first flight is a warning: it occurred although the capacity of the path was
    /// known, or no measurement of the bottleneck is available for a better launch. One or two lost segments are not a
    /// warning, because in a short queue random loss looks like congestion.
    fn is_warning(&self) -> bool {
        let many = self.launch_lost == 0 || self.launch_lost >= LEAST_WARNING;
        self.congested
            && many
            && (self.informed || self.capacity.is_none_or(|capacity| !capacity.is_bottleneck))
    }
}

impl Recollection {
    /// Returns the launch of a connection whose handshake took `rtt`. `configured` is the launch on an unknown path,
    /// and `rwnd` is the window that the client offers.
    ///
    /// The rate of a launch does not exceed three quarters of the rate of a bottleneck that an earlier connection has
    /// measured. On a path that carried more than the configured launch, the launch uses up to half of the remembered
    /// rate and window. Both rules apply only if the RTT matches (RFC 9959 sections 3.2 and 3.3).
    pub fn launch(&self, configured: Launch, rtt: Option<Duration>, rwnd: Bytes, mss: u64) -> Launch {
        let window = self.window.map_or(configured.window, |most| configured.window.min(most));
        let governed = Launch { window, ..configured };
        let (Some(rtt), Some(known), Some(capacity)) = (rtt, self.rtt, self.capacity) else {
            return governed;
        };
        if rtt < known / 2 || rtt > known * 10 {
            return governed;
        }
        let (part, whole) = LAUNCH_SHARE;
        let bound = if capacity.is_bottleneck { capacity.rate.mul_div(part, whole) } else { Rate::MAX };
        let slowed = Launch { window, rate: configured.rate.min(bound) };
        let worth = LEAST_RESUMED * INITIAL_SEGMENTS * mss;
        if !self.resumes || self.window.is_some() || capacity.cwnd.get() < worth {
            return slowed;
        }
        let jump = (capacity.cwnd.get() / RESUMED_SHARE).min(rwnd.get()) / mss.max(1);
        Launch {
            window: window.max(jump.min(u64::from(u32::MAX)) as u32),
            rate: slowed.rate.max(capacity.rate.mul_div(1, RESUMED_SHARE)),
        }
    }
}

/// Token bucket that counts octets.
#[derive(Clone, Copy, Debug)]
struct Budget {
    octets: u64,
    filled_at: Instant,
}

impl Budget {
    const fn full(octets: u64, now: Instant) -> Self {
        Self { octets, filled_at: now }
    }

    /// Fills the bucket to at most `most` octets, at `most` octets per `period`.
    fn fill(&mut self, now: Instant, most: u64, period: Duration) {
        let elapsed = u128::from(now.saturating_since(self.filled_at).as_nanos());
        let earned = u128::from(most) * elapsed / u128::from(period.as_nanos().max(1));
        if earned > 0 {
            self.octets = u128::from(most).min(u128::from(self.octets) + earned) as u64;
            self.filled_at = now;
        }
    }
}

/// Entry of a prefix in path memory.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Time of the last measurement; `None` before the first one.
    measured_at: Option<Instant>,
    rtt: Duration,
    rttvar: Duration,
    loss: f32,
    excess: f32,
    /// Capacity, and the time of its measurement.
    capacity: Option<(Capacity, Instant)>,
    resumed_at: Option<Instant>,
    flagged_until: Instant,
    budget: Budget,
    level: u8,
    clean: u8,
}

impl Entry {
    fn new(now: Instant, budget: u64) -> Self {
        Self {
            measured_at: None,
            rtt: Duration::ZERO,
            rttvar: Duration::ZERO,
            loss: 0.0,
            excess: 0.0,
            capacity: None,
            resumed_at: None,
            flagged_until: Instant::ZERO,
            budget: Budget::full(budget, now),
            level: LEVELS.len() as u8 - 1,
            clean: 0,
        }
    }

    /// Stores the capacity that a connection has measured. A connection that was too short to fill the bottleneck shows
    /// only a lower bound of the capacity.
    fn take_capacity(&mut self, now: Instant, visit: &Visit) {
        if visit.is_warning() {
            // RFC 9959 section 3.4: discard the saved state.
            self.capacity = None;
            return;
        }
        let current = self.capacity.filter(|(_, at)| now.saturating_since(*at) <= CAPACITY_LIFE);
        let Some(measured) = visit.capacity else { return };
        if measured.is_bottleneck || current.is_none_or(|(known, _)| measured.rate > known.rate) {
            self.capacity = Some((measured, now));
        }
    }

    /// Adjusts the launch window of the prefix after a launch (the governor).
    fn govern(&mut self, now: Instant, visit: &Visit) {
        if visit.is_warning() {
            self.flagged_until = now + FLAGGED;
        }
        if visit.launched <= INITIAL_SEGMENTS && self.level > 0 {
            // This first flight was no larger than the usual initial window of ten segments.
            return;
        }
        let later = if visit.later >= LEAST_SAMPLE {
            share(visit.later_lost, visit.later)
        } else {
            f64::from(self.loss)
        };
        let excess = share(visit.launch_lost, visit.launched) - later;
        let mean = f64::from(self.excess) + EXCESS_WEIGHT * (excess - f64::from(self.excess));
        self.excess = mean as f32;
        if excess > EXCESS && mean > EXCESS {
            (self.level, self.clean, self.excess) = (self.level.saturating_sub(1), 0, 0.0);
        } else if excess <= EXCESS {
            self.clean += 1;
            if u32::from(self.clean) == CLEAN_LAUNCHES {
                (self.level, self.clean) = ((self.level + 1).min(LEVELS.len() as u8 - 1), 0);
            }
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Memory of a bounded number of prefixes and clients, in which new entries replace the least recently used
/// entries.
#[derive(Debug)]
pub struct Memory {
    key: u64,
    device_rate: Rate,
    limits: MemoryLimits,
    prefixes: Table<Entry>,
    clients: Table<Budget>,
    device: Budget,
    switch: KillSwitch,
    launches: u64,
    over_budget: u64,
}

impl Memory {
    /// Returns an empty memory for a device with this rate, with the default limits. `key` must be secret and should be
    /// random.
    pub fn new(key: u64, device_rate: Rate) -> Self {
        Self::with_limits(key, device_rate, MemoryLimits::DEFAULT)
    }

    /// Returns an empty memory with these limits.
    pub fn with_limits(key: u64, device_rate: Rate, limits: MemoryLimits) -> Self {
        Self {
            key,
            device_rate,
            limits,
            prefixes: Table::new(limits.prefixes),
            clients: Table::new(limits.prefixes),
            device: Budget::full(device_budget(device_rate, limits), Instant::ZERO),
            switch: KillSwitch::default(),
            launches: 0,
            over_budget: 0,
        }
    }

    fn is_halted(&self) -> bool {
        self.switch.reason().is_some()
    }

    /// Returns the hash and the tag of an address.
    fn place(&self, address: u128) -> (u64, u64) {
        let (high, low) = ((address >> 64) as u64, address as u64);
        let hash = |stream: u64| draw(draw(self.key, stream, high), stream, low);
        (hash(SET_STREAM), hash(TAG_STREAM))
    }

    fn prefix(&mut self, now: Instant, client: IpAddr) -> &mut Entry {
        let (place, budget) = (self.place(prefix_of(client)), self.limits.prefix.get());
        self.prefixes.entry(now, place, || Entry::new(now, budget))
    }
}

/// Returns the /24 or /48 of an address, as a number.
fn prefix_of(client: IpAddr) -> u128 {
    match client {
        IpAddr::V4(v4) => u128::from(u32::from(v4) & 0xffff_ff00),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => prefix_of(IpAddr::V4(v4)),
            // Without this bit, a /48 of zeros would equal an IPv4 prefix.
            None => ((u128::from(v6) >> 80) << 80) | 1,
        },
    }
}

fn device_budget(rate: Rate, limits: MemoryLimits) -> u64 {
    (limits.device_rate(rate) * DEVICE_BURST).get().max(limits.client.get())
}

impl PathMemory for Memory {
    fn rtt(&self, now: Instant, client: IpAddr) -> Option<Duration> {
        let entry = self.prefixes.get(self.place(prefix_of(client)))?;
        let measured_at = entry.measured_at?;
        (now.saturating_since(measured_at) <= LIFE).then_some(entry.rtt)
    }

    fn recall(&mut self, now: Instant, client: IpAddr) -> Recollection {
        let halted = self.is_halted();
        let entry = self.prefix(now, client);
        let careful = halted || now < entry.flagged_until;
        let level = if careful { 0 } else { usize::from(entry.level) };
        let window = (level + 1 < LEVELS.len()).then(|| LEVELS[level]);
        let blank = Recollection { window, halted, ..Recollection::NONE };
        let fresh = |at: Instant, life: Duration| now.saturating_since(at) <= life;
        if entry.measured_at.is_none_or(|at| !fresh(at, LIFE)) {
            return blank;
        }
        let capacity =
            entry.capacity.filter(|(_, at)| fresh(*at, CAPACITY_LIFE)).map(|(capacity, _)| capacity);
        let resumes = capacity.is_some()
            && window.is_none()
            && entry.resumed_at.is_none_or(|at| now.saturating_since(at) >= RESUME_EVERY);
        if resumes {
            entry.resumed_at = Some(now);
        }
        Recollection {
            rtt: Some(entry.rtt),
            rttvar: entry.rttvar,
            loss: Probability::from_f64(entry.loss.into()),
            capacity,
            resumes,
            ..blank
        }
    }

    fn record(&mut self, now: Instant, client: IpAddr, visit: &Visit) {
        let entry = self.prefix(now, client);
        entry.govern(now, visit);
        if visit.later >= LEAST_SAMPLE {
            let loss = share(visit.later_lost, visit.later);
            let before = if entry.measured_at.is_some() { f64::from(entry.loss) } else { loss };
            entry.loss = (before + LOSS_WEIGHT * (loss - before)) as f32;
        }
        (entry.rtt, entry.rttvar, entry.measured_at) = (visit.rtt, visit.rttvar, Some(now));
        entry.take_capacity(now, visit);
    }

    fn grant(&mut self, now: Instant, client: IpAddr, wanted: Bytes, rtt: Option<Duration>) -> Bytes {
        if self.is_halted() || wanted.is_zero() {
            return Bytes::ZERO;
        }
        let rtt = rtt.unwrap_or(ASSUMED_RTT).max(Duration::from_millis(1));
        let address = match client {
            IpAddr::V4(v4) => u128::from(u32::from(v4)),
            IpAddr::V6(v6) => v6.into(),
        };
        let MemoryLimits { client: per_client, prefix: per_prefix, .. } = self.limits;
        let [per_client, per_prefix] = [per_client, per_prefix].map(Bytes::get);
        let (of_client, of_prefix) = (self.place(address), self.place(prefix_of(client)));
        let of_client = self.clients.entry(now, of_client, || Budget::full(per_client, now));
        let of_prefix = &mut self.prefixes.entry(now, of_prefix, || Entry::new(now, per_prefix)).budget;
        let of_device = &mut self.device;
        let most = device_budget(self.device_rate, self.limits);
        let period =
            self.limits.device_rate(self.device_rate).max(Rate::from_bps(1)).time_for(Bytes::new(most));
        of_client.fill(now, per_client, rtt);
        of_prefix.fill(now, per_prefix, rtt);
        of_device.fill(now, most, period);
        let budgets = [of_client, of_prefix, of_device];
        let granted = budgets.iter().fold(wanted.get(), |granted, budget| granted.min(budget.octets));
        budgets.into_iter().for_each(|budget| budget.octets -= granted);
        self.launches += u64::from(granted > 0);
        self.over_budget += u64::from(granted < wanted.get());
        Bytes::new(granted)
    }

    fn observe(&mut self, now: Instant, totals: SenderTotals) {
        self.switch.observe(now, totals);
    }

    fn summary(&self) -> MemorySummary {
        MemorySummary {
            prefixes: self.prefixes.len(),
            launches: self.launches,
            over_budget: self.over_budget,
            tripped: self.switch.reason(),
        }
    }
}

#[cfg(test)]
mod tests;
