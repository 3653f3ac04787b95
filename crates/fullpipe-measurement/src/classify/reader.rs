//! Decides whether a full receive window is due to a small buffer or to an application that reads too slowly.
//!
//! ```text
//!   reads at once   window ▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔   acknowledged data has been read: one window per round trip
//!   reads a little  window ▔▔▔╲▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁   falls to the data read in a round trip, and stays there
//!   reads a lot,    window ▔▔▔▔╲▁▁│▔▔▔▔╲▁▁│▔▔▔▔╲▁▁   closes, and reopens by a large step once data is read
//!   then pauses                                       (RFC 9293 section 3.8.6.2.2)
//! ```
//!
//! If the receiver's `Recv-Q` is known, the decision is based on it. Otherwise it is based on the window:
//! data that is acknowledged without reopening the window is unread. An application that writes to a slow
//! disk or pipe causes the third pattern. The advertised window then equals the whole buffer most of the
//! time, because the data that will fill the buffer is still in flight. No median therefore shows the slow
//! reader. Two measures over many round trips do show it: the share of the buffer that was not advertised,
//! and a rate far below one window per round trip, the rate that the buffer allows.
//!
//! When its reader pauses, a receiver also delays ACKs: its window does not advance, so Linux waits up to 40
//! ms. In addition, a sender whose receive window has just reopened can send no more than Cwnd allows.
//! Between two window closings the sender therefore waits for ACKs and for Cwnd, although in the long run a
//! faster sender would only make the window close sooner.

use super::rules::{LONG, WIDE_ROWS, by_path, receive_window_is_full};
use super::spans::around;
use super::window::{Flow, Window};
use super::{Confidence, Limit};
use crate::thresholds::reader;

/// A reader has fallen behind if the median window is below this share of the largest window.
const SMALLER: f64 = 0.8;
/// A reader that reads one buffer at a time leaves at least this share of the largest window closed on
/// average. The share is a tenth, not a quarter, because the receiver reports an opening window immediately
/// and a closing one only with a delayed ACK.
/// Source: `docs/evidence/live.md`: 26 % for such a reader; 0 to 6 % for readers that keep up, and 14 % for
/// one of them on a busy host.
const CLOSED: f64 = 0.1;
/// The reader, not the buffer, is the limit if less than this share of the largest window is delivered per
/// minimum RTT. A buffer that is too small delivers nearly a full window. Autotuning makes a buffer twice as
/// large as the data that the reader takes per round trip, so if the reader is the limit, the delivered data
/// stays below half of the window.
/// Source: a small buffer delivered 0.8 to 0.98, measured; one half follows from the autotuning rule.
const CARRIED: f64 = 0.5;
/// The window is full regularly, not by accident, if it is full in at least this share of the rows.
const BY_TURNS: f64 = 0.05;

/// Returns the limit behind a receive window that is full in the rows `near`, around row `at`: the buffer or
/// the reader.
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

/// Returns the limit behind the congestion control around row `at`, if the receive window is not full. The
/// limit is the path, unless much of the receive buffer was unread for a long time and all of it was unread
/// from time to time.
pub(super) fn by_reader_or_path(flow: &Flow<'_>, at: usize) -> (Limit, Confidence) {
    use Confidence::{Certain, High, Low};
    // The closure is evaluated last, because it reads many rows.
    let by_turns = || flow.window(at, LONG, WIDE_ROWS).share(receive_window_is_full) >= BY_TURNS;
    match by_path(flow, at) {
        line @ (Limit::Link, Certain) => line,
        _ if costs_more_than_the_buffer(flow, at, reader::BEHIND) && by_turns() => (Limit::ReceiverApp, Low),
        // With a closed window, late ACKs stretch round trips as a queue does, and a reopened window releases
        // bursts that overflow a short queue.
        (limit @ (Limit::Link | Limit::Cap | Limit::Policer), High) if by_turns() => (limit, Low),
        path => path,
    }
}

/// Returns whether the receive window has shrunk. A buffer never shrinks, so a smaller window shows that the
/// reader has fallen behind.
fn shrank(flow: &Flow<'_>, at: usize, near: &Window<'_>) -> bool {
    let usual = near.median(|row| Some(row.sender.rwnd.get() as f64));
    usual.is_some_and(|usual| usual < SMALLER * flow.largest_window(at))
}

/// Returns whether, over many round trips, at least the share `unread` of the buffer was not advertised, and
/// the flow delivered far less than the buffer allows.
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

    /// Returns one row every 50 ms for ten seconds on a 40 ms path. `course` maps a time in milliseconds to
    /// receive window, data in flight and delivered data. `cwnd` exceeds the data in flight, and more data is
    /// always waiting.
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

    /// Returns the rows of a 99 KiB buffer that is filled, acknowledged and read once every `cycle`
    /// milliseconds. The window is closed for `closed` milliseconds of each cycle.
    fn by_the_bufferful(cycle: u64, closed: u64) -> Vec<Row> {
        const BUFFER: u64 = 100_864;
        rows(210_000, |millis| {
            let delivered = BUFFER * (1 + millis / cycle);
            if millis % cycle < closed { (512, 0, delivered) } else { (BUFFER, BUFFER, delivered) }
        })
    }

    /// The pattern of an iperf3 server that writes to a slow pipe, as captured at the sender: the window is
    /// open for 85 of 115 ms, and ACKs are late while the window does not advance. Most rows show the full
    /// window.
    #[test]
    fn a_reader_by_the_bufferful_shows_by_its_closings() {
        let told = classify(&by_the_bufferful(115, 28), &SocketFacts::default()).findings;
        assert_eq!(told[0].limit, Limit::ReceiverApp);
        // Check the evidence, and the question that one end cannot answer.
        let told = [&told[0].evidence[1], &told[0].could_not_tell[0]];
        assert!(
            told[0].contains(" and fell to 512 B") && told[0].contains("would allow 20.2 Mbit/s"),
            "{told:?}"
        );
        assert!(told[1].contains("Recv-Q is not known"), "{told:?}");
        // At the same rate, a window that never closes is limited by the buffer.
        assert_eq!(main_limit(&by_the_bufferful(115, 0)), Limit::Rwnd);
    }

    /// On a busy host, a reader that keeps up is occasionally late. The late reads cost less rate than the
    /// small buffer.
    #[test]
    fn a_reader_that_comes_late_is_no_slow_reader() {
        assert_eq!(main_limit(&by_the_bufferful(51, 9)), Limit::Rwnd);
    }

    /// Each read frees 128 KiB, and a small Cwnd takes six flights, each acknowledged late, to refill it. In
    /// the long run the sender sends as much as the window allows, although the window is only full from time
    /// to time.
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
        // The window shrank but is never full, so only a larger Cwnd could increase the rate.
        let never_full = |millis: u64| {
            let (room, _, delivered) = course(millis);
            (room.clamp(2 * FLIGHT, FREED), FLIGHT, delivered)
        };
        let mut never_full = rows(FLIGHT, never_full);
        never_full[0].sender.rwnd = Bytes::new(188_928);
        assert_eq!(main_limit(&never_full), Limit::Cwnd);
    }

    /// Late ACKs and bursts occur together with a window that is occasionally full, so a queue or shaper is
    /// only a low-confidence finding there.
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
