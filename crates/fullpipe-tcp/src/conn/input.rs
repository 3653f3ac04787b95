//! What an arriving segment does (RFC 9293 section 3.10.7, in its order).

use fullpipe_units::{Duration, Instant};

use super::timers::RetransmitTimer;
use super::{Accepted, Connection, Event, Phase, State};
use crate::cc::{AckSample, LossCause, Lost, Signal};
use crate::estimate::{RateSample, RateSnapshot, RttEstimator};
use crate::recovery::probe::ProbeEnd;
use crate::recovery::rack::{Patience, Rack};
use crate::recovery::rto::Rto;
use crate::recovery::scoreboard::{RecordNo, RecordState, Run, SentRecord};
use crate::rx::ack::Received;
use crate::rx::reassembly::Arrival;
use crate::wire::{Flags, Segment, Timestamps};

/// Least distance between two answers to segments that are out of place (`tcp_invalid_ratelimit`).
pub(super) const CHALLENGE_INTERVAL: Duration = Duration::from_millis(500);

/// How long a timestamp of the peer is good for comparing, without another (RFC 7323 section 5.5).
const TIMESTAMP_VALID_FOR: Duration = Duration::from_secs(24 * 86_400);

/// What one ACK delivered, gathered record by record.
pub(super) struct Delivery {
    now: Instant,
    /// The smallest RTT before this ACK.
    min_rtt: Option<Duration>,
    pub(super) cum_acked: u64,
    pub(super) sacked: u64,
    pub(super) segments: u64,
    /// Snapshot of the newest delivered record, which dates the rate sample.
    newest: Option<Newest>,
    /// Departures of the first and last record acknowledged cumulatively, if none was sent again.
    acked: Option<(Instant, Instant)>,
    /// Karn: what is acknowledged includes a retransmission, so the delay may be that of its original.
    pub(super) ambiguous: bool,
    /// The same of what was newly reported selectively and never sent again.
    reported: Option<(Instant, Instant)>,
    pub(super) spurious_timeout: bool,
    /// Segments that the peer has twice, because they were sent again in vain. They crossed the path too, and count as delivered
    /// (draft-ietf-ccwg-bbr section 2, `C.delivered`), though they bring nothing.
    repeated: u64,
}

/// What an ACK's sums count from.
#[derive(Clone, Copy)]
pub(super) struct Before {
    /// Octets in the network.
    pub(super) prior_inflight: u64,
    /// Octets marked lost since the start.
    pub(super) lost: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Newest {
    sent_at: Instant,
    end: u64,
    snapshot: RateSnapshot,
    first_transmission: bool,
}

impl Newest {
    fn of(record: &SentRecord) -> Self {
        Self {
            sent_at: record.sent_at,
            end: record.end(),
            snapshot: record.snapshot,
            first_transmission: record.transmissions == 1,
        }
    }
}

impl Delivery {
    /// Nothing so far.
    #[inline]
    fn new(now: Instant, min_rtt: Option<Duration>) -> Self {
        Self {
            now,
            min_rtt,
            cum_acked: 0,
            sacked: 0,
            segments: 0,
            newest: None,
            acked: None,
            ambiguous: false,
            reported: None,
            spurious_timeout: false,
            repeated: 0,
        }
    }

    /// The one run of an ACK of what was sent once, which is all there is to it.
    #[inline]
    pub(super) fn of_run(now: Instant, min_rtt: Option<Duration>, run: Run<'_>) -> Self {
        let Run { first, last, segments, octets } = run;
        Self {
            cum_acked: octets,
            segments,
            newest: Some(Newest::of(last)),
            acked: Some((first.sent_at, last.sent_at)),
            ..Self::new(now, min_rtt)
        }
    }

    /// A call: there is one run in most ACKs, and spread out in a loop this would cost more.
    #[inline(never)]
    fn take(&mut self, run: Run<'_>, selectively: bool, rack: &mut Rack, rto: &Rto) {
        self.spurious_timeout |= rto.proves_spurious(run.first.sent_at, run.first.transmissions);
        rack.on_delivered(self.now, run, self.min_rtt);
        let Run { first, last, segments, octets } = run;
        if selectively {
            self.sacked += octets;
        } else {
            self.cum_acked += octets;
        }
        self.segments += segments;
        let first_transmission = last.transmissions == 1;
        if self.newest.is_none_or(|newest| (last.sent_at, last.end()) > (newest.sent_at, newest.end)) {
            self.newest = Some(Newest::of(last));
        }
        let span = if selectively { &mut self.reported } else { &mut self.acked };
        if first_transmission {
            span.get_or_insert((first.sent_at, last.sent_at)).1 = last.sent_at;
        } else {
            self.ambiguous |= !selectively;
        }
    }

    fn delivered(&self) -> u64 {
        self.cum_acked + self.sacked
    }

    /// RTT of the oldest record that gives one: what is acknowledged counts before what is reported.
    fn oldest_rtt(&self) -> Option<Duration> {
        let acked = self.acked.filter(|_| !self.ambiguous);
        acked.or(self.reported).map(|(oldest, _)| self.now.saturating_since(oldest))
    }

    /// RTT of the newest record that gives one.
    fn newest_rtt(&self) -> Option<Duration> {
        let acked = self.acked.filter(|_| !self.ambiguous);
        self.reported.or(acked).map(|(_, newest)| self.now.saturating_since(newest))
    }
}

/// The controller's view of a record that is being marked.
pub(super) fn lost_record(number: RecordNo, record: &SentRecord, cause: LossCause) -> Lost {
    Lost {
        offset: record.offset,
        len: u64::from(record.len),
        tx_in_flight: record.snapshot.tx_in_flight,
        // Both are completed when the batch is reported; until then they carry what is needed for it.
        lost_since_sent: record.snapshot.lost,
        starts_new_range: number == 0,
        app_limited: record.snapshot.app_limited,
        cause,
    }
}

impl Connection {
    /// Handles a segment. Afterwards `poll_transmit`, `poll_event` and `poll_timeout` are worth calling.
    #[inline]
    pub fn handle_segment(&mut self, now: Instant, segment: &Segment) {
        if !self.handle_predicted(now, segment) {
            self.handle_any(now, segment);
        }
    }

    /// [`Self::handle_segment`] for any segment, in the order of RFC 9293 section 3.10.7.4. A step that drops the segment
    /// returns before a later step has changed anything:
    ///
    /// ```text
    ///   no ACK, RST or SYN ── dropped            an old timestamp ──────── ACK, dropped      (PAWS, R1)
    ///   RST ───────────────── reset or dropped   outside the window ────── ACK, dropped      (R2)
    ///   SYN ───────────────── challenge ACK      an ACK out of range ───── challenge ACK     (RFC 5961)
    ///                                            else: timestamp (R3), ACK and window, data, FIN
    /// ```
    ///
    /// R1 to R3 are the rules of RFC 7323 section 5.3.
    #[inline(never)]
    pub(super) fn handle_any(&mut self, now: Instant, segment: &Segment) {
        // Without an ACK there is nothing that RFC 5961 section 5 could check, so a blind attacker would only have to guess
        // the sequence number. Linux drops such a segment first; the RFC does so in its fifth step. A closed port resets it.
        if !segment.flags.may_be_handled() && self.state != State::Closed {
            return;
        }
        if !self.state.carries_data() && !self.on_segment_without_data(now, segment) {
            return;
        }
        let rcv_nxt = self.reassembly.rcv_nxt();
        let start = segment.seq.offset_near(self.irs.plus(1).plus(rcv_nxt), rcv_nxt);
        let beyond = start.is_some_and(|start| start > self.window.edge().max(rcv_nxt));
        if segment.flags.has(Flags::RST) {
            self.on_reset(now, start.filter(|_| !beyond), rcv_nxt);
            return;
        }
        let Some(start) = start.filter(|_| !segment.flags.has(Flags::SYN)) else {
            self.challenge(now);
            return;
        };
        let end = start + segment.seq_len();
        if self.is_stale(now, segment, start) {
            // An ACK that newer segments have overtaken is common, and needs no answer (Linux since 6.14).
            if end > start || start >= rcv_nxt {
                self.refuse(now, segment, start, end);
            }
            return;
        }
        // What ends before the last ACK was sent is old: as in Linux (`rcv_wup`), what has come since may still be repeated.
        if end < self.last_ack_sent || beyond {
            self.refuse(now, segment, start, end);
            return;
        }
        if !self.on_ack(now, segment, start) {
            return;
        }
        if let Some(timestamps) = self.timestamps_of(segment)
            && segment.len > 0
            && self.window.is_new_echo(timestamps.echo)
        {
            self.window.on_echo(timestamps.echo, clock(now), self.readable());
        }
        if end > start && !(self.detached && self.refuses_data(now, segment, start)) {
            self.note_mark(segment);
            self.on_data(now, segment, start, end);
        }
    }

    /// Answers a segment that is not acceptable with an ACK, and takes nothing of it. Octets that have been received before are
    /// reported (RFC 2883); a segment with data is no part of a loop of ACKs, so each one is answered.
    #[cold]
    fn refuse(&mut self, now: Instant, segment: &Segment, start: u64, end: u64) {
        let old = start..end.min(self.reassembly.rcv_nxt());
        if end == start {
            self.challenge(now);
        } else if old.is_empty() {
            self.acks.demand();
        } else {
            let arrival = self.reassembly.insert(old.start, old.end);
            self.owe_ack(now, u64::from(segment.len), arrival, false);
        }
    }

    /// CH-2: a reset counts only where the next octet is expected; elsewhere in the window the peer is
    /// asked to repeat it, and outside nothing happens.
    ///
    /// CH-3: as Linux has it, a peer that has lost its state may also have counted on from what was reported to it last, or
    /// not have counted its FIN.
    fn on_reset(&mut self, now: Instant, in_window: Option<u64>, rcv_nxt: u64) {
        let Some(start) = in_window else { return };
        let reported = self.reassembly.recent().iter().map(|&(_, end)| end).max();
        let behind_fin = matches!(self.state, State::CloseWait | State::Closing | State::LastAck);
        if start == rcv_nxt || reported == Some(start) || (behind_fin && start + 1 == rcv_nxt) {
            self.on_valid_reset(now);
        } else if start > rcv_nxt {
            self.challenge(now);
        }
    }

    /// Answers something out of place with an ACK, at most once in half a second, so that two
    /// connections never talk past each other for ever (CH-5).
    pub(super) fn challenge(&mut self, now: Instant) {
        let recently = self.challenged_at.is_some_and(|at| now.saturating_since(at) < CHALLENGE_INTERVAL);
        if !recently {
            self.challenged_at = Some(now);
            self.acks.demand();
        }
    }

    /// The segment's timestamps; `None` if it has none, or the handshake agreed on none (RFC 7323 section 3.2).
    #[inline]
    pub(super) fn timestamps_of(&self, segment: &Segment) -> Option<Timestamps> {
        segment.timestamps.filter(|_| self.has_timestamps)
    }

    /// PAWS (RFC 7323 section 5.3, R1): an old timestamp shows that the segment comes from before a wrap of the sequence
    /// numbers.
    pub(super) fn is_stale(&self, now: Instant, segment: &Segment, start: u64) -> bool {
        self.timestamps_of(segment).is_some_and(|timestamps| {
            self.is_older(now, timestamps.value) && !self.is_overtaken_ack(segment, start, timestamps.value)
        })
    }

    /// PAWS-5: a duplicate ACK without a new window, overtaken by less than a timeout. It cannot misplace anything, and its
    /// SACK blocks are worth having (Linux: `tcp_disordered_ack_check`).
    fn is_overtaken_ack(&self, segment: &Segment, start: u64, value: u32) -> bool {
        let window = u64::from(segment.window) << self.peer_scale;
        let changes_window = start > self.snd_wl1 || window > self.snd_wnd || window == 0;
        let age = Duration::from_millis(u64::from(self.ts_recent.wrapping_sub(value)));
        segment.seq_len() == 0
            && start == self.reassembly.rcv_nxt()
            && segment.ack == self.iss.plus(1).plus(self.snd_una)
            && !changes_window
            && age <= self.rtt.rto()
    }

    /// `value` is older than the peer's last timestamp; unless that was noted so long ago that the peer's clock has gone
    /// halfway round (PAWS-3, RFC 7323 section 5.5). Zero is no timestamp: some hosts put it into their SYN, and their true
    /// clock may look older than that.
    fn is_older(&self, now: Instant, value: u32) -> bool {
        (value.wrapping_sub(self.ts_recent) as i32) < 0
            && self.ts_recent != 0
            && now.saturating_since(self.ts_recent_at) < TIMESTAMP_VALID_FOR
    }

    /// Takes the timestamp of a segment from `start` on that is not older than the last: the next to be echoed.
    #[inline]
    pub(super) fn note_timestamp(&mut self, now: Instant, timestamps: Timestamps, start: u64) {
        // The same once more, as in a copy that was long on its way, does not show that the peer's clock goes on.
        if timestamps.value != self.ts_recent && start <= self.last_ack_sent {
            self.ts_recent = timestamps.value;
            // What was received before may have been on its way for weeks.
            if start >= self.reassembly.rcv_nxt() {
                self.ts_recent_at = now;
            }
        }
    }

    fn on_data(&mut self, now: Instant, segment: &Segment, start: u64, end: u64) {
        let len = u64::from(segment.len);
        if len.min(self.mss) > self.rcv_mss {
            self.rcv_mss = len.min(self.mss);
            self.window.on_larger_segment(self.rcv_mss);
        }
        let before = self.reassembly.rcv_nxt();
        // A stream ends once: a FIN elsewhere, below what has been received or after another, ends nothing.
        if segment.flags.has(Flags::FIN) && self.fin_at.is_none() && end > before {
            self.fin_at = Some(end - 1);
        }
        // What lies behind the end is no data (RFC 9293 section 3.10.7.4).
        let limit = self.fin_at.map_or(u64::MAX, |fin| fin + 1).min(self.window.edge().max(before));
        let arrival = self.reassembly.insert(start, end.min(limit));
        self.accepted = Accepted { start, range: before.max(start)..end.min(limit) };
        if arrival.out_of_order {
            self.window.on_out_of_order(self.reassembly.highest() - self.reassembly.rcv_nxt());
        }
        self.owe_ack(now, len, arrival, segment.flags.has(Flags::FIN));
        if self.reassembly.rcv_nxt() > before {
            self.events.add(Event::Readable);
            if self.fin_at.is_some_and(|fin| self.reassembly.rcv_nxt() > fin && before <= fin) {
                self.on_peer_closed(now);
            }
        }
    }

    /// Opens the window for `len` octets that have been taken, and decides when to acknowledge them.
    #[inline(always)]
    pub(super) fn owe_ack(&mut self, now: Instant, len: u64, arrival: Arrival, fin: bool) {
        let occupied = self.reassembly.held_bytes() + self.readable();
        let window_opened = arrival.new > 0 && self.window.on_accepted(len, self.rcv_mss, occupied);
        let window_shrinks =
            self.acks.is_second(len, self.rcv_mss) && self.window.shrinks(occupied, self.last_ack_sent);
        let Self { acks, window, rtt, reassembly, .. } = self;
        acks.on_data(
            now,
            Received {
                len,
                mss: self.rcv_mss,
                disorder: arrival.out_of_order || reassembly.has_holes(),
                // Without SACK each ACK is all the news there is, and is not held back.
                crowded: arrival.crowded || !self.has_sack,
                urgent: arrival.filled_last_hole || arrival.new == 0 || fin,
                rcv_nxt: reassembly.rcv_nxt(),
                window_opened,
                window_shrinks,
                window: window.remaining(reassembly.rcv_nxt()),
                rtt: window.rtt().or(rtt.srtt()),
            },
            || rtt.rto(),
        );
    }

    /// False if the segment goes no further: what it acknowledges was never sent (TCP-6), or lies further back than any
    /// window of the peer reached (CH-4, RFC 5961 section 5). Whoever sent it does not know this connection.
    fn on_ack(&mut self, now: Instant, segment: &Segment, start: u64) -> bool {
        let ack = segment.ack.offset_near(self.iss.plus(1).plus(self.snd_una), self.snd_una);
        let oldest = self.snd_una.saturating_sub(self.max_snd_wnd);
        let Some(ack) = ack.filter(|ack| (oldest..=self.snd_nxt).contains(ack)) else {
            self.challenge(now);
            return false;
        };
        // R3 comes after R2 and the check above: a forged timestamp would make PAWS drop what the peer sends. As on the slow
        // path of Linux an old ACK brings no timestamp, so that without data in flight a forger has to know SND.UNA.
        if let Some(timestamps) = self.timestamps_of(segment)
            && ack >= self.snd_una
            && !self.is_older(now, timestamps.value)
        {
            self.note_timestamp(now, timestamps, start);
        }
        self.unanswered_probes = 0;
        self.check_app_limited();
        let window_changed = self.update_send_window(now, segment, start, ack);
        let ack = ack.max(self.snd_una);
        if self.has_nothing_to_hear(segment, ack) {
            if segment.len == 0 {
                self.heard_at = now;
            }
            self.rearm_after_ack(now, None, false);
            self.finish_if_done(now);
        } else {
            self.on_news(now, segment, ack, window_changed);
        }
        true
    }

    /// An ACK of everything below `ack` that may report, end or prove something. Apart from [`Self::on_ack`],
    /// so that the segments of a pure sender, which have nothing to say here, do not pay for its size.
    #[inline(never)]
    fn on_news(&mut self, now: Instant, segment: &Segment, ack: u64, window_changed: bool) {
        self.probe_armed_at = None;
        let prior_inflight = self.board.inflight();
        let lost_before = self.board.lost_total();
        let mut delivery = Delivery::new(now, self.rtt.min_rtt());
        // Ascending offsets, as they were sent: a lower delivery after a higher one within one ACK would
        // pass for reordering.
        self.take_cumulative(ack, &mut delivery);
        let una_advanced = ack > self.snd_una;
        self.snd_una = ack;
        let duplicate = self.take_sacks(segment, &mut delivery);
        if !self.has_sack {
            self.hear_without_sack(segment, una_advanced, window_changed, &mut delivery);
        }
        let news = delivery.delivered() > 0;
        let delivered = delivery.delivered() + delivery.repeated * self.mss;
        if delivered > 0 {
            self.rate.on_delivered(now, delivered);
            self.heard_at = now;
            self.stats.acks += 1;
        }
        let timestamps = self.timestamps_of(segment);
        self.take_rtt(&delivery, timestamps.filter(|_| una_advanced));
        if una_advanced {
            // With timestamps the RTT of a retransmission is unambiguous: the path answers.
            let answers = delivery.newest_rtt().is_some() || self.has_timestamps;
            self.note_progress(now, answers);
        } else if self.config.notsent_lowat.is_some() && self.queue.on_acked(ack, self.snd_nxt) {
            // What is unsent becomes less also while nothing new is acknowledged in order.
            self.events.add(Event::Writable);
        }

        let mut spurious = false;
        if let Some(start) = duplicate {
            self.stats.duplicates += 1;
            self.rack.on_dsack(self.snd_una, self.snd_nxt);
            spurious = self.undo.on_duplicate(start);
        }
        if una_advanced && timestamps.is_some_and(|ts| self.undo.is_late_original(ts.echo)) {
            spurious |= self.on_late_original();
        }
        self.end_episodes(now, &delivery, una_advanced, duplicate.is_some(), spurious);
        let look_again = match self.has_sack {
            true if news || self.board.sacked_segments() > 0 => self.detect_losses(now),
            true => None,
            false => {
                self.detect_without_sack(now, una_advanced);
                None
            }
        };

        self.note_echo(now, segment);

        let before = Before { prior_inflight, lost: lost_before };
        self.conclude_ack(now, &delivery, before, una_advanced, spurious, look_again);
    }

    /// Something more was acknowledged cumulatively; the path `answers`, if what was acknowledged can be timed.
    #[inline]
    pub(super) fn note_progress(&mut self, now: Instant, answers: bool) {
        if self.queue.on_acked(self.snd_una, self.snd_nxt) {
            self.events.add(Event::Writable);
        }
        if answers {
            self.rto.on_valid_sample();
        }
        self.rto.on_progress();
        self.rto_base = now;
    }

    /// The end of every ACK with news: PRR and the controller hear of it, and what follows is arranged.
    #[inline(always)]
    pub(super) fn conclude_ack(
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
        let newly_lost = self.board.lost_total() - before.lost.min(self.board.lost_total());
        if self.reduces_by_prr() {
            let inflight = self.board.inflight();
            let progress = una_advanced && newly_lost == 0;
            self.prr.on_ack(delivered, inflight, self.control.ssthresh, self.mss, progress);
        }
        if delivered > 0 || newly_lost > 0 {
            let sample = self.sample(delivery, una_advanced, newly_lost, before.prior_inflight, spurious);
            let cx = self.context(now);
            self.cc.on_ack(&cx, &sample);
            self.refresh_control(&cx);
            if self.control.mark_app_limited {
                self.rate.mark_app_limited(cx.inflight);
            }
        }
        if una_advanced {
            self.autotune_send_buffer();
        }
        self.rearm_after_ack(now, look_again, if self.has_sack { news } else { una_advanced });
        self.finish_if_done(now);
    }

    /// Nothing is outstanding, and so no ACK can report, end or prove anything: what the receiving side of a
    /// transfer meets in every segment of data.
    fn has_nothing_to_hear(&self, segment: &Segment, ack: u64) -> bool {
        self.board.is_empty()
            && ack == self.snd_una
            && segment.sack.is_empty()
            && self.phase == Phase::Open
            && !self.probe.is_outstanding()
    }

    /// TCP-5: only a segment that is newer than the last one consulted may change the window. One that
    /// acknowledges more always does, even if it repeats old data: the window counts from what it
    /// acknowledges, and yesterday's would reach too far.
    ///
    /// True if it says another window than before.
    #[inline(always)]
    pub(super) fn update_send_window(
        &mut self,
        now: Instant,
        segment: &Segment,
        start: u64,
        ack: u64,
    ) -> bool {
        let window = u64::from(segment.window) << self.peer_scale;
        let changed = window != self.snd_wnd;
        let reopens = start == self.snd_wl1 && (window > self.snd_wnd || window == 0);
        if ack > self.snd_una || (ack == self.snd_una && (start > self.snd_wl1 || reopens)) {
            self.snd_wnd = window;
            self.snd_wl1 = start;
            if window > self.max_snd_wnd {
                self.on_largest_window(now, window);
            }
        }
        changed
    }

    /// Handles SACK blocks. Returns the start of a range that the peer reports as a duplicate of what was sent again.
    fn take_sacks(&mut self, segment: &Segment, delivery: &mut Delivery) -> Option<u64> {
        if segment.sack.is_empty() || !self.has_sack {
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
        // RFC 2883 section 4: a first block below the cumulative ACK, or inside the second, reports a
        // duplicate.
        let duplicate = match *blocks {
            [(from, to), ..] if to <= una => Some((from, to)),
            [(from, to), (outer_from, outer_to), ..] if outer_from <= from && to <= outer_to => {
                Some((from, to))
            }
            _ => None,
        };
        let duplicate = duplicate.filter(|&(from, to)| {
            // No range is longer than the window it was sent into.
            let octets = to.saturating_sub(from);
            if octets == 0 || octets > self.max_snd_wnd {
                return false;
            }
            delivery.repeated = self.undo.spurious_segments(octets, self.mss);
            delivery.repeated > 0
        });
        blocks.sort_unstable();
        let Self { board, rack, rto, snd_nxt, .. } = self;
        for &(from, to) in blocks.iter().filter(|&&(from, to)| from >= una && from < to && to <= *snd_nxt) {
            board.sack(from, to, |run| delivery.take(run, true, rack, rto));
        }
        duplicate.map(|(from, _)| from)
    }

    fn take_cumulative(&mut self, ack: u64, delivery: &mut Delivery) {
        if ack <= self.snd_una {
            return;
        }
        let Self { board, rack, rto, .. } = self;
        let part = board.acknowledge(ack, |run| delivery.take(run, false, rack, rto));
        delivery.cum_acked += part;
    }

    /// Takes the samples of an ACK; `answer` are its timestamps if it acknowledged something.
    #[inline(always)]
    pub(super) fn take_rtt(&mut self, delivery: &Delivery, answer: Option<Timestamps>) {
        if let Some(newest) = delivery.newest_rtt() {
            self.rtt.on_min_sample(newest, delivery.now);
            self.rtts.add(newest);
        }
        // Where departures do not tell, the peer's echo does, to a tick.
        let echoed = || {
            let ticks = clock(delivery.now).wrapping_sub(answer?.echo);
            Some(Duration::from_millis(u64::from(ticks.max(1))))
        };
        if let Some(oldest) = delivery.oldest_rtt().or_else(echoed) {
            self.rtt.on_sample(oldest, self.snd_una, self.snd_nxt);
        }
    }

    /// Eifel (RFC 3522): it was the original that arrived, not what was sent again. True if the episode
    /// is spurious as a whole: while retransmissions for other holes are under way, it may not be.
    fn on_late_original(&mut self) -> bool {
        let partial = matches!(self.phase, Phase::Recovery { until } if self.snd_una < until);
        if partial {
            self.rack.on_late_original();
            if self.board.resent_in_network() > 0 {
                return false;
            }
        }
        if self.phase != Phase::Open {
            self.undo.end();
        }
        self.phase != Phase::Open
    }

    /// Ends what this ACK ends: a probe, a recovery, a timeout's repair.
    fn end_episodes(
        &mut self,
        now: Instant,
        delivery: &Delivery,
        una_advanced: bool,
        duplicate: bool,
        spurious: bool,
    ) {
        let news = delivery.delivered() > 0;
        if self.probe.on_ack(self.snd_una, news, duplicate) == Some(ProbeEnd::RepairedLoss)
            && self.phase == Phase::Open
        {
            self.signal(now, Signal::TlpRepaired);
        }
        match self.phase {
            Phase::Open => {
                if spurious {
                    self.signal(now, Signal::SpuriousRecovery);
                }
            }
            Phase::Recovery { until } => {
                if spurious {
                    self.board.unmark_all_lost();
                    self.newreno.forget(&mut self.board);
                    self.phase = Phase::Open;
                    self.signal(now, Signal::SpuriousRecovery);
                } else if self.snd_una >= until {
                    self.end_recovery(now);
                }
            }
            Phase::Loss => {
                if delivery.spurious_timeout || spurious {
                    self.board.unmark_all_lost();
                    self.newreno.forget(&mut self.board);
                    self.force_retransmit = false;
                    self.rto.end_repair();
                    self.undo.end();
                    self.phase = Phase::Open;
                    self.signal(now, Signal::SpuriousTimeout);
                } else if self.rto.repaired(self.snd_una) {
                    self.end_recovery(now);
                } else {
                    let unsent = self.queue.written() > self.snd_nxt;
                    let sendable = unsent && self.snd_una + self.snd_wnd > self.snd_nxt;
                    self.rto.on_ack_in_repair(una_advanced, delivery.sacked > 0, self.snd_nxt, sendable);
                }
            }
        }
    }

    /// What was lost before recovery began is repaired. What was lost since is a new event, and begins the next
    /// recovery at once, whether or not it has been sent again by now: so it is in Linux, where a path that loses
    /// something in every round trip keeps its senders in recovery all the time, and loss-based ones pay for
    /// every round trip.
    fn end_recovery(&mut self, now: Instant) {
        self.phase = Phase::Open;
        self.rack.on_recovery_exit();
        self.still_lost = self.board.lost_pending() > 0 || self.board.resent_in_network() > 0;
        self.signal(now, Signal::ExitRecovery);
    }

    /// Lets RACK mark, tells the controller, and enters recovery if that is news. Returns when to look
    /// again.
    #[inline]
    pub(super) fn detect_losses(&mut self, now: Instant) -> Option<Instant> {
        let lost_before = self.board.lost_total();
        let (mut again, since) = (false, self.reduced_at);
        let Self { rack, board, lost_scratch, rtt, phase, .. } = self;
        let look_again = rack.detect(
            now,
            board,
            || patience(rtt, *phase),
            |number, record| {
                again |= record.transmissions > 1 && record.sent_at >= since;
                lost_scratch.push(lost_record(number, record, LossCause::Rack));
            },
        );
        self.lost_again = again;
        if !self.lost_scratch.is_empty() || self.still_lost {
            self.on_losses(now, lost_before);
        }
        look_again
    }

    /// Something was marked, or is left from the last recovery: that is reason to recover.
    #[inline(never)]
    pub(super) fn on_losses(&mut self, now: Instant, lost_before: u64) {
        self.still_lost = false;
        let again = std::mem::take(&mut self.lost_again);
        let begins = match self.phase {
            Phase::Open => true,
            Phase::Recovery { .. } => again && self.config.tunables.lost_retransmission_reduces,
            // What the timeout sent again is lost too: fast recovery is there for it, and a reduction of its own.
            Phase::Loss => again,
        };
        if begins {
            self.begin_recovery(now);
        }
        self.report_losses(now, lost_before);
    }

    fn begin_recovery(&mut self, now: Instant) {
        self.reduced_at = now;
        self.rto.end_repair();
        self.undo.begin(self.snd_una, self.board.resent_in_network());
        self.probe.cancel();
        self.stats.recoveries += 1;
        self.newreno.begin(self.snd_nxt);
        if self.phase == Phase::Open
            && let Some(until) = self.ecn.hand_over()
        {
            // A mark has paid for this window of data (RFC 3168 section 6.1.2): PRR goes on as it is.
            self.phase = Phase::Recovery { until };
            return;
        }
        self.prr.enter(self.control.cwnd);
        self.phase = Phase::Recovery { until: self.snd_nxt };
        self.ecn.on_reduced(self.snd_nxt);
        self.signal(now, Signal::EnterRecovery);
    }

    /// Tells the controller of each marked record.
    pub(super) fn report_losses(&mut self, now: Instant, lost_before: u64) {
        let cx = self.context(now);
        let mut lost = std::mem::take(&mut self.lost_scratch);
        let (mut total, mut previous_end) = (lost_before, None);
        for record in &mut lost {
            total += record.len;
            record.lost_since_sent = total - record.lost_since_sent.min(total);
            record.starts_new_range = previous_end != Some(record.offset);
            previous_end = Some(record.offset + record.len);
            self.cc.on_lost(&cx, record);
        }
        self.cc.on_signal(&cx, Signal::LossBatchEnd);
        lost.clear();
        self.lost_scratch = lost;
    }

    #[inline(always)]
    fn sample(
        &mut self,
        delivery: &Delivery,
        una_advanced: bool,
        newly_lost: u64,
        prior_inflight: u64,
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
            newly_lost,
            prior_inflight,
            tx_in_flight: snapshot.tx_in_flight,
            lost_since_sent: self.board.lost_total().saturating_sub(snapshot.lost),
            prior_delivered: snapshot.delivered,
            delivered,
            interval,
            rtt: delivery.newest_rtt(),
            oldest_rtt: delivery.oldest_rtt(),
            newest_sent_at: newest.map_or(Instant::ZERO, |newest| newest.sent_at),
            first_transmission: newest.is_some_and(|newest| newest.first_transmission),
            ce_bytes: 0,
            app_limited: snapshot.app_limited,
            spurious,
            round_start,
        }
    }

    #[inline]
    pub(super) fn rearm_after_ack(&mut self, now: Instant, look_again: Option<Instant>, progress: bool) {
        if self.board.is_empty() {
            match self.retransmit_timer {
                None => {}
                Some((RetransmitTimer::Persist, _)) if self.snd_wnd == 0 => {}
                Some((RetransmitTimer::Persist, _)) => {
                    // ZWP-4: the window reopened; no back-off is left.
                    self.retransmit_timer = self.silence_timer();
                    self.rto.on_valid_sample();
                }
                Some((timer, _)) if timer.is_of_silence() => {}
                Some(_) => self.retransmit_timer = self.silence_timer(),
            }
        } else if let Some(at) = look_again {
            self.retransmit_timer = Some((RetransmitTimer::Reordering, at));
        } else if progress || matches!(self.retransmit_timer, Some((RetransmitTimer::Reordering, _))) {
            self.arm_probe_or_timeout(now);
        }
    }

    /// An autotuned send buffer follows the window, while the window itself is not full.
    #[inline]
    pub(super) fn autotune_send_buffer(&mut self) {
        let cwnd = self.control.cwnd;
        if cwnd > self.tuned_for && self.board.inflight() < self.effective_cwnd() {
            self.tuned_for = cwnd;
            self.queue.autotune(cwnd, self.mss, self.config.cc.sndbuf_windows());
        }
    }

    /// Emits `Finished` once, when the FIN has been acknowledged.
    #[inline]
    fn finish_if_done(&mut self, now: Instant) {
        let ours = self.fin_sent && self.snd_una > self.queue.written();
        if ours && !self.finished {
            self.finished = true;
            self.events.add(Event::Finished);
            self.on_fin_acknowledged(now);
        }
    }

    pub(super) fn timestamps(&self, now: Instant) -> Timestamps {
        Timestamps { value: clock(now), echo: self.ts_recent }
    }

    /// Whether the oldest outstanding record may be sent again by a tail loss probe.
    pub(super) fn newest_in_network(&self) -> Option<RecordNo> {
        let number = self.board.end().checked_sub(1)?;
        let record = self.board.get(number)?;
        matches!(record.state, RecordState::InFlight | RecordState::Resent).then_some(number)
    }
}

/// What RACK's reordering window depends on.
pub(super) fn patience(rtt: &RttEstimator, phase: Phase) -> Patience {
    let srtt = rtt.srtt().unwrap_or(Duration::from_secs(1));
    Patience { min_rtt: rtt.min_rtt().unwrap_or(srtt), srtt, in_recovery: phase != Phase::Open }
}

/// The clock of the timestamps option: milliseconds, starting above zero.
pub(super) fn clock(now: Instant) -> u32 {
    // Truncation is the option's own wrap.
    (now.as_nanos() / 1_000_000) as u32 + 1
}
