//! Periodic samples of the TCP sockets of this host.
//!
//! ```text
//!   every second      dump of all selected sockets ──► which exist, and how many bytes each moves
//!   in between        active sockets one by one; if there are many, only the busiest
//! ```
//!
//! An idle socket is sampled once per second, because more frequent samples would show nothing new. A socket
//! that has queued data or transfers data is sampled in each round. Sampling a thousand open connections is
//! therefore cheap if only a few of them transfer data. A thousand active connections are expensive: the
//! kernel takes about two microseconds per sample, so ten samples per second take two percent of a core. Up
//! to 128 active sockets are all sampled in each round. If there are more, the busiest sockets are sampled in
//! each round, as many as the budget of samples per second allows. The other sockets are sampled once per
//! second; [`Watch::rarely`] returns their number.

use std::cmp::Reverse;

use fullpipe_units::{Bytes, Duration, Instant};

use crate::clock::Clock;
use crate::error::Error;
use crate::namespace::Namespace;
use crate::sock_diag::{Id, SockDiag, SocketState, Which, inodes_of};

/// Interval between two dumps of all selected sockets.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum number of active sockets that are all sampled in each round.
const OFTEN: usize = 128;
/// Budget of socket samples per second, which applies if more than `OFTEN` sockets are active. The dump of
/// all sockets uses part of the budget; the rest goes to the busiest sockets.
const BUDGET: usize = 1_600;
/// Minimum number of busiest sockets that are sampled in each round, however many sockets there are.
const FEWEST: usize = 32;
/// Number of sampling rounds per second without a dump; a tenth round in each second is a dump.
const BETWEEN: usize = 9;

/// A sampler that periodically samples selected sockets of this host.
pub struct Watch {
    diag: SockDiag,
    which: Which,
    process: Option<u32>,
    clock: Clock,
    looked: Option<Instant>,
    /// Whether the sockets are in a network namespace other than the caller's.
    elsewhere: bool,
    /// Byte counters of all sockets at the last dump, sorted by socket cookie.
    known: Vec<(u64, ByteCounts)>,
    /// Byte counters of the dump before the last one; only the allocation is reused.
    spare: Vec<(u64, ByteCounts)>,
    busy: Vec<Id>,
    /// Number of active sockets that are sampled only once per second because they are not in `busy`.
    rarely: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct ByteCounts {
    acked: Bytes,
    received: Bytes,
    queued: Bytes,
}

impl ByteCounts {
    /// Returns the number of bytes that the socket has sent and received since `before`, plus the number of
    /// bytes queued.
    fn since(self, before: Self) -> u64 {
        let moved = self.acked.saturating_sub(before.acked) + self.received.saturating_sub(before.received);
        (moved + self.queued).get()
    }
}

/// Time and extent of a sampling round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Time at which the sockets were sampled.
    pub at: Instant,
    /// Whether all selected sockets were sampled; if so, a socket that is missing no longer exists.
    pub all: bool,
}

impl Watch {
    /// Starts to watch sockets. If `process` is given, the sockets of that process are watched, in its
    /// network namespace.
    ///
    /// # Errors
    /// Returns an error if the process does not exist, if the caller is not permitted to inspect it, or if
    /// the kernel does not answer.
    pub fn begin(which: Which, process: Option<u32>) -> Result<Self, Error> {
        if let Some(process) = process {
            inodes_of(process)?;
        }
        let namespace = process.map(Namespace::of_process).transpose()?.flatten();
        let elsewhere = namespace.is_some();
        let diag = match namespace {
            Some(namespace) => namespace.run(SockDiag::open)?,
            None => SockDiag::open()?,
        };
        let clock = Clock::starting_in(Duration::ZERO);
        Ok(Self {
            diag,
            which,
            process,
            clock,
            looked: None,
            elsewhere,
            known: Vec::new(),
            spare: Vec::new(),
            busy: Vec::new(),
            rarely: 0,
        })
    }

    /// Returns whether the sockets are in a different network namespace, to which the sysctls of this host do
    /// not apply.
    pub const fn elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Returns the number of active sockets that are sampled only once per second because others
    /// are busier.
    pub const fn rarely(&self) -> usize {
        self.rarely
    }

    /// Returns the clock of the watch, which is zero at the start of the watch.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Samples sockets into `seen`: once per second all selected sockets, and otherwise only the busy ones.
    ///
    /// # Errors
    /// Returns an error if the process has ended, or if the kernel does not answer.
    pub fn round(&mut self, seen: &mut Vec<SocketState>) -> Result<Round, Error> {
        let at = self.clock.now();
        let all = self.looked.is_none_or(|looked| at.saturating_since(looked) >= LOOK);
        if all {
            if let Some(process) = self.process {
                self.which.inodes = Some(inodes_of(process)?);
            }
            self.looked = Some(at);
        }
        if all {
            self.diag.dump(&self.which, seen)?;
        } else {
            self.diag.ask(&self.busy, seen)?;
        }
        // Samples get the time of the middle of the round, which is closer to most of the kernel's replies
        // than the start of the round.
        let at = at + self.clock.now().saturating_since(at) / 2;
        if all {
            self.remember(seen);
        }
        Ok(Round { at, all })
    }

    /// Selects the sockets that are sampled in each round until the next dump: new sockets, sockets that have
    /// transferred data since the last dump, and sockets with queued data. If there are too many such
    /// sockets, the busiest ones are selected.
    fn remember(&mut self, seen: &[SocketState]) {
        std::mem::swap(&mut self.known, &mut self.spare);
        self.known.clear();
        let mut busy: Vec<(u64, Id)> = Vec::new();
        for socket in seen {
            let now = ByteCounts {
                acked: socket.acked,
                received: socket.receiver.receiver.received,
                queued: socket.queued,
            };
            let known = self.spare.binary_search_by_key(&socket.id.cookie, |(cookie, _)| *cookie);
            let known = known.ok().map(|at| self.spare[at].1);
            if !now.queued.is_zero() || known.is_none_or(|before| before != now) {
                busy.push((now.since(known.unwrap_or_default()), socket.id));
            }
            self.known.push((socket.id.cookie, now));
        }
        self.known.sort_unstable_by_key(|(cookie, _)| *cookie);
        let often = often(busy.len(), seen.len());
        self.rarely = busy.len() - often;
        if self.rarely > 0 {
            busy.select_nth_unstable_by_key(often, |(moved, id)| (Reverse(*moved), id.cookie));
            busy.truncate(often);
        }
        self.busy.clear();
        self.busy.extend(busy.into_iter().map(|(_, id)| id));
    }
}

/// Returns the number of sockets to sample in each round, if `busy` of `all` sockets are active.
fn often(busy: usize, all: usize) -> usize {
    if busy <= OFTEN { busy } else { (BUDGET.saturating_sub(all) / BETWEEN).clamp(FEWEST, OFTEN) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sock_diag::Peer;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Up to 128 active sockets are all sampled in each round, however many other sockets are idle. Above
    /// 128, the more sockets are active, the fewer of them are sampled in each round.
    #[test]
    fn the_more_move_the_fewer_are_looked_at_often() {
        assert_eq!([0, 1, OFTEN].map(|busy| often(busy, 100_000)), [0, 1, OFTEN]);
        assert_eq!([129, 448, 1_000, 100_000].map(|busy| often(busy, busy)), [128, 128, 66, 32]);
        assert_eq!(often(200, 1_000), 66, "those that rest are gone through as well");
    }

    /// If more connections are active than can be sampled in each round, the busiest are selected. The
    /// remaining connections are sampled once per second, and their number is reported.
    #[test]
    fn those_that_move_most_are_looked_at_often() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut ends: Vec<(TcpStream, TcpStream)> = (0..OFTEN + 40)
            .map(|_| (TcpStream::connect(address).expect("a connection"), listener.accept().expect("one").0))
            .collect();
        let peer = Peer { address: Some(address.ip()), port: Some(address.port()) };
        let mut watch = Watch::begin(Which { peers: vec![peer], inodes: None }, None).expect("sock_diag");
        let mut seen = Vec::new();
        assert!(watch.round(&mut seen).expect("an answer").all);
        assert_eq!((seen.len(), watch.rarely()), (OFTEN + 40, 40), "all are new");
        loop {
            // The connections with the highest numbers transfer the most data.
            for (number, (near, far)) in ends.iter_mut().enumerate() {
                let block = vec![7; 100 * (number + 1)];
                near.write_all(&block)
                    .and_then(|()| far.read_exact(&mut vec![0; block.len()]))
                    .expect("loopback carries");
            }
            let next = watch.looked.expect("a look") + LOOK;
            watch.clock.sleep_until(next);
            assert!(watch.round(&mut seen).expect("an answer").all);
            assert_eq!((seen.len(), watch.rarely()), (OFTEN + 40, 40));
            let looked = watch.looked.expect("a look");
            if !watch.round(&mut seen).expect("an answer").all {
                break;
            }
            // A second dump is correct only if a busy machine has delayed this test by a second.
            assert!(watch.looked.expect("a look").saturating_since(looked) >= LOOK);
        }
        let mut looked_at: Vec<_> = seen.iter().map(|socket| socket.id.local).collect();
        let mut most: Vec<_> = ends[40..].iter().map(|(near, _)| near.local_addr().expect("one")).collect();
        looked_at.sort_unstable();
        most.sort_unstable();
        assert_eq!(looked_at, most);
    }
}
