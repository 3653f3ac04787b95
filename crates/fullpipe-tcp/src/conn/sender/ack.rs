//! ACK processing of the sending half.
//!
//! ```text
//!   cumulative ─► SACK ─► rate, RTT ─► progress ─► spurious? ─► episodes ─► losses ─► ECN
//!     ─► PRR, controller ─► timer
//! ```

use fullpipe_units::{Duration, Instant};

use super::delivery::{Before, Delivery};
use super::timers::RetransmitTimer;
use super::{Phase, Sender};
use crate::cc::AckSample;
use crate::estimate::RateSample;
use crate::recovery::LossRecovery;
use crate::wire::{Flags, Segment, Timestamps, reported_duplicate};

impl Sender {
    /// Returns the offset that the segment acknowledges. Returns `None` if the data was never sent (TCP-6),
    /// or if the offset lies further back than the largest window that the peer ever offered (RFC 5961
    /// section 5, CH-4). A legitimate peer does not send such an ACK.
    #[inline]
    pub(in crate::conn) fn acceptable_ack(&self, segment: &Segment) -> Option<u64> {
        let ack = segment.ack.offset_near(self.iss.plus(1).plus(self.snd_una), self.snd_una);
        let oldest = self.snd_una.saturating_sub(self.peer.max);
        ack.filter(|ack| (oldest..=self.snd_nxt()).contains(ack))
    }

    /// Returns whether the segment repeats the last ACK and leaves the window unchanged; `start` is the
    /// offset of the segment's first octet.
    pub(in crate::conn) fn repeats_last_ack(&self, segment: &Segment, start: u64) -> bool {
        let window = u64::from(segment.window) << self.peer.scale;
        let changes_window = start > self.peer.wl1 || window > self.peer.wnd || window == 0;
        segment.ack == self.iss.plus(1).plus(self.snd_una) && !changes_window
    }

    /// Handles the acceptable acknowledgement `ack` of a segment that starts at `start`. Returns whether a
    /// blocked writer can continue.
    #[inline]
    pub(in crate::conn) fn on_ack(&mut self, now: Instant, segment: &Segment, start: u64, ack: u64) -> bool {
        self.probes.on_heard();
        self.check_app_limited_without_write();
        let window_changed = self.update_window(now, segment, start, ack);
        let ack = ack.max(self.snd_una);
        if self.has_nothing_to_hear(segment, ack) {
            if segment.len == 0 {
                self.heard_at = now;
            }
            self.rearm_after_ack(now, None, false);
            false
        } else {
            self.on_news(now, segment, ack, window_changed)
        }
    }

    /// Handles an acknowledgement of all data below `ack` that may advance `snd_una`, or affect loss recovery
    /// or the window. This function is separate from [`Self::on_ack`], because its code would slow down the
    /// receiving side of a transfer, where segments carry no such information.
    #[inline(never)]
    fn on_news(&mut self, now: Instant, segment: &Segment, ack: u64, window_changed: bool) -> bool {
        self.probe_armed_at = None;
        let mut writable = false;
        let before = self.before();
        let mut delivery = Delivery::new(now, self.rtt.min_rtt());
        // Records are delivered in ascending offset order, which is also the order of transmission. If an ACK
        // delivered a higher record before a lower one, RACK would interpret this as reordering.
        self.take_cumulative(ack, &mut delivery);
        let una_before = std::mem::replace(&mut self.snd_una, ack);
        let una_advanced = ack > una_before;
        let duplicate = self.take_sacks(segment, &mut delivery);
        if !self.agreed.sack {
            self.hear_without_sack(segment, una_advanced, window_changed, &mut delivery);
        }
        let news = delivery.delivered() > 0;
        let delivered = delivery.delivered() + delivery.repeated * self.mss;
        if delivered > 0 {
            self.rate.on_delivered(now, delivered);
            self.heard_at = now;
            self.stats.acks += 1;
        }
        let timestamps = segment.timestamps.filter(|_| self.agreed.timestamps);
        // Without SACK, no tail loss probe causes a late peer to acknowledge before the timeout.
        let alone = una_advanced
            && self.agreed.sack
            && self.recovery.phase == Phase::Open
            && segment.sack.is_empty()
            && delivery.is_single();
        self.take_rtt(&delivery, timestamps.filter(|_| una_advanced), alone);
        if una_advanced {
            // With timestamps, the RTT of a retransmission is unambiguous, so the back-off may end.
            let answers = delivery.newest_rtt().is_some() || self.agreed.timestamps;
            writable = self.note_progress(now, answers);
        }

        let mut spurious = false;
        if let Some(start) = duplicate {
            self.stats.duplicates += 1;
            self.recovery.rack.on_dsack(self.snd_una, self.fresh.snd_nxt());
            spurious = self.recovery.undo.on_duplicate(start);
        }
        if una_advanced && timestamps.is_some_and(|ts| self.recovery.undo.is_late_original(ts.echo)) {
            spurious |= self.on_late_original(una_before);
        }
        let late_ack = spurious || (delivery.spurious_timeout && self.recovery.phase == Phase::Loss);
        if late_ack || duplicate.is_some() {
            self.rtt.expect_late_acks();
        }
        let unrepaired = self.end_episodes(now, &delivery, una_advanced, duplicate.is_some(), spurious);
        let look_again = match self.agreed.sack {
            true if news || unrepaired || self.recovery.board.sacked_segments() > 0 => {
                self.detect_losses(now, unrepaired)
            }
            true => None,
            false => {
                self.detect_without_sack(now, una_advanced);
                None
            }
        };
        self.note_echo(now, segment);
        self.conclude_ack(now, &delivery, before, una_advanced, spurious, look_again);
        writable
    }

    /// Handles an ACK of segments that were each sent once and in order, with the same result as
    /// [`Self::on_ack`]. Returns whether a blocked writer can continue. For any other ACK, returns `None` and
    /// changes nothing. The caller must have checked that no loss recovery is in progress.
    #[inline(always)]
    pub(in crate::conn) fn on_predicted_ack(
        &mut self,
        now: Instant,
        segment: &Segment,
        start: u64,
        ack: u64,
    ) -> Option<bool> {
        if !(self.agreed.sack && self.recovery.board.is_fresh()) || self.is_reducing() {
            return None;
        }
        let before = self.before();
        let min_rtt = self.rtt.min_rtt();
        // Evaluated before the ACK is applied; idempotent, so the slow path may repeat it.
        self.check_app_limited_without_write();
        let LossRecovery { board, rack, .. } = &mut self.recovery;
        let mut delivery = None;
        let whole = board.acknowledge_fresh(ack, |run| {
            rack.on_delivered(now, run, min_rtt, false);
            delivery = Some(Delivery::of_run(now, min_rtt, run));
        });
        let delivery = delivery.filter(|_| whole)?;
        self.probes.on_heard();
        self.update_window(now, segment, start, ack);
        self.probe_armed_at = None;
        self.snd_una = ack;
        self.rate.on_delivered(now, delivery.cum_acked);
        self.heard_at = now;
        self.stats.acks += 1;
        self.take_rtt(&delivery, None, delivery.is_single());
        let writable = self.note_progress(now, true);
        let look_again = self.detect_losses(now, false);
        self.conclude_ack(now, &delivery, before, true, false, look_again);
        Some(writable)
    }

    /// Handles a data segment that acknowledges nothing new while nothing is outstanding.
    #[inline(always)]
    pub(in crate::conn) fn on_predicted_data(&mut self, now: Instant, segment: &Segment, start: u64) {
        self.probes.on_heard();
        // Nothing is in flight, so the congestion window has room.
        if self.config.tunables.app_limited_without_write && self.unsent() < self.mss {
            self.rate.mark_app_limited(0);
        }
        self.update_window(now, segment, start, self.snd_una);
    }

    fn before(&self) -> Before {
        let board = &self.recovery.board;
        let open = self.recovery.phase == Phase::Open && board.is_fresh();
        Before { prior_inflight: board.inflight(), lost: board.lost_total(), open }
    }

    /// Records an advance of the cumulative ACK; `answers` indicates whether the acknowledged data gives an
    /// unambiguous RTT. Returns whether a blocked writer can continue.
    #[inline]
    fn note_progress(&mut self, now: Instant, answers: bool) -> bool {
        let writable = self.queue.on_acked(self.snd_una, self.fresh.snd_nxt());
        if answers {
            self.recovery.rto.on_valid_sample();
        }
        self.recovery.rto.on_progress();
        self.recovery.rto_base = now;
        writable
    }

    /// Completes the handling of an ACK with new information: updates PRR and the congestion controller, and
    /// rearms the timer.
    #[inline(always)]
    fn conclude_ack(
        &mut self,
        now: Instant,
        delivery: &Delivery,
        before: Before,
        una_advanced: bool,
        spurious: bool,
        look_again: Option<Instant>,
    ) {
        let news = delivery.delivered() > 0;
        let delivered = delivery.delivered() + delivery.repeated * self.mss;
        let lost_total = self.recovery.board.lost_total();
        let newly_lost = lost_total - before.lost.min(lost_total);
        if self.reduces_by_prr() {
            let inflight = self.recovery.board.inflight();
            let progress = una_advanced && newly_lost == 0;
            let ssthresh = self.decision.control.ssthresh;
            self.recovery.prr.on_ack(delivered, inflight, ssthresh, self.mss, progress);
        }
        if delivered > 0 || newly_lost > 0 {
            let sample = self.sample(delivery, una_advanced, newly_lost, before, spurious);
            let cx = self.context(now);
            self.decision.cc.on_ack(&cx, &sample);
            self.decision.refresh(&cx);
            if self.decision.control.mark_app_limited {
                self.rate.mark_app_limited(cx.inflight);
            }
        }
        if una_advanced {
            self.autotune_send_buffer();
        }
        self.rearm_after_ack(now, look_again, if self.agreed.sack { news } else { una_advanced });
    }

    /// Returns whether nothing is outstanding, so that the ACK cannot carry new information. On the receiving
    /// side of a transfer this is true for every data segment.
    fn has_nothing_to_hear(&self, segment: &Segment, ack: u64) -> bool {
        self.recovery.board.is_empty()
            && ack == self.snd_una
            && segment.sack.is_empty()
            && self.recovery.phase == Phase::Open
            && !self.recovery.probe.is_outstanding()
    }

    /// Updates the peer's window from a segment, and returns whether the segment advertises a different
    /// window. Only a segment newer than the last one that updated the window may update it (RFC 9293 section
    /// 3.10.7.4, TCP-5).
    ///
    /// A segment that advances the acknowledgement always updates the window, even if the segment repeats old
    /// data. The window is counted from the acknowledgement number, so the old window would extend too far.
    #[inline(always)]
    fn update_window(&mut self, now: Instant, segment: &Segment, start: u64, ack: u64) -> bool {
        let window = u64::from(segment.window) << self.peer.scale;
        let changed = window != self.peer.wnd;
        let reopens = start == self.peer.wl1 && (window > self.peer.wnd || window == 0);
        if ack > self.snd_una || (ack == self.snd_una && (start > self.peer.wl1 || reopens)) {
            self.peer.wnd = window;
            self.peer.wl1 = start;
            if window > self.peer.max {
                self.on_largest_window(now, window);
            }
        }
        changed
    }

    /// Handles the SACK blocks of an ACK. Returns the start of the range that the peer reports as a duplicate
    /// (D-SACK), if a retransmission may have caused the duplicate.
    fn take_sacks(&mut self, segment: &Segment, delivery: &mut Delivery) -> Option<u64> {
        if segment.sack.is_empty() || !self.agreed.sack {
            return None;
        }
        let (origin, una) = (self.iss.plus(1).plus(self.snd_una), self.snd_una);
        let mut blocks = [(0, 0); 4];
        let mut count = 0;
        for (from, to) in segment.sack.iter() {
            let (Some(from), Some(to)) = (from.offset_near(origin, una), to.offset_near(origin, una)) else {
                continue;
            };
            blocks[count] = (from, to);
            count += 1;
        }
        let blocks = &mut blocks[..count];
        let duplicate = reported_duplicate(blocks, una).filter(|&(from, to)| {
            // A range cannot be longer than the window in which it was sent.
            let octets = to.saturating_sub(from);
            if octets == 0 || octets > self.peer.max {
                return false;
            }
            // A segment that was copied is expected to arrive twice.
            if self.retransmission.copy_explains(from, to) {
                return false;
            }
            delivery.repeated = self.recovery.undo.spurious_segments(octets, self.mss);
            delivery.repeated > 0
        });
        blocks.sort_unstable();
        let snd_nxt = self.snd_nxt();
        let LossRecovery { board, rack, rto, .. } = &mut self.recovery;
        for &(from, to) in blocks.iter().filter(|&&(from, to)| from >= una && from < to && to <= snd_nxt) {
            board.sack(from, to, |run| delivery.take(run, true, rack, rto));
        }
        duplicate.map(|(from, _)| from)
    }

    fn take_cumulative(&mut self, ack: u64, delivery: &mut Delivery) {
        if ack <= self.snd_una {
            return;
        }
        let LossRecovery { board, rack, rto, .. } = &mut self.recovery;
        let part = board.acknowledge(ack, |run| delivery.take(run, false, rack, rto));
        delivery.cum_acked += part;
    }

    /// Takes the RTT samples of an ACK. `answer` contains the timestamps of the ACK if the ACK acknowledged
    /// new data. `alone` indicates whether the ACK acknowledged a single segment while nothing was missing, so that
    /// the peer could have delayed it.
    #[inline(always)]
    fn take_rtt(&mut self, delivery: &Delivery, answer: Option<Timestamps>, alone: bool) {
        if let Some(newest) = delivery.newest_rtt() {
            self.rtt.on_min_sample(newest, delivery.now);
            self.rtts.add(newest);
        }
        // If the departure time is ambiguous, the echoed timestamp gives the RTT to within one tick (1 ms).
        let echoed = || {
            let ticks = Timestamps::clock(delivery.now).wrapping_sub(answer?.echo);
            Some(Duration::from_millis(u64::from(ticks.max(1))))
        };
        if let Some(oldest) = delivery.oldest_rtt().or_else(echoed) {
            self.rtt.on_sample(oldest, self.snd_una, self.snd_nxt());
            self.rtt.on_ack_delay(oldest, alone);
        }
    }

    /// Without SACK, interprets a duplicate ACK as the delivery of one segment. If `advanced` is set, the ACK
    /// delivers the segment in the hole, and those segments above the hole that no duplicate ACK has counted.
    fn hear_without_sack(
        &mut self,
        segment: &Segment,
        advanced: bool,
        window_changed: bool,
        delivery: &mut Delivery,
    ) {
        let duplicate = !advanced && self.is_duplicate(segment, window_changed) && self.counts_duplicates();
        let LossRecovery { board, newreno, phase, .. } = &mut self.recovery;
        if advanced {
            // After a partial ACK, the peer still holds segments above the next hole; after a full ACK, the
            // count restarts.
            let partial = matches!(*phase, Phase::Recovery { until } if self.snd_una < until);
            let counted = newreno.on_advance(board, self.mss, delivery.segments, partial);
            delivery.segments -= counted;
            delivery.cum_acked -= (counted * self.mss).min(delivery.cum_acked.saturating_sub(1));
            // Segments acknowledged together with a retransmission may have waited at the peer for that
            // retransmission, so they do not prove that the timeout was spurious.
            delivery.spurious_timeout &= !delivery.ambiguous;
        } else if duplicate && newreno.on_duplicate(board, self.mss) {
            delivery.segments += 1;
            delivery.sacked += self.mss;
        }
    }

    /// Returns whether the segment is a duplicate ACK (RFC 5681 section 2, FR-6): it repeats the
    /// acknowledgement and the window, has no data, SYN or FIN, and arrives while data is outstanding.
    fn is_duplicate(&self, segment: &Segment, window_changed: bool) -> bool {
        segment.ack == self.iss.plus(1).plus(self.snd_una)
            && segment.seq_len() == 0
            && !segment.flags.has(Flags::SYN)
            && !window_changed
            && !self.recovery.board.is_empty()
    }

    /// Returns whether duplicate ACKs are counted, which is the case before and during fast recovery. After a
    /// timeout, duplicate ACKs are not counted until new data has been sent, for example by F-RTO to test the
    /// timeout (RFC 5682). Until then, duplicate ACKs are responses to segments sent before the timeout.
    fn counts_duplicates(&self) -> bool {
        match self.recovery.phase {
            Phase::Open => self.recovery.newreno.listens(self.snd_una),
            Phase::Recovery { .. } => true,
            Phase::Loss => self.recovery.newreno.listens(self.snd_nxt()),
        }
    }

    #[inline(always)]
    fn sample(
        &mut self,
        delivery: &Delivery,
        una_advanced: bool,
        newly_lost: u64,
        before: Before,
        spurious: bool,
    ) -> AckSample {
        let newest = delivery.newest;
        let snapshot = newest.map(|newest| newest.snapshot).unwrap_or_default();
        let interval =
            newest.and_then(|newest| self.rate.interval(newest.sent_at, &snapshot, self.rtt.min_rtt()));
        let round_start = newest.is_some() && self.rate.starts_round(&snapshot);
        let delivered = self.rate.delivered - snapshot.delivered;
        if let Some(interval) = interval {
            self.rate.keep(RateSample { delivered, interval, app_limited: snapshot.app_limited });
        }
        AckSample {
            cum_acked: delivery.cum_acked,
            sacked: delivery.sacked,
            acked_segments: delivery.segments + delivery.repeated,
            una_advanced,
            may_grow: una_advanced || (delivery.sacked > 0 && self.recovery.rack.reorders_far(self.mss)),
            was_open: before.open,
            newly_lost,
            prior_inflight: before.prior_inflight,
            tx_in_flight: snapshot.tx_in_flight,
            lost_since_sent: self.recovery.board.lost_total().saturating_sub(snapshot.lost),
            prior_delivered: snapshot.delivered,
            delivered,
            interval,
            rtt: delivery.newest_rtt(),
            oldest_rtt: delivery.oldest_rtt(),
            newest_sent_at: newest.map_or(Instant::ZERO, |newest| newest.sent_at),
            first_transmission: newest.is_some_and(|newest| newest.first_transmission),
            app_limited: snapshot.app_limited,
            spurious,
            round_start,
        }
    }

    #[inline]
    fn rearm_after_ack(&mut self, now: Instant, look_again: Option<Instant>, progress: bool) {
        if self.recovery.board.is_empty() {
            match self.timer {
                None => {}
                Some((RetransmitTimer::Persist, _)) if self.peer.wnd == 0 => {}
                Some((RetransmitTimer::Persist, _)) => {
                    // The peer's window has reopened, so the back-off ends (ZWP-4).
                    self.timer = None;
                    self.recovery.rto.on_valid_sample();
                }
                Some((timer, _)) if timer.is_of_silence() => {}
                Some(_) => self.timer = None,
            }
        } else if let Some(at) = look_again {
            self.timer = Some((RetransmitTimer::Reordering, at));
        } else if progress || matches!(self.timer, Some((RetransmitTimer::Reordering, _))) {
            self.arm_probe_or_timeout(now);
        }
    }

    /// Grows an autotuned send buffer with the congestion window, unless the congestion window is full.
    #[inline]
    fn autotune_send_buffer(&mut self) {
        let cwnd = self.decision.control.cwnd;
        if cwnd > self.tuned_for && self.recovery.board.inflight() < self.effective_cwnd() {
            self.tuned_for = cwnd;
            self.queue.autotune(cwnd, self.mss, self.config.cc.sndbuf_windows());
        }
    }
}
