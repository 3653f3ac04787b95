//! Divides a rate limit among connections, and determines the earliest start of each connection.
//!
//! ```text
//!   used < 95 % of its share: needs 110 % of what it used ─┐
//!   otherwise, or not known: needs the whole limit       ─┴─► max-min fair shares, whose sum is the limit
//! ```
//!
//! The kernel paces each socket at its share (`SO_MAX_PACING_RATE`). The resulting rate is up to 4 % lower: timers are
//! late, the queueing discipline `fq` counts headers, and BBR pauses in its ProbeRTT phase. The limit is therefore
//! corrected according to the payload that the connections have sent, as long as no other limit applies. Payload that
//! slow start or an interruption has delayed is made up for afterwards, up to that of two seconds. If a slow connection does
//! not use its whole share, the rest goes to the other connections. A reduction is applied before an increase, so that
//! the sum never exceeds the limit. At the end of a copy, the connections that write the last blocks get the shares of those
//! that have nothing left to write.

use std::collections::BTreeMap;

use fullpipe_units::{Bytes, Duration, Instant, Rate};

/// A connection counts as limited by its share if it uses at least this percentage of the share.
const HELD_BACK_PERCENT: u64 = 95;
/// Share of a connection that did not use up its last share, as a percentage of the rate that it used. A connection
/// that grows faster is limited by its share, and gets an equal share after the next interval.
const GROWTH_PERCENT: u64 = 110;
/// Smallest share of an idle connection: an equal share divided by this number. When an idle connection has data to
/// send again, it reaches this share at once, and gets an equal share after the next interval.
const IDLE_PART: u64 = 16;
/// If the rate of the copy is below this percentage of the limit, something else limits the copy, for example slow
/// start or the link. The limit is then not corrected.
const LIMITED_PERCENT: u64 = 90;
/// Maximum time whose payload is made up for after something else has limited the copy. It covers slow start on paths
/// with an RTT of up to about 200 ms; the rest of a long interruption is lost.
const MADE_UP: Duration = Duration::from_secs(2);
/// Divisor of the limit that gives its maximum correction: 10 %, which is more than the 4 % that pacing loses, and makes up
/// for a second in ten. The rate in any 100 ms then stays below 1.2 times the limit.
const CORRECTION_PART: u64 = 10;
/// Smallest share that is set for a socket, because a rate of zero would switch pacing off.
const LEAST: Rate = Rate::from_bps(8_000);
/// Number of segments at the start of a connection that Linux does not pace (`tcp_update_skb_after_send`).
const UNPACED_SEGMENTS: u64 = 10;

/// Demand of a connection for a share of the rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) connection: u32,
    /// Rate that the connection reached in the last interval; `None` if it is not known.
    pub(crate) used: Option<Rate>,
    pub(crate) role: Role,
}

/// What a connection has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The connection writes a block, or gets one.
    Writing,
    /// No block is left for the connection, at the end of the copy. It sends the data that is still in its socket, for which
    /// the copy waits.
    Finishing,
    /// More connections are open than are needed. The connection gets no blocks, and sends the data that is still in its
    /// socket.
    Resting,
}

/// Rate limit of a copy, shared by its connections.
#[derive(Debug)]
pub(crate) struct Limiter {
    limit: Rate,
    /// Limit after the last correction.
    rate: Rate,
    /// Payload in bytes that the limit permitted and the connections did not send; negative if they sent more.
    missing: i64,
    /// Time of the last correction.
    corrected: Option<Instant>,
    shares: BTreeMap<u32, Rate>,
    /// Earliest start of the next connection.
    next_start: Instant,
}

impl Limiter {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            limit: rate,
            rate,
            missing: 0,
            corrected: None,
            shares: BTreeMap::new(),
            next_start: Instant::ZERO,
        }
    }

    /// Corrects the limit after the connections have sent `sent` since the last call, such that the mean rate over
    /// several seconds is the limit.
    pub(crate) fn correct(&mut self, now: Instant, sent: Bytes) {
        let Some(before) = self.corrected.replace(now) else { return };
        let span = now.saturating_since(before);
        let signed = |bytes: Bytes| i64::try_from(bytes.get()).unwrap_or(i64::MAX);
        self.missing = self.missing.saturating_add(signed(self.limit * span)).saturating_sub(signed(sent));
        if Rate::mean(sent, span) < self.limit.mul_div(LIMITED_PERCENT, 100) {
            self.missing = self.missing.min(signed(self.limit * MADE_UP));
            self.rate = self.limit;
            return;
        }
        // The missing bytes are made up for within about a second.
        let most = self.limit.as_bps() / CORRECTION_PART;
        let change = self.missing.saturating_mul(8).unsigned_abs().min(most);
        let bps = self.limit.as_bps();
        self.rate = Rate::from_bps(if self.missing > 0 { bps + change } else { bps - change });
    }

    /// Returns the time that a new connection waits before it sends. The wait ensures that at most one connection
    /// at a time exceeds the limit with its unpaced segments of `mss` bytes. The mean rate counts from the start of the
    /// first connection.
    pub(crate) fn start(&mut self, now: Instant, mss: Bytes) -> Duration {
        self.corrected.get_or_insert(now);
        let begin = self.next_start.max(now);
        self.next_start = begin + self.rate.time_for(mss.mul_div(UNPACED_SEGMENTS, 1));
        begin.saturating_since(now)
    }

    /// Shares the limit among all open connections. Returns the shares that change, in the order in which
    /// they must be applied.
    pub(crate) fn share(&mut self, demands: &[Demand]) -> Vec<(u32, Rate)> {
        let count = demands.len() as u64;
        let mut wants: Vec<(Rate, u32)> =
            demands.iter().map(|demand| (self.want(demand, count), demand.connection)).collect();
        wants.sort_unstable();
        let (mut left, mut shares) = (self.rate.as_bps(), BTreeMap::new());
        for (served, (want, connection)) in (0..).zip(wants) {
            let share = want.as_bps().min(left / (count - served));
            left -= share;
            shares.insert(connection, share);
        }
        // The rate that no connection needs is divided equally, so that all connections that write can grow.
        let of =
            |role| demands.iter().filter(move |demand| demand.role == role).map(|demand| demand.connection);
        let mut growing: Vec<u32> = of(Role::Writing).collect();
        if growing.is_empty() {
            growing.extend(of(Role::Finishing));
        }
        for connection in &growing {
            *shares.entry(*connection).or_default() += left / growing.len() as u64;
        }
        let shares: BTreeMap<u32, Rate> =
            shares.into_iter().map(|(connection, share)| (connection, Rate::from_bps(share))).collect();
        let before = |connection: &u32| self.shares.get(connection).copied();
        let mut changes: Vec<(u32, Rate)> = shares
            .iter()
            .filter(|(connection, share)| before(connection) != Some(**share))
            .map(|(connection, share)| (*connection, *share))
            .collect();
        changes.sort_by_key(|(connection, share)| before(connection).is_none_or(|before| *share > before));
        self.shares = shares;
        changes
    }

    /// Returns the share that a connection needs, if `count` connections send.
    fn want(&self, demand: &Demand, count: u64) -> Rate {
        let Some(used) = demand.used else { return self.rate };
        let growing = || {
            let idle = self.rate.mul_div(1, IDLE_PART * count);
            used.mul_div(GROWTH_PERCENT, 100).max(idle).max(LEAST)
        };
        match (demand.role, self.shares.get(&demand.connection)) {
            (Role::Resting, _) => used.max(LEAST),
            (Role::Finishing, _) => growing(),
            (Role::Writing, Some(share)) if used < share.mul_div(HELD_BACK_PERCENT, 100) => growing(),
            (Role::Writing, _) => self.rate,
        }
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_units::draw;

    use super::*;

    const MBIT: u64 = 1_000_000;

    /// Model of the kernel: the share of each connection, on a path that limits each connection to the rate
    /// in `caps`.
    struct Sockets {
        limiter: Limiter,
        limit: u64,
        shares: BTreeMap<u32, Rate>,
    }

    impl Sockets {
        fn new(limit: u64) -> Self {
            let limiter = Limiter::new(Rate::from_bps(limit));
            Self { limiter, limit, shares: BTreeMap::new() }
        }

        /// Returns the rate of a connection in an interval.
        fn rate(&self, connection: u32, cap: u64) -> u64 {
            self.shares.get(&connection).map_or(0, |share| share.as_bps().min(cap))
        }

        /// Runs an interval with the connections in `caps`; returns the sum of their rates.
        fn interval(&mut self, caps: &BTreeMap<u32, u64>) -> u64 {
            let sum = caps.iter().map(|(connection, cap)| self.rate(*connection, *cap)).sum();
            let demand = |(connection, cap): (&u32, &u64)| Demand {
                connection: *connection,
                used: self.shares.get(connection).map(|_| Rate::from_bps(self.rate(*connection, *cap))),
                role: Role::Writing,
            };
            let demands: Vec<Demand> = caps.iter().map(demand).collect();
            self.shares.retain(|connection, _| caps.contains_key(connection));
            for (connection, share) in self.limiter.share(&demands) {
                assert!(share.as_bps() > 0, "a rate of zero switches pacing off");
                self.shares.insert(connection, share);
                let sum: u64 = self.shares.values().map(|share| share.as_bps()).sum();
                assert!(sum <= self.limit, "{:?} exceed {}", self.shares, self.limit);
            }
            sum
        }
    }

    #[test]
    fn connections_share_the_limit_equally_at_first() {
        let mut limiter = Limiter::new(Rate::from_bps(100 * MBIT));
        let new = |connection| Demand { connection, used: None, role: Role::Writing };
        assert_eq!(limiter.share(&[new(0)]), [(0, Rate::from_bps(100 * MBIT))]);
        let half = Rate::from_bps(50 * MBIT);
        assert_eq!(limiter.share(&[new(0), new(1)]), [(0, half), (1, half)], "the reduction comes first");
        assert_eq!(limiter.share(&[new(0), new(1)]), [], "nothing changes");
        assert_eq!(limiter.share(&[new(1)]), [(1, Rate::from_bps(100 * MBIT))], "the other was lost");
        assert_eq!(limiter.share(&[]), []);
    }

    /// Runs ten seconds in which the kernel carries `percent` of the shares; returns the mean rate as a multiple of the
    /// limit, and the largest share.
    fn paced(percent: u64) -> (f64, Rate) {
        let mut limiter = Limiter::new(Rate::from_bps(100 * MBIT));
        let (mut share, mut most, mut sum) = (Rate::from_bps(0), Rate::from_bps(0), Bytes::ZERO);
        let interval = Duration::from_millis(250);
        for number in 0..=40 {
            let used = share.mul_div(percent, 100);
            sum += used * interval;
            limiter.correct(Instant::ZERO + interval * number, used * interval);
            if let [(_, changed)] =
                limiter.share(&[Demand { connection: 0, used: None, role: Role::Writing }])[..]
            {
                (share, most) = (changed, most.max(changed));
            }
        }
        (sum.get() as f64 * 8.0 / 10.0 / 100e6, most)
    }

    #[test]
    fn the_mean_is_the_limit_although_the_kernel_paces_below_its_shares() {
        for percent in [96, 98, 100, 102] {
            let (mean, most) = paced(percent);
            assert!((0.99..=1.01).contains(&mean), "{percent} %: {mean}");
            assert!(most <= Rate::from_bps(110 * MBIT), "{percent} %: {most}");
        }
        // The rate that a link of 80 Mbit/s lacks is not made up for.
        assert_eq!(paced(80), (0.8, Rate::from_bps(100 * MBIT)));
    }

    /// Slow start carries half of the limit for 2 s. Its deficit is made up for within the next ten seconds. After an
    /// interruption of a minute, the copy exceeds its limit only until it has carried the payload of two seconds more.
    #[test]
    fn a_slow_start_is_made_up_for_and_a_long_interruption_is_not() {
        let limit = Rate::from_bps(100 * MBIT);
        let interval = Duration::from_millis(100);
        let mut limiter = Limiter::new(limit);
        limiter.start(Instant::ZERO, Bytes::new(1448));
        let (mut now, mut sum) = (Instant::ZERO, Bytes::ZERO);
        let mut carry = |limiter: &mut Limiter, intervals: u32, most: Rate| {
            for _ in 0..intervals {
                now += interval;
                let used = limiter.rate.min(most);
                assert!(used <= Rate::from_bps(110 * MBIT), "{used}");
                sum += used * interval;
                limiter.correct(now, used * interval);
            }
            sum
        };
        carry(&mut limiter, 20, Rate::from_bps(50 * MBIT));
        let carried = carry(&mut limiter, 130, Rate::from_bps(1_000 * MBIT));
        let permitted = limit * Duration::from_secs(15);
        assert!(carried >= permitted.mul_div(999, 1_000) && carried <= permitted, "{carried} of {permitted}");
        let idle = carry(&mut limiter, 600, Rate::from_bps(0));
        let later = carry(&mut limiter, 300, Rate::from_bps(1_000 * MBIT)) - idle;
        let permitted = limit * (Duration::from_secs(30) + MADE_UP);
        assert!(later <= permitted && later >= permitted.mul_div(999, 1_000), "{later} of {permitted}");
    }

    #[test]
    fn what_a_slow_connection_leaves_is_given_to_the_others() {
        let mut sockets = Sockets::new(100 * MBIT);
        // A lossy path limits connection 2 to 4 Mbit/s.
        let caps = BTreeMap::from([(0, 400 * MBIT), (1, 400 * MBIT), (2, 4 * MBIT), (3, 400 * MBIT)]);
        sockets.interval(&caps);
        assert_eq!(sockets.interval(&caps), 79 * MBIT);
        assert_eq!(sockets.interval(&caps), 99_600_000, "all but the room in which connection 2 can grow");
        // Connection 2 recovers, and gets an equal share after a few intervals.
        let caps = caps.into_keys().map(|connection| (connection, 400 * MBIT)).collect();
        for _ in 0..2 {
            sockets.interval(&caps);
        }
        assert_eq!(sockets.shares[&2], Rate::from_bps(25 * MBIT));
    }

    /// A resting connection keeps the share that it needs to send the rest of its last block, and then gets
    /// nothing.
    #[test]
    fn a_resting_connection_leaves_its_share_to_the_others() {
        let mut limiter = Limiter::new(Rate::from_bps(10 * MBIT));
        let demand = |connection, used, is_resting| Demand {
            connection,
            used: Some(Rate::from_bps(used)),
            role: if is_resting { Role::Resting } else { Role::Writing },
        };
        limiter.share(&[demand(0, 0, false), demand(1, 0, false)]);
        let shares = limiter.share(&[demand(0, 5 * MBIT, false), demand(1, 2 * MBIT, true)]);
        assert_eq!(shares, [(1, Rate::from_bps(2 * MBIT)), (0, Rate::from_bps(8 * MBIT))]);
        let shares = limiter.share(&[demand(0, 8 * MBIT, false), demand(1, 0, true)]);
        assert_eq!(shares, [(1, LEAST), (0, Rate::from_bps(10 * MBIT - 8_000))]);
    }

    /// At the end of a copy, a connection that writes the last block gets what the others do not need for the rest of their
    /// data, even while its window still grows.
    #[test]
    fn the_last_block_gets_the_shares_of_finished_connections() {
        let mut limiter = Limiter::new(Rate::from_bps(40 * MBIT));
        let demand = |connection, mbit, role| {
            let used = Some(Rate::from_bps(mbit * MBIT));
            Demand { connection, used, role }
        };
        let new = |connection| Demand { connection, used: None, role: Role::Writing };
        limiter.share(&[0, 1, 2, 3].map(new));
        let last = demand(0, 10, Role::Writing);
        let of = |used: u64| [1, 2, 3].map(|number| demand(number, used, Role::Finishing));
        limiter.share(&[&[last][..], &of(4)].concat());
        assert_eq!(limiter.shares[&0], Rate::from_bps(40 * MBIT - 3 * 4_400_000));
        limiter.share(&[&[last][..], &of(0)].concat());
        assert_eq!(
            limiter.shares[&0],
            Rate::from_bps(40 * MBIT - 3 * 625_000),
            "its window permits 10 Mbit/s"
        );
        // If no block is left, the data in the sockets gets the whole limit.
        limiter.share(&of(0));
        assert_eq!(
            limiter.shares.values().map(|share| share.as_bps() / MBIT).collect::<Vec<_>>(),
            [13, 13, 13]
        );
    }

    /// However the paths change, the sum of the shares stays within the limit, and four intervals after a
    /// change, the connections carry 90 % of the rate that the limit and the paths permit.
    #[test]
    fn the_limit_is_kept_and_used_on_any_path() {
        for seed in 0..200 {
            let limit = MBIT + draw(seed, 0, 0) % (1000 * MBIT);
            let mut sockets = Sockets::new(limit);
            for change in 1..20 {
                let caps: BTreeMap<u32, u64> = (0..16)
                    .filter(|number| *number == 0 || !draw(seed, change, *number).is_multiple_of(3))
                    .map(|connection| (connection as u32, draw(seed, 100 + change, connection) % limit))
                    .collect();
                for _ in 0..4 {
                    sockets.interval(&caps);
                }
                let carried = sockets.interval(&caps);
                let possible = caps.values().sum::<u64>().min(limit);
                assert!(carried <= limit, "seed {seed}");
                assert!(carried >= possible / 100 * 90, "seed {seed}: {carried} of {possible}, {caps:?}");
            }
        }
    }

    /// At 100 Mbit/s, ten segments of 1448 bytes take 1.16 ms.
    #[test]
    fn the_segments_that_escape_pacing_do_not_come_together() {
        let mut limiter = Limiter::new(Rate::from_bps(100 * MBIT));
        let mut start = |nanos| limiter.start(Instant::from_nanos(nanos), Bytes::new(1448)).as_nanos();
        assert_eq!([start(0), start(0), start(0)], [0, 1_158_400, 2_316_800]);
        assert_eq!(start(10_000_000), 0, "the others have begun long ago");
        assert_eq!(start(10_000_100), 1_158_300);
    }
}
