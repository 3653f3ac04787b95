//! Waiting for file descriptors, for a time, and for the word to stop.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fullpipe_units::Instant;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::clock::Clock;
use crate::error::{Doing, Error};

/// Events that are taken at once.
const AT_ONCE: usize = 64;

/// What a socket is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Nothing,
    /// Data, or the peer's end.
    Data,
    /// Room in the send buffer.
    Room,
    DataAndRoom,
}

/// An epoll instance; each descriptor is known by a number.
pub(crate) struct Poll {
    fd: OwnedFd,
    events: Vec<Event>,
}

impl Poll {
    pub(crate) fn new() -> Result<Self, Error> {
        let fd = epoll::create(CreateFlags::CLOEXEC).doing("make an epoll")?;
        Ok(Self { fd, events: Vec::with_capacity(AT_ONCE) })
    }

    /// Wakes while `fd` can be read.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, number: u64) -> Result<(), Error> {
        self.add(fd, number, EventFlags::IN)
    }

    /// Wakes while `fd` can be written.
    pub(crate) fn watch_writes(&self, fd: BorrowedFd<'_>, number: u64) -> Result<(), Error> {
        self.add(fd, number, EventFlags::OUT)
    }

    /// Wakes from now on for something else than before.
    pub(crate) fn watch_instead(
        &self,
        fd: BorrowedFd<'_>,
        number: u64,
        awaited: Awaited,
    ) -> Result<(), Error> {
        let events = match awaited {
            Awaited::Nothing => EventFlags::empty(),
            Awaited::Data => EventFlags::IN,
            Awaited::Room => EventFlags::OUT,
            Awaited::DataAndRoom => EventFlags::IN | EventFlags::OUT,
        };
        epoll::modify(&self.fd, fd, EventData::new_u64(number), events).doing("watch a file descriptor")
    }

    pub(crate) fn forget(&self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        epoll::delete(&self.fd, fd).doing("forget a file descriptor")
    }

    fn add(&self, fd: BorrowedFd<'_>, number: u64, events: EventFlags) -> Result<(), Error> {
        epoll::add(&self.fd, fd, EventData::new_u64(number), events).doing("watch a file descriptor")
    }

    /// Sleeps until something happens; leaves the numbers of what did in `happened`, none after a signal.
    pub(crate) fn wait(&mut self, happened: &mut Vec<u64>) -> Result<(), Error> {
        self.events.clear();
        match epoll::wait(&self.fd, spare_capacity(&mut self.events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::system("wait for events", error)),
        }
        // The fields of an event are packed: copied before they are looked at.
        happened.clear();
        happened.extend(self.events.iter().map(|event| { event.data }.u64()));
        Ok(())
    }
}

/// A timer at an absolute time.
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    pub(crate) fn new() -> Result<Self, Error> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        timerfd_create(TimerfdClockId::Monotonic, flags).doing("make a timer").map(Self)
    }

    /// Sets it, for never with [`Instant::FAR_FUTURE`]; also takes back that it went off.
    pub(crate) fn set(&self, clock: &Clock, at: Instant) -> Result<(), Error> {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = if at.is_never() { never } else { clock.absolute(at) };
        let setting = Itimerspec { it_interval: never, it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &setting).doing("set a timer")?;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Wakes a loop that watches it, as often as it is rung.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> Result<Self, Error> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).doing("make an eventfd")?;
        Ok(Self(fd))
    }

    pub(crate) fn ring(&self) {
        // Cannot fail: the counter is far from full.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes back all rings so far.
    pub(crate) fn quiet(&self) {
        // Nothing to read means that it was quiet.
        let _ = read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Ends every loop that watches it.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// Nobody has said it yet.
    ///
    /// # Errors
    /// When the process may open no more files.
    pub fn new() -> Result<Self, Error> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).doing("make an eventfd")?;
        Ok(Self(Arc::new(fd)))
    }

    /// Says it.
    pub fn stop(&self) {
        // Cannot fail: the counter is far from full.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
