//! The advertised window and the receive buffer.
//!
//! The free memory of the buffer determines the window, by Linux's window rule. The window never exceeds
//! `rcv_ssthresh`, which grows with accepted data, and the right edge of the window never moves left (RFC 9293 section
//! 3.8.6, no shrinking). The buffer grows by dynamic right-sizing (DRS). Once per receiver RTT, DRS sets the buffer to
//! hold twice the data that the application read in that time, so that the buffer does not limit a sender whose window
//! doubles each round trip.

use fullpipe_units::{Bytes, Duration, Instant};

use crate::buffers::{Buffer, DrsRule, WindowRule};

/// Receive buffer size of a new connection, in bytes (`tcp_rmem[1]`).
const INITIAL_BUFFER: u64 = 131_072;
/// Receive window of a new connection, in bytes: 45 segments of 1448 bytes.
const INITIAL_WINDOW: u64 = 65_160;
/// Maximum receive buffer that an application may set, in bytes (`net.core.rmem_max`, since Linux 6.16). This
/// maximum also determines the window scale.
const RMEM_MAX: u64 = 4_194_304;
/// Number of segments that the buffer holds in addition to twice the data read, until Linux 6.15.
const CUSHION: u64 = 16;
/// Maximum window scale shift (RFC 7323 section 2.3).
const MAX_WINDOW_SCALE: u8 = 14;

/// Receive buffer and advertised window of a connection, and their growth.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveWindow {
    /// Window rule for full-sized segments, and the largest segment size that the path carries.
    at_full_size: (WindowRule, u64),
    /// Window rule for the segment size actually received.
    rule: WindowRule,
    buffer: Buffer,
    /// Memory limit of the receive buffer, in bytes.
    rcvbuf: u64,
    /// Receive window that `rcvbuf` allows while the buffer is empty, in bytes.
    full: u64,
    clamp: u64,
    rcv_ssthresh: u64,
    /// Right edge of the most recently advertised window.
    edge: u64,
    /// Size of the most recently advertised window when it was advertised, in bytes (Linux: `rcv_wnd`).
    offered: u64,
    scale: u8,
    /// Whether the peer's SYN contained the window scale option; true until that SYN arrives.
    peer_scales: bool,
    drs: RightSizing,
    /// Last call of `free`: its argument, the number of occupied bytes, and its result, the window. If the application
    /// keeps up, every call has the same argument.
    free_with: (u64, u64),
}

#[derive(Clone, Debug)]
struct RightSizing {
    rule: DrsRule,
    rtt: Option<Duration>,
    last_echo: u32,
    since: Instant,
    /// Number of bytes that the application read in the previous round.
    space: u64,
    copied_at_start: u64,
    /// RTT measurement that is in progress, until Linux 6.15: the stream offset at which it ends, and the time at which
    /// it started.
    window_round: Option<(u64, Instant)>,
}

impl ReceiveWindow {
    pub(crate) fn new(rules: (WindowRule, DrsRule), buffer: Buffer, clamp: Option<Bytes>, mss: u64) -> Self {
        let (rule, drs) = rules;
        let limit = buffer.limit().get();
        let rcvbuf = match buffer {
            Buffer::Auto { max } => INITIAL_BUFFER.min(max.get()),
            Buffer::Fixed(size) => size.get(),
        };
        let clamp = clamp.map_or(u64::MAX, Bytes::get);
        // A fixed buffer never grows. For an autotuned buffer, the host's limit for fixed buffers is also
        // taken into account.
        let largest = match buffer {
            Buffer::Auto { .. } => limit.max(RMEM_MAX),
            Buffer::Fixed(size) => rule.unmeasured().window(size).get().max(65_535),
        };
        let at_full_size = (rule, mss);
        let rule = rule.unmeasured();
        let full = rule.window(Bytes::new(rcvbuf)).get();
        let initial = full.min(INITIAL_WINDOW).min(clamp);
        // The window consists of whole segments if at least one segment fits.
        let initial = if initial > mss { initial / mss * mss } else { initial };
        Self {
            at_full_size,
            rule,
            buffer,
            rcvbuf,
            full,
            clamp,
            rcv_ssthresh: initial,
            edge: 0,
            offered: 0,
            scale: scale_for(largest.min(clamp)),
            peer_scales: true,
            drs: RightSizing {
                rule: drs,
                rtt: None,
                last_echo: 0,
                since: Instant::ZERO,
                space: initial.min(10 * mss),
                copied_at_start: 0,
                window_round: None,
            },
            free_with: (0, full),
        }
    }

    /// Sets the initial window to whole segments of `mss` bytes, where `mss` is the payload length of the largest
    /// segment that this host can receive. In a SYN, `mss` does not account for the timestamp option, which is not
    /// negotiated yet; in a SYN-ACK, it accounts for the negotiated options.
    pub(crate) fn start_with(&mut self, mss: u64) {
        let first = self.full.min(INITIAL_WINDOW).min(self.clamp);
        self.rcv_ssthresh = if first > mss { first / mss * mss } else { first };
    }

    /// Starts right-sizing at the passive end of a connection. Until Linux 6.15, the buffer at that end first grows
    /// after a round in which the application has read more than ten segments of `mss` + 12 bytes. The 12 bytes of the
    /// timestamp option are not yet deducted from this size.
    pub(crate) fn listen(&mut self, mss: u64) {
        if self.drs.rule == DrsRule::Until615 {
            self.drs.space = self.rcv_ssthresh.min(10 * (mss + 12));
        }
    }

    /// Returns the window scale shift in use, which is fixed for the connection (RFC 7323 section 2.2, WS-1).
    #[cfg(test)]
    pub(crate) fn scale(&self) -> u8 {
        self.scale
    }

    /// Disables window scaling, because the peer does not scale its windows. All windows then fit into 16 bits.
    pub(crate) fn disable_scaling(&mut self) {
        self.scale = 0;
        self.peer_scales = false;
    }

    /// Returns the window scale option of a SYN or SYN-ACK. Returns `None` if the peer's SYN had no such option,
    /// because then the SYN-ACK must not have it either (RFC 7323 section 2.2).
    pub(crate) fn offered_scale(&self) -> Option<u8> {
        self.peer_scales.then_some(self.scale)
    }

    /// Advertises the window at `rcv_nxt` and returns the window field of the header. `held` bytes above a hole and
    /// `unread` in-order bytes occupy memory.
    pub(crate) fn offer(&mut self, rcv_nxt: u64, held: u64, unread: u64, mss: u64) -> u16 {
        let (field, edge) = self.next_offer(rcv_nxt, held + unread, mss);
        (self.edge, self.offered) = (edge, edge - rcv_nxt);
        field
    }

    /// Returns true if the window has opened enough for an ACK: at most half of the largest window remains, and the
    /// new window would be at least twice as large (Linux: `tcp_cleanup_rbuf`).
    pub(crate) fn would_open(&self, rcv_nxt: u64, occupied: u64, mss: u64) -> bool {
        let remaining = self.remaining(rcv_nxt);
        // This function runs after each read, and most of the advertised window is usually unused.
        if 2 * remaining > self.full.min(self.clamp) {
            return false;
        }
        let window = self.next_offer(rcv_nxt, occupied, mss).1 - rcv_nxt;
        window > 0 && window >= 2 * remaining
    }

    #[inline]
    fn next_offer(&self, rcv_nxt: u64, occupied: u64, mss: u64) -> (u16, u64) {
        let unit = 1u64 << self.scale;
        let window = self.select(occupied, mss).max(self.remaining(rcv_nxt)).min(65_535 << self.scale);
        let field = window.div_ceil(unit).min(65_535);
        // `field` is at most 65 535.
        (field as u16, self.edge.max(rcv_nxt + field * unit))
    }

    /// Advertises the window of a SYN and returns the window field, which is never scaled.
    pub(crate) fn offer_in_syn(&mut self, mss: u64) -> u16 {
        let window = self.select(0, mss).min(65_535);
        self.edge = self.edge.max(window);
        self.offered = window;
        window as u16
    }

    /// Applies silly window syndrome avoidance to the free space (RFC 9293 section 3.8.6.2.2).
    #[inline]
    fn select(&self, occupied: u64, mss: u64) -> u64 {
        let full = self.full;
        // If the application keeps up, the buffer is empty.
        if occupied == 0 && self.scale > 0 {
            return full.min(self.rcv_ssthresh).min(self.clamp);
        }
        let free = if occupied == 0 { full } else { self.free(occupied) };
        let mss = mss.min(full.min(self.clamp));
        if free < full / 2 && (free < full / 16 || free < mss) {
            return 0;
        }
        let window = free.min(self.rcv_ssthresh).min(self.clamp);
        // Without scaling, the window consists of whole segments; otherwise every byte read would cause an update. The
        // window changes only if the change is at least one segment, or if the window exceeds the free space.
        if self.scale > 0 || self.clamp != u64::MAX || mss == 0 {
            window
        } else if self.offered + mss <= window || self.offered > window {
            window / mss * mss
        } else if mss == full && window > self.offered + full / 2 {
            // The whole buffer holds less than two segments.
            window
        } else {
            self.offered
        }
    }

    /// Returns the window that remains if `occupied` bytes of the buffer are in use.
    fn free(&self, occupied: u64) -> u64 {
        let used = self.rule.space(Bytes::new(occupied)).get();
        self.rule.window(Bytes::new(self.rcvbuf.saturating_sub(used))).get()
    }

    /// Returns the number of bytes beyond `rcv_nxt` that the advertised window still allows.
    pub(crate) fn remaining(&self, rcv_nxt: u64) -> u64 {
        self.edge.saturating_sub(rcv_nxt)
    }

    /// Returns the memory limit of the receive buffer, in bytes.
    pub(crate) fn rcvbuf(&self) -> u64 {
        self.rcvbuf
    }

    /// Returns the right edge of the most recently advertised window.
    pub(crate) fn edge(&self) -> u64 {
        self.edge
    }

    /// Updates the window rule for a segment that raises the estimate of the peer's segment size. Linux compares the
    /// payload with the memory that it occupies only for such a segment (`tcp_measure_rcv_mss`, since 6.6).
    pub(crate) fn on_larger_segment(&mut self, len: u64) {
        let (rule, mss) = self.at_full_size;
        self.rule = rule.with_segments(len, mss);
        self.recount();
    }

    /// Opens the window by twice the amount of accepted data, up to the limit of the buffer. Returns whether the window
    /// opened. Data above a hole also counts; otherwise one loss in slow start would limit the sender for many round
    /// trips.
    #[inline(always)]
    pub(crate) fn on_accepted(&mut self, len: u64, mss: u64, occupied: u64) -> bool {
        if self.free_with.0 != occupied {
            self.free_with = (occupied, self.free(occupied));
        }
        let allowed = self.free_with.1.min(self.clamp);
        let opens = self.rcv_ssthresh < allowed;
        if opens {
            self.rcv_ssthresh = (self.rcv_ssthresh + (2 * mss).max(2 * len)).min(allowed);
        }
        opens
    }

    /// Returns whether an ACK would now advertise a smaller window than the last one, with `occupied` bytes in the
    /// buffer. `acknowledged` is the offset that the last ACK acknowledged.
    #[inline(always)]
    pub(crate) fn shrinks(&mut self, occupied: u64, acknowledged: u64) -> bool {
        if self.free_with.0 != occupied {
            self.free_with = (occupied, self.free(occupied));
        }
        // Advertised windows are rounded up to a multiple of the scale unit.
        let window = self.free_with.1.min(self.rcv_ssthresh).min(self.clamp);
        window.next_multiple_of(1 << self.scale) < self.remaining(acknowledged)
    }

    /// Returns whether the echoed timestamp differs from the last one. A different timestamp yields an RTT
    /// sample.
    pub(crate) fn is_new_echo(&self, echo: u32) -> bool {
        echo != self.drs.last_echo
    }

    /// Takes an RTT sample at the receiver from an echoed timestamp. A smaller sample replaces the estimate, because
    /// only a larger sample can include a pause of the sender. Since Linux 6.16, a larger sample is ignored while
    /// data is `unread`, because it may include a pause of this side's application.
    pub(crate) fn on_echo(&mut self, echo: u32, clock: u32, unread: u64) {
        self.drs.last_echo = echo;
        let sample = Duration::from_millis(u64::from(clock.wrapping_sub(echo)).max(1));
        self.drs.rtt = Some(match self.drs.rtt {
            Some(rtt) if sample < rtt => sample,
            Some(rtt) if self.drs.rule == DrsRule::Since616 && unread > 0 => rtt,
            Some(rtt) => rtt.mul_div(7, 8) + sample / 8,
            None => sample,
        });
    }

    /// Takes an RTT sample from the time in which the sender uses the advertised window once (Linux:
    /// `tcp_rcv_rtt_measure`). `rcv_nxt` includes the segment that has arrived. A full window takes at least one round
    /// trip, so the sample can only lower the estimate. The sample has a resolution of one microsecond, whereas
    /// timestamps have a resolution of one millisecond.
    #[inline(always)]
    pub(crate) fn on_in_order(&mut self, now: Instant, rcv_nxt: u64) {
        if self.drs.rule == DrsRule::Until615 {
            self.measure_window(now, rcv_nxt);
        }
    }

    fn measure_window(&mut self, now: Instant, rcv_nxt: u64) {
        if let Some((end, since)) = self.drs.window_round {
            if rcv_nxt < end {
                return;
            }
            let sample = now.saturating_since(since).max(Duration::from_micros(1));
            self.drs.rtt = Some(self.drs.rtt.map_or(sample, |rtt| rtt.min(sample)));
        }
        self.drs.window_round = Some((rcv_nxt + self.offered, now));
    }

    /// Returns the RTT estimate of the receiver.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.drs.rtt
    }

    /// Starts the first measurement of the application's read rate when the connection is established.
    pub(crate) fn on_established(&mut self, now: Instant) {
        self.drs.since = now;
    }

    /// Grows the receive buffer once per receiver RTT. The application has read `copied` bytes in total,
    /// `unread` bytes remain, and `out_of_order_span` bytes lie between `rcv_nxt` and the highest octet held.
    #[inline]
    pub(crate) fn on_read(&mut self, now: Instant, copied: u64, unread: u64, out_of_order_span: u64) {
        let Some(rtt) = self.drs.rtt else { return };
        if now.saturating_since(self.drs.since) < rtt {
            return;
        }
        let unread = if self.drs.rule == DrsRule::Since616 { unread } else { 0 };
        let taken = (copied - self.drs.copied_at_start).saturating_sub(unread);
        let previous = self.drs.space;
        if taken > previous {
            self.grow(taken, previous, out_of_order_span);
            self.drs.space = taken;
        }
        self.drs.since = now;
        self.drs.copied_at_start = copied;
    }

    /// Grows the receive buffer when data arrives above a hole, by the span that the application cannot read
    /// yet.
    pub(crate) fn on_out_of_order(&mut self, span: u64) {
        if self.drs.rule == DrsRule::Until615 {
            return;
        }
        self.grow(self.drs.space, self.drs.space, span);
    }

    /// Grows the receive buffer to twice the amount of data read, and by a larger factor while that amount is
    /// still growing (DRS-1 to DRS-3).
    fn grow(&mut self, taken: u64, previous: u64, out_of_order_span: u64) {
        let Buffer::Auto { max } = self.buffer else { return };
        let mss = self.at_full_size.1;
        let window = match self.drs.rule {
            DrsRule::Until615 => drs_window(2 * taken + CUSHION * mss, taken, previous),
            DrsRule::Since616 => drs_window(2 * taken, taken, previous).saturating_add(out_of_order_span),
        };
        let wanted = self.drs.rule.space(self.rule, Bytes::new(window), mss).get().min(max.get());
        if wanted > self.rcvbuf {
            self.rcvbuf = wanted;
            self.recount();
        }
    }

    /// Recomputes the window of an empty buffer after the buffer or the window rule has changed.
    fn recount(&mut self) {
        self.full = self.rule.window(Bytes::new(self.rcvbuf)).get();
        self.free_with = (0, self.full);
    }
}

/// Returns a window that holds `steady` bytes, and more if the application has read more in this round (`taken`) than
/// in the previous one (`previous`).
fn drs_window(steady: u64, taken: u64, previous: u64) -> u64 {
    let growth = u128::from(steady) * 2 * u128::from(taken - previous) / u128::from(previous.max(1));
    steady.saturating_add(u64::try_from(growth).unwrap_or(u64::MAX))
}

/// Returns the smallest window scale shift with which 16 bits can express `limit`, rounded as in Linux
/// (WS-1).
fn scale_for(limit: u64) -> u8 {
    let shift = limit.ilog2().saturating_sub(15);
    (shift as u8).min(MAX_WINDOW_SCALE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: (WindowRule, DrsRule) = (WindowRule::ScalingRatio(160), DrsRule::Since616);

    #[test]
    fn scale_follows_the_largest_buffer() {
        assert_eq!(scale_for(33_554_432), 10);
        assert_eq!(scale_for(6_291_456), 7);
        assert_eq!(scale_for(65_535), 0);
        assert_eq!(scale_for(u64::MAX), 14);
    }

    /// The window is twice the amount of data read, plus allowances for growth and for the out-of-order span (DRS-1 to
    /// DRS-3).
    #[test]
    fn right_sizing_doubles_and_anticipates_growth() {
        assert_eq!(drs_window(2 * 28_960, 28_960, 14_480), 6 * 28_960);
        assert_eq!(drs_window(2 * 11_000, 11_000, 10_000), 26_400);
    }

    /// Linux 6.1 grows the buffer to twice the data read plus 16 segments, and counts the memory of whole segments
    /// (2920 bytes for 1448 bytes of payload). Linux 6.18 adds no segments. Data above a hole counts only in the newer
    /// rule.
    #[test]
    fn older_kernels_leave_room_for_sixteen_segments() {
        const MSS: u64 = 1_448;
        let grown = |rule: WindowRule, drs: DrsRule| {
            let buffer = Buffer::Auto { max: Bytes::from_mib(6) };
            let mut window = ReceiveWindow::new((rule, drs), buffer, None, MSS);
            window.on_echo(1, 21, 0);
            window.on_out_of_order(100 * MSS);
            let before = window.rcvbuf;
            window.on_read(Instant::ZERO + Duration::from_millis(20), 20 * MSS, 0, 0);
            (before, window.rcvbuf)
        };
        let (old, new) = (WindowRule::AdvWinScale(1), WindowRule::ScalingRatio(128));
        // The amount read has doubled since the previous round of 10 segments, so the window is three times the steady
        // window.
        assert_eq!(grown(old, DrsRule::Until615), (INITIAL_BUFFER, (2 * 20 + 16) * 3 * 2_920));
        assert_eq!(grown(new, DrsRule::Until615), (INITIAL_BUFFER, (2 * 20 + 16) * 3 * 2 * MSS));
        let span = 2 * (2 * 10 + 100) * MSS;
        assert_eq!(grown(new, DrsRule::Since616), (span, span.max(2 * 20 * 3 * 2 * MSS)));
    }

    /// On Linux 6.1, a first round of 11 segments does not grow the buffer at the passive end of a connection, but does
    /// at the active end.
    #[test]
    fn a_listener_expects_a_larger_first_round() {
        const MSS: u64 = 1_448;
        let grown = |listens: bool| {
            let buffer = Buffer::Auto { max: Bytes::from_mib(6) };
            let rules = (WindowRule::AdvWinScale(1), DrsRule::Until615);
            let mut window = ReceiveWindow::new(rules, buffer, None, MSS);
            if listens {
                window.listen(MSS);
            }
            window.on_echo(1, 21, 0);
            window.on_read(Instant::ZERO + Duration::from_millis(20), 11 * MSS, 0, 0);
            window.rcvbuf > INITIAL_BUFFER
        };
        assert_eq!([true, false].map(grown), [false, true]);
    }

    /// Both rules adopt a smaller sample at once, and average a larger one. Only the newer rule ignores a larger sample
    /// while data is unread, and only the older rule measures how long the sender takes to use a window.
    #[test]
    fn the_receivers_rtt_follows_the_smaller_samples() {
        let buffer = Buffer::Auto { max: Bytes::from_mib(6) };
        for (drs, measured) in [(DrsRule::Until615, 45), (DrsRule::Since616, 40)] {
            let mut window = ReceiveWindow::new((WindowRule::AdvWinScale(1), drs), buffer, None, 1_448);
            let mut rtt_after = |echo, clock, unread| {
                window.on_echo(echo, clock, unread);
                window.rtt()
            };
            assert_eq!(rtt_after(1, 81, 0), Some(Duration::from_millis(80)));
            assert_eq!(rtt_after(2, 42, 0), Some(Duration::from_millis(40)));
            assert_eq!(rtt_after(3, 83, 1), Some(Duration::from_millis(measured)));
        }
        for (drs, measured) in [(DrsRule::Until615, 30), (DrsRule::Since616, 80)] {
            let mut window = ReceiveWindow::new((WindowRule::AdvWinScale(1), drs), buffer, None, 1_448);
            window.on_echo(1, 81, 0);
            window.offer(0, 0, 0, 1_448);
            let end = 1_448 + window.offered;
            for (ms, rcv_nxt) in [(5, 1_448), (20, end - 1), (35, end)] {
                window.on_in_order(Instant::ZERO + Duration::from_millis(ms), rcv_nxt);
            }
            assert_eq!(window.rtt(), Some(Duration::from_millis(measured)));
        }
    }

    /// An ACK after a read always opens the window, and at least doubles it.
    #[test]
    fn a_window_update_at_least_doubles_the_window() {
        let mut opened = 0;
        for i in 0..20_000 {
            let pick = |stream, below: u64| fullpipe_units::draw(1, stream, i) % below;
            let buffer = Buffer::Fixed(Bytes::new(4_096 << pick(0, 12)));
            let clamp = (pick(1, 4) == 0).then(|| Bytes::new(1 + pick(2, 200_000)));
            let mut window = ReceiveWindow::new(RULES, buffer, clamp, 1448);
            if pick(9, 3) == 0 {
                window.disable_scaling();
            }
            window.rcv_ssthresh = pick(3, 2 * window.full + 2);
            window.edge = pick(4, 300_000);
            let (rcv_nxt, occupied, mss) =
                (pick(5, 300_000), pick(6, 2) * pick(7, 100_000), 536 + pick(8, 913));
            if window.would_open(rcv_nxt, occupied, mss) {
                let before = window.remaining(rcv_nxt);
                let after = window.next_offer(rcv_nxt, occupied, mss).1 - rcv_nxt;
                assert!(after > before && after >= 2 * before, "case {i}: from {before} to {after}");
                assert!(2 * before <= window.full, "case {i}: {before} of {} is not little", window.full);
                opened += 1;
            }
        }
        assert!((1_000..19_000).contains(&opened), "{opened}");
    }

    /// The right edge of the window never moves left, regardless of how much data is held (WS-4).
    #[test]
    fn the_edge_is_monotone() {
        let mut window = ReceiveWindow::new(RULES, Buffer::Fixed(Bytes::from_kib(256)), None, 1448);
        let mut edge = 0;
        for (rcv_nxt, held) in [(0, 0), (10_000, 0), (10_000, 150_000), (20_000, 170_000), (200_000, 0)] {
            window.on_accepted(60_000, 1448, held);
            let field = window.offer(rcv_nxt, held, 0, 1448);
            let new_edge = rcv_nxt + (u64::from(field) << window.scale());
            assert!(new_edge >= edge, "edge moved back from {edge} to {new_edge}");
            edge = new_edge;
        }
    }

    /// With a buffer of 4096 bytes, the advertised window is 1448 bytes, so the sender sends half of that at
    /// a time. Such a short segment uses less of its skb than a full one, and the window becomes 1280 bytes
    /// (measured on Linux 6.18).
    #[test]
    fn small_segments_make_a_small_window() {
        let mut window = ReceiveWindow::new(RULES, Buffer::Auto { max: Bytes::new(4_096) }, None, 1448);
        assert_eq!(window.offer_in_syn(1448), 1448);
        window.on_larger_segment(724);
        window.on_accepted(724, 724, 0);
        let bytes = |field: u16, window: &ReceiveWindow| u64::from(field) << window.scale();
        let field = window.offer(1_448, 0, 0, 724);
        assert_eq!(bytes(field, &window), 1_280);
        window.on_larger_segment(1_448);
        window.on_accepted(1_448, 1_448, 0);
        let field = window.offer(4_344, 0, 0, 1_448);
        assert_eq!(bytes(field, &window), 2_560);
    }

    /// A fixed buffer never grows (DRS-5).
    #[test]
    fn a_fixed_buffer_stays() {
        let mut window = ReceiveWindow::new(RULES, Buffer::Fixed(Bytes::new(131_072)), None, 1448);
        window.on_echo(1, 101, 0);
        window.on_read(Instant::ZERO, 0, 0, 0);
        window.on_read(Instant::ZERO + Duration::from_secs(1), 10_000_000, 0, 0);
        assert_eq!(window.rcvbuf, 131_072);
    }
}
