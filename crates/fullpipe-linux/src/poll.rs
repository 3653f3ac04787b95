//! Waits for file descriptors, timers and a stop signal, with epoll.

use std::cell::Cell;
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

/// Maximum number of epoll events per wait.
const AT_ONCE: usize = 64;

/// Condition for which a socket is being watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitCondition {
    /// The socket is not watched.
    #[default]
    Nothing,
    /// The socket has data or end-of-file to read.
    Data,
    /// The send buffer of the socket has room.
    Room,
    /// The socket has data to read, or its send buffer has room.
    DataAndRoom,
}

impl WaitCondition {
    fn events(self) -> EventFlags {
        match self {
            Self::Nothing => EventFlags::empty(),
            Self::Data => EventFlags::IN,
            Self::Room => EventFlags::OUT,
            Self::DataAndRoom => EventFlags::IN | EventFlags::OUT,
        }
    }
}

/// Change of a socket that is watched for changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Whether a read returns something: bytes, the end of the stream, or an error.
    pub readable: bool,
    /// Whether the socket must be read until nothing is left, because the end of the stream, an error or
    /// urgent data has arrived. Otherwise, a read that returns fewer bytes than requested has emptied the
    /// socket.
    pub ends: bool,
    /// Whether the connection has failed. Bytes that arrived before can still be read.
    pub failed: bool,
}

impl Readiness {
    fn of(events: EventFlags) -> Self {
        let ends = events.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR | EventFlags::PRI);
        let failed = events.contains(EventFlags::ERR);
        Self { readable: ends || events.contains(EventFlags::IN), ends, failed }
    }
}

/// An epoll instance in which each watched descriptor has a number.
pub(crate) struct Poll {
    fd: OwnedFd,
    events: Vec<Event>,
}

impl Poll {
    pub(crate) fn new() -> Result<Self, Error> {
        let fd = epoll::create(CreateFlags::CLOEXEC).doing("create an epoll")?;
        Ok(Self { fd, events: Vec::with_capacity(AT_ONCE) })
    }

    /// Starts to watch `fd` for readability, under the given number.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>, number: u64) -> Result<(), Error> {
        self.add(fd, number, EventFlags::IN)
    }

    /// Starts to watch `fd` for writability, under the given number.
    pub(crate) fn watch_writes(&self, fd: BorrowedFd<'_>, number: u64) -> Result<(), Error> {
        self.add(fd, number, EventFlags::OUT)
    }

    /// Replaces the condition for which `fd` is being watched.
    pub(crate) fn watch_instead(
        &self,
        fd: BorrowedFd<'_>,
        number: u64,
        awaited: WaitCondition,
    ) -> Result<(), Error> {
        epoll::modify(&self.fd, fd, EventData::new_u64(number), awaited.events())
            .doing("watch a file descriptor")
    }

    /// Changes the condition for which `fd` is being watched from `before` to `after`. A descriptor without a
    /// condition is removed from epoll, which would otherwise report its hang-up in every call.
    pub(crate) fn change(
        &self,
        fd: BorrowedFd<'_>,
        number: u64,
        before: WaitCondition,
        after: WaitCondition,
    ) -> Result<(), Error> {
        match (before, after) {
            _ if before == after => Ok(()),
            (WaitCondition::Nothing, _) => self.add(fd, number, after.events()),
            (_, WaitCondition::Nothing) => self.forget(fd),
            _ => self.watch_instead(fd, number, after),
        }
    }

    /// Watches a socket for changes instead of states (`EPOLLET`): arriving data, the end of the stream, and
    /// errors; with `room`, also room in a send buffer that was full. The current state is reported as the
    /// first change. `again` is true if the socket is already being watched.
    pub(crate) fn watch_changes(
        &self,
        fd: BorrowedFd<'_>,
        number: u64,
        room: bool,
        again: bool,
    ) -> Result<(), Error> {
        let room = if room { EventFlags::OUT } else { EventFlags::empty() };
        let events = EventFlags::IN | EventFlags::RDHUP | EventFlags::PRI | EventFlags::ET | room;
        let data = EventData::new_u64(number);
        let watched = if again {
            epoll::modify(&self.fd, fd, data, events)
        } else {
            epoll::add(&self.fd, fd, data, events)
        };
        watched.doing("watch a socket")
    }

    /// Returns the numbers and the changes of the descriptors that the last call of `wait` or `look`
    /// reported.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (u64, Readiness)> + '_ {
        // The fields of an epoll event are unaligned (packed), so they are copied before use.
        self.events.iter().map(|event| ({ event.data }.u64(), Readiness::of(event.flags)))
    }

    pub(crate) fn forget(&self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        epoll::delete(&self.fd, fd).doing("stop watching a file descriptor")
    }

    fn add(&self, fd: BorrowedFd<'_>, number: u64, events: EventFlags) -> Result<(), Error> {
        epoll::add(&self.fd, fd, EventData::new_u64(number), events).doing("watch a file descriptor")
    }

    /// Sleeps until an event occurs, and stores the numbers of the ready descriptors in `happened`. If a
    /// signal ends the sleep, `happened` is empty.
    pub(crate) fn wait(&mut self, happened: &mut Vec<u64>) -> Result<(), Error> {
        self.wait_at_most(None, happened)
    }

    /// Stores in `happened` the numbers of the descriptors that are ready now, without waiting.
    pub(crate) fn look(&mut self, happened: &mut Vec<u64>) -> Result<(), Error> {
        self.wait_at_most(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }), happened)
    }

    fn wait_at_most(&mut self, most: Option<&Timespec>, happened: &mut Vec<u64>) -> Result<(), Error> {
        self.events.clear();
        match epoll::wait(&self.fd, spare_capacity(&mut self.events), most) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::system("wait for events", error)),
        }
        // The fields of an epoll event are unaligned (packed), so they are copied before use.
        happened.clear();
        happened.extend(self.events.iter().map(|event| { event.data }.u64()));
        Ok(())
    }
}

/// A timer with an absolute expiry time.
pub(crate) struct Alarm {
    fd: OwnedFd,
    /// Time for which the timer was last armed.
    at: Cell<Instant>,
    /// Whether the timer has expired since it was armed for this deadline.
    has_expired: Cell<bool>,
}

impl Alarm {
    pub(crate) fn new() -> Result<Self, Error> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags).doing("create a timer")?;
        Ok(Self { fd, at: Cell::new(Instant::FAR_FUTURE), has_expired: Cell::new(false) })
    }

    /// Arms the timer so that it expires at `at` or earlier. If the timer is armed for an earlier time, it is
    /// left unchanged. This saves a system call per round in a loop whose next deadline moves later with each
    /// packet.
    pub(crate) fn set_at_latest(&self, clock: &Clock, at: Instant) -> Result<(), Error> {
        if !self.has_expired.get() && self.at.get() <= at {
            return Ok(());
        }
        self.arm(clock, at)
    }

    /// Records that epoll has reported the timer. [`Self::set_at_latest`] then arms it again.
    pub(crate) fn expired(&self) {
        self.has_expired.set(true);
    }

    /// Arms the timer for `at`, or disarms it if `at` is [`Instant::FAR_FUTURE`]. If the time differs from
    /// the previous one, also clears an earlier expiry.
    pub(crate) fn set(&self, clock: &Clock, at: Instant) -> Result<(), Error> {
        // Loops arm the timer in each iteration. A timer that has already expired for `at` would expire again
        // immediately.
        if self.at.get() == at {
            return Ok(());
        }
        self.arm(clock, at)
    }

    fn arm(&self, clock: &Clock, at: Instant) -> Result<(), Error> {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = if at.is_never() { never } else { clock.absolute(at) };
        let setting = Itimerspec { it_interval: never, it_value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &setting).doing("set a timer")?;
        self.at.set(at);
        self.has_expired.set(false);
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An event that wakes the loop that watches it; it can be triggered repeatedly.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> Result<Self, Error> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).doing("create an eventfd")?;
        Ok(Self(fd))
    }

    pub(crate) fn ring(&self) {
        // The write cannot fail, because the event counter is far below its maximum.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }

    /// Resets the bell, so that earlier rings no longer wake the loop.
    pub(crate) fn quiet(&self) {
        // EAGAIN means that nothing has rung the bell since the last reset.
        let _ = read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A stop signal, which ends every loop that watches it.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// Creates a stop signal that is not set yet.
    ///
    /// # Errors
    /// Returns an error if the process cannot open any more files.
    pub fn new() -> Result<Self, Error> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).doing("create an eventfd")?;
        Ok(Self(Arc::new(fd)))
    }

    /// Sets the stop signal, which ends every loop that watches it.
    pub fn stop(&self) {
        // The write cannot fail, because the event counter is far below its maximum.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
