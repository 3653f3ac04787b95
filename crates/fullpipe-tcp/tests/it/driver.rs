//! Driver for connections in virtual time, which performs all tasks of the owner of a [`Connection`]. The
//! unit tests include this module by its path.
//!
//! ```text
//!   a segment arrives, the application acts ──┐
//!   a timer is due ──► fire ──────────────────┴─► transmissions ──► InFlight ──► next arrival or timer
//! ```

use std::collections::BTreeMap;

use fullpipe_tcp::wire::Segment;
use fullpipe_tcp::{Connection, Snapshot};
use fullpipe_units::Instant;

/// Maximum number of transmissions of a connection at one instant. A larger number indicates an endless loop.
const ENDLESS: usize = 100_000;
/// Flight size in bytes up to which the driver checks the invariants at every step. With more in flight, it
/// checks them at one step in [`SAMPLED`].
const SMALL_FLIGHT: u64 = 100_000;
const SAMPLED: u64 = 64;

/// One transmission of a connection, split into segments.
pub(crate) struct Transmission {
    /// State of the connection before the transmission.
    pub(crate) before: Snapshot,
    /// Header of the first segment, with the payload length of the whole transmission.
    pub(crate) whole: Segment,
    /// Segments of the transmission as they appear on the wire.
    pub(crate) pieces: Vec<Segment>,
}

impl Transmission {
    /// Checks that the connection sends the whole payload, and that new data stays within the congestion
    /// window. A probe, or a segment that F-RTO sends, may exceed the window by one segment.
    fn check(&self, after: &Connection) {
        let Self { before, whole, pieces } = self;
        let len = pieces.iter().map(|piece| u64::from(piece.len)).sum::<u64>();
        assert_eq!(len, whole.len.into(), "the pieces are not the whole");
        if len > 0 && after.snapshot().flight_size > before.flight_size {
            let allowed = before.cwnd.max(before.inflight + before.mss);
            assert!(before.inflight + len <= allowed, "{} and {len} in {}", before.inflight, before.cwnd);
        }
    }
}

/// Returns all transmissions that `conn` has ready at `now`. Checks that their number is bounded and that no
/// timer is due afterwards.
pub(crate) fn transmissions(conn: &mut Connection, now: Instant) -> Vec<Transmission> {
    let mut all = Vec::new();
    loop {
        let before = conn.snapshot();
        let Some(mut transmit) = conn.poll_transmit(now) else { break };
        let whole = transmit.segment().clone();
        let pieces: Vec<Segment> = transmit.segments(0).map(|piece| piece.segment()).collect();
        assert!(transmit.is_cut_up(), "a part of a transmission is left");
        let transmission = Transmission { before, whole, pieces };
        transmission.check(conn);
        all.push(transmission);
        assert!(all.len() < ENDLESS, "transmits for ever");
    }
    assert!(conn.poll_timeout() > now, "a timer is due after everything was handled");
    all
}

/// Returns the same transmissions as [`transmissions`], but split into segments, as on the wire.
pub(crate) fn segments(conn: &mut Connection, now: Instant) -> impl Iterator<Item = Segment> + use<> {
    transmissions(conn, now).into_iter().flat_map(|transmission| transmission.pieces)
}

/// Handles the timers that are due at `now`.
pub(crate) fn fire(conn: &mut Connection, now: Instant) {
    if conn.poll_timeout() <= now {
        conn.handle_timeout(now);
    }
}

/// Advances the clock to the next timer of a single connection and handles it. If no timer is due by `until`,
/// advances the clock to `until`. Returns whether a timer was handled.
pub(crate) fn run_timer(conn: &mut Connection, now: &mut Instant, until: Instant) -> bool {
    let due = conn.poll_timeout();
    if due > until {
        *now = until.max(*now);
        return false;
    }
    jump(now, due);
    conn.handle_timeout(due);
    true
}

/// Advances the clock to the next event. Checks that there is a next event, and that it is not in the past.
pub(crate) fn jump(now: &mut Instant, next: Instant) {
    assert!(!next.is_never(), "stalled: nothing will ever happen");
    assert!(next >= *now, "time runs backwards: an event in the past");
    *now = next;
}

/// Checks the invariants of the connection. The function does so at every step if little data is in flight,
/// and otherwise at one step in [`SAMPLED`].
pub(crate) fn recount(conn: &Connection, step: u64) {
    if step.is_multiple_of(SAMPLED) || conn.snapshot().flight_size <= SMALL_FLIGHT {
        conn.check();
    }
}

/// Packets in flight. Packets with the same arrival time arrive in the order of transmission.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    loads: BTreeMap<(Instant, u64), T>,
    sent: u64,
}

impl<T> InFlight<T> {
    pub(crate) fn new() -> Self {
        Self { loads: BTreeMap::new(), sent: 0 }
    }

    /// Adds the packet `load`, which arrives at `at`.
    pub(crate) fn put(&mut self, at: Instant, load: T) {
        self.loads.insert((at, self.sent), load);
        self.sent += 1;
    }

    /// Returns the time at which the next packet arrives.
    pub(crate) fn next(&self) -> Instant {
        self.loads.first_key_value().map_or(Instant::FAR_FUTURE, |((at, _), _)| *at)
    }

    /// Removes and returns one packet that has arrived by `now`.
    pub(crate) fn take(&mut self, now: Instant) -> Option<T> {
        if self.next() > now {
            return None;
        }
        self.loads.pop_first().map(|(_, load)| load)
    }
}
