//! Remedies that only the application can apply, because they concern the limits on its sockets and its queue
//! in front of them.

use fullpipe_measurement::classify::Limit;

use crate::explain::RateOption;
use crate::remedy::{
    Change, Command, Commands, Cost, Host, NotSimulated, Order, Part, QueueAdvice, Remedy, Scope, Step,
    Usage, What,
};

/// Removes `SO_SNDBUF` and `SO_RCVBUF`. A buffer whose size is set with these options is not autotuned, and
/// the sysctl limits on autotuning do not apply to it.
pub(super) static BUFFERS: Remedy = Remedy {
    name: "application_buffers",
    change: Change::AutotunedBuffers,
    lifts: &[Limit::Rwnd, Limit::Sndbuf],
    usage: Usage::Ladder {
        by_rule: |_| false,
        steps: &[Step {
            order: Order::Application,
            lifts: &[Limit::Rwnd, Limit::Sndbuf],
            sizes: &[Change::AutotunedBuffers],
        }],
    },
    title: |_| {
        "autotuned buffers, without a fixed size from the application (-w, SO_SNDBUF, SO_RCVBUF)".into()
    },
    backlog: None,
    parts: &[
        Part {
            what: What::APPLICATION_SNDBUF,
            hosts: &[Host::Sender],
            scope: Scope::Socket,
            commands: Commands::Run(|_, _| vec![left_out(Host::Sender, "SO_SNDBUF", "-w")]),
            cost: |_, _| Cost::Words("memory, for each connection that fills the buffer"),
            plan: None,
        },
        Part {
            what: What::APPLICATION_RCVBUF,
            hosts: &[Host::Receiver],
            scope: Scope::Socket,
            commands: Commands::Run(|_, _| vec![left_out(Host::Receiver, "SO_RCVBUF", "-w")]),
            cost: |_, _| Cost::Words("memory, for each connection that fills the buffer"),
            plan: None,
        },
    ],
};

/// Removes the application's own limit on the rate of its socket. No path can lift this limit.
pub(super) static PACING: Remedy = Remedy {
    name: "application_pacing",
    change: Change::UnlimitedRate,
    lifts: &[Limit::App, Limit::Pacing],
    usage: Usage::Ladder {
        by_rule: |_| false,
        steps: &[Step {
            order: Order::Application,
            lifts: &[Limit::App, Limit::Pacing],
            sizes: &[Change::UnlimitedRate],
        }],
    },
    title: |_| {
        "no rate limit set by the application (-b, --limit-rate, --fq-rate, SO_MAX_PACING_RATE)".into()
    },
    backlog: None,
    parts: &[Part {
        what: What::APPLICATION_PACING,
        hosts: &[Host::Sender],
        scope: Scope::Socket,
        commands: Commands::Run(|case, _| match case.rate_option {
            Some(option) => vec![restarted_without(option)],
            None => vec![left_out(Host::Sender, "SO_MAX_PACING_RATE", "-b and --fq-rate")],
        }),
        cost: |_, _| Cost::Words("other traffic on the path gets a lower rate"),
        plan: None,
    }],
};

/// Bounds the queue of the application, in which the data that the path cannot carry accumulates.
pub(super) static BOUNDED_QUEUE: Remedy = Remedy {
    name: "bounded_queue",
    change: Change::NotSimulated(NotSimulated::Application),
    lifts: &[],
    usage: Usage::ByHand,
    title: |_| "a bound on the application's queue".into(),
    backlog: Some(QueueAdvice {
        what: "bound the application's queue, and choose what happens when the queue is full: block the \
         producer (files, replication), drop the oldest data (live data), or conflate, which keeps only the \
         latest value of each key (market data); without a bound, an outage fills any amount of memory",
        commands: Vec::new,
    }),
    parts: &[Part {
        what: What::APPLICATION_QUEUE,
        hosts: &[Host::Sender],
        scope: Scope::Socket,
        commands: Commands::None("only a change to the application's source can bound its queue"),
        cost: |_, _| Cost::Words("the producer waits, or data is dropped"),
        plan: None,
    }],
};

impl What {
    /// `SO_SNDBUF` of the sending application.
    pub const APPLICATION_SNDBUF: Self = Self("application_sndbuf");
    /// `SO_RCVBUF` of the receiving application.
    pub const APPLICATION_RCVBUF: Self = Self("application_rcvbuf");
    /// `SO_MAX_PACING_RATE` of the sending application.
    pub const APPLICATION_PACING: Self = Self("application_pacing");
    /// Queue of the application in front of the socket.
    pub const APPLICATION_QUEUE: Self = Self("application_queue");
}

/// Returns the advice to run the sending application without its rate limit.
fn restarted_without(option: &RateOption) -> Command {
    let program = option.program();
    Command {
        undo: format!("run {program} with {option}"),
        ..Command::call(format!("run {program} without {option}"), None)
    }
}

/// Returns the advice to remove a socket option from the application on `host`, or to omit the iperf3 option
/// that sets it.
fn left_out(host: Host, option: &str, of_iperf3: &str) -> Command {
    Command {
        host,
        undo: format!("setsockopt(fd, SOL_SOCKET, {option}, ...) as before"),
        ..Command::call(
            format!("remove setsockopt(fd, SOL_SOCKET, {option}, ...)  /* iperf3: omit {of_iperf3} */"),
            Some("an application that sets this option".into()),
        )
    }
}
