//! ACK policy of the receiver (RFC 5681 section 4.2, as implemented in Linux).
//!
//! The receiver acknowledges at least every second full-sized segment, and acknowledges anything out of order
//! at once. An ACK that would advertise a smaller window waits until the application reads or the ACK delay
//! ends. The receiver delays other ACKs in proportion to the spacing of arrivals. A new connection first
//! acknowledges every segment ("quick ACKs"), because the sender's slow start depends on ACKs. While the
//! application replies to arriving data, its replies carry the ACKs instead. Above a hole, the receiver
//! delays ACKs after the third duplicate by up to a millisecond, because the sender needs new information but
//! not every repetition.

use fullpipe_units::{Duration, Instant};

use super::rcv_mss::EndOfWrite;

/// Smallest ACK delay, and the initial one.
const ATO_MIN: Duration = Duration::from_millis(40);
/// Largest ACK delay.
const DELACK_MAX: Duration = Duration::from_millis(200);
/// Maximum number of ACKs sent without delay after the start or after a pause.
const MAX_QUICK_ACKS: u64 = 16;
/// Number of duplicate ACKs sent before compression begins (the sender's threshold).
const UNCOMPRESSED_DUP_ACKS: u32 = 3;
/// Number of duplicate ACKs that one compressed ACK may replace.
const MAX_COMPRESSED: u32 = 44;
/// Longest delay of a compressed ACK, and its limit as a fraction of the RTT.
const COMPRESSION_DELAY: Duration = Duration::from_millis(1);
const COMPRESSION_RTT_FRACTION: u64 = 20;
/// Additional delay of a compressed ACK, because the kernel may combine the timer of the ACK with other
/// timers (`tcp_comp_sack_slack_ns`).
const COMPRESSION_SLACK: Duration = Duration::from_micros(100);

/// ACK state of the receiver.
#[derive(Clone, Debug)]
pub(crate) struct AckPolicy {
    /// Whether an ACK is due now.
    now: bool,
    /// Deadline of the delayed ACK; [`Instant::FAR_FUTURE`] if none is due.
    delayed_until: Instant,
    quick_left: u64,
    ato: Duration,
    last_arrival: Option<Instant>,
    /// Whether data or a FIN has arrived since the last ACK (Linux: `ICSK_ACK_SCHED`).
    scheduled: bool,
    pushed: Pushed,
    /// Whether the application replies to arriving data, so that its replies carry the ACKs (Linux: pingpong
    /// mode).
    interactive: bool,
    dup_acks: u32,
    compressed: u32,
    compressed_at: u64,
}

/// Number of segments since the last ACK that look like the end of a write: short segments, and full-sized
/// segments with PSH. No further segment may follow for some time, and the sender may wait for the ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pushed {
    #[default]
    No,
    Once,
    /// A short segment followed another segment that looked like the end of a write.
    Again,
}

/// Properties of an arriving segment that the ACK policy needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) len: u64,
    /// Payload length of a full-sized segment of the peer, in bytes.
    pub(crate) mss: u64,
    /// Whether the arrival advanced `rcv_nxt`.
    pub(crate) in_order: bool,
    /// Whether the arrival looks like the last segment of a write.
    pub(crate) end_of_write: EndOfWrite,
    /// Whether the received data has holes after this arrival.
    pub(crate) disorder: bool,
    /// Whether one more changed range would not fit into the SACK blocks of one ACK. Also true without SACK,
    /// because the sender then counts duplicate ACKs.
    pub(crate) crowded: bool,
    /// Whether this arrival must be acknowledged at once, because it is a duplicate, has filled the last
    /// hole, or carries a FIN after this side's own.
    pub(crate) urgent: bool,
    /// Whether the arrival ends the stream while this side may still send.
    pub(crate) closes: bool,
    pub(crate) rcv_nxt: u64,
    /// Octets of sequence space between the last ACK and `rcv_nxt`. A FIN counts as one octet (Linux:
    /// `rcv_nxt - rcv_wup`).
    pub(crate) unacked: u64,
    /// Whether this arrival opened the window.
    pub(crate) window_opened: bool,
    /// Whether an ACK sent now would advertise a smaller window than the last ACK. In this case the ACK waits
    /// for a read or for the end of the delay.
    pub(crate) window_shrinks: bool,
    /// Current receive window, in bytes.
    pub(crate) window: u64,
    /// RTT measured by the receiver or, before its first sample, the smoothed RTT of the data that this side
    /// sent.
    pub(crate) rtt: Option<Duration>,
    /// Smoothed RTT of the data that this side sent.
    pub(crate) srtt: Option<Duration>,
}

impl Default for AckPolicy {
    fn default() -> Self {
        Self {
            now: false,
            delayed_until: Instant::FAR_FUTURE,
            quick_left: 0,
            ato: Duration::ZERO,
            last_arrival: None,
            scheduled: false,
            pushed: Pushed::No,
            interactive: false,
            dup_acks: 0,
            compressed: 0,
            compressed_at: 0,
        }
    }
}

impl AckPolicy {
    /// Handles arriving data. A pause longer than this side's retransmission timeout, `rto`, restarts the
    /// quick phase.
    #[inline(always)]
    pub(crate) fn on_data(&mut self, now: Instant, received: Received, rto: impl FnOnce() -> Duration) {
        if received.len > 0 {
            self.adapt(now, received, rto);
            if received.in_order {
                self.note_push(received.end_of_write);
            }
        }
        if received.window_opened {
            // As in Linux, keep quick ACKs from running out while the window grows.
            self.quick_left |= 1;
        }
        if received.closes {
            // The application is expected to close soon, and its FIN carries the ACK (Linux: `tcp_fin`).
            self.interactive = true;
        }
        self.scheduled = true;
        if received.urgent {
            self.now = true;
        } else if self.quick_left > 0 && !self.interactive {
            // Quick ACKs take precedence over the compression of duplicate ACKs (Linux:
            // `__tcp_ack_snd_check`).
            self.now = true;
        } else if received.disorder {
            self.on_disorder(now, received);
        } else if received.unacked > received.mss && !received.window_shrinks {
            self.now = true;
        } else if !self.now {
            let delay = self.ato.min(received.rtt.map_or(DELACK_MAX, |rtt| rtt.max(ATO_MIN))).min(DELACK_MAX);
            if delay.is_zero() {
                // Only a bare FIN has arrived and no delay has been measured, so send the ACK at once.
                self.now = true;
            } else {
                self.delayed_until = self.delayed_until.min(now + delay);
            }
        }
    }

    /// Adapts the delay to the spacing of arrivals, so that an ACK waits about as long as the next segment
    /// takes to arrive.
    #[inline(always)]
    fn adapt(&mut self, now: Instant, received: Received, rto: impl FnOnce() -> Duration) {
        match self.last_arrival.replace(now) {
            None => {
                self.quick_left = (received.window / (2 * received.mss.max(1))).clamp(2, MAX_QUICK_ACKS);
                self.ato = ATO_MIN;
            }
            Some(last) => {
                let gap = now.saturating_since(last);
                if gap <= ATO_MIN / 2 {
                    self.ato = self.ato / 2 + ATO_MIN / 2;
                } else if gap < self.ato {
                    self.ato = (self.ato / 2 + gap).min(rto());
                } else if gap > rto() {
                    self.quick_left = (received.window / (2 * received.mss.max(1))).clamp(2, MAX_QUICK_ACKS);
                }
            }
        }
    }

    fn note_push(&mut self, end_of_write: EndOfWrite) {
        self.pushed = match (end_of_write, self.pushed) {
            (EndOfWrite::No, pushed) => pushed,
            (_, Pushed::No) => Pushed::Once,
            (EndOfWrite::Short, _) => Pushed::Again,
            (EndOfWrite::Pushed, pushed) => pushed,
        };
    }

    fn on_disorder(&mut self, now: Instant, received: Received) {
        if self.compressed_at != received.rcv_nxt {
            self.compressed_at = received.rcv_nxt;
            self.dup_acks = 0;
            self.compressed = 0;
        }
        if self.dup_acks < UNCOMPRESSED_DUP_ACKS {
            self.dup_acks += 1;
            self.now = true;
        } else {
            self.compressed += 1;
            // A change beyond the last SACK block would stay unreported until the hole is filled.
            if self.compressed > MAX_COMPRESSED || received.crowded {
                self.now = true;
                return;
            }
            let rtt = received.rtt.into_iter().chain(received.srtt).min();
            let share = rtt.map_or(COMPRESSION_DELAY, |rtt| rtt / COMPRESSION_RTT_FRACTION);
            let due = now + share.min(COMPRESSION_DELAY) + COMPRESSION_SLACK;
            self.delayed_until = self.delayed_until.min(due);
        }
    }

    /// Returns true if the data to acknowledge looks like all that the peer has written, so that a read of
    /// all this data causes an ACK at once (Linux: `tcp_cleanup_rbuf`). An application in interactive mode
    /// gets time to reply.
    pub(crate) fn is_pushed(&self) -> bool {
        match self.pushed {
            Pushed::No => false,
            Pushed::Once => !self.interactive,
            Pushed::Again => true,
        }
    }

    /// Records that data was sent at `now`. Data that leaves within the ACK delay is considered a reply.
    #[inline(always)]
    pub(crate) fn on_data_sent(&mut self, now: Instant) {
        if self.last_arrival.is_some_and(|last| now.saturating_since(last) < self.ato) {
            self.interactive = true;
        }
    }

    /// Requests an ACK now, regardless of arrivals (FIN, window update, challenge).
    pub(crate) fn demand(&mut self) {
        self.now = true;
    }

    /// Handles the end of the ACK delay.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.delayed_until <= now {
            self.now = true;
            if self.compressed == 0 {
                // During the delay, neither a second segment arrived nor a reply left. In interactive mode,
                // only the application's reply was late, so the ACK delay returns to its minimum; otherwise
                // it doubles (Linux: `tcp_delack_timer_handler`).
                self.ato = if self.interactive { ATO_MIN } else { (self.ato * 2).min(DELACK_MAX) };
                self.interactive = false;
            }
        }
    }

    /// Returns the time at which data last arrived.
    pub(crate) fn last_arrival(&self) -> Option<Instant> {
        self.last_arrival
    }

    /// Returns the deadline of the delayed ACK; [`Instant::FAR_FUTURE`] if none is due.
    pub(crate) fn deadline(&self) -> Instant {
        self.delayed_until
    }

    /// Returns true if an ACK is due now.
    pub(crate) fn is_due(&self) -> bool {
        self.now
    }

    /// Records that a segment with the current `rcv_nxt` was sent.
    pub(crate) fn on_ack_sent(&mut self) {
        if self.scheduled {
            self.quick_left = self.quick_left.saturating_sub(1);
        }
        self.now = false;
        self.delayed_until = Instant::FAR_FUTURE;
        self.scheduled = false;
        self.pushed = Pushed::No;
        self.compressed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(len: u64) -> Received {
        Received {
            len,
            mss: 1448,
            in_order: true,
            end_of_write: EndOfWrite::No,
            disorder: false,
            crowded: false,
            urgent: false,
            closes: false,
            rcv_nxt: 0,
            unacked: len,
            window_opened: false,
            window_shrinks: false,
            window: 65_160,
            rtt: Some(Duration::from_millis(100)),
            srtt: None,
        }
    }

    fn rto() -> Duration {
        Duration::from_millis(300)
    }

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// ACK-1: a quick phase comes first; then the delays follow the spacing of 120 ms, limited by the RTT.
    #[test]
    fn quick_phase_then_delays_up_to_the_rtt() {
        let mut policy = AckPolicy::default();
        let mut delays = Vec::new();
        for i in 0..24 {
            let now = ms(120 * i);
            policy.on_data(now, segment(1448), rto);
            if policy.is_due() {
                delays.push(0);
            } else {
                let due = policy.deadline();
                delays.push(due.saturating_since(now).as_millis());
                policy.on_timeout(due);
            }
            assert!(policy.is_due());
            policy.on_ack_sent();
        }
        assert_eq!(delays[..16], [0; 16]);
        assert_eq!(delays[16..20], [40, 80, 100, 100]);
    }

    /// ACK-8: while the application replies, its replies carry the ACKs, so no quick ACKs are sent. A late
    /// reply ends this state.
    #[test]
    fn an_application_that_answers_needs_no_quick_acks() {
        let mut policy = AckPolicy::default();
        policy.on_data(ms(0), segment(100), rto);
        assert!(policy.is_due(), "nothing has been answered yet");
        policy.on_ack_sent();
        policy.on_data_sent(ms(10));
        policy.on_data(ms(110), segment(100), rto);
        assert!(!policy.is_due(), "an answer is expected");
        assert_eq!(policy.deadline(), ms(150));
        policy.on_timeout(ms(150));
        policy.on_ack_sent();
        policy.on_data(ms(250), segment(100), rto);
        assert!(policy.is_due(), "the last answer was late");
    }

    /// ACK-2: more than one segment of data causes an ACK at once.
    #[test]
    fn two_segments_are_acknowledged_at_once() {
        let mut policy = AckPolicy { last_arrival: Some(ms(0)), ato: ATO_MIN, ..AckPolicy::default() };
        policy.on_data(ms(1), segment(1448), rto);
        assert!(!policy.is_due());
        policy.on_data(ms(1), Received { unacked: 2 * 1448, ..segment(1448) }, rto);
        assert!(policy.is_due());
    }

    /// ACK-7: a full-sized segment with a FIN is more than one segment.
    #[test]
    fn a_full_segment_with_a_fin_is_acknowledged_at_once() {
        for (unacked, due) in [(1448, false), (1449, true)] {
            let mut policy = AckPolicy { last_arrival: Some(ms(0)), ato: ATO_MIN, ..AckPolicy::default() };
            policy.on_data(ms(1), Received { unacked, closes: true, ..segment(1448) }, rto);
            assert_eq!(policy.is_due(), due, "{unacked}");
        }
    }

    /// ACK-6: a short segment, or a full one with PSH, ends a write of the peer. When the application has
    /// read all data, the ACK leaves. In interactive mode, this ACK waits, unless a second short segment has
    /// arrived.
    #[test]
    fn a_read_of_a_whole_write_is_acknowledged() {
        let full = segment(1448);
        let short = Received { end_of_write: EndOfWrite::Short, ..segment(100) };
        let pushed = Received { end_of_write: EndOfWrite::Pushed, ..segment(1448) };
        let ahead = Received { in_order: false, ..short };
        for (arrivals, alone, answering) in [
            (&[full][..], false, false),
            (&[ahead], false, false),
            (&[pushed], true, false),
            (&[short], true, false),
            (&[pushed, pushed], true, false),
            (&[pushed, short], true, true),
        ] {
            let mut policy = AckPolicy { last_arrival: Some(ms(0)), ato: ATO_MIN, ..AckPolicy::default() };
            for arrival in arrivals {
                policy.on_data(ms(1), *arrival, rto);
            }
            assert_eq!(policy.is_pushed(), alone, "{arrivals:?}");
            policy.on_data_sent(ms(42));
            assert_eq!(policy.is_pushed(), alone, "no answer, but late: {arrivals:?}");
            policy.on_data_sent(ms(2));
            assert_eq!(policy.is_pushed(), answering, "{arrivals:?}");
            policy.on_ack_sent();
            assert!(!policy.is_pushed(), "acknowledged");
        }
    }

    /// A late reply does not lengthen the next ACK delay; only a missing second segment does.
    #[test]
    fn a_late_answer_does_not_lengthen_the_delay() {
        for interactive in [true, false] {
            let mut policy =
                AckPolicy { last_arrival: Some(ms(0)), ato: ATO_MIN, interactive, ..AckPolicy::default() };
            policy.on_data(ms(100), segment(1448), rto);
            let (delay, due) = (policy.ato, policy.delayed_until);
            policy.on_timeout(due);
            assert!(policy.is_due());
            let expected = if interactive { ATO_MIN } else { (delay * 2).min(DELACK_MAX) };
            assert_eq!((policy.ato, policy.interactive), (expected, false));
        }
    }

    /// ACK-4 and SACK compression: three duplicate ACKs leave at once, and later ones are combined.
    #[test]
    fn duplicate_acks_are_compressed_after_three() {
        let mut policy = AckPolicy { last_arrival: Some(ms(0)), ato: ATO_MIN, ..AckPolicy::default() };
        let mut sent = 0;
        for _ in 0..50 {
            policy.on_data(ms(1), Received { disorder: true, ..segment(1448) }, rto);
            if policy.is_due() {
                sent += 1;
                policy.on_ack_sent();
            }
        }
        assert_eq!(sent, 4);
        assert_eq!(policy.deadline(), ms(2) + COMPRESSION_SLACK);
    }
}
