//! Initial sequence numbers (RFC 6528): a clock plus a secret offset per pair of sockets.
//!
//! ```text
//!   ISN = M(now) + F(local, remote, key)        F: SipHash-2-4
//! ```
//!
//! The clock keeps old duplicates out of the next connection between two sockets. The hash prevents off-path
//! attackers from guessing the sequence numbers.

use std::net::SocketAddr;

use fullpipe_units::Instant;

use super::FourTuple;
use super::siphash::Key;
use crate::wire::SeqNum;

/// Purpose for which a hash is computed. The purpose is an input to the hash, so that hashes for different
/// purposes are unrelated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Isn = 0,
    Cookie = 1,
    CookieCount = 2,
    /// Random numbers of the congestion controller.
    Chance = 3,
}

/// Clock for initial sequence numbers (ISNs), named after the source of its tick length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsnClock {
    /// One tick per 4 us (RFC 9293 section 3.4.1). The numbers wrap around every 4.77 hours.
    Rfc,
    /// One tick per 64 ns, as in Linux. The numbers wrap around every 275 seconds, and a peer keeps the state
    /// of the last connection for a much shorter time.
    #[default]
    Linux,
}

impl IsnClock {
    fn ticks(self, now: Instant) -> u32 {
        let tick = match self {
            Self::Rfc => 4_000,
            Self::Linux => 64,
        };
        // The truncation to 32 bits reduces the number modulo 2^32.
        (now.as_nanos() / tick) as u32
    }

    /// Returns the initial sequence number of a connection opened at `now`.
    pub fn isn(self, now: Instant, tuple: &FourTuple, key: Key) -> SeqNum {
        SeqNum(self.ticks(now).wrapping_add(hash(key, tuple, Purpose::Isn, 0)))
    }
}

/// Returns the lower 32 bits of the keyed hash over both sockets, `purpose` and `number`.
pub(super) fn hash(key: Key, tuple: &FourTuple, purpose: Purpose, number: u32) -> u32 {
    let mut message = [0; 2 * 18 + 5];
    let (sockets, rest) = message.split_at_mut(36);
    let (local, remote) = sockets.split_at_mut(18);
    put(tuple.local, local);
    put(tuple.remote, remote);
    rest[0] = purpose as u8;
    rest[1..].copy_from_slice(&number.to_le_bytes());
    // The truncation keeps the lower 32 bits.
    key.hash(&message) as u32
}

fn put(socket: SocketAddr, to: &mut [u8]) {
    let address = match socket {
        SocketAddr::V4(v4) => v4.ip().to_ipv6_mapped(),
        SocketAddr::V6(v6) => *v6.ip(),
    };
    to[..16].copy_from_slice(&address.octets());
    to[16..].copy_from_slice(&socket.port().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fullpipe_units::Duration;

    use super::*;

    const KEY: Key = Key::new([7; 16]);

    fn tuple(port: u16) -> FourTuple {
        FourTuple {
            local: SocketAddr::from(([198, 18, 0, 1], port)),
            remote: SocketAddr::from(([198, 18, 0, 2], 443)),
        }
    }

    /// The ISN of a pair of sockets advances with the clock, here by one second (RFC 6528; ISN-1).
    #[test]
    fn isn_1_the_clock_goes_on() {
        let now = Instant::ZERO + Duration::from_millis(123_456);
        for (clock, ticks) in [(IsnClock::Rfc, 250_000), (IsnClock::Linux, 15_625_000)] {
            for port in 40_000..40_100 {
                let first = clock.isn(now, &tuple(port), KEY);
                let second = clock.isn(now + Duration::from_secs(1), &tuple(port), KEY);
                assert_eq!(second.distance_from(first), ticks, "{clock:?}");
            }
        }
    }

    /// ISNs are unrelated even if the ports differ in only one bit (RFC 6528; ISN-2).
    #[test]
    fn isn_2_neighbours_are_unrelated() {
        let isn = |port| IsnClock::Rfc.isn(Instant::ZERO, &tuple(port), KEY);
        let deltas: BTreeSet<i32> =
            (0..1_000).map(|pair| isn(10_000 + 2 * pair + 1).distance_from(isn(10_000 + 2 * pair))).collect();
        assert_eq!(deltas.len(), 1_000, "a difference came twice");
        // ISNs are uniformly distributed over the whole range: each eighth of the range contains 125 ISNs, to
        // within five standard deviations.
        let mut eighths = [0; 8];
        for delta in &deltas {
            eighths[(delta.wrapping_sub(i32::MIN) as u32 >> 29) as usize] += 1;
        }
        assert!(eighths.iter().all(|count| (70..=180).contains(count)), "{eighths:?}");
    }

    /// The same key gives the same ISNs, and different keys give different ISNs (RFC 6528; ISN-3).
    #[test]
    fn isn_3_the_key_fixes_them() {
        let isn = |key| IsnClock::Linux.isn(Instant::ZERO, &tuple(40_000), Key::new(key));
        assert_eq!(isn([1; 16]), isn([1; 16]));
        assert_ne!(isn([1; 16]), isn([2; 16]));
    }
}
