//! Reassembly: the stream offsets received, and the SACK blocks that report them (RFC 2018, RFC 2883).

use crate::ranges::RangeSet;

/// Number of most recently changed ranges kept for SACK blocks.
const REMEMBERED: usize = 4;

/// Effect of an arriving range of octets on reassembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Number of octets that had not been received before.
    pub(crate) new: u64,
    /// Whether the arrival advanced `rcv_nxt`.
    pub(crate) advanced: bool,
    /// Whether the arrival filled the last hole.
    pub(crate) filled_last_hole: bool,
    /// Whether the arrival lies above a hole.
    pub(crate) out_of_order: bool,
    /// Whether the arrival changed a range other than the two most recently changed ranges. One ACK can
    /// report three changed ranges.
    pub(crate) crowded: bool,
}

impl Arrival {
    /// Effect of an arrival that was not accepted.
    const NOTHING: Self =
        Self { new: 0, advanced: false, filled_last_hole: false, out_of_order: false, crowded: false };
}

/// Reassembly state: the stream offsets received.
#[derive(Clone, Debug)]
pub(crate) struct Reassembly {
    rcv_nxt: u64,
    /// Maximum number of out-of-order ranges.
    most: usize,
    held: RangeSet,
    /// Ranges to report in SACK blocks, most recently changed first.
    recent: Vec<(u64, u64)>,
    /// Range that has arrived twice and must be reported once (D-SACK).
    duplicate: Option<(u64, u64)>,
}

impl Reassembly {
    /// Creates the reassembly state for up to `most` out-of-order ranges. A range above this number is
    /// neither accepted nor reported, so that the sender retransmits it. The limit bounds the memory that a
    /// peer can make this side use by sending every second octet. With segments of ordinary size, the number
    /// of ranges stays below the limit.
    pub(crate) fn new(most: usize) -> Self {
        Self { rcv_nxt: 0, most, held: RangeSet::default(), recent: Vec::new(), duplicate: None }
    }

    /// Checks that memory use is bounded, for tests.
    pub(crate) fn check(&self) {
        assert!(self.held.len() <= self.most && self.recent.len() <= REMEMBERED, "too much is held");
    }

    /// Returns the next expected stream offset (RCV.NXT).
    pub(crate) fn rcv_nxt(&self) -> u64 {
        self.rcv_nxt
    }

    /// Returns the number of octets held above holes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.covered()
    }

    /// Returns whether there are holes in the received data.
    pub(crate) fn has_holes(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the end offset of the highest range held, or `rcv_nxt` if none is held.
    pub(crate) fn highest(&self) -> u64 {
        self.held.last().map_or(self.rcv_nxt, |(_, end)| end)
    }

    /// Accepts the octets `start..end`, which the caller has already limited to the window.
    #[inline]
    pub(crate) fn insert(&mut self, start: u64, end: u64) -> Arrival {
        if start == self.rcv_nxt && start < end && self.held.is_empty() {
            self.rcv_nxt = end;
            return Arrival { new: end - start, advanced: true, ..Arrival::NOTHING };
        }
        self.insert_out_of_place(start, end)
    }

    /// Accepts a range while there are holes, an out-of-order range, or a range that was received before.
    #[inline(never)]
    fn insert_out_of_place(&mut self, start: u64, end: u64) -> Arrival {
        let mut arrival = Arrival::NOTHING;
        if start >= end {
            return arrival;
        }
        let mut duplicate = None;
        note_duplicate(&mut duplicate, start, end.min(self.rcv_nxt));
        self.duplicate = duplicate.or(self.duplicate);
        let start = start.max(self.rcv_nxt);
        if start >= end {
            return arrival;
        }
        if start == self.rcv_nxt && self.held.is_empty() {
            arrival.new = end - start;
            arrival.advanced = true;
            self.rcv_nxt = end;
            return arrival;
        }
        if self.held.len() >= self.most && start > self.rcv_nxt && !self.held.touches(start, end) {
            arrival.out_of_order = true;
            return arrival;
        }
        // The octets between the new parts are already held. These octets are duplicates, even inside a
        // segment that fills a hole (RFC 2883 section 4.2).
        let mut position = start;
        self.held.insert(start, end, |from, to| {
            note_duplicate(&mut duplicate, position, from);
            position = to;
            arrival.new += to - from;
        });
        note_duplicate(&mut duplicate, position, end);
        self.duplicate = duplicate.or(self.duplicate);
        if start == self.rcv_nxt {
            if let Some((_, covered_to)) = self.held.first() {
                self.rcv_nxt = covered_to;
            }
            self.held.remove_below(self.rcv_nxt);
            self.recent.retain(|&(_, range_end)| range_end > self.rcv_nxt);
            arrival.advanced = true;
            arrival.filled_last_hole = self.held.is_empty();
        } else {
            arrival.out_of_order = true;
            if let Some(range) = self.held.containing(start) {
                let overlaps = |&(s, e): &(u64, u64)| s < range.1 && range.0 < e;
                let changed = self.recent.iter().position(overlaps);
                arrival.crowded = changed.unwrap_or(self.recent.len()) >= 2;
                match &mut self.recent[..] {
                    // The most recently changed range continues to grow, because each packet above a hole
                    // extends it.
                    [newest, others @ ..] if overlaps(newest) && !others.iter().any(overlaps) => {
                        *newest = range;
                    }
                    _ => {
                        self.recent.retain(|recent| !overlaps(recent));
                        self.recent.insert(0, range);
                        self.recent.truncate(REMEMBERED);
                    }
                }
            }
        }
        arrival
    }

    /// Returns whether ranges above a hole or a duplicate must be reported.
    pub(crate) fn has_reports(&self) -> bool {
        self.duplicate.is_some() || !self.recent.is_empty()
    }

    /// Returns the duplicate range to report, and forgets it.
    pub(crate) fn take_duplicate(&mut self) -> Option<(u64, u64)> {
        self.duplicate.take()
    }

    /// Returns the ranges to report in SACK blocks, most recently changed first.
    pub(crate) fn recent(&self) -> &[(u64, u64)] {
        &self.recent
    }
}

/// Adds `start..end` to the `duplicate` to report. The duplicate is a single range: the first one, extended
/// by ranges that adjoin it (Linux: `tcp_dsack_extend`).
fn note_duplicate(duplicate: &mut Option<(u64, u64)>, start: u64, end: u64) {
    if start >= end {
        return;
    }
    match duplicate {
        None => *duplicate = Some((start, end)),
        Some((from, to)) if start <= *to && *from <= end => {
            (*from, *to) = ((*from).min(start), (*to).max(end));
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first SACK block contains the newest segment; the other blocks repeat the most recent changes (RFC
    /// 2018 section 4; SK-1).
    #[test]
    fn the_newest_change_is_reported_first() {
        let mut rx = Reassembly::new(100);
        assert!(rx.insert(0, 100).advanced);
        for start in [200, 400, 600, 800, 1000] {
            assert!(rx.insert(start, start + 100).out_of_order);
        }
        assert_eq!(rx.recent(), [(1000, 1100), (800, 900), (600, 700), (400, 500)]);
        rx.insert(500, 600);
        assert_eq!(rx.recent(), [(400, 700), (1000, 1100), (800, 900)]);
        let arrival = rx.insert(100, 200);
        assert!(arrival.advanced && !arrival.filled_last_hole);
        assert_eq!((rx.rcv_nxt(), rx.held_bytes()), (300, 500));
    }

    /// A segment that was received before is reported once, with its exact range (RFC 2883; ACK-5).
    #[test]
    fn duplicates_are_reported_once() {
        let mut rx = Reassembly::new(100);
        rx.insert(0, 300);
        assert_eq!(rx.insert(100, 200).new, 0);
        assert_eq!(rx.take_duplicate(), Some((100, 200)));
        assert_eq!(rx.take_duplicate(), None);
        rx.insert(500, 600);
        rx.insert(500, 600);
        assert_eq!(rx.take_duplicate(), Some((500, 600)));
    }

    /// RFC 2883 section 4.2: a segment that fills a hole and also covers data held above the hole is a
    /// duplicate of that data.
    #[test]
    fn duplicates_inside_a_segment_that_fills_a_hole_are_reported() {
        let mut rx = Reassembly::new(100);
        rx.insert(0, 100);
        rx.insert(200, 300);
        rx.insert(400, 500);
        let arrival = rx.insert(100, 600);
        assert_eq!((arrival.new, rx.rcv_nxt()), (300, 600));
        assert_eq!(rx.take_duplicate(), Some((200, 300)), "the first of two");
        rx.insert(700, 800);
        rx.insert(650, 750);
        assert_eq!(rx.take_duplicate(), Some((700, 750)), "above a hole");
        rx.insert(550, 700);
        assert_eq!(rx.take_duplicate(), Some((550, 600)), "received in order, then above a hole");
        rx.insert(900, 1000);
        rx.insert(750, 950);
        assert_eq!(rx.take_duplicate(), Some((750, 800)), "the first range is kept");
    }

    #[test]
    fn filling_the_last_hole_is_noticed() {
        let mut rx = Reassembly::new(100);
        rx.insert(100, 200);
        assert!(rx.insert(0, 100).filled_last_hole);
        assert_eq!(rx.rcv_nxt(), 200);
        assert!(rx.recent().is_empty());
    }

    /// The limit applies to the ranges that a peer can create by sending every second octet. Ranges beyond
    /// the limit are neither accepted nor reported. A segment adjacent to a held range is accepted, and so is
    /// a segment that fills a hole.
    #[test]
    fn ranges_are_bounded() {
        let mut rx = Reassembly::new(8);
        for i in 1..10_000 {
            let arrival = rx.insert(2 * i, 2 * i + 1);
            assert_eq!((arrival.new, arrival.out_of_order), (u64::from(i <= 8), true));
            rx.check();
        }
        assert_eq!((rx.held_bytes(), rx.highest()), (8, 17));
        assert_eq!(rx.insert(17, 18).new, 1, "at an end");
        assert_eq!(rx.insert(5, 6).new, 1, "between two");
        assert_eq!(rx.insert(0, 2).new, 2);
        assert_eq!((rx.rcv_nxt(), rx.held.len()), (3, 6));
        assert_eq!(rx.insert(100, 101).new, 1, "there is room for one again");
        assert_eq!(rx.insert(3, 200).new, 200 - 3 - 9 - 1);
        assert_eq!((rx.rcv_nxt(), rx.held_bytes()), (200, 0));
    }
}
