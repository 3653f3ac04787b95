//! The virtual machine's view of its host: a clock, one timer, randomness, and a path between two devices.
//!
//! ```text
//!   guest's kernel runs:    the clock stands still; frames enter the path; the timer is set
//!   guest's kernel sleeps:  the clock jumps to the timer or to the path's next event, whichever is earlier
//!   a frame arrives:        SIGIO ─► kernel asks which device is readable ─► kernel reads the frame
//!   the timer expires:      SIGALRM, once the kernel no longer blocks it
//! ```
//!
//! The preloaded library (`fullpipe-uml`) holds the only [`Machine`] of its process, and uses it to handle
//! the guest kernel's libc calls. Nothing here reads a clock or does I/O, so equal calls give equal results.

use fullpipe_units::{Draws, Instant};

use super::capture::CaptureWriter;
use super::control::Control;
use super::exchange::{self, Order, PATH_REPORT};
use super::launch::{FIRST_DEVICE, devices};
use super::link::{MOST_FRAME, VirtualLink};

/// Time of the machine's clock when its kernel starts, in nanoseconds: not zero, because a timer at time zero
/// is disarmed.
const BOOT: u64 = 1_000_000_000;
/// Calendar time of the machine's clock at zero, in nanoseconds since 1970: 1 January 2025. The value is
/// constant, because the guest's random numbers depend on the calendar time.
const EPOCH: u64 = 1_735_689_600 * 1_000_000_000;
/// Number of consecutive clock readings that take no time; each further reading takes `READ_COST`. Otherwise,
/// a kernel that reads the clock in a loop until time has passed would never continue.
const FREE_READS: u32 = 20_000;
/// Time that each further clock reading takes, in nanoseconds.
const READ_COST: u64 = 1_000;
/// Time that a disarmed timer reports, in nanoseconds. The kernel does not sleep if its timer reports zero,
/// although packets may be on the path.
const FAR: u64 = 1_000_000_000;
/// epoll event: a device is readable.
const EPOLLIN: u32 = libc::EPOLLIN as u32;
/// Random stream of the machine. Paths use the numbers from zero.
const RANDOM_STREAM: u64 = 0x756d_6c00_0000_0000;

/// The host that a guest's kernel sees.
pub struct Machine {
    now: u64,
    expiry: Option<u64>,
    interval: u64,
    reads: u32,
    random: Draws,
    drawn: u64,
    link: VirtualLink,
    /// Time of the machine's clock at the start of the run; `None` until the guest's init has announced it.
    zero: Option<u64>,
    /// Content of the arrived frame.
    frame: Box<[u8; MOST_FRAME]>,
    /// Frame that the kernel has not read yet.
    arrived: Option<Arrived>,
    /// For each device, the epoll events for which the kernel waits, and the data that the kernel attached to
    /// them; `None` if the kernel does not wait.
    watched: Vec<Option<(u32, u64)>>,
    /// Buffer for frames that the kernel sends in pieces.
    sent: Vec<u8>,
    alarm: Alarm,
    finished: bool,
}

/// A frame that has arrived at a device, and that the kernel has not read yet.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    device: usize,
    len: usize,
    /// Whether the kernel knows that the device is readable.
    reported: bool,
}

/// Whether the kernel blocks `SIGALRM`. Only the machine raises this signal, so blocking it needs no system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Alarm {
    #[default]
    Unblocked,
    Blocked,
    /// The signal is blocked, and is raised as soon as the kernel unblocks it.
    Pending,
}

/// An event that is due at the current time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// A frame arrives at a device; the kernel is notified with `SIGIO`.
    Frame,
    /// The timer expires; the kernel is notified with [`Machine::alarm`].
    Tick,
}

impl Machine {
    /// Creates the machine from the order in the current folder; returns `None` if there is no order.
    ///
    /// # Errors
    /// Returns an error if the order is not one of this build of fullpipe.
    pub fn from_order() -> Result<Option<Self>, &'static str> {
        if !std::path::Path::new(exchange::ORDER).exists() {
            return Ok(None);
        }
        let order: Option<Order> = exchange::read(std::path::Path::new("."), exchange::ORDER);
        let order = order.ok_or("the library and the program come from different builds")?;
        let mut machine = Self::new(&order);
        if order.captured {
            let capture = CaptureWriter::create(std::path::Path::new("."));
            machine.link.capture(capture.map_err(|_| "cannot create the capture file")?);
        }
        Ok(Some(machine))
    }

    pub(super) fn new(order: &Order) -> Self {
        Self {
            now: BOOT,
            expiry: None,
            interval: 0,
            reads: 0,
            random: Draws::new(order.scenario.seed, RANDOM_STREAM),
            drawn: 0,
            link: VirtualLink::new(&order.scenario, order.logged),
            zero: None,
            frame: Box::new([0; MOST_FRAME]),
            arrived: None,
            watched: vec![None; devices(&order.scenario)],
            sent: Vec::new(),
            alarm: Alarm::default(),
            finished: false,
        }
    }

    /// Returns the number of the device with the descriptor `fd`; `None` if `fd` is not a device.
    pub fn device(&self, fd: i32) -> Option<usize> {
        let number = usize::try_from(fd.checked_sub(FIRST_DEVICE)?).ok()?;
        (number < self.watched.len()).then_some(number)
    }

    /// Reads the clock: nanoseconds since 1970 (`calendar`) or since an arbitrary time. Also returns whether the
    /// timer has expired, which happens only if the kernel waits for time to pass without sleeping.
    pub fn read_clock(&mut self, calendar: bool) -> (u64, bool) {
        self.reads = self.reads.saturating_add(1);
        let waits = self.reads > FREE_READS;
        if waits {
            self.now += READ_COST;
        }
        (self.now + if calendar { EPOCH } else { 0 }, waits && self.expire())
    }

    /// Sets the timer to expire in `value` nanoseconds (zero: never), and every `interval` nanoseconds after
    /// that (zero: once).
    pub fn set_timer(&mut self, value: u64, interval: u64) {
        self.expiry = (value > 0).then(|| self.now.saturating_add(value));
        self.interval = interval;
    }

    /// Returns the time until the timer expires, in nanoseconds, and its interval. The time is above zero even
    /// if the timer is disarmed, so that the kernel sleeps until the next packet.
    pub fn timer(&self) -> (u64, u64) {
        let left = self.expiry.map_or(FAR, |expiry| expiry.saturating_sub(self.now).max(1));
        (left, self.interval)
    }

    /// Fills `bytes` with random numbers, which depend only on the seed of the run.
    pub fn random(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let draw = self.random.at(self.drawn).to_le_bytes();
            self.drawn += 1;
            part.copy_from_slice(&draw[..part.len()]);
        }
    }

    /// Passes a frame from device `from`, given in `pieces`, to the path. If the frame is a message to the
    /// path, executes the message instead. Returns the length of the frame in bytes.
    pub fn transmit<'f>(&mut self, from: usize, pieces: impl Iterator<Item = &'f [u8]>) -> usize {
        let mut frame = std::mem::take(&mut self.sent);
        frame.clear();
        pieces.for_each(|piece| frame.extend_from_slice(piece));
        match Control::of(&frame) {
            Some(Control::Start { lead }) => self.zero = Some(self.now + lead),
            Some(Control::End) => self.finish(),
            None => {
                let now = self.run_time();
                self.link.push(now, from, &frame);
            }
        }
        let len = frame.len();
        self.sent = frame;
        len
    }

    /// Moves the clock to the next event. Returns false if there is no event, because the kernel would then
    /// sleep forever.
    ///
    /// A sleeping kernel has read every frame that it will read. A remaining frame belongs to a device that
    /// is down, and is discarded.
    pub fn sleep(&mut self) -> bool {
        self.reads = 0;
        self.arrived = None;
        let of_link = match (self.zero, self.link.next_event()) {
            (Some(zero), at) if !at.is_never() => zero.saturating_add(at.as_nanos()),
            _ => u64::MAX,
        };
        let next = self.expiry.unwrap_or(u64::MAX).min(of_link);
        self.now = self.now.max(next.min(u64::MAX - 1));
        next != u64::MAX
    }

    /// Returns the next event that is due; `None` if there is none, or if the kernel has to read a frame first.
    pub fn due(&mut self) -> Option<Due> {
        if self.arrived.is_some() {
            return None;
        }
        let now = self.run_time();
        let frame = self.zero.and_then(|_| self.link.pop(now, &mut self.frame));
        self.arrived = frame.map(|(device, len)| Arrived { device, len, reported: false });
        match self.arrived {
            Some(_) => Some(Due::Frame),
            None => self.expire().then_some(Due::Tick),
        }
    }

    /// Sets the epoll events for which the kernel waits at `device`, and the data that the kernel attached to
    /// them; `None` if the kernel no longer waits.
    pub fn watch(&mut self, device: usize, wanted: Option<(u32, u64)>) {
        self.watched[device] = wanted;
    }

    /// Returns the epoll data of the device at which a frame has arrived, once for each frame.
    pub fn readable(&mut self) -> Option<u64> {
        let arrived = self.arrived.as_mut().filter(|arrived| !arrived.reported)?;
        let (_, data) = self.watched[arrived.device].filter(|(events, _)| events & EPOLLIN != 0)?;
        arrived.reported = true;
        Some(data)
    }

    /// Returns the frame that has arrived at `device`, which the kernel now reads; `None` if there is none.
    pub fn receive(&mut self, device: usize) -> Option<&[u8]> {
        let Arrived { len, .. } = self.arrived.take_if(|arrived| arrived.device == device)?;
        Some(&self.frame[..len])
    }

    /// Blocks `SIGALRM`.
    pub fn block_alarm(&mut self) {
        if self.alarm == Alarm::Unblocked {
            self.alarm = Alarm::Blocked;
        }
    }

    /// Unblocks `SIGALRM`, and returns whether it is to be raised now; `None` if it was not blocked.
    pub fn unblock_alarm(&mut self) -> Option<bool> {
        match std::mem::take(&mut self.alarm) {
            Alarm::Unblocked => None,
            before => Some(before == Alarm::Pending),
        }
    }

    /// Notifies the kernel that its timer has expired: returns whether `SIGALRM` is to be raised now. Otherwise, it
    /// is raised when it is no longer blocked.
    pub fn alarm(&mut self) -> bool {
        let blocked = self.alarm != Alarm::Unblocked;
        if blocked {
            self.alarm = Alarm::Pending;
        }
        !blocked
    }

    /// Returns the time since the start of the run.
    fn run_time(&self) -> Instant {
        Instant::from_nanos(self.zero.map_or(0, |zero| self.now.saturating_sub(zero)))
    }

    /// Returns whether the timer has expired, and rearms it if it is periodic.
    fn expire(&mut self) -> bool {
        let Some(expiry) = self.expiry.filter(|expiry| *expiry <= self.now) else { return false };
        self.expiry = (self.interval > 0).then(|| expiry.saturating_add(self.interval).max(self.now + 1));
        true
    }

    /// Writes the report on the path to the current folder.
    fn finish(&mut self) {
        if !std::mem::replace(&mut self.finished, true) {
            let report = self.link.report(self.run_time());
            // Without the report, the launcher fails and reports the last line of the guest's
            // console.
            let _ = exchange::write(std::path::Path::new("."), PATH_REPORT, &report);
        }
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_lab::experiment::Experiment;

    use super::*;

    const RTT: u64 = 20_000_000;

    fn machine() -> Machine {
        with_flows("[[flow]]\ncc = 'reno'")
    }

    fn with_flows(flows: &str) -> Machine {
        let text = format!("name = 'x'\nduration = '1s'\n[path]\nrate = '10mbit'\nrtt = '20ms'\n{flows}");
        let scenario = Experiment::from_toml(&text).expect("valid").points()[0].scenario.clone();
        Machine::new(&Order { scenario, logged: true, captured: false })
    }

    fn clock(machine: &mut Machine) -> u64 {
        machine.read_clock(false).0
    }

    /// An Ethernet frame with a TCP segment of flow 0 without payload.
    fn frame() -> Vec<u8> {
        frame_of(0)
    }

    fn frame_of(flow: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2]);
        frame.extend((40_000 + flow).to_be_bytes());
        frame.extend(5_201u16.to_be_bytes());
        frame.extend([0, 0, 0, 9, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        frame
    }

    #[test]
    fn time_passes_only_while_the_kernel_sleeps() {
        let mut machine = machine();
        let begin = clock(&mut machine);
        machine.set_timer(5_000, 0);
        assert_eq!(clock(&mut machine), begin);
        assert_eq!((machine.timer(), machine.due()), ((5_000, 0), None));
        assert!(machine.sleep());
        assert_eq!(
            (clock(&mut machine) - begin, machine.due(), machine.due()),
            (5_000, Some(Due::Tick), None)
        );
        assert!(!machine.sleep(), "nothing can wake the kernel now");
    }

    #[test]
    fn a_periodic_timer_keeps_its_grid() {
        let mut machine = machine();
        let begin = clock(&mut machine);
        machine.set_timer(10, 100);
        for expiry in [10, 110, 210] {
            assert!(machine.sleep());
            assert_eq!((clock(&mut machine) - begin, machine.due()), (expiry, Some(Due::Tick)));
        }
    }

    /// A kernel that waits for time to pass in a loop gets its timer after the free readings.
    #[test]
    fn a_kernel_that_waits_without_sleeping_is_let_out() {
        let mut machine = machine();
        machine.set_timer(1_000_000, 0);
        let ticks = (0..FREE_READS + 2_000).filter(|_| machine.read_clock(false).1).count();
        assert_eq!(ticks, 1);
    }

    #[test]
    fn a_frame_crosses_the_path_and_is_read_once() {
        let mut machine = machine();
        machine.watch(1, Some((EPOLLIN, 77)));
        machine.transmit(0, [&*Control::Start { lead: 0 }.frame()].into_iter());
        let begin = clock(&mut machine);
        let sent = frame();
        assert_eq!(machine.transmit(0, sent.chunks(10)), sent.len());
        assert!(machine.sleep());
        // Transmission of 40 bytes at 10 Mbit/s, and half of the RTT.
        assert_eq!(clock(&mut machine) - begin, 32_000 + RTT / 2);
        assert_eq!((machine.due(), machine.due()), (Some(Due::Frame), None), "the kernel reads it first");
        assert_eq!((machine.readable(), machine.readable()), (Some(77), None));
        assert_eq!(machine.receive(0), None, "it is at the other device");
        assert_eq!(machine.receive(1), Some(&*sent));
        assert_eq!(machine.receive(1), None);
        assert_eq!(machine.due(), None);
    }

    /// Hosts at another distance have other devices. Their frames share the link with the frames of the first
    /// hosts, and are delayed further behind the link.
    #[test]
    fn a_frame_arrives_at_the_other_host_of_its_pair() {
        let mut machine = with_flows(
            "[[flow]]\ncc = 'reno'\n[[flow]]\ncc = 'reno'\naccess_rtt = '61ns'\n[[flow]]\ncc = 'reno'",
        );
        assert_eq!([99, 100, 103, 104].map(|fd| machine.device(fd)), [None, Some(0), Some(3), None]);
        machine.transmit(0, [&*Control::Start { lead: 0 }.frame()].into_iter());
        let begin = clock(&mut machine);
        for (device, flow) in [(2, 1), (0, 2), (3, 1)] {
            machine.transmit(device, [&*frame_of(flow)].into_iter());
        }
        let mut arrivals = Vec::new();
        while arrivals.len() < 3 && machine.sleep() {
            while machine.due() == Some(Due::Frame) {
                let device = (0..4).find(|device| machine.receive(*device).is_some());
                arrivals.push((clock(&mut machine) - begin - RTT / 2, device));
            }
        }
        // A segment takes 32 us on the link of each direction.
        assert_eq!(arrivals, [(32_030, Some(3)), (32_031, Some(2)), (64_000, Some(1))]);
    }

    /// A device that is down reads no frames. Unread frames do not stop the clock.
    #[test]
    fn a_frame_that_nobody_reads_is_discarded() {
        let mut machine = machine();
        machine.transmit(0, [&*Control::Start { lead: 0 }.frame()].into_iter());
        machine.transmit(0, [&*frame()].into_iter());
        assert!(machine.sleep());
        let at = clock(&mut machine);
        assert_eq!((machine.due(), machine.readable()), (Some(Due::Frame), None));
        assert!(machine.sleep());
        assert!(clock(&mut machine) > at);
        assert_eq!(machine.receive(1), None);
    }

    #[test]
    fn a_blocked_alarm_is_raised_later() {
        let mut machine = machine();
        assert_eq!((machine.unblock_alarm(), machine.alarm()), (None, true));
        machine.block_alarm();
        assert_eq!(machine.unblock_alarm(), Some(false));
        machine.block_alarm();
        assert!(!machine.alarm());
        machine.block_alarm();
        assert_eq!(machine.unblock_alarm(), Some(true));
        assert_eq!((machine.unblock_alarm(), machine.alarm()), (None, true));
    }

    #[test]
    fn randomness_depends_on_the_seed_alone() {
        let draw = |seed: u64| {
            let mut machine = machine();
            machine.random = Draws::new(seed, RANDOM_STREAM);
            let mut bytes = [0; 13];
            machine.random(&mut bytes);
            bytes
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
