//! Sockets of this host, sampled again and again.
//!
//! ```text
//!   every second      a dump of all that are wanted ──► who is there, who moves
//!   in between        those that move: one by one while they are few, by a dump when they are many
//! ```
//!
//! A socket at rest tells nothing new ten times a second: it is looked at once, and as soon as something waits or moves it is
//! looked at each time. That keeps a thousand open connections cheap, of which a few transfer.

use std::collections::BTreeMap;

use fullpipe_units::{Bytes, Duration, Instant};

use crate::clock::Clock;
use crate::error::Error;
use crate::namespace::Namespace;
use crate::sock_diag::{Families, Id, Seen, SockDiag, Which, inodes_of};

/// How often everybody is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// A request for one socket costs some of a dump's sockets: above so many of them a dump is cheaper.
const FEW: usize = 128;

/// A watch over some of this host's sockets.
pub struct Watch {
    diag: SockDiag,
    which: Which,
    process: Option<u32>,
    clock: Clock,
    looked: Option<Instant>,
    /// Whether the sockets are in another network namespace than the caller.
    elsewhere: bool,
    /// What each had moved when everybody was last looked at.
    known: BTreeMap<u64, Moved>,
    busy: Vec<Id>,
    /// What there was when everybody was last looked at.
    families: Families,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Moved {
    acked: Bytes,
    received: Bytes,
    queued: Bytes,
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
            known: BTreeMap::new(),
            busy: Vec::new(),
            families: Families::default(),
        })
    }

    /// Whether the sockets are in another network namespace than the caller, whose settings are then not theirs.
    pub const fn elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Its clock, which begins with it.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sockets as they are now, put into `seen`: all, or those that move.
    ///
    /// # Errors
    /// When the process has ended, or the kernel does not answer.
    pub fn round(&mut self, seen: &mut Vec<Seen>) -> Result<Round, Error> {
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
            self.families = Families::of(seen);
        } else if self.busy.len() > FEW {
            self.diag.dump_of(&self.which, self.families, seen)?;
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
    /// next look.
    fn remember(&mut self, seen: &[Seen]) {
        let before = std::mem::take(&mut self.known);
        self.busy.clear();
        for socket in seen {
            let now =
                Moved { acked: socket.acked, received: socket.receiver.received, queued: socket.queued };
            if !now.queued.is_zero() || before.get(&socket.id.cookie).is_none_or(|before| *before != now) {
                self.busy.push(socket.id);
            }
            self.known.insert(socket.id.cookie, now);
        }
    }
}
