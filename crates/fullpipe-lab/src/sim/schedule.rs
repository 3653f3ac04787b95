//! The earliest of many timers.
//!
//! A tournament: each inner node names the earlier of its two children, the root names the winner.
//! Setting a timer replays one path to the root; asking is free. Ties go to the lower number, so the
//! order of events never depends on how the tree was filled.

use fullpipe_units::Instant;

#[derive(Debug)]
pub(crate) struct Schedule {
    due: Vec<Instant>,
    /// `winner[1]` is the root; leaf `i` is node `leaves + i`.
    winner: Vec<u32>,
    leaves: usize,
}

impl Schedule {
    pub(crate) fn new(timers: usize) -> Self {
        let leaves = timers.max(2).next_power_of_two();
        let mut schedule =
            Self { due: vec![Instant::FAR_FUTURE; leaves], winner: vec![0; 2 * leaves], leaves };
        for i in 0..leaves {
            schedule.winner[leaves + i] = i as u32;
        }
        for node in (1..leaves).rev() {
            schedule.winner[node] = schedule.winner[2 * node];
        }
        schedule
    }

    pub(crate) fn earliest(&self) -> Instant {
        self.due[self.winner[1] as usize]
    }

    pub(crate) fn earliest_index(&self) -> usize {
        self.winner[1] as usize
    }

    pub(crate) fn set(&mut self, timer: usize, due: Instant) {
        if self.due[timer] == due {
            return;
        }
        self.due[timer] = due;
        let mut node = (self.leaves + timer) / 2;
        while node >= 1 {
            let (left, right) = (self.winner[2 * node], self.winner[2 * node + 1]);
            let right_wins = self.due[right as usize] < self.due[left as usize];
            self.winner[node] = if right_wins { right } else { left };
            node /= 2;
        }
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
                assert_eq!((schedule.earliest_index(), schedule.earliest()), (index, *earliest));
            }
        }
    }
}
