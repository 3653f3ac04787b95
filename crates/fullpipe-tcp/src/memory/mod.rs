//! Path memory: what earlier connections have learnt about the paths to their clients, and how large a first
//! flight it permits.
//!
//! ```text
//!   end of a connection ─► record ─► prefix: RTT, rate, window, loss, launch level (governor)
//!   new connection ─► recall ─► launch window, loss ─► grant ─► octets beyond ten segments (budgets)
//! ```
//!
//! Clients in one /24 (IPv4) or /48 (IPv6) share an entry, as they usually share the bottleneck. The table has a
//! fixed size, and a keyed hash chooses the place of an entry, so that a client cannot select the entries that
//! it displaces. The driver passes the time and the key; this module does no I/O.
//!
//! Three rules keep larger first flights safe. They hold for all connections together:
//!
//! | rule | effect |
//! |---|---|
//! | governor | a prefix on which first flights lose more than later ones launches with fewer segments |
//! | budgets | octets beyond ten segments are limited per client, per prefix and for the device |
//! | kill switch ([`KillSwitch`]) | no launch beyond ten segments while much more is sent than needed |

use std::net::IpAddr;

use fullpipe_units::{Bytes, Duration, Instant, Probability, Rate, draw};

use crate::cc::{INITIAL_SEGMENTS, Launch};

mod kill_switch;

pub use kill_switch::{KillSwitch, SenderTotals, TripReason};

/// Number of sets of the table, and entries per set.
const SETS: usize = 8_192;
const WAYS: usize = 8;
/// Streams of the keyed hash: the set of an entry, and its tag.
const SET_STREAM: u64 = 0x7365_7473;
const TAG_STREAM: u64 = 0x7461_6773;

/// Launch windows of the governor in segments, from the most careful one. The last one is the default of surge.
const LEVELS: [u32; 4] = [10, 20, 32, Launch::DEFAULT.window];
/// Excess of the loss of a first flight over later loss, above which the launch was too large: 2 %.
const EXCESS: f64 = 0.02;
/// Weight of the latest launch in the mean excess. One launch has to lose 16 % more than later data for a step
/// down, or several launches less. With random loss of 3 %, the mean of launches of 44 segments exceeds 2 % once
/// in a thousand launches.
const EXCESS_WEIGHT: f64 = 0.125;
/// Clean launches for a step up.
const CLEAN_LAUNCHES: u32 = 10;
/// Time for which a prefix launches with ten segments after a congestive loss in a first flight.
const FLAGGED: Duration = Duration::from_secs(600);

/// Time for which RTT and loss are remembered, and capacity (RFC 9959 requires that both age).
const LIFE: Duration = Duration::from_secs(3_600);
const CAPACITY_LIFE: Duration = Duration::from_secs(600);
/// Least time between two resumed windows of one prefix.
const RESUME_EVERY: Duration = Duration::from_secs(10);
/// Remembered windows below this multiple of ten segments are not worth resuming.
const LEAST_RESUMED: u64 = 4;
/// Weight of the latest connection in the mean loss.
const LOSS_WEIGHT: f64 = 0.25;
/// Least data of a connection for a measurement of its loss, in segments.
const LEAST_SAMPLE: u64 = 100;

/// Octets beyond ten segments that may be launched per round trip: to one client over all its connections, and to
/// one prefix.
const CLIENT_BUDGET: u64 = 64 << 10;
const PREFIX_BUDGET: u64 = 256 << 10;
/// Share of the rate of the device that launches beyond ten segments may use: 1/20.
const DEVICE_SHARE: u64 = 20;
/// Time over which the device's budget may accumulate.
const DEVICE_BURST: Duration = Duration::from_millis(100);
/// RTT of a budget if it is not known.
const ASSUMED_RTT: Duration = Duration::from_millis(100);

/// Memory of paths, as the owner of the connections uses it.
pub trait PathMemory {
    /// Returns what is known about the path to `client`.
    fn recall(&mut self, now: Instant, client: IpAddr) -> Recollection;

    /// Records what a connection to `client` has measured, at its end.
    fn record(&mut self, now: Instant, client: IpAddr, visit: &Visit);

    /// Returns how many of the `wanted` octets beyond ten segments a new connection to `client` with this RTT may
    /// launch.
    fn grant(&mut self, now: Instant, client: IpAddr, wanted: Bytes, rtt: Option<Duration>) -> Bytes;
}

/// What is known about a path before the first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recollection {
    /// Largest launch window in segments that the governor permits.
    pub window: u32,
    /// RTT of the last connection.
    pub rtt: Option<Duration>,
    /// RTT variation of the last connection.
    pub rttvar: Duration,
    /// Mean random loss; zero if it is not known.
    pub loss: Probability,
    /// Rate and window of the last connection, if they may be resumed.
    pub capacity: Option<Capacity>,
}

/// Rate and congestion window that a path carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Delivery rate.
    pub rate: Rate,
    /// Congestion window.
    pub cwnd: Bytes,
}

/// Measurements of one connection, at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Visit {
    /// Smoothed RTT and its variation.
    pub rtt: Duration,
    /// See `rtt`.
    pub rttvar: Duration,
    /// Rate and window, unless the application was the limit.
    pub capacity: Option<Capacity>,
    /// Segments of the first flight, and those of them that were lost.
    pub launched: u64,
    /// See `launched`.
    pub launch_lost: u64,
    /// Segments sent later, and those of them that were lost.
    pub later: u64,
    /// See `later`.
    pub later_lost: u64,
    /// Whether a loss in the first flight was congestive.
    pub congested: bool,
}

impl Recollection {
    /// Returns the launch of a connection whose handshake took `rtt`. A remembered window is resumed by half, paced
    /// over a round trip, and only if the RTT matches (RFC 9959 sections 3.2 and 3.3). `rwnd` is the window that
    /// the client offers.
    pub fn launch(&self, rtt: Option<Duration>, rwnd: Bytes, mss: u64) -> Launch {
        let governed = Launch { window: self.window.min(Launch::DEFAULT.window), ..Launch::DEFAULT };
        let (Some(rtt), Some(known), Some(capacity)) = (rtt, self.rtt, self.capacity) else {
            return governed;
        };
        let matches = rtt >= known / 2 && rtt <= known * 10;
        let jump = (capacity.cwnd.get() / 2).min(rwnd.get()) / mss.max(1);
        if !matches || self.window < Launch::DEFAULT.window || jump <= u64::from(governed.window) {
            return governed;
        }
        let window = jump.min(u64::from(u32::MAX)) as u32;
        let rate = Rate::of(Bytes::new(u64::from(window) * mss), rtt).min(capacity.rate).max(governed.rate);
        Launch { window, rate }
    }
}

/// Token bucket of octets.
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

/// Entry of a prefix.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Time of the last measurement; `None` before the first one.
    measured_at: Option<Instant>,
    rtt: Duration,
    rttvar: Duration,
    loss: f32,
    excess: f32,
    capacity: Option<Capacity>,
    resumed_at: Option<Instant>,
    flagged_until: Instant,
    budget: Budget,
    level: u8,
    clean: u8,
}

impl Entry {
    fn new(now: Instant) -> Self {
        Self {
            measured_at: None,
            rtt: Duration::ZERO,
            rttvar: Duration::ZERO,
            loss: 0.0,
            excess: 0.0,
            capacity: None,
            resumed_at: None,
            flagged_until: Instant::ZERO,
            budget: Budget::full(PREFIX_BUDGET, now),
            level: LEVELS.len() as u8 - 1,
            clean: 0,
        }
    }

    /// Takes a launch into account (the governor).
    fn govern(&mut self, now: Instant, visit: &Visit) {
        if visit.congested {
            self.flagged_until = now + FLAGGED;
        }
        if visit.launched <= INITIAL_SEGMENTS && self.level > 0 {
            // The flight was no larger than that of every connection.
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

/// Memory of up to 65 536 prefixes and as many clients, whose least recently used entries make room for new ones.
#[derive(Debug)]
pub struct Memory {
    key: u64,
    device_rate: Rate,
    prefixes: Table<Entry>,
    clients: Table<Budget>,
    device: Budget,
    halted: bool,
}

/// Entry of a [`Table`].
#[derive(Clone, Copy, Debug)]
struct Slot<T> {
    tag: u64,
    used_at: Instant,
    value: T,
}

/// Table of a fixed number of sets, each of which has room for [`WAYS`] entries.
#[derive(Debug)]
struct Table<T> {
    sets: Vec<Vec<Slot<T>>>,
}

impl<T> Table<T> {
    fn new() -> Self {
        Self { sets: (0..SETS).map(|_| Vec::new()).collect() }
    }

    /// Returns the value with this tag in the set that `hash` selects. If there is none, makes one, which replaces
    /// the least recently used value of a full set.
    fn entry(&mut self, now: Instant, (hash, tag): (u64, u64), make: impl FnOnce() -> T) -> &mut T {
        let set = &mut self.sets[hash as usize % SETS];
        let new = || Slot { tag, used_at: now, value: make() };
        let index = match set.iter().position(|slot| slot.tag == tag) {
            Some(index) => index,
            None if set.len() < WAYS => {
                set.push(new());
                set.len() - 1
            }
            None => {
                let oldest = set.iter().enumerate().min_by_key(|(_, slot)| slot.used_at);
                let index = oldest.map_or(0, |(index, _)| index);
                set[index] = new();
                index
            }
        };
        let slot = &mut set[index];
        slot.used_at = now;
        &mut slot.value
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.sets.iter().map(Vec::len).sum()
    }
}

impl Memory {
    /// Returns an empty memory for a device with this rate. `key` is secret; it should be random.
    pub fn new(key: u64, device_rate: Rate) -> Self {
        Self {
            key,
            device_rate,
            prefixes: Table::new(),
            clients: Table::new(),
            device: Budget::full(device_budget(device_rate), Instant::ZERO),
            halted: false,
        }
    }

    /// Permits or forbids launches beyond ten segments, as the [`KillSwitch`] decides.
    pub fn set_halted(&mut self, halted: bool) {
        self.halted = halted;
    }

    /// Returns the hash and the tag of an address.
    fn place(&self, address: u128) -> (u64, u64) {
        let (high, low) = ((address >> 64) as u64, address as u64);
        let hash = |stream: u64| draw(draw(self.key, stream, high), stream, low);
        (hash(SET_STREAM), hash(TAG_STREAM))
    }

    fn prefix(&mut self, now: Instant, client: IpAddr) -> &mut Entry {
        let place = self.place(prefix_of(client));
        self.prefixes.entry(now, place, || Entry::new(now))
    }
}

/// Returns the /24 or /48 of an address, as a number.
fn prefix_of(client: IpAddr) -> u128 {
    match client {
        IpAddr::V4(v4) => u128::from(u32::from(v4) & 0xffff_ff00),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => prefix_of(IpAddr::V4(v4)),
            // A /48 of zeros would equal an IPv4 prefix without this bit.
            None => ((u128::from(v6) >> 80) << 80) | 1,
        },
    }
}

fn device_budget(rate: Rate) -> u64 {
    ((rate * DEVICE_BURST).get() / DEVICE_SHARE).max(CLIENT_BUDGET)
}

impl PathMemory for Memory {
    fn recall(&mut self, now: Instant, client: IpAddr) -> Recollection {
        let halted = self.halted;
        let entry = self.prefix(now, client);
        let careful = halted || now < entry.flagged_until;
        let window = if careful { LEVELS[0] } else { LEVELS[usize::from(entry.level)] };
        let age = entry.measured_at.map(|at| now.saturating_since(at));
        let Some(age) = age.filter(|age| *age <= LIFE) else {
            return Recollection { window, ..Recollection::default() };
        };
        let may_resume = !careful
            && age <= CAPACITY_LIFE
            && entry.resumed_at.is_none_or(|at| now.saturating_since(at) >= RESUME_EVERY);
        let capacity = entry.capacity.filter(|_| may_resume);
        if capacity.is_some() {
            entry.resumed_at = Some(now);
        }
        let loss = Probability::from_f64(entry.loss.into());
        Recollection { window, rtt: Some(entry.rtt), rttvar: entry.rttvar, loss, capacity }
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
        let worth = |capacity: &Capacity| capacity.cwnd.get() >= LEAST_RESUMED * INITIAL_SEGMENTS * 1_448;
        // After a congestive loss, the saved state is dropped (RFC 9959 section 3.4).
        entry.capacity = visit.capacity.filter(worth).filter(|_| !visit.congested);
    }

    fn grant(&mut self, now: Instant, client: IpAddr, wanted: Bytes, rtt: Option<Duration>) -> Bytes {
        if self.halted {
            return Bytes::ZERO;
        }
        let rtt = rtt.unwrap_or(ASSUMED_RTT).max(Duration::from_millis(1));
        let address = match client {
            IpAddr::V4(v4) => u128::from(u32::from(v4)),
            IpAddr::V6(v6) => v6.into(),
        };
        let (of_client, of_prefix) = (self.place(address), self.place(prefix_of(client)));
        let of_client = self.clients.entry(now, of_client, || Budget::full(CLIENT_BUDGET, now));
        let of_prefix = &mut self.prefixes.entry(now, of_prefix, || Entry::new(now)).budget;
        let of_device = &mut self.device;
        let most = device_budget(self.device_rate);
        let period =
            Rate::from_bps((self.device_rate.as_bps() / DEVICE_SHARE).max(1)).time_for(Bytes::new(most));
        of_client.fill(now, CLIENT_BUDGET, rtt);
        of_prefix.fill(now, PREFIX_BUDGET, rtt);
        of_device.fill(now, most, period);
        let budgets = [of_client, of_prefix, of_device];
        let granted = budgets.iter().fold(wanted.get(), |granted, budget| granted.min(budget.octets));
        budgets.into_iter().for_each(|budget| budget.octets -= granted);
        Bytes::new(granted)
    }
}

#[cfg(test)]
mod tests;
