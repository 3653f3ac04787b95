//! Packetization: divides the send queue into transmissions.

use fullpipe_units::{Duration, Rate};

use crate::Bursts;
use crate::cc::{self, Context, Control, Pacing, SendQuantum};

/// Limits on the next transmission of new data; all amounts are in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Data that the application has written and that has not been sent yet.
    pub(crate) unsent: u64,
    /// Free part of the congestion window that this transmission may use.
    pub(crate) cwnd: u64,
    /// Free part of the peer's receive window.
    pub(crate) rwnd: u64,
    /// Maximum amount of data to release at once.
    pub(crate) quantum: u64,
    /// Whether a short segment is outstanding.
    pub(crate) short_outstanding: bool,
    /// Whether the application has closed its side. If so, the last segment may be short.
    pub(crate) last: bool,
}

/// Returns the length of the next transmission of new data: whole segments, or one short segment. A short
/// segment must contain all unsent data, or follow whole segments and fill the rest of the peer's window. A
/// short segment is sent only if no other short segment is outstanding; the last segment of the stream is
/// never delayed. This is Minshall's variant of the Nagle algorithm (NAG-3): at most one short segment per
/// round trip, whether the application or the window makes it short.
///
/// If the free part of the peer's window is smaller than a segment, the sender leaves it unused unless all
/// unsent data fits into it (RFC 9293 section 3.8.6.2.1).
pub(crate) fn next_length(room: Room, mss: u64) -> u64 {
    let len = room.unsent.min(room.cwnd).min(room.rwnd).min(room.quantum.max(mss));
    if len < mss {
        // The congestion window is counted in whole segments, so it never makes a segment short.
        let ends_stream = room.last && len == room.unsent;
        return if len == room.unsent && (ends_stream || !room.short_outstanding) { len } else { 0 };
    }
    let window_ends_it = len == room.rwnd && len < room.cwnd && len < room.quantum;
    if window_ends_it && !room.short_outstanding {
        return len;
    }
    // The usual length is two segments, which needs no division.
    if len < 3 * mss && len >= 2 * mss { 2 * mss } else { len / mss * mss }
}

/// Release parameters of a congestion control decision: rate and quantum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    /// Pacing rate, regardless of whether the host enforces it.
    pub(crate) rate: Option<Rate>,
    /// Maximum amount of data to send at once, in bytes.
    pub(crate) quantum: u64,
}

/// Limits of the release parameters that come from the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleaseLimits {
    /// Maximum pacing rate.
    pub(crate) rate: Option<Rate>,
    /// Rule for the quantum of a paced sender.
    pub(crate) bursts: Bursts,
}

/// Inputs of a [`Release`] other than the congestion control decision, with their values at the time of that
/// decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Basis {
    srtt: Option<Duration>,
    min_rtt: Option<Duration>,
    flight_size: u64,
    mss: u64,
}

impl Basis {
    pub(crate) fn of(cx: &Context) -> Self {
        Self { srtt: cx.srtt, min_rtt: cx.min_rtt, flight_size: cx.flight_size, mss: cx.mss }
    }

    /// Returns the release parameters of `control` within `limits`.
    pub(crate) fn release(&self, control: &Control, limits: ReleaseLimits) -> Release {
        let decided = pacing_rate(control, self);
        let rate = match limits.rate {
            Some(most) => Some(decided.map_or(most, |rate| rate.min(most))),
            None => decided,
        };
        let quantum = quantum(control, rate, self);
        match (limits.bursts, rate) {
            (Bursts::Limited { length, .. }, Some(rate)) => {
                let most =
                    rate.as_bytes_per_sec().saturating_mul(length.as_micros()) / 1_000_000 / self.mss.max(1);
                Release { rate: Some(rate), quantum: quantum.min(most.max(2) * self.mss) }
            }
            _ => Release { rate, quantum },
        }
    }

    /// Returns the send quantum. For a transmission of `len` bytes that fits into the minimum quantum of the
    /// decision, as is usual, returns that minimum, which needs no division.
    pub(crate) fn quantum_for(&self, len: u64, control: &Control, limits: ReleaseLimits) -> u64 {
        let least = match control.send_quantum {
            SendQuantum::Bytes(bytes) => bytes.max(self.mss),
            SendQuantum::FromRate { min_segments } => min_segments * self.mss,
        };
        if len <= least { least } else { self.release(control, limits).quantum }
    }
}

fn pacing_rate(control: &Control, basis: &Basis) -> Option<Rate> {
    match control.pacing {
        Pacing::Unpaced => None,
        Pacing::Rate(rate) => Some(rate),
        Pacing::SrttRatio { slow_start, avoidance } => {
            let srtt = basis.srtt?;
            let percent = if control.cwnd < control.ssthresh / 2 { slow_start } else { avoidance };
            let window = control.cwnd.max(basis.flight_size);
            let scale = percent * 10_000_000 * 8;
            let span = srtt.as_nanos().max(1);
            // A 64-bit product is sufficient for windows up to 1 GB.
            let bps = window.checked_mul(scale).map(|product| product / span).unwrap_or_else(|| {
                u64::try_from(u128::from(window) * u128::from(scale) / u128::from(span)).unwrap_or(u64::MAX)
            });
            Some(Rate::from_bps(bps))
        }
    }
}

fn quantum(control: &Control, rate: Option<Rate>, basis: &Basis) -> u64 {
    match control.send_quantum {
        SendQuantum::Bytes(bytes) => bytes.max(basis.mss),
        SendQuantum::FromRate { min_segments } => {
            cc::linux_send_quantum(rate.unwrap_or(Rate::MAX), basis.min_rtt, basis.mss, min_segments)
        }
    }
}

/// Limits `mss` to half of the peer's window, so that an ACK is always in flight. A window of 0 sets no
/// limit, because it only means that the peer accepts no data now (Linux: `tcp_bound_to_half_wnd`).
pub(crate) fn bound_to_half_window(mss: u64, window: u64) -> u64 {
    /// Largest peer window that is not halved, because smaller segments would do more harm than good: the
    /// default MSS of RFC 9293.
    const DEFAULT_MSS: u64 = 536;
    match window {
        0 => mss,
        1..=DEFAULT_MSS => mss.min(window),
        _ => mss.min(window / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        unsent: 100_000,
        cwnd: 100_000,
        rwnd: 100_000,
        quantum: 100_000,
        short_outstanding: false,
        last: false,
    };

    /// Returns the decision of a controller that paces at a rate in Mbit/s.
    fn paced(mbps: u64, cwnd: u64, send_quantum: SendQuantum) -> Control {
        Control {
            cwnd,
            ssthresh: u64::MAX,
            pacing: Pacing::Rate(Rate::from_bps(mbps * 1_000_000)),
            send_quantum,
            recovery: cc::Recovery::Prr,
            mark_app_limited: false,
            repair: cc::Repair::NONE,
        }
    }

    /// With limited bursts, a transmission takes at most the given time at the pacing rate, unless it contains at most
    /// two segments.
    #[test]
    fn a_burst_is_limited() {
        let length = Duration::from_micros(250);
        let limits = ReleaseLimits { rate: None, bursts: Bursts::Limited { length, missed: length } };
        let basis = Basis { srtt: None, min_rtt: None, flight_size: 0, mss: 1_000 };
        for (megabits, quantum) in [(1, 2_000), (100, 3_000), (800, 25_000), (10_000, 65_000)] {
            let control = paced(megabits, 1 << 20, SendQuantum::FromRate { min_segments: 2 });
            assert_eq!(basis.release(&control, limits).quantum, quantum, "{megabits} Mbit/s");
        }
    }

    #[test]
    fn transmissions_are_whole_segments() {
        assert_eq!(next_length(ROOM, 1448), 69 * 1448);
        assert_eq!(next_length(Room { cwnd: 3_000, ..ROOM }, 1448), 2_896);
        assert_eq!(next_length(Room { cwnd: 1_447, ..ROOM }, 1448), 0);
        assert_eq!(next_length(Room { quantum: 1, ..ROOM }, 1448), 1448);
    }

    /// The approximate send quantum limits a transmission exactly as the exact quantum does.
    #[test]
    fn a_short_transmission_needs_no_exact_quantum() {
        for (mbps, cwnd) in [(1, 14_480), (100, 600_000), (10_000, 1 << 30)] {
            for send_quantum in [SendQuantum::Bytes(40_000), SendQuantum::FromRate { min_segments: 2 }] {
                let control = paced(mbps, cwnd, send_quantum);
                let limits = ReleaseLimits { rate: None, bursts: Bursts::Linux };
                let basis = Basis { srtt: None, min_rtt: None, flight_size: cwnd, mss: 1448 };
                let quantum = basis.release(&control, limits).quantum;
                for len in (0..70_000).step_by(724) {
                    assert_eq!(len.min(basis.quantum_for(len, &control, limits)), len.min(quantum));
                }
            }
        }
    }

    /// A short segment is delayed only while another short segment is unacknowledged (NAG-3). The last
    /// segment is never delayed.
    #[test]
    fn one_short_segment_at_a_time() {
        let rest = Room { unsent: 100, short_outstanding: true, ..ROOM };
        assert_eq!(next_length(rest, 1448), 0);
        assert_eq!(next_length(Room { short_outstanding: false, ..rest }, 1448), 100);
        assert_eq!(next_length(Room { last: true, ..rest }, 1448), 100);
        assert_eq!(next_length(Room { last: true, cwnd: 50, ..rest }, 1448), 0);
    }

    /// Measured on Linux 6.18 with segments of 724 bytes and a peer window of 1280 bytes. With nothing in
    /// flight, segments of 724 and 556 bytes leave at once if the congestion window allows two segments. With
    /// 724 bytes in flight, nothing leaves.
    #[test]
    fn a_window_makes_a_segment_short_only_behind_a_whole_one() {
        let window = Room { rwnd: 1_280, ..ROOM };
        assert_eq!(next_length(window, 724), 1_280);
        assert_eq!(next_length(Room { cwnd: 724, ..window }, 724), 724);
        assert_eq!(next_length(Room { short_outstanding: true, ..window }, 724), 724);
        assert_eq!(next_length(Room { rwnd: 556, ..ROOM }, 724), 0);
        assert_eq!(next_length(Room { rwnd: 556, unsent: 556, ..ROOM }, 724), 556);
    }

    #[test]
    fn a_tiny_window_is_used_in_halves() {
        assert_eq!(bound_to_half_window(1448, 1040), 520);
        assert_eq!(bound_to_half_window(1448, 65_160), 1448);
        assert_eq!(bound_to_half_window(1448, 500), 500);
        assert_eq!(bound_to_half_window(1448, 0), 1448);
    }
}
