//! Thresholds that at least two modules share, grouped by physical effect.
//!
//! A threshold that only one rule uses is defined next to that rule. `docs/THRESHOLDS.md` lists both kinds; a
//! test generates it from the sources. In each comment `Source:` names the measurement behind the value, and
//! `Unit:` names the unit of a value that is not a ratio. One effect may have several values, because inputs
//! resolve it differently: a log has means over seconds, rows are samples of single instants, and a simulated
//! run has no disturbance.

use fullpipe_units::Probability;

/// The link is full.
pub(crate) mod link {
    /// A log shows a full link when its rate after the ramp reaches this share of the link's payload rate.
    /// Means over seconds average out the sawtooth.
    /// Source: chosen, not measured; `tests/it/cross_border.rs` checks it with the golden logs.
    pub(crate) const FULL_IN_LOG: f64 = 0.93;
    /// A control measurement that reaches this share of the link's rate was limited by the link and not by a
    /// rate cap. Headers are not subtracted, because the MTU of the control's path is not known.
    /// Source: chosen, not measured: the value for a log.
    pub(crate) const FULL_BY_CONTROL: f64 = 0.93;
    /// A simulated run fills the link when its rate reaches this share of the link's payload rate. The rate
    /// is that of the steady half of the run, as a log's rate is that after the ramp.
    /// Source: chosen, not measured: the value for a log; `docs/LADDER.md` compares rungs with kernels.
    pub(crate) const FULL_SIMULATED: f64 = 0.93;
    /// The link limits a flow when it delivers this share of the link's payload rate over a few round trips.
    /// The value is lower than that of a log, because a window that shrinks at a loss leaves the link idle
    /// for some round trips.
    /// Source: chosen, not measured; checked by `experiments/situations` (`tests/it/situations.rs`) and
    /// `docs/SITUATIONS.md`.
    pub(crate) const FULL_IN_ROWS: f64 = 0.85;
    /// A UDP stream that delivers this share of the link's rate lost the rest at the link. Headers are not
    /// subtracted.
    /// Source: chosen, not measured.
    pub(crate) const FULL_OVER_UDP: f64 = 0.9;
    /// A link has room, and a queue is elsewhere, when the rate is below this share of the link's payload
    /// rate. For a log, the share refers to the link's rate.
    /// Source: chosen, not measured; checked as `FULL_IN_ROWS` is.
    pub(crate) const ROOM: f64 = 0.8;
}

/// A window is full.
pub(crate) mod window {
    /// A window limits when the data in flight exceeds this share of it, as the median of a log after the
    /// ramp. The window is Cwnd or the receiver's window.
    /// Source: chosen, not measured; `tests/it/cross_border.rs` checks it with the golden logs.
    pub(crate) const FULL_IN_LOG: f64 = 0.8;
    /// A window does not limit when the data in flight is below this share of it. Between `FREE_IN_LOG` and
    /// `FULL_IN_LOG` a log decides nothing, because it reports the window only at the ends of intervals.
    /// Source: chosen, not measured; checked as `FULL_IN_LOG` is.
    pub(crate) const FREE_IN_LOG: f64 = 0.7;
    /// A ratio of data in flight to window above this value is suspicious: either the samples at the ends of
    /// intervals do not represent the intervals, or the RTT is too large.
    /// Source: chosen, not measured.
    pub(crate) const SUSPICIOUS_IN_LOG: f64 = 1.3;
    /// A window is full in a row when the data in flight reaches this share of it. The remaining room is
    /// smaller than one burst of the sender.
    /// Source: chosen, not measured; checked by `experiments/situations` (`tests/it/situations.rs`) and
    /// `docs/SITUATIONS.md`.
    pub(crate) const FULL_IN_ROWS: f64 = 0.9;
    /// A window or buffer limits the simulated run of a pacing sender when the rate reaches this share of
    /// window or buffer per RTT. A limiting send buffer may have as little as two thirds of its size in
    /// flight, so the value is lower than for a window alone.
    /// Source: chosen, not measured; `docs/LADDER.md` compares rungs with kernels.
    pub(crate) const FULL_SIMULATED: f64 = 0.7;
}

/// A send buffer is full: a blocked writer wakes when a third of it is free (`sk_stream_is_writeable`).
pub(crate) mod send_buffer {
    /// A send buffer that limits has at least this share of its size in flight.
    /// Source: the kernel's rule; buffers of 1, 1.5 and 2 BDP carried 660, 915 and 955 of 956 Mbit/s
    /// (`experiments/rmem-wmem.toml`).
    pub(crate) const LEAST_USABLE: f64 = 0.67;
    /// A writer is blocked when the memory used exceeds this share of the memory allowed in a row. The value
    /// leaves some room below two thirds, because a row may fall between the ACK that frees memory and the
    /// wake-up of the writer.
    /// Source: chosen, not measured; checked by `experiments/situations` (`tests/it/situations.rs`) and
    /// `docs/SITUATIONS.md`.
    pub(crate) const BLOCKED_IN_ROWS: f64 = 0.62;
}

/// A queue stands at the bottleneck.
pub(crate) mod queue {
    /// A queue stands when the smoothed RTT of rows, or the mean RTT of a log, reaches this multiple of the
    /// smallest RTT.
    /// Source: chosen, not measured; checked by `experiments/situations` (`tests/it/situations.rs`).
    pub(crate) const STANDS: f64 = 1.25;
    /// The probes of a rate-based sender met a queue when its smoothed RTT reached this multiple of the
    /// smallest RTT. The largest value of a few cycles counts, because such a sender keeps the queue empty
    /// between its probes.
    /// Source: chosen, not measured; checked by `experiments/situations` (`tests/it/situations.rs`).
    pub(crate) const PROBED: f64 = 1.05;
    /// There was no queue when the largest RTT of a log is below this multiple of the base RTT. A shaper with
    /// a queue of 1 BDP doubles the RTT.
    /// Source: `experiments/flow-cap.toml` measured the doubled RTT; a tenth of the increase is chosen.
    pub(crate) const NONE_IN_LOG: f64 = 1.1;
}

/// A receiving application reads too slowly.
pub(crate) mod reader {
    /// A reader is behind when the unread data exceeds this share of unread data plus offered window, in
    /// samples of a receiving socket.
    /// Source: chosen, not measured; a reader that is behind left 26 % of the window closed, others 0 to 14 %
    /// (`docs/LIVE.md`).
    pub(crate) const BEHIND: f64 = 0.25;
}

/// Pacing is at its maximum.
pub(crate) mod pacing {
    /// Pacing limits a socket that paces at this share of its maximum pacing rate. BBR stays one percent
    /// below the maximum.
    /// Source: BBR's margin of 1 %, and one more; checked by `experiments/situations`
    /// (`tests/it/situations.rs`).
    /// Unit: percent
    pub(crate) const AT_MOST: u64 = 98;
}

/// Packets are lost on the path.
pub(crate) mod loss {
    use super::Probability;

    /// The path carries the rate of a UDP test when fewer than this share of the datagrams is lost. TCP may
    /// still starve at such a loss.
    /// Source: chosen, not measured.
    pub(crate) const CARRIED: f64 = 0.01;
    /// TCP makes no progress when more than this share of the packets is lost, and no ladder is built.
    /// Source: chosen, not measured.
    pub(crate) const MOST: Probability = Probability::from_ratio(1, 2);
}

/// A limit applies for a share of the time.
pub(crate) mod time {
    /// A window or buffer limits a simulated run when it stopped the sender for more than this share of the
    /// time.
    /// Source: chosen, not measured; `docs/LADDER.md` compares rungs with kernels.
    pub(crate) const HELD_SIMULATED: f64 = 0.2;
    /// BBR's pacer follows a window or buffer that stopped BBR for this share of a cycle. This rule reads the
    /// simulator's own record of one cycle; `HELD_SIMULATED` applies to the sum over a run.
    /// Source: chosen, not measured; checked by `experiments/situations` (`tests/it/situations.rs`).
    pub(crate) const FOLLOWED: f64 = 0.2;
    /// A trace shows the size of a buffer when the buffer limited the flow for this share of the time. One
    /// sample of a full buffer shows its size, so the value is lower than one that names a limit.
    /// Source: chosen, not measured.
    pub(crate) const SHOWS_A_BUFFER: f64 = 0.05;
}

/// Two rates are equal, or their difference matters.
pub(crate) mod rate {
    /// A control measurement below this share of the log's rate shows no rate cap, because the log itself is
    /// faster.
    /// Source: chosen, not measured.
    pub(crate) const CONTROL_TOO_LOW: f64 = 0.9;
    /// A gain is worth a setting when the rate exceeds this multiple of the rate before the change.
    /// Source: chosen, not measured.
    pub(crate) const WORTH: (u64, u64) = (21, 20);
    /// A shorter time counts as a gain when it is below this multiple of the time before the change. It is
    /// the same twentieth as in `WORTH`, applied to a time, which falls.
    /// Source: chosen, not measured.
    pub(crate) const TIME_WORTH: (u64, u64) = (19, 20);
    /// The ladder accepts a rung when the rate of the rung before is at most this multiple of its rate. A
    /// remedy may seem to cost that much, because runs and logs vary randomly.
    /// Source: chosen, not measured.
    pub(crate) const SETBACK: (u64, u64) = (20, 19);
}
