//! TIME-WAIT (RFC 9293 section 3.6.1). The side that closed first stays in this state for twice the maximum
//! segment lifetime (2 MSL). The side in TIME-WAIT acknowledges a retransmitted FIN and keeps delayed
//! segments out of a new connection between the same sockets.
//!
//! ```text
//!   FIN again, old data      acknowledged, and the time restarts
//!   RST at RCV.NXT           ends TIME-WAIT (as in Linux; RFC 1337 would ignore it)
//!   SYN that must be new     may open the next connection (RFC 6191): its number or its timestamp is higher
//!   SYN that may be old      acknowledged: a sender that does not know the connection resets it
//! ```

use fullpipe_units::{Duration, Ecn, Instant};

use super::receiver::CHALLENGE_INTERVAL;
use crate::wire::{Flags, SackBlocks, Segment, SeqNum, Timestamps};

/// Duration of TIME-WAIT, twice the maximum segment lifetime (2 MSL): 60 s, as `TCP_TIMEWAIT_LEN` in Linux.
/// RFC 9293 calls its MSL of 2 minutes an engineering choice; on today's paths, no packet survives for a
/// minute.
const LENGTH: Duration = Duration::from_secs(60);
/// Distance between the sequence numbers of the old and the new connection. The distance is larger than any
/// unscaled window.
const ISS_STEP: u64 = 65_537;

/// State of a connection in TIME-WAIT. A host may keep only this state and discard the rest of the
/// connection.
#[derive(Clone, Debug)]
pub struct TimeWait {
    snd_nxt: SeqNum,
    rcv_nxt: SeqNum,
    window: u16,
    /// Last timestamp of the peer, if timestamps were negotiated.
    ts_recent: Option<u32>,
    until: Instant,
    answered_at: Option<Instant>,
}

/// Result of handling a segment in TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeWaitVerdict {
    /// The segment needs no response.
    Ignored,
    /// The segment must be answered with the ACK that [`TimeWait::acknowledgement`] builds.
    Acknowledged,
    /// TIME-WAIT has ended because of the segment.
    Ended,
}

impl TimeWait {
    pub(super) fn new(
        now: Instant,
        snd_nxt: SeqNum,
        rcv_nxt: SeqNum,
        window: u16,
        ts_recent: Option<u32>,
    ) -> Self {
        Self { snd_nxt, rcv_nxt, window, ts_recent, until: now + LENGTH, answered_at: None }
    }

    /// Returns the time at which TIME-WAIT ends.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Returns the lowest initial sequence number for the new connection that `segment` opens in place of
    /// this one. Returns `None` if `segment` is not a SYN, or may be an old SYN (RFC 6191, TW-3, TW-4).
    pub fn reopened_by(&self, segment: &Segment) -> Option<SeqNum> {
        let flags = segment.flags;
        let syn = flags.has(Flags::SYN) && !flags.has(Flags::ACK) && !flags.has(Flags::RST);
        let age = self.age(segment);
        let newer = segment.seq.distance_from(self.rcv_nxt) > 0 || age.is_some_and(|age| age > 0);
        (syn && newer && age.is_none_or(|age| age >= 0)).then(|| self.snd_nxt.plus(ISS_STEP))
    }

    /// Handles a segment in TIME-WAIT that does not open a new connection.
    pub fn on_segment(&mut self, now: Instant, segment: &Segment) -> TimeWaitVerdict {
        if !segment.flags.may_be_handled() {
            return TimeWaitVerdict::Ignored;
        }
        let reset = segment.flags.has(Flags::RST);
        let stale = self.age(segment).is_some_and(|age| age < 0);
        if !stale && segment.seq == self.rcv_nxt && (reset || segment.seq_len() == 0) {
            if reset {
                return TimeWaitVerdict::Ended;
            }
            self.ts_recent = self.ts_recent.and(segment.timestamps.map(|ts| ts.value)).or(self.ts_recent);
            self.until = now + LENGTH;
            return TimeWaitVerdict::Ignored;
        }
        if reset {
            return TimeWaitVerdict::Ignored;
        }
        // A SYN without an ACK may belong to a new connection even if it looks old, so it must not prolong
        // TIME-WAIT.
        if stale || segment.flags.has(Flags::ACK) {
            self.until = now + LENGTH;
        }
        // A segment with data cannot be part of an ACK loop. Any other segment is answered at most twice per
        // second (CH-6).
        let may_loop = segment.flags.has(Flags::SYN) || segment.seq_len() == 0;
        if may_loop && self.answered_at.is_some_and(|at| now.saturating_since(at) < CHALLENGE_INTERVAL) {
            return TimeWaitVerdict::Ignored;
        }
        if may_loop {
            self.answered_at = Some(now);
        }
        TimeWaitVerdict::Acknowledged
    }

    /// Builds the ACK that acknowledges all data received on the connection.
    pub fn acknowledgement(&self, now: Instant) -> Segment {
        Segment {
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            len: 0,
            window: self.window,
            flags: Flags::ACK,
            timestamps: self.ts_recent.map(|echo| Timestamps { value: Timestamps::clock(now), echo }),
            syn: None,
            sack: SackBlocks::default(),
            ecn: Ecn::NotEct,
        }
    }

    /// Returns the difference between the segment's timestamp and the last timestamp of the peer, in ticks,
    /// or `None` without timestamps. The difference is positive if the segment is newer.
    fn age(&self, segment: &Segment) -> Option<i32> {
        Some(segment.timestamps?.value.wrapping_sub(self.ts_recent?) as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RCV_NXT: SeqNum = SeqNum(u32::MAX - 1);
    const SND_NXT: SeqNum = SeqNum(u32::MAX - 10);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn time_wait(ts_recent: Option<u32>) -> TimeWait {
        TimeWait::new(at(0), SND_NXT, RCV_NXT, 100, ts_recent)
    }

    fn segment(flags: Flags, distance: i64, len: u32, value: Option<u32>) -> Segment {
        Segment {
            seq: RCV_NXT.plus(distance as u64),
            len,
            flags,
            timestamps: value.map(|value| Timestamps { value, echo: 0 }),
            ..time_wait(None).acknowledgement(at(0))
        }
    }

    /// Every retransmitted FIN is acknowledged, and TIME-WAIT restarts each time (RFC 9293 section 3.10.7.4;
    /// TW-1).
    #[test]
    fn tw_1_a_repeated_fin() {
        let mut wait = time_wait(Some(500));
        let fin = segment(Flags::FIN.with(Flags::ACK), -1, 0, Some(500));
        for second in [10, 10, 69] {
            assert_eq!(wait.on_segment(at(second), &fin), TimeWaitVerdict::Acknowledged);
            assert_eq!(wait.until(), at(second + 60));
        }
        let ack = wait.acknowledgement(at(69));
        assert_eq!((ack.seq, ack.ack, ack.flags, ack.len), (SND_NXT, RCV_NXT, Flags::ACK, 0));
        assert_eq!(ack.timestamps, Some(Timestamps { value: Timestamps::clock(at(69)), echo: 500 }));
    }

    /// A reset ends TIME-WAIT only at the next expected octet (RFC 5961 section 3.2; TW-2). A reset at
    /// another octet or with an old timestamp is ignored.
    #[test]
    fn tw_2_resets() {
        for (distance, value, verdict) in [
            (0, Some(500), TimeWaitVerdict::Ended),
            (0, None, TimeWaitVerdict::Ended),
            (0, Some(499), TimeWaitVerdict::Ignored),
            (1, Some(500), TimeWaitVerdict::Ignored),
            (-1, Some(500), TimeWaitVerdict::Ignored),
        ] {
            let rst = segment(Flags::RST, distance, 0, value);
            assert_eq!(time_wait(Some(500)).on_segment(at(1), &rst), verdict, "{distance} {value:?}");
        }
    }

    /// A SYN opens a new connection if its sequence number or its timestamp is newer, provided that its
    /// timestamp is not older (RFC 6191; TW-3, TW-4). Every other SYN is acknowledged and changes nothing.
    #[test]
    fn tw_3_and_4_a_new_syn() {
        for (distance, recent, value, opens) in [
            (1, None, None, true),
            (0, None, None, false),
            (-1, None, None, false),
            (i64::from(i32::MAX), None, None, true),
            (1, Some(500), Some(500), true),
            (-100, Some(500), Some(501), true),
            (-100, Some(500), Some(500), false),
            (100, Some(500), Some(499), false),
            (-100, Some(u32::MAX), Some(2), true),
        ] {
            let mut wait = time_wait(recent);
            let syn = segment(Flags::SYN, distance, 0, value);
            let opened = wait.reopened_by(&syn);
            assert_eq!(opened, opens.then(|| SND_NXT.plus(65_537)), "{distance} {recent:?} {value:?}");
            if !opens {
                let (before, stale) = (wait.until(), value < recent);
                assert_eq!(wait.on_segment(at(5), &syn), TimeWaitVerdict::Acknowledged);
                assert_eq!(wait.until() > before, stale, "only what is surely old keeps it");
            }
        }
        for flags in [Flags::SYN.with(Flags::ACK), Flags::SYN.with(Flags::RST), Flags::ACK] {
            assert_eq!(time_wait(None).reopened_by(&segment(flags, 1, 0, None)), None);
        }
    }

    /// Unacceptable ACKs are answered at most twice per second, so that two endpoints in TIME-WAIT do not
    /// answer each other endlessly (RFC 5961 section 7; CH-6).
    #[test]
    fn ch_6_no_loop_of_acks() {
        let (mut wait, ack) = (time_wait(None), segment(Flags::ACK, 5, 0, None));
        let mut answers = 0;
        for i in 0..100 {
            let now = at(0) + Duration::from_millis(10 * i);
            answers += u32::from(wait.on_segment(now, &ack) == TimeWaitVerdict::Acknowledged);
        }
        assert_eq!(answers, 2);
        assert_eq!(wait.on_segment(at(1), &segment(Flags::ACK, 0, 0, None)), TimeWaitVerdict::Ignored);
    }
}
