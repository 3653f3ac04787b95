//! Thresholds that two modules use, by physical effect.
//!
//! A threshold that one rule alone uses stands beside that rule. `docs/THRESHOLDS.md` lists both kinds; a test writes it from the
//! sources. Of each comment there, `Source:` says which measurement the value comes from, and `Unit:` what it counts if it is no
//! ratio. One effect may have several values, as inputs differ in how well they resolve it: a log has means over seconds, rows
//! have a moment, a simulated run has no disturbance.

use fullpipe_units::Probability;

/// The link is full.
pub(crate) mod link {
    /// Of the link's payload rate: a log whose rate after the ramp is above fills the link. Means over seconds hide no sawtooth.
    /// Source: chosen, not measured; the golden logs are held by `tests/it/cross_border.rs`.
    pub(crate) const FULL_IN_LOG: f64 = 0.93;
    /// Of the link's rate: a control measurement above reached a link and no cap. Headers are not taken off, as the MTU of the
    /// control's path is not known.
    /// Source: chosen, not measured: the value for a log.
    pub(crate) const FULL_BY_CONTROL: f64 = 0.93;
    /// Of the link's payload rate: a simulated rate above has reached the link. It is the steady half of a run, as a log's rate is
    /// that after the ramp.
    /// Source: chosen, not measured: the value for a log; `docs/LADDER.md` compares rungs with kernels.
    pub(crate) const FULL_SIMULATED: f64 = 0.93;
    /// Of the link's payload rate: what arrives in a few round trips where the link is the limit. It is lower than that of a log,
    /// for a window that falls at a loss leaves the link idle for some round trips.
    /// Source: chosen, not measured; held by `experiments/situations` (`tests/it/situations.rs`) and `docs/SITUATIONS.md`.
    pub(crate) const FULL_IN_ROWS: f64 = 0.85;
    /// Of the link's rate: a UDP stream of which more arrives lost the rest at the link. Headers are not taken off.
    /// Source: chosen, not measured.
    pub(crate) const FULL_OVER_UDP: f64 = 0.9;
    /// Of the link's payload rate (of its rate in a log): below, the link has room, and a queue stands elsewhere.
    /// Source: chosen, not measured; held as `FULL_IN_ROWS`.
    pub(crate) const ROOM: f64 = 0.8;
}

/// A window is full.
pub(crate) mod window {
    /// In flight over Cwnd or the receiver's window, median of a log after the ramp: above, that window limits.
    /// Source: chosen, not measured; the golden logs are held by `tests/it/cross_border.rs`.
    pub(crate) const FULL_IN_LOG: f64 = 0.8;
    /// The same ratio: below, that window does not limit. Between the two a log decides nothing, for it tells the window at the
    /// ends of intervals alone.
    /// Source: chosen, not measured; held as `FULL_IN_LOG`.
    pub(crate) const FREE_IN_LOG: f64 = 0.7;
    /// The same ratio: above, the samples at the ends of intervals do not stand for the whole of them, or the RTT is too large.
    /// Source: chosen, not measured.
    pub(crate) const SUSPICIOUS_IN_LOG: f64 = 1.3;
    /// In flight over a window in rows: above, it is full. What is left is less than what is sent at once.
    /// Source: chosen, not measured; held by `experiments/situations` (`tests/it/situations.rs`) and `docs/SITUATIONS.md`.
    pub(crate) const FULL_IN_ROWS: f64 = 0.9;
    /// Simulated rate over what a window or buffer lets pass in a round trip: above, it holds the run of a sender that paces. Of a
    /// send buffer two thirds may be in flight, so this is lower than the ratio of a window alone.
    /// Source: chosen, not measured; `docs/LADDER.md` compares rungs with kernels.
    pub(crate) const FULL_SIMULATED: f64 = 0.7;
}

/// A send buffer is full: a blocked writer wakes when a third of it is free (`sk_stream_is_writeable`).
pub(crate) mod send_buffer {
    /// Of a send buffer, the least that is in flight while it limits.
    /// Source: the kernel's rule; buffers of 1, 1.5 and 2 BDP carried 660, 915 and 955 of 956 Mbit/s
    /// (`experiments/rmem-wmem.toml`).
    pub(crate) const LEAST_USABLE: f64 = 0.67;
    /// Memory taken over memory allowed, in rows: above, a writer is blocked. It leaves some room below two thirds, for a
    /// row may come between the ACK that frees memory and the writer that wakes.
    /// Source: chosen, not measured; held by `experiments/situations` (`tests/it/situations.rs`) and `docs/SITUATIONS.md`.
    pub(crate) const BLOCKED_IN_ROWS: f64 = 0.62;
}

/// A queue stands at the bottleneck.
pub(crate) mod queue {
    /// Smoothed RTT in rows, or mean RTT in a log, over the least: above, a queue stands.
    /// Source: chosen, not measured; held by `experiments/situations` (`tests/it/situations.rs`).
    pub(crate) const STANDS: f64 = 1.25;
    /// Smoothed RTT over the least, the most of a few cycles of a sender that keeps the queue empty but for its probes: above, its
    /// probes met a queue.
    /// Source: chosen, not measured; held by `experiments/situations` (`tests/it/situations.rs`).
    pub(crate) const PROBED: f64 = 1.05;
    /// Largest RTT of a log over the base: below, there was no queue. A shaper with a queue of 1 BDP doubles the RTT.
    /// Source: the doubled RTT is that of `experiments/flow-cap.toml`; a tenth of it is chosen.
    pub(crate) const NONE_IN_LOG: f64 = 1.1;
}

/// A receiving application is behind.
pub(crate) mod reader {
    /// Unread data over unread data and offered window, in samples of a receiving socket: above, its reader is behind.
    /// Source: chosen, not measured; a reader that is behind left 26 % of the window closed, others 0 to 14 % (`docs/LIVE.md`).
    pub(crate) const BEHIND: f64 = 0.25;
}

/// Pacing is at its most.
pub(crate) mod pacing {
    /// Of the most that a socket may be paced at: above, that is the limit. BBR stays one percent below.
    /// Source: BBR's margin of 1 %, and one more; held by `experiments/situations` (`tests/it/situations.rs`).
    /// Unit: percent
    pub(crate) const AT_MOST: u64 = 98;
}

/// What is lost on the way.
pub(crate) mod loss {
    use super::Probability;

    /// Of the datagrams of a UDP test: below, the path carries the rate, though TCP may starve on such a loss.
    /// Source: chosen, not measured.
    pub(crate) const CARRIED: f64 = 0.01;
    /// Of the packets: above, no TCP gets through, and no ladder is climbed.
    /// Source: chosen, not measured.
    pub(crate) const MOST: Probability = Probability::from_ratio(1, 2);
}

/// A limit holds for a share of the time.
pub(crate) mod time {
    /// Of a simulated run, the time in which a window or buffer stopped the sender: above, it is what holds the run.
    /// Source: chosen, not measured; `docs/LADDER.md` compares rungs with kernels.
    pub(crate) const HELD_SIMULATED: f64 = 0.2;
    /// Of a cycle of BBR, the time in which a window or buffer stopped it: above, its pacer follows that. It is a rule about the
    /// simulator's own record, and that for a run one about the sum of it.
    /// Source: chosen, not measured; held by `experiments/situations` (`tests/it/situations.rs`).
    pub(crate) const FOLLOWED: f64 = 0.2;
    /// Of a trace, the time in which a buffer held the flow: above, its size is known by that. One moment at its end shows it, so
    /// this is lower than what names a limit.
    /// Source: chosen, not measured.
    pub(crate) const SHOWS_A_BUFFER: f64 = 0.05;
}

/// Two rates are the same, or differ by so much that it matters.
pub(crate) mod rate {
    /// Control measurement over the log's rate: below, the control is no cap, for the log has more.
    /// Source: chosen, not measured.
    pub(crate) const CONTROL_TOO_LOW: f64 = 0.9;
    /// Rate after a change over that before: a gain below this is not worth a setting.
    /// Source: chosen, not measured.
    pub(crate) const WORTH: (u64, u64) = (21, 20);
    /// Time after a change over that before: one above this is no gain. The same twentieth, for a time falls.
    /// Source: chosen, not measured.
    pub(crate) const TIME_WORTH: (u64, u64) = (19, 20);
    /// Rate of a rung over that of the one after: a remedy may seem to cost this much, for runs and log have their randomness.
    /// Source: chosen, not measured.
    pub(crate) const SETBACK: (u64, u64) = (20, 19);
}
