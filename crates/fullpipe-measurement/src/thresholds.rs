//! Thresholds that two or more modules share, grouped by physical effect.
//!
//! A threshold used by only one rule is defined next to that rule. `docs/reference/thresholds.md` lists both
//! kinds; a test generates it from the sources. In each comment, `Source:` names the measurement that the
//! value is based on, and `Unit:` names the unit of a value that is not a ratio. One effect may have several
//! thresholds, because inputs differ in resolution: a log contains means over seconds, rows are instantaneous
//! samples, and a simulated run has no noise.

use fullpipe_units::Probability;

/// The link is full.
pub mod link {
    /// A log shows a full link if its rate after the ramp reaches this share of the link's payload rate.
    /// Means over seconds average out the sawtooth.
    /// Source: chosen, not measured; `tests/it/cross_border.rs` checks it with the golden logs.
    pub const FULL_IN_LOG: f64 = 0.93;
    /// A control measurement that reaches this share of the link rate was limited by the link, not by a rate
    /// cap. Headers are not subtracted, because the MTU of the measured path is unknown.
    /// Source: chosen, not measured; the same value as for a log.
    pub const FULL_BY_CONTROL: f64 = 0.93;
    /// A simulated run fills the link if its rate reaches this share of the link's payload rate. The rate is
    /// taken over the second half of the run, just as the rate of a log is taken after the ramp. A run has no
    /// noise, so the value is higher than for a log.
    /// Source: chosen, not measured; `docs/evidence/ladder.md` compares rungs with kernels.
    pub const FULL_SIMULATED: f64 = 0.95;
    /// The link is the limit if the flow delivers this share of the link's payload rate over a few round
    /// trips. The value is lower than for a log, because a window that shrinks at a loss leaves the link idle
    /// for some round trips.
    /// Source: chosen, not measured; checked by `experiments/situations` (`tests/it/situations.rs`) and
    /// `docs/evidence/situations.md`.
    pub const FULL_IN_ROWS: f64 = 0.85;
    /// If a UDP stream delivers at least this share of the link rate, the rest was lost at the link. Headers
    /// are not subtracted.
    /// Source: chosen, not measured.
    pub const FULL_OVER_UDP: f64 = 0.9;
    /// The link has room, and any queue is elsewhere, if the rate is below this share of the link's payload
    /// rate. For a log, the share refers to the link rate.
    /// Source: chosen, not measured; checked as `FULL_IN_ROWS` is.
    pub const ROOM: f64 = 0.8;
    /// A connection is included in the sum of the connections that share the link if it transfers at least
    /// this share of the data of the chosen or the largest connection. A control connection shares the link,
    /// but does not fill it.
    /// Source: chosen, not measured.
    pub const TAKES_PART: f64 = 0.01;
}

/// A window is full.
pub mod window {
    /// A window is the limit if the median data in flight after the ramp of a log exceeds this share of the
    /// window. The window is Cwnd or the receive window.
    /// Source: chosen, not measured; `tests/it/cross_border.rs` checks it with the golden logs.
    pub const FULL_IN_LOG: f64 = 0.8;
    /// A window is not the limit if data in flight is below this share of it. Between `FREE_IN_LOG` and
    /// `FULL_IN_LOG` a log is inconclusive, because it reports the window only at the ends of intervals.
    /// Source: chosen, not measured; checked as `FULL_IN_LOG` is.
    pub const FREE_IN_LOG: f64 = 0.7;
    /// A ratio of data in flight to window above this value is suspicious: either the samples at the ends of
    /// intervals are not representative, or the RTT is too large.
    /// Source: chosen, not measured.
    pub const SUSPICIOUS_IN_LOG: f64 = 1.3;
    /// A window is full in a row if data in flight reaches this share of it. The remaining room is smaller
    /// than one burst of the sender.
    /// Source: chosen, not measured; checked by `experiments/situations` (`tests/it/situations.rs`) and
    /// `docs/evidence/situations.md`.
    pub const FULL_IN_ROWS: f64 = 0.9;
    /// A window or buffer is the limit of a simulated run with a pacing sender if the rate reaches this share
    /// of one window or buffer per RTT. As little as two thirds of a limiting send buffer may be in flight,
    /// so the value is lower than for a window alone.
    /// Source: chosen, not measured; `docs/evidence/ladder.md` compares rungs with kernels.
    pub const FULL_SIMULATED: f64 = 0.7;
}

/// A send buffer is full: a blocked writer is woken when a third of it is free (`sk_stream_is_writeable`).
pub mod send_buffer {
    /// Minimum share of a limiting send buffer that is in flight.
    /// Source: the kernel's wake-up rule; buffers of 1, 1.5 and 2 BDP carried 660, 915 and 955 of 956 Mbit/s
    /// (`experiments/rmem-wmem.toml`).
    pub const LEAST_USABLE: f64 = 0.67;
    /// The writer is blocked in a row if the memory in use is at least this share of the allowed memory. The
    /// value leaves some margin below two thirds, because a row may fall between the ACK that frees memory
    /// and the wake-up of the writer.
    /// Source: chosen, not measured; checked by `experiments/situations` (`tests/it/situations.rs`) and
    /// `docs/evidence/situations.md`.
    pub const BLOCKED_IN_ROWS: f64 = 0.62;
}

/// There is a standing queue at the bottleneck.
pub mod queue {
    /// There is a standing queue if the smoothed RTT of rows, or the mean RTT of a log, reaches this multiple
    /// of the minimum RTT.
    /// Source: chosen, not measured; checked by `experiments/situations` (`tests/it/situations.rs`).
    pub const STANDS: f64 = 1.25;
    /// The probes of a rate-based sender met a queue if its smoothed RTT reached this multiple of the minimum
    /// RTT. The maximum over a few cycles is used, because such a sender keeps the queue empty between its
    /// probes.
    /// Source: chosen, not measured; checked by `experiments/situations` (`tests/it/situations.rs`).
    pub const PROBED: f64 = 1.05;
    /// There was no standing queue if the RTT stays below this multiple of the base RTT: the maximum RTT of a
    /// log, or the median RTT of rows. A shaper with a queue of 1 BDP doubles the RTT.
    /// Source: `experiments/flow-cap.toml` measured the doubled RTT; allowing a tenth of the increase is
    /// chosen.
    pub const NONE_IN_LOG: f64 = 1.1;
    /// A larger buffer only lengthens the queue if the 95th percentile of the RTT exceeds this multiple of
    /// its value with the smaller buffer.
    /// Source: chosen, not measured.
    pub const LENGTHENED: (u64, u64) = (6, 5);
}

/// A receiving application reads too slowly.
pub mod reader {
    /// A reader has fallen behind if unread data exceeds this share of unread data plus advertised window, in
    /// samples of a receiving socket.
    /// Source: chosen, not measured; a reader that is behind left 26 % of the window closed, others 0 to 14 %
    /// (`docs/evidence/live.md`).
    pub const BEHIND: f64 = 0.25;
    /// A slow reader is the limit if it had fallen behind in at least this share of the samples of a
    /// receiving socket.
    /// Source: chosen, not measured.
    pub const MOSTLY: f64 = 0.5;
}

/// Pacing is at its maximum.
pub mod pacing {
    /// Pacing is the limit of a socket that paces at this share of its maximum pacing rate. BBR stays one
    /// percent below the maximum.
    /// Source: BBR's margin of 1 %, plus another 1 %; checked by `experiments/situations`
    /// (`tests/it/situations.rs`).
    /// Unit: percent
    pub const AT_MOST: u64 = 98;
}

/// Packets are lost on the path.
pub mod loss {
    use super::Probability;

    /// The path carries the rate of a UDP test if less than this share of the datagrams is lost. TCP may
    /// still starve at such a loss rate.
    /// Source: chosen, not measured.
    pub const CARRIED: f64 = 0.01;
    /// TCP makes no progress if more than this share of the packets is lost; no ladder is then built.
    /// Source: chosen, not measured.
    pub const MOST: Probability = Probability::from_ratio(1, 2);
    /// A loss episode has the common rate of the episodes if its delivered rate differs from their median by
    /// at most this share.
    /// Source: chosen, not measured; checked by `experiments/situations` (`tests/it/situations.rs`).
    pub const ONE_RATE: f64 = 0.05;
    /// Minimum share of the loss episodes that a policer's rate explains; other causes may add some.
    /// Source: chosen, not measured; checked as `ONE_RATE` is.
    pub const MOST_EPISODES: f64 = 0.5;
    /// Slow start overshot a rate if its first losses are at least this share of the window: slow start sends
    /// at up to twice that rate. A random loss of 2 % takes a fiftieth of the window, whatever its size.
    /// Source: chosen; simulated policers and short queues of 0.08 to 0.6 of the link took 12 to 60 %
    /// (`docs/evidence/situations.md`).
    pub const BURST: f64 = 0.08;
    /// Minimum number of segments lost at once for the losses to count as a burst.
    /// Source: chosen, not measured.
    /// Unit: segments
    pub const FEWEST_IN_A_BURST: u64 = 10;
    /// Losses limit a flow, whatever ended its slow start, if they occur at rates below this share of the
    /// highest rate of the flow.
    /// Source: chosen, not measured; checked as `BURST` is.
    pub const FAR_BELOW: f64 = 0.6;
    /// Minimum number of loss episodes at one rate that suggests a policer.
    /// Source: chosen, not measured; checked as `ONE_RATE` is.
    /// Unit: episodes
    pub const FEWEST_EPISODES: usize = 3;
}

/// A limit applies for a share of the time.
pub mod time {
    /// A window or buffer is the limit of a simulated run if it stopped the sender for more than this share
    /// of the time.
    /// Source: chosen, not measured; `docs/evidence/ladder.md` compares rungs with kernels.
    pub const HELD_SIMULATED: f64 = 0.2;
    /// BBR's pacer follows a window or buffer that stopped BBR for this share of a cycle. The rule reads the
    /// simulator's own record, or the rows of a socket, over one cycle; `HELD_SIMULATED` applies to the sum
    /// over a run.
    /// Source: chosen, not measured; checked by `experiments/situations` (`tests/it/situations.rs`).
    pub const FOLLOWED: f64 = 0.2;
    /// A trace shows the size of a buffer if the buffer limited the flow for at least this share of the time.
    /// One sample of a full buffer is enough to show its size, so the value is lower than the thresholds for
    /// a limit.
    /// Source: chosen, not measured.
    pub const SHOWS_A_BUFFER: f64 = 0.05;
}

/// Two rates are equal, or their difference matters.
pub mod rate {
    /// A control measurement below this share of the rate in the log does not show a rate cap, because the
    /// logged transfer itself was faster.
    /// Source: chosen, not measured.
    pub const CONTROL_TOO_LOW: f64 = 0.9;
    /// A setting is worth changing if the rate exceeds this multiple of the rate before the change.
    /// Source: chosen, not measured.
    pub const WORTH: (u64, u64) = (21, 20);
    /// A shorter time counts as a gain if it is below this multiple of the time before the change. This is
    /// the same twentieth as in `WORTH`, applied to a time that decreases.
    /// Source: chosen, not measured.
    pub const TIME_WORTH: (u64, u64) = (19, 20);
    /// The ladder accepts a rung if the rate of the previous rung is at most this multiple of its rate. A
    /// remedy may seem to cost this much, because runs and logs vary randomly.
    /// Source: chosen, not measured.
    pub const SETBACK: (u64, u64) = (20, 19);
    /// Larger buffers are worth their cost if each doubling gains this share of the bottleneck's rate.
    /// Source: chosen, not measured: the twentieth of `WORTH`, applied to the largest possible gain.
    pub const DOUBLING: (u64, u64) = (1, 20);
}
