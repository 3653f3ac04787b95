//! Applications on fullpipe's TCP stack that communicate with third-party programs.

pub(crate) mod iperf3;
pub(crate) mod web;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;

use fullpipe_linux::stack_loop::{Application, Port, run};
use fullpipe_linux::{Clock, Stop};
use fullpipe_tcp::Config;
use fullpipe_tcp::stack::siphash::Key;
use fullpipe_tcp::stack::{IsnClock, Stack, StackConfig};
use fullpipe_units::Duration;

/// Runs `application` on a stack with the address `local` for as long as `work` runs. If `listens` is given,
/// the stack listens on that port. `work` can access the application between two rounds of the loop.
pub(crate) fn beside<A: Application + Send, T>(
    port: &Port,
    local: SocketAddr,
    listens: Option<Config>,
    application: A,
    work: impl FnOnce(&Mutex<A>) -> T,
) -> T {
    let mut stack = Stack::new(StackConfig {
        key: Key::new([5; 16]),
        isn_clock: IsnClock::Linux,
        max_connections: 64,
        cut: port.cut(),
    });
    stack.add_address(local.ip());
    if let Some(config) = listens {
        stack.listen(local, config, 16).expect("free");
    }
    let (stack, application) = (Mutex::new(stack), Mutex::new(application));
    let (clock, stop) = (Clock::starting_in(Duration::ZERO), Stop::new().expect("an eventfd"));
    thread::scope(|scope| {
        let looping = scope.spawn(|| run(port, &stack, clock, &mut Shared(&application), &stop));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&application)));
        stop.stop();
        looping.join().expect("no panic").unwrap_or_else(|error| panic!("{error}"));
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

struct Shared<'a, A>(&'a Mutex<A>);

impl<A: Application> Application for Shared<'_, A> {
    fn attend(&mut self, now: fullpipe_units::Instant, stack: &mut Stack) -> fullpipe_units::Instant {
        self.0.lock().expect("no panic").attend(now, stack)
    }
}
