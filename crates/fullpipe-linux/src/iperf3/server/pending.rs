//! Connections that have not sent the cookie of their test yet.
//!
//! Any host can open thousands of connections without sending a cookie. The number of these pending
//! connections is therefore limited, and each of them has a timeout. If the limit is exceeded, the address
//! with the most pending connections loses its oldest one. A client that sends its cookie at once is thus
//! served, however many connections stay silent.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fullpipe_iperf3::cookie::LENGTH;
use fullpipe_units::{Duration, Instant};

/// Maximum number of connections that have not sent their cookie yet.
pub(super) const MOST: usize = 256;
/// Timeout for receiving the cookie of a connection, as in iperf3.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pending connections by number. `C` is the type of a connection.
#[derive(Debug)]
pub(super) struct Pending<C> {
    /// Pending connections in the order of their arrival.
    of: BTreeMap<u64, PendingClient<C>>,
}

/// A connection whose cookie has not been received completely.
#[derive(Debug)]
pub(super) struct PendingClient<C> {
    pub(super) connection: C,
    pub(super) peer: IpAddr,
    until: Instant,
    said: [u8; LENGTH],
    len: usize,
}

impl<C> PendingClient<C> {
    /// Returns the connection, and the part of the cookie buffer that is still empty.
    pub(super) fn unsaid(&mut self) -> (&C, &mut [u8]) {
        (&self.connection, &mut self.said[self.len..])
    }

    /// Records that `len` more bytes of the cookie were received, and returns the cookie once it is complete.
    pub(super) fn said(&mut self, len: usize) -> Option<&[u8; LENGTH]> {
        self.len += len;
        (self.len == LENGTH).then_some(&self.said)
    }
}

impl<C> Pending<C> {
    pub(super) fn new() -> Self {
        Self { of: BTreeMap::new() }
    }

    /// Adds a pending connection. If another connection was evicted to make room, returns the evicted one.
    pub(super) fn came(
        &mut self,
        number: u64,
        connection: C,
        peer: IpAddr,
        now: Instant,
    ) -> Option<PendingClient<C>> {
        let stranger = PendingClient { connection, peer, until: now + PATIENCE, said: [0; LENGTH], len: 0 };
        self.of.insert(number, stranger);
        if self.of.len() <= MOST {
            return None;
        }
        let mut of_address: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for stranger in self.of.values() {
            *of_address.entry(stranger.peer).or_default() += 1;
        }
        let (&most, _) = of_address.iter().max_by_key(|&(_, count)| count)?;
        let oldest = self.of.iter().find(|(_, stranger)| stranger.peer == most).map(|(&number, _)| number)?;
        self.of.remove(&oldest)
    }

    pub(super) fn get(&mut self, number: u64) -> Option<&mut PendingClient<C>> {
        self.of.get_mut(&number)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<PendingClient<C>> {
        self.of.remove(&number)
    }

    /// Removes a pending connection that has timed out, and returns it.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<PendingClient<C>> {
        // All connections have the same timeout, so the one that arrived first expires first.
        let entry = self.of.first_entry().filter(|entry| entry.get().until <= now)?;
        Some(entry.remove())
    }

    /// Returns the time at which the next pending connection times out.
    pub(super) fn next_due(&self) -> Instant {
        self.of.first_key_value().map_or(Instant::FAR_FUTURE, |(_, stranger)| stranger.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(of: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, of])
    }

    #[test]
    fn the_address_that_holds_the_most_makes_room() {
        let mut pending = Pending::new();
        assert!(pending.came(0, 'a', address(1), Instant::ZERO).is_none());
        for number in 1..MOST as u64 {
            assert!(pending.came(number, 'b', address(2), Instant::ZERO).is_none());
        }
        for number in 0..10_000 {
            let gone = pending.came(MOST as u64 + number, 'b', address(2), Instant::ZERO).expect("no room");
            assert_eq!((gone.connection, pending.of.len()), ('b', MOST));
        }
        assert!(pending.get(0).is_some(), "the first, of another address, is still there");
        let last = MOST as u64 + 9_999;
        let kept = MOST as u64 - 1;
        assert!(pending.get(last).is_some() && pending.get(last + 1 - kept).is_some());
        assert!(pending.get(last - kept).is_none(), "of the others the oldest went");
    }

    #[test]
    fn a_cookie_may_come_in_pieces_and_has_its_time() {
        let mut pending = Pending::new();
        pending.came(1, (), address(1), Instant::ZERO);
        pending.came(2, (), address(1), Instant::ZERO + Duration::from_secs(1));
        let stranger = pending.get(1).expect("there");
        stranger.unsaid().1[..3].copy_from_slice(b"abc");
        assert!(stranger.said(3).is_none());
        assert_eq!(stranger.unsaid().1.len(), LENGTH - 3);
        assert!(stranger.said(LENGTH - 3).is_some_and(|cookie| cookie.starts_with(b"abc")));
        let due = Instant::ZERO + PATIENCE;
        assert_eq!(pending.next_due(), due);
        assert!(pending.overdue(due.saturating_sub(Duration::from_nanos(1))).is_none());
        assert!(pending.overdue(due).is_some() && pending.overdue(due).is_none());
        assert!(pending.remove(2).is_some());
        assert!(pending.next_due().is_never());
    }
}
