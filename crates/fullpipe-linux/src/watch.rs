//! Sockets of this host, sampled again and again.
//!
//! ```text
//!   every second      a dump of all that are wanted ──► who is there, who moves how much
//!   in between        those that move, one by one; of many those that move most
//! ```
//!
//! A socket at rest tells nothing new ten times a second: it is looked at once, and as soon as something waits or moves it is
//! looked at each time. That keeps a thousand open connections cheap, of which a few transfer. A thousand that all move are more than
//! may be looked at: the kernel takes about two microseconds for each, ten times a second two percent of a core. Those that
//! move most are then looked at each time and all once a second, and [`Watch::rarely`] says of how many that is true. Up to 128
//! that move are always looked at each time; of more, as many as the looks of a second are enough for.

use std::cmp::Reverse;

use fullpipe_units::{Bytes, Duration, Instant};

use crate::clock::Clock;
use crate::error::Error;
use crate::namespace::Namespace;
use crate::sock_diag::{Id, SockDiag, SocketState, Which, inodes_of};

/// How often everybody is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Those that move are all looked at each time if they are no more than these.
const OFTEN: usize = 128;
/// Sockets that are looked at in a second where more move, each counted as often as it is looked at: what is not gone through once for
/// all of them is left for those that move most.
const BUDGET: usize = 1_600;
/// Those that move most are looked at each time however many there are.
const FEWEST: usize = 32;
/// Rounds in a second that do not look at everybody, at ten in all.
const BETWEEN: usize = 9;

/// A watch over some of this host's sockets.
pub struct Watch {
    diag: SockDiag,
    which: Which,
    process: Option<u32>,
    clock: Clock,
    looked: Option<Instant>,
    /// Whether the sockets are in another network namespace than the caller.
    elsewhere: bool,
    /// What each had moved when everybody was last looked at, by its cookie and in their order.
    known: Vec<(u64, ByteCounts)>,
    /// The room of the look before.
    spare: Vec<(u64, ByteCounts)>,
    busy: Vec<Id>,
    /// Those that move and are not among them.
    rarely: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct ByteCounts {
    acked: Bytes,
    received: Bytes,
    queued: Bytes,
}

impl ByteCounts {
    /// Octets of either direction since then, and those that wait.
    fn since(self, before: Self) -> u64 {
        let moved = self.acked.saturating_sub(before.acked) + self.received.saturating_sub(before.received);
        (moved + self.queued).get()
    }
}

/// One round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// When it was.
    pub at: Instant,
    /// Whether everybody was looked at: who is not among those seen is gone.
    pub all: bool,
}

impl Watch {
    /// Begins one, over the sockets of a process if there is one, in its network namespace.
    ///
    /// # Errors
    /// No such process, no right to look at it, or a kernel that does not answer.
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

    /// Whether the sockets are in another network namespace than the caller, whose settings are then not theirs.
    pub const fn elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Sockets that move and yet are looked at once a second only, for many others move more.
    pub const fn rarely(&self) -> usize {
        self.rarely
    }

    /// Its clock, which begins with it.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sockets as they are now, put into `seen`: all, or those that move.
    ///
    /// # Errors
    /// When the process has ended, or the kernel does not answer.
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
        // The middle of the asking is nearer to most answers than its begin.
        let at = at + self.clock.now().saturating_since(at) / 2;
        if all {
            self.remember(seen);
        }
        Ok(Round { at, all })
    }

    /// Who is new, moved since everybody was last looked at or has something waiting, will be looked at each time until the
    /// next look, or the most of them.
    fn remember(&mut self, seen: &[SocketState]) {
        std::mem::swap(&mut self.known, &mut self.spare);
        self.known.clear();
        let mut busy: Vec<(u64, Id)> = Vec::new();
        for socket in seen {
            let now =
                ByteCounts { acked: socket.acked, received: socket.receiver.received, queued: socket.queued };
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

/// How many of those that move are looked at each time, of so many sockets in all.
fn often(busy: usize, all: usize) -> usize {
    if busy <= OFTEN { busy } else { (BUDGET.saturating_sub(all) / BETWEEN).clamp(FEWEST, OFTEN) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sock_diag::Peer;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Up to 128 are looked at each time whoever rests beside them; of more, fewer the more there are.
    #[test]
    fn the_more_move_the_fewer_are_looked_at_often() {
        assert_eq!([0, 1, OFTEN].map(|busy| often(busy, 100_000)), [0, 1, OFTEN]);
        assert_eq!([129, 448, 1_000, 100_000].map(|busy| often(busy, busy)), [128, 128, 66, 32]);
        assert_eq!(often(200, 1_000), 66, "those that rest are gone through as well");
    }

    /// Of more connections that move than are looked at each time, those that move most are; all are once a second, and how
    /// many that leaves out is said.
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
            // The last ones move most.
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
            // Everybody again, which is right only on a machine that has held this up for so long.
            assert!(watch.looked.expect("a look").saturating_since(looked) >= LOOK);
        }
        let mut looked_at: Vec<_> = seen.iter().map(|socket| socket.id.local).collect();
        let mut most: Vec<_> = ends[40..].iter().map(|(near, _)| near.local_addr().expect("one")).collect();
        looked_at.sort_unstable();
        most.sort_unstable();
        assert_eq!(looked_at, most);
    }
}
