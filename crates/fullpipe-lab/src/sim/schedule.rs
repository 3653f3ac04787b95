//! A schedule that finds the earliest of many timers.
//!
//! The schedule is a tournament tree: each inner node contains the earlier of its two children, and the root
//! contains the winner. If two timers are due at the same time, the lower number wins, so the order of events
//! never depends on how the tree was filled.
//!
//! Most timers are postponed repeatedly and never fire: every ACK postpones the retransmission timeout, and
//! every second segment postpones the delayed ACK. The schedule therefore postpones lazily. The tree keeps
//! the earlier time, which is a lower bound on the true time, and is updated only when this earlier time is
//! reached.

use fullpipe_units::Instant;

#[derive(Debug)]
pub(crate) struct Schedule {
    timers: Vec<Timer>,
    /// Timer number of the winner at each node: `winner[1]` is the root, and leaf `i` is node `leaves + i`.
    winner: Vec<u32>,
    leaves: usize,
    /// Lower bound on the due time of the winner at the root, cached because the event loop reads it before
    /// each event.
    bound: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    due: Instant,
    /// Lower bound on `due`, by which the tree orders this timer.
    bound: Instant,
}

impl Schedule {
    pub(crate) fn new(timers: usize) -> Self {
        let leaves = timers.max(2).next_power_of_two();
        let never = Timer { due: Instant::FAR_FUTURE, bound: Instant::FAR_FUTURE };
        let bound = Instant::FAR_FUTURE;
        let mut schedule = Self { timers: vec![never; leaves], winner: vec![0; 2 * leaves], leaves, bound };
        for i in 0..leaves {
            schedule.winner[leaves + i] = i as u32;
        }
        for node in (1..leaves).rev() {
            schedule.winner[node] = schedule.winner[2 * node];
        }
        schedule
    }

    /// Returns a time before which no timer is due.
    #[inline]
    pub(crate) fn bound(&self) -> Instant {
        self.bound
    }

    /// Returns the timer that is due at [`Schedule::bound`]; returns `None` if that timer was postponed, in
    /// which case the bound is updated.
    pub(crate) fn settle(&mut self) -> Option<usize> {
        let first = self.winner[1] as usize;
        let timer = &mut self.timers[first];
        if timer.bound == timer.due {
            return Some(first);
        }
        timer.bound = timer.due;
        self.replay(first);
        None
    }

    #[inline]
    pub(crate) fn set(&mut self, timer: usize, due: Instant) {
        let entry = &mut self.timers[timer];
        entry.due = due;
        if due < entry.bound {
            entry.bound = due;
            self.replay(timer);
        }
    }

    /// Updates the winners on the path from a timer's leaf to the root.
    fn replay(&mut self, timer: usize) {
        let mut node = (self.leaves + timer) / 2;
        while node >= 1 {
            let (left, right) = (self.winner[2 * node], self.winner[2 * node + 1]);
            let right_wins = self.timers[right as usize].bound < self.timers[left as usize].bound;
            self.winner[node] = if right_wins { right } else { left };
            node /= 2;
        }
        self.bound = self.timers[self.winner[1] as usize].bound;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::draw;

    #[test]
    fn agrees_with_a_scan() {
        for timers in [1usize, 2, 3, 7, 40] {
            let mut schedule = Schedule::new(timers);
            let mut plain = vec![Instant::FAR_FUTURE; timers];
            for i in 0..500 {
                let which = draw(1, 0, i) as usize % timers;
                let due = Instant::from_nanos(draw(1, 1, i) % 16);
                schedule.set(which, due);
                plain[which] = due;
                let (index, earliest) = plain.iter().enumerate().min_by_key(|&(i, due)| (*due, i)).unwrap();
                assert!(schedule.bound() <= *earliest);
                // The test skips most calls of `settle`, so that timers are also postponed and advanced while
                // their bounds are out of date.
                if draw(1, 2, i).is_multiple_of(3) {
                    let settled = std::iter::repeat_with(|| schedule.settle()).flatten().next().unwrap();
                    assert_eq!((settled, schedule.bound()), (index, *earliest));
                }
            }
        }
    }
}
