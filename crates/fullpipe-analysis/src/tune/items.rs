//! The items of a plan, each with its reason, its gain and its ways.

use fullpipe_lab::campaign::RunPanicked;
use fullpipe_lab::host::{Change, Route};
use fullpipe_tcp::buffers::KernelVersion;
use fullpipe_units::{Bytes, Rate};

use super::aim::Aim;
use super::facts::LocalHost;
use super::item::{Gain, Item, Way, What};
use super::plan::{End, Forecast, Left};
use crate::advice::{self, Command, Host, PAGE, Scope};
use crate::input::sysctl::HostSettings;
use crate::ladder::{Model, State};

/// What the kernel has it called.
pub(super) const BBR: &str = "bbr";

/// Makes the items.
pub(super) struct Maker<'a> {
    pub(super) host: &'a LocalHost,
    pub(super) aim: &'a Aim,
    pub(super) model: &'a Model<'a>,
    pub(super) forecast: &'a Forecast,
    pub(super) kernel: KernelVersion,
    pub(super) sender: End,
    pub(super) receiver: End,
}

/// A triple of `tcp_wmem` or `tcp_rmem`.
struct Limit<'a> {
    what: What,
    host: Host,
    key: &'static str,
    current: Option<[Bytes; 3]>,
    end: &'a End,
    target: Bytes,
}

/// All that is made.
pub(super) struct Planned {
    pub(super) items: Vec<Item>,
    /// What is left as it is.
    pub(super) left: Vec<Left>,
    /// What else to know.
    pub(super) notes: Vec<String>,
}

/// An item, or why there is none.
pub(super) type Made = Result<Item, Left>;

impl Maker<'_> {
    /// # Errors
    /// A defect of the simulator.
    pub(super) fn make(&self) -> Result<Planned, RunPanicked> {
        let mut made: Vec<Made> = vec![self.congestion_control()];
        made.extend(self.queueing_discipline().map(Ok));
        made.extend([self.wmem(), self.rmem()]);
        made.extend(self.switches().map(Ok));
        made.extend([self.initcwnd(), self.notsent_lowat()?, self.slow_start_after_idle()]);
        let (mut items, mut left) = (Vec::new(), Vec::new());
        for one in made {
            match one {
                Ok(item) => items.push(item),
                Err(reason) => left.push(reason),
            }
        }
        if let Some(what) = &self.aim.stated.out_of_reach {
            let why =
                format!("the report says that {what} holds the transfer, which no setting of a host lifts");
            left.extend(items.drain(..).map(|item| Left { what: item.what, why: why.clone() }));
        }
        // This host's items first, and among them the narrowest scope.
        let scope = |item: &Item| item.applied().map_or(Scope::System, |way| way.command.scope);
        items.sort_by_key(|item| (!item.here, item.optional, scope(item)));
        let notes = self.notes(&items);
        Ok(Planned { items, left, notes })
    }

    pub(super) fn here(&self, host: Host) -> bool {
        self.aim.role.is(host)
    }

    /// What an item that makes `state` of the planned one's difference to `without` brings.
    fn gain(&self, without: State) -> Gain {
        let (with, less) = (self.forecast.rate(self.forecast.reached), self.forecast.rate(without));
        let (Some(with), Some(less)) = (with, less) else {
            return Gain::words("not simulated on so fast a line");
        };
        let alone = self.alone(without).map(|alone| format!("; without the rest it leads to {alone}"));
        let text = format!(
            "with the rest of the plan {with} instead of {less} (simulated){}",
            alone.unwrap_or_default()
        );
        Gain { text, without: Some(less), with: Some(with), ..Gain::default() }
    }

    /// The rate with nothing but the one thing changed that `without` lacks; `None` where that is the whole plan.
    fn alone(&self, without: State) -> Option<Rate> {
        let (present, reached) = (self.model.present(), self.forecast.reached);
        if without == present {
            return None;
        }
        let state = if without.cc == reached.cc {
            State { large_buffers: reached.large_buffers, ..present }
        } else {
            State { cc: reached.cc, ..present }
        };
        self.forecast.rate(state)
    }

    pub(super) fn route(&self) -> Option<&Route> {
        self.host.facts.route.as_ref().filter(|_| self.here(Host::Sender))
    }

    // Congestion control: of a socket, of a route, of the host.

    fn congestion_control(&self) -> Made {
        let what = What::CongestionControl;
        let left = |why: String| Err(Left { what, why });
        let (present, reached) = (self.model.present(), self.forecast.reached);
        let now = self.model.hosts.cc;
        if now.goes_by_rate() {
            return left(format!("{now} goes by rate already, and loss does not hold it down"));
        }
        if reached.cc == present.cc {
            let bbr = State { cc: crate::ladder::by_rate(now), ..reached };
            return left(match (self.forecast.rate(reached), self.forecast.rate(bbr)) {
                (Some(now_rate), Some(bbr)) => format!("with BBR {bbr} instead of {now_rate} (simulated)"),
                _ => format!("nothing is lost that would hold {now} down"),
            });
        }
        let here = self.here(Host::Sender);
        if here && !self.host.has_congestion_control(BBR) {
            return left("BBR would help, and this kernel has none: neither built in nor as a module".into());
        }
        // The peer's route outranks the host's default, which may be BBR already.
        let default = self.host.settings.congestion_control.as_deref();
        let of_peer = self.host.congestion_control().map(str::to_owned);
        let settings = HostSettings { congestion_control: of_peer, ..self.host.settings.clone() };
        let settings = here.then_some(&settings);
        let commands = advice::change_congestion_control(BBR, Some(self.kernel), settings);
        let mut ways: Vec<Way> = commands
            .into_iter()
            .filter(|command| !command.run.starts_with("tc "))
            .filter(|command| command.scope != Scope::System || !here || default != Some(BBR))
            .map(|command| self.cc_way(command, here))
            .collect();
        // The narrowest that can be applied is.
        if let Some(way) = ways.iter_mut().find(|way| way.change.is_some()) {
            way.applied = true;
        }
        Ok(Item {
            what,
            host: Host::Sender,
            here,
            optional: false,
            present: here.then(|| self.host.congestion_control().map(str::to_owned)).flatten(),
            new: BBR.into(),
            why: "random loss holds a loss-based window down, however large the buffers; BBR goes by the rate that \
                  is delivered, and only the sender's choice counts"
                .into(),
            gain: self.gain(State { cc: present.cc, ..reached }),
            cost: "more retransmissions where the queue of the line is short, and flows of CUBIC beside it get less; \
                   connections that are open keep what they have"
                .into(),
            ways,
        })
    }

    fn cc_way(&self, command: Command, here: bool) -> Way {
        let key = "net.ipv4.tcp_congestion_control".to_owned();
        match command.scope {
            Scope::Route if here && self.route().is_some() => {
                let change =
                    |destination| Change::Route { destination, congctl: Some(BBR.into()), initcwnd: None };
                let initcwnd = self.route().and_then(|route| route.initcwnd);
                let (run, undo) = self.route_commands(Some(BBR), initcwnd);
                let requires = command.requires.filter(|_| self.host.settings.lacks_congestion_control(BBR));
                let change = self.route().map(|route| change(route.destination));
                Way { command: Command { run, undo, requires, ..command }, change, applied: false }
            }
            Scope::System if here => {
                Way { command, change: Some(Change::Setting { key, value: BBR.into() }), applied: false }
            }
            _ => Way { command, change: None, applied: false },
        }
    }

    /// What gives the route to the peer these, and what takes them away.
    pub(super) fn route_commands(&self, congctl: Option<&str>, initcwnd: Option<u32>) -> (String, String) {
        let Some(route) = self.route() else { return Default::default() };
        let Route { destination, way, hops, present, exact, .. } = route;
        let mut run = format!("ip route replace {destination} {way}");
        let mut undo = format!("ip route del {destination} {way}");
        if let Some(name) = congctl {
            run += &format!(" congctl {name}");
        }
        if let Some(segments) = initcwnd {
            run += &format!(" initcwnd {segments}");
        }
        for command in [&mut run, &mut undo].into_iter().filter(|_| !hops.is_empty()) {
            command.push(' ');
            command.push_str(hops);
        }
        if *exact {
            undo = format!("ip route replace {present}");
        }
        (run, undo)
    }

    /// For kernels that do not pace by themselves.
    fn queueing_discipline(&self) -> Option<Item> {
        let here = self.here(Host::Sender);
        let planned = self.forecast.reached.cc != self.model.present().cc;
        if !planned || !advice::needs_fair_queue(BBR, Some(self.kernel)) {
            return None;
        }
        let key = "net.core.default_qdisc";
        let before = self.host.settings.default_qdisc.clone().filter(|_| here);
        let device = self.route().map_or("DEV", |route| &route.device);
        let undo = match &before {
            Some(before) => format!("sysctl -w {key}={before}"),
            None => format!("sysctl -w {key}=pfifo_fast"),
        };
        let command = |run: String, undo, requires: Option<String>| Command {
            run,
            host: Host::Sender,
            scope: Scope::System,
            undo,
            requires,
        };
        let replace = command(
            format!("tc qdisc replace dev {device} root fq"),
            format!("tc qdisc del dev {device} root"),
            Some("the default is for devices that come up later: this one is changed by hand".into()),
        );
        let change = Change::Setting { key: key.into(), value: "fq".into() };
        // Only the host's own namespace has it.
        let change = here.then_some(change).filter(|_| before.is_some());
        let default = Way {
            applied: change.is_some(),
            change,
            command: command(
                format!("sysctl -w {key}=fq"),
                undo,
                Some("set it on the host, outside containers".into()),
            ),
        };
        Some(Item {
            what: What::QueueingDiscipline,
            host: Host::Sender,
            here,
            optional: false,
            present: before,
            new: "fq".into(),
            why: format!(
                "kernels before {} leave pacing to the device, and BBR lives on it",
                KernelVersion::INTERNAL_PACING
            ),
            gain: Gain::words("what BBR brings depends on it"),
            cost: "replaces the queueing discipline that the device has".into(),
            ways: vec![Way { command: replace, change: None, applied: false }, default],
        })
    }

    // Buffers.

    fn wmem(&self) -> Made {
        let (target, _) = self.model.buffers(true);
        self.limit(&Limit {
            what: What::TcpWmem,
            host: Host::Sender,
            key: "net.ipv4.tcp_wmem",
            current: self.host.settings.tcp_wmem,
            end: &self.sender,
            target,
        })
    }

    fn rmem(&self) -> Made {
        let (_, target) = self.model.buffers(true);
        self.limit(&Limit {
            what: What::TcpRmem,
            host: Host::Receiver,
            key: "net.ipv4.tcp_rmem",
            current: self.host.settings.tcp_rmem,
            end: &self.receiver,
            target,
        })
    }

    fn limit(&self, limit: &Limit<'_>) -> Made {
        let Limit { what, host, key, current, end, target } = limit;
        let (what, host, here) = (*what, *host, self.here(*host));
        let bdp = self.model.bdp();
        let wanted = match host {
            Host::Sender => advice::sndbuf_for(bdp),
            Host::Receiver => advice::rcvbuf_for(bdp, self.model.hosts.rule),
        };
        let left = |why: String| Err(Left { what, why });
        if end.buffer >= wanted {
            return left(format!(
                "{} keeps the BDP of {bdp} in flight already (needed: {wanted})",
                end.buffer
            ));
        }
        if *target <= end.buffer {
            return left(format!(
                "{wanted} would be needed, and this host's memory admits {} for each of {} flows",
                end.room, self.aim.flows
            ));
        }
        let (present, reached) = (self.model.present(), self.forecast.reached);
        if !reached.large_buffers {
            let larger = State { large_buffers: true, ..present };
            return left(match (self.forecast.rate(present), self.forecast.rate(larger)) {
                (Some(now), Some(larger)) => {
                    format!("with larger buffers {larger} instead of {now} (simulated)")
                }
                _ => "larger buffers change nothing here".into(),
            });
        }
        let current = current.filter(|_| here);
        let requires = match host {
            Host::Receiver => Some("for new connections: the window scale is fixed at the handshake"),
            Host::Sender => None,
        };
        let Some(command) = advice::raise_limit(host, key, current, *target, requires) else {
            return left(format!("{} is enough", end.buffer));
        };
        let words = |[least, first, _]: [Bytes; 3], most: Bytes| {
            format!("{} {} {}", least.get(), first.get(), most.get())
        };
        let value = current.map(|triple| words(triple, *target));
        let change = value.clone().map(|value| Change::Setting { key: (*key).into(), value });
        let applied = change.is_some();
        let bounded = if *target < wanted {
            format!(
                "; the rule asks for {wanted}, and this host's memory admits no more for each of {} flows",
                self.aim.flows
            )
        } else {
            String::new()
        };
        let why = match host {
            Host::Sender => format!(
                "what is in flight, {bdp} on a full line, stays in the send buffer until it is acknowledged, and a third of \
                 the buffer may lie idle: 2 x BDP{bounded}"
            ),
            Host::Receiver => format!(
                "no window exceeds what this buffer admits ({}), and the line needs {bdp} of it: 2 x BDP or more{bounded}",
                self.model.hosts.rule
            ),
        };
        let pages = target.get().div_ceil(PAGE);
        Ok(Item {
            what,
            host,
            here,
            optional: false,
            present: current.map(|triple| words(triple, triple[2])),
            new: value.unwrap_or_else(|| format!("{} as its third number", target.get())),
            why,
            gain: self.gain(State { large_buffers: false, ..reached }),
            cost: format!(
                "a flow that fills it takes {target} of the kernel's memory ({pages} pages of tcp_mem)"
            ),
            ways: vec![Way { command, change, applied }],
        })
    }

    /// Settings that hold every window or buffer down.
    fn switches(&self) -> impl Iterator<Item = Item> {
        let settings = &self.host.settings;
        let ends = [Host::Sender, Host::Receiver];
        let scaling_host =
            ends.into_iter().find(|host| self.here(*host) && settings.window_scaling == Some(false));
        let moderate_host =
            Some(Host::Receiver).filter(|host| self.here(*host) && settings.moderate_rcvbuf == Some(false));
        let item = |what, host, key: &str, why: &str, cost: &str| Item {
            what,
            host,
            here: true,
            optional: false,
            present: Some("0".into()),
            new: "1".into(),
            why: why.into(),
            gain: Gain::words("not simulated: the rates of this plan are those with it on"),
            cost: cost.into(),
            ways: vec![Way {
                command: advice::switch_on(host, key),
                change: Some(Change::Setting { key: key.into(), value: "1".into() }),
                applied: true,
            }],
        };
        let scaling = scaling_host.map(|host| {
            let (why, cost) = ("without it no window exceeds 64 KiB", "none known; new connections only");
            item(What::TcpWindowScaling, host, "net.ipv4.tcp_window_scaling", why, cost)
        });
        let moderate = moderate_host.map(|host| {
            let (why, cost) =
                ("without it a receive buffer stays as small as it begins", "memory of busy connections");
            item(What::TcpModerateRcvbuf, host, "net.ipv4.tcp_moderate_rcvbuf", why, cost)
        });
        scaling.into_iter().chain(moderate)
    }

    fn notes(&self, items: &[Item]) -> Vec<String> {
        let mut notes = Vec::new();
        for item in items.iter().filter(|item| !item.here && !item.optional) {
            let (window, sndbuf) =
                self.model.ceilings(State { large_buffers: false, ..self.forecast.reached });
            // Where the present buffer lets as much pass there is nothing to wait for.
            let holds =
                |rate: Rate| self.forecast.rate(self.forecast.reached).is_none_or(|planned| rate < planned);
            match item.what {
                What::TcpRmem if holds(window) => notes.push(format!(
                    "until the receiver has its part too, its window lets no more than {window} pass"
                )),
                What::TcpWmem if holds(sndbuf) => notes.push(format!(
                    "until the sender has its part too, its send buffer lets no more than {sndbuf} pass"
                )),
                _ => {}
            }
        }
        let settings =
            items.iter().flat_map(|item| &item.ways).any(|way| way.command.run.contains("net.ipv4."));
        if self.aim.to.is_some_and(|to| to.is_ipv6()) && settings {
            notes.push("settings net.ipv4.tcp_* hold for TCP over IPv6 too: there are no others".into());
        }
        if items.iter().any(|item| matches!(item.what, What::TcpWmem | What::TcpRmem)) {
            let host = Some(&self.host.settings);
            notes.push(advice::memory_note(self.model.bdp(), self.model.hosts.rule, host));
            notes.push(
                "net.core.rmem_max and wmem_max are left alone: they bound SO_RCVBUF and SO_SNDBUF, not buffers that grow by \
                 themselves"
                    .into(),
            );
        }
        notes
    }
}
