//! Whose a full receive window is: the buffer's, or that of an application that leaves the buffer full.
//!
//! ```text
//!   reads at once   window ▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔   what is acknowledged has been read: a window a round trip
//!   reads a little  window ▔▔▔╲▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁   it falls to what is read in a round trip, and stays there
//!   reads a lot,    window ▔▔▔▔╲▁▁│▔▔▔▔╲▁▁│▔▔▔▔╲▁▁   it closes, and opens again when that is read, never by a little
//!   then rests                                        (RFC 9293 section 3.8.6.2.2)
//! ```
//!
//! Where the receiver's `Recv-Q` is known it tells. Elsewhere the window tells: what is acknowledged and not offered again is not
//! read. The third course is that of an application that writes to a slow disk or pipe: its window is the whole buffer for most of
//! the time, for what fills the buffer is on its way meanwhile, so no median shows it. Two things do, over many round trips: how much of the
//! buffer was not offered, and that the rate is far below a window a round trip, which is what a buffer allows.
//!
//! A receiver whose reader rests also acknowledges late (its window does not advance, so Linux waits for up to 40 ms), and a sender whose
//! window has just been opened begins with what Cwnd allows. Between two closings the sender then waits for ACKs and for Cwnd, while what
//! it can bring about in the long run is that the window closes sooner.

use super::rules::{LONG, WIDE_ROWS, by_path, receive_window_is_full};
use super::spans::around;
use super::window::{Flow, Window};
use super::{Confidence, Limit};
use crate::thresholds::reader;

/// Of the largest window, the usual one of a reader that is behind.
const SMALLER: f64 = 0.8;
/// Of the largest window, what is not offered on the average of a reader that reads by the bufferful. A tenth and not a quarter:
/// the receiver reports an opening at once, and a closing only with a delayed ACK.
/// Source: `docs/LIVE.md`: 26 % for such a reader; 0 to 6 % for readers that keep
/// up, and 14 % for one of them on a busy host.
const CLOSED: f64 = 0.1;
/// Of the largest window, what a smallest round trip carries if the reader costs more than the buffer. A buffer that is too small lets
/// nearly all of it pass. One that grows by itself is twice of what its reader takes in a round trip, so a reader
/// that is the limit stays below a half.
/// Source: a small buffer was measured to let 0.8 to 0.98 pass; half of twice the buffer is the rest.
const CARRIED: f64 = 0.5;
/// Share of the rows in which the window is full that makes it the end of each cycle, and no accident.
const BY_TURNS: f64 = 0.05;

/// Whose the receive window is, which is full `near` row `at`.
pub(super) fn whose_window(flow: &Flow<'_>, at: usize, near: &Window<'_>) -> (Limit, Confidence) {
    let unread = near.mean(|row| row.receiver.map(|receiver| receiver.unread.get() as f64));
    let window = near.mean(|row| Some(row.sender.rwnd.get() as f64)).unwrap_or(0.0);
    match unread {
        Some(unread) if unread > reader::BEHIND * (unread + window) => {
            (Limit::ReceiverApp, Confidence::Certain)
        }
        Some(_) => (Limit::Rwnd, Confidence::Certain),
        None if shrank(flow, at, near) || costs_more_than_the_buffer(flow, at, CLOSED) => {
            (Limit::ReceiverApp, Confidence::Low)
        }
        None => (Limit::Rwnd, Confidence::Low),
    }
}

/// What holds the congestion control around row `at`, where the receive window is not full: the path, but for a reader that has left much
/// of the window unread for a long time, and all of it by turns.
pub(super) fn by_reader_or_path(flow: &Flow<'_>, at: usize) -> (Limit, Confidence) {
    use Confidence::{Certain, High, Low};
    // Asked last: it looks at many rows.
    let by_turns = || flow.window(at, LONG, WIDE_ROWS).share(receive_window_is_full) >= BY_TURNS;
    match by_path(flow, at) {
        line @ (Limit::Link, Certain) => line,
        _ if costs_more_than_the_buffer(flow, at, reader::BEHIND) && by_turns() => (Limit::ReceiverApp, Low),
        // ACKs that come late while a window is closed stretch round trips as a queue does, and a window that opens at once lets
        // out what a short queue loses.
        (limit @ (Limit::Link | Limit::Policer), High) if by_turns() => (limit, Low),
        path => path,
    }
}

/// Whether the receive window is smaller than it was: a buffer never shrinks, so its reader fell behind.
fn shrank(flow: &Flow<'_>, at: usize, near: &Window<'_>) -> bool {
    let usual = near.median(|row| Some(row.sender.rwnd.get() as f64));
    usual.is_some_and(|usual| usual < SMALLER * flow.largest_window(at))
}

/// Whether at least that part of the buffer was `unread` over many round trips, and far less was delivered than it allows.
fn costs_more_than_the_buffer(flow: &Flow<'_>, at: usize, unread: f64) -> bool {
    let long = around(flow.rows, at, LONG, WIDE_ROWS);
    let carried = flow.carried(at, &Window { rows: &flow.rows[long.clone()] });
    carried.is_some_and(|carried| carried < CARRIED) && flow.not_offered(long) >= unread
}

#[cfg(test)]
mod tests {
    use fullpipe_lab::trace::Row;
    use fullpipe_units::{Bytes, Duration};

    use crate::classify::samples::row;
    use crate::classify::{Confidence, Limit, SocketFacts, classify};

    const RTT: Duration = Duration::from_millis(40);

    /// Rows every 50 ms for ten seconds over a path of 40 ms. `course` makes of a time, in milliseconds, the window, what is in flight
    /// and what has been delivered. `cwnd` has room beside that, and more waits to be sent.
    fn rows(cwnd: u64, course: impl Fn(u64) -> (u64, u64, u64)) -> Vec<Row> {
        let at = |millis: u64| {
            let (window, in_flight, delivered) = course(millis);
            let mut row = row(millis);
            let sender = &mut row.sender;
            (sender.rwnd, sender.delivered) = (Bytes::new(window), Bytes::new(delivered));
            (sender.flight_size, sender.inflight) = (Bytes::new(in_flight), Bytes::new(in_flight));
            (sender.cwnd, sender.ssthresh) = (Bytes::new(cwnd), Some(Bytes::new(cwnd / 2)));
            (sender.srtt, sender.min_rtt) = (Some(RTT * 2), Some(RTT));
            row
        };
        (1..=200).map(|nth| at(50 * nth)).collect()
    }

    fn main_limit(rows: &[Row]) -> Limit {
        classify(rows, &SocketFacts::default()).findings[0].limit
    }

    /// A buffer of 99 KiB that takes `cycle` milliseconds to fill, to be told so and to be read, and is offered for all of them but
    /// `closed`.
    fn by_the_bufferful(cycle: u64, closed: u64) -> Vec<Row> {
        const BUFFER: u64 = 100_864;
        rows(210_000, |millis| {
            let delivered = BUFFER * (1 + millis / cycle);
            if millis % cycle < closed { (512, 0, delivered) } else { (BUFFER, BUFFER, delivered) }
        })
    }

    /// The course that iperf3's server shows which writes into a slow pipe, as captured at the sender: open for 85 of 115 ms, the
    /// acknowledgement late because the window stands still. In most rows the window is as large as ever.
    #[test]
    fn a_reader_by_the_bufferful_shows_by_its_closings() {
        let told = classify(&by_the_bufferful(115, 28), &SocketFacts::default()).findings;
        assert_eq!(told[0].limit, Limit::ReceiverApp);
        // What speaks for it, and that one end cannot know.
        let told = [&told[0].evidence[1], &told[0].could_not_tell[0]];
        assert!(
            told[0].contains("at most; it fell to 512 B") && told[0].contains("lets 20.2 Mbit/s pass"),
            "{told:?}"
        );
        assert!(told[1].contains("Recv-Q is not known"), "{told:?}");
        // The same rate without a closing: a queue on the path looks like that.
        assert_eq!(main_limit(&by_the_bufferful(115, 0)), Limit::Rwnd);
    }

    /// On a busy host a reader that keeps up comes late at times. That costs less than the buffer does.
    #[test]
    fn a_reader_that_comes_late_is_no_slow_reader() {
        assert_eq!(main_limit(&by_the_bufferful(51, 9)), Limit::Rwnd);
    }

    /// Each reading frees 128 KiB, which Cwnd takes six flights to fill again, each acknowledged late. The window is the whole of
    /// what is sent in the long run, though it is full only now and then.
    #[test]
    fn cwnd_only_delays_the_next_closing() {
        const FREED: u64 = 131_072;
        const FLIGHT: u64 = 24_000;
        let course = |millis: u64| {
            let (cycle, phase) = (millis / 330, millis % 330);
            let filled = (FLIGHT * (phase / 44)).min(FREED);
            let room = if cycle == 0 { 188_928 } else { FREED - filled };
            (room, FLIGHT.min(room), FREED * cycle + filled)
        };
        assert_eq!(main_limit(&rows(FLIGHT, course)), Limit::ReceiverApp);
        let read_at_once = |millis: u64| {
            let (_, in_flight, delivered) = course(millis);
            (188_928, in_flight.max(FLIGHT), delivered)
        };
        assert_eq!(main_limit(&rows(FLIGHT, read_at_once)), Limit::Cwnd);
        // It fell, and yet it is never full: Cwnd it is that could bring more.
        let never_full = |millis: u64| {
            let (room, _, delivered) = course(millis);
            (room.clamp(2 * FLIGHT, FREED), FLIGHT, delivered)
        };
        let mut never_full = rows(FLIGHT, never_full);
        never_full[0].sender.rwnd = Bytes::new(188_928);
        assert_eq!(main_limit(&never_full), Limit::Cwnd);
    }

    /// Late ACKs and bursts come with a window that is full now and then: a queue or a shaper is not sure beside them.
    #[test]
    fn beside_a_window_that_fills_by_turns_a_path_is_not_sure() {
        const FLIGHT: u64 = 24_000;
        let course = |filled: u64| {
            move |millis: u64| {
                let room = if millis % 500 < filled { FLIGHT } else { 188_928 };
                (room, FLIGHT, millis * FLIGHT / 40)
            }
        };
        let told = |filled| {
            let told = classify(&rows(FLIGHT, course(filled)), &SocketFacts::default()).findings;
            (told[0].limit, told[0].confidence)
        };
        assert_eq!(told(0), (Limit::Link, Confidence::High));
        assert_eq!(told(50), (Limit::Link, Confidence::Low));
    }
}
