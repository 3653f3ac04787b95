//! Tells whether a receive window is full because of its buffer or because of an application that reads too
//! slowly.
//!
//! ```text
//!   reads at once   window ▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔   acknowledged data has been read: one window per round trip
//!   reads a little  window ▔▔▔╲▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁   falls to the data read in a round trip, and stays there
//!   reads a lot,    window ▔▔▔▔╲▁▁│▔▔▔▔╲▁▁│▔▔▔▔╲▁▁   closes, and reopens by a large step once data is read
//!   then pauses                                       (RFC 9293 section 3.8.6.2.2)
//! ```
//!
//! Where the receiver's `Recv-Q` is known, it decides. Elsewhere the window decides: data that is
//! acknowledged without the window reopening is unread. The third pattern is that of an application that
//! writes to a slow disk or pipe. Its window is the whole buffer for most of the time, because the data that
//! fills the buffer is on its way meanwhile, so no median shows it. Two measures over many round trips do
//! show it: how much of the buffer was not offered, and a rate far below one window per round trip, the rate
//! that a buffer allows.
//!
//! A receiver whose reader pauses also acknowledges late (its window does not advance, so Linux waits up to
//! 40 ms), and a sender whose window has just reopened starts with what Cwnd allows. Between two closings the
//! sender therefore waits for ACKs and for Cwnd, although in the long run a faster sender would only make the
//! window close sooner.

use super::rules::{LONG, WIDE_ROWS, by_path, receive_window_is_full};
use super::spans::around;
use super::window::{Flow, Window};
use super::{Confidence, Limit};
use crate::thresholds::reader;

/// A reader is behind when the usual window is below this share of the largest window.
const SMALLER: f64 = 0.8;
/// A reader that reads by the bufferful leaves on average at least this share of the largest window closed.
/// The share is a tenth and not a quarter, because the receiver reports an opening at once, but a closing
/// only with a delayed ACK.
/// Source: `docs/LIVE.md`: 26 % for such a reader; 0 to 6 % for readers that keep up, and 14 % for one of
/// them on a busy host.
const CLOSED: f64 = 0.1;
/// A reader costs more than the buffer when a smallest round trip carries less than this share of the largest
/// window. A buffer that is too small passes nearly all of it. An autotuned buffer is twice the data that its
/// reader takes in a round trip, so a reader that limits stays below half.
/// Source: a small buffer was measured to pass 0.8 to 0.98; the half follows from autotuning to twice the
/// data.
const CARRIED: f64 = 0.5;
/// A window ends each cycle, and is not full by accident, when it is full in this share of the rows.
const BY_TURNS: f64 = 0.05;

/// Returns the limit behind a receive window that is full `near` row `at`: the buffer or the reader.
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

/// Returns the limit behind the congestion control around row `at`, where the receive window is not full. It
/// is the path, except for a reader that has left much of the window unread for a long time, and by turns all
/// of it.
pub(super) fn by_reader_or_path(flow: &Flow<'_>, at: usize) -> (Limit, Confidence) {
    use Confidence::{Certain, High, Low};
    // Evaluated last, because it reads many rows.
    let by_turns = || flow.window(at, LONG, WIDE_ROWS).share(receive_window_is_full) >= BY_TURNS;
    match by_path(flow, at) {
        line @ (Limit::Link, Certain) => line,
        _ if costs_more_than_the_buffer(flow, at, reader::BEHIND) && by_turns() => (Limit::ReceiverApp, Low),
        // Late ACKs during a closed window stretch round trips like a queue, and a window that reopens at
        // once releases bursts that overflow a short queue.
        (limit @ (Limit::Link | Limit::Policer), High) if by_turns() => (limit, Low),
        path => path,
    }
}

/// Returns whether the receive window is smaller than before: a buffer never shrinks, so the reader fell
/// behind.
fn shrank(flow: &Flow<'_>, at: usize, near: &Window<'_>) -> bool {
    let usual = near.median(|row| Some(row.sender.rwnd.get() as f64));
    usual.is_some_and(|usual| usual < SMALLER * flow.largest_window(at))
}

/// Returns whether at least the share `unread` of the buffer was not offered over many round trips, and far
/// less was delivered than the buffer allows.
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

    /// Returns rows every 50 ms for ten seconds over a path of 40 ms. `course` maps a time in milliseconds to
    /// the window, the data in flight and the data delivered. `cwnd` leaves room, and more data waits to be
    /// sent.
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

    /// Returns rows of a buffer of 99 KiB that takes `cycle` milliseconds to fill, to report that and to be
    /// read. The window is open for all of the cycle except `closed` milliseconds.
    fn by_the_bufferful(cycle: u64, closed: u64) -> Vec<Row> {
        const BUFFER: u64 = 100_864;
        rows(210_000, |millis| {
            let delivered = BUFFER * (1 + millis / cycle);
            if millis % cycle < closed { (512, 0, delivered) } else { (BUFFER, BUFFER, delivered) }
        })
    }

    /// The pattern of an iperf3 server that writes to a slow pipe, as captured at the sender: the window is
    /// open for 85 of 115 ms, and the ACK is late because the window does not advance. In most rows the
    /// window has its full size.
    #[test]
    fn a_reader_by_the_bufferful_shows_by_its_closings() {
        let told = classify(&by_the_bufferful(115, 28), &SocketFacts::default()).findings;
        assert_eq!(told[0].limit, Limit::ReceiverApp);
        // The evidence for it, and what one end cannot know.
        let told = [&told[0].evidence[1], &told[0].could_not_tell[0]];
        assert!(
            told[0].contains("at most; it fell to 512 B") && told[0].contains("lets 20.2 Mbit/s pass"),
            "{told:?}"
        );
        assert!(told[1].contains("Recv-Q is not known"), "{told:?}");
        // The same rate without a closing: a queue on the path looks like that.
        assert_eq!(main_limit(&by_the_bufferful(115, 0)), Limit::Rwnd);
    }

    /// On a busy host a reader that keeps up is sometimes late. That costs less than the buffer does.
    #[test]
    fn a_reader_that_comes_late_is_no_slow_reader() {
        assert_eq!(main_limit(&by_the_bufferful(51, 9)), Limit::Rwnd);
    }

    /// Each read frees 128 KiB, which Cwnd takes six flights to fill again, each acknowledged late. In the
    /// long run the sender sends as much as the window allows, although the window is full only now and then.
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
        // The window fell, but it is never full, so only a larger Cwnd could bring more.
        let never_full = |millis: u64| {
            let (room, _, delivered) = course(millis);
            (room.clamp(2 * FLIGHT, FREED), FLIGHT, delivered)
        };
        let mut never_full = rows(FLIGHT, never_full);
        never_full[0].sender.rwnd = Bytes::new(188_928);
        assert_eq!(main_limit(&never_full), Limit::Cwnd);
    }

    /// Late ACKs and bursts accompany a window that is full now and then, so a queue or shaper is only a
    /// low-confidence finding there.
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
