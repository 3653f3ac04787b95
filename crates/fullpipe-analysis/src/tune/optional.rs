//! Items for some applications only: of no use to a bulk transfer, and applied when asked for by name.

use fullpipe_lab::campaign::RunPanicked;
use fullpipe_lab::host::Change;
use fullpipe_tcp::cc::INITIAL_SEGMENTS;
use fullpipe_units::{Bytes, Duration};

use super::apps::{burst_after_pause, short_transfer, takes_long, waiting};
use super::item::{Gain, Item, Way, What};
use super::items::{BBR, Made, Maker};
use super::plan::Left;
use crate::advice::{self, Command, Host, Scope, UNSENT};
use crate::segment::DEFAULT_MSS;

/// Segments to begin with on a long path: what a common queue of some 100 packets takes at once.
const LONG_INITCWND: u32 = 32;
/// Below this round-trip time a slow start costs little.
const LONG_PATH: Duration = Duration::from_millis(50);
/// A transfer that is mostly slow start.
const SHORT_TRANSFER: Bytes = Bytes::from_kib(640);
/// A burst that is looked at is a BDP, which takes the whole window, and no more than this.
const LARGEST_BURST: Bytes = Bytes::from_mib(8);
/// A time that becomes shorter by less than this share is no gain.
const WORTH: (u64, u64) = (19, 20);
/// A byte that waits less than this share of a round trip is not waiting for the path.
const SOON: u64 = 20;

impl Maker<'_> {
    fn asked_for(&self, what: What) -> bool {
        self.aim.with.contains(&what)
    }

    pub(super) fn initcwnd(&self) -> Made {
        let what = What::Initcwnd;
        let left = |why: &str| Err(Left { what, why: why.into() });
        if !self.here(Host::Sender) {
            return left("it is the sender's");
        }
        let now = self.route().and_then(|route| route.initcwnd).unwrap_or(INITIAL_SEGMENTS as u32);
        let bdp = u32::try_from(self.model.bdp().get() / DEFAULT_MSS.get()).unwrap_or(u32::MAX);
        let new = LONG_INITCWND.min(bdp / 4);
        if self.aim.rtt < LONG_PATH || new <= now {
            return left("a slow start is short on this path, or begins with as much already");
        }
        let took = |segments| short_transfer(self.model, SHORT_TRANSFER, Some(segments));
        let (before, after) = (took(now), took(new));
        let gain = match (before, after) {
            (Some(before), Some(after)) if after < before => Gain::time(
                format!(
                    "a transfer of {SHORT_TRANSFER} takes {after} instead of {before} (simulated, nothing lost)"
                ),
                before,
                after,
            ),
            _ => return left("short transfers would take as long (simulated)"),
        };
        let command = |run, undo, requires: Option<&str>| Command {
            run,
            host: Host::Sender,
            scope: Scope::Route,
            undo,
            requires: requires.map(str::to_owned),
        };
        let (command, change) = match self.route() {
            Some(route) => {
                // Whoever runs these by hand has run the one for the congestion control before.
                let changes = self.forecast.reached.cc != self.model.present().cc;
                let congctl = if changes { Some(BBR) } else { route.congctl.as_deref() };
                let (run, undo) = self.route_commands(congctl, Some(new));
                let destination = route.destination;
                (
                    command(run, undo, None),
                    Some(Change::Route { destination, congctl: None, initcwnd: Some(new) }),
                )
            }
            None => {
                let run = format!("ip route change RECEIVER via GATEWAY dev DEV initcwnd {new}");
                let undo = "ip route change RECEIVER via GATEWAY dev DEV".to_owned();
                (
                    command(run, undo, Some("the route as ip route get RECEIVER prints it; --to finds it")),
                    None,
                )
            }
        };
        let applied = change.is_some() && self.asked_for(what);
        Ok(Item {
            what,
            host: Host::Sender,
            here: true,
            optional: true,
            present: Some(now.to_string()),
            new: new.to_string(),
            why: "connections that carry little end before slow start has found the line; a bulk transfer does not need it".into(),
            gain,
            cost: format!("{new} packets at once as each connection begins: a queue that is shorter drops the last"),
            ways: vec![Way { command, change, applied }],
        })
    }

    /// # Errors
    /// A defect of the simulator.
    pub(super) fn notsent_lowat(&self) -> Result<Made, RunPanicked> {
        let what = What::NotsentLowat;
        let left = |why: String| Ok(Err(Left { what, why }));
        if !self.here(Host::Sender) {
            return left("it is the sender's".into());
        }
        let Some(present) = self.host.settings.notsent_lowat else {
            return left("this kernel has none".into());
        };
        if present.get() <= UNSENT {
            return left(format!("{present} already"));
        }
        let reached = self.forecast.reached;
        let (sndbuf, _) = self.model.buffers(reached.large_buffers);
        let lowat = Bytes::new(UNSENT);
        let mut cost =
            "an application that does not wait for writability, but spins, is woken more often".to_owned();
        let gain = if self.forecast.rate(reached).is_none_or(|rate| takes_long(self.model, rate)) {
            Gain::words("not simulated on so fast a line")
        } else {
            let now = Some(present).filter(|present| *present < sndbuf);
            let waiting = waiting(self.model, reached, [now, Some(lowat)])?;
            let [Some(without), Some(with)] = waiting[..] else {
                return left("nothing waits on this path (simulated)".into());
            };
            if without.unsent <= self.aim.rtt / SOON || with.unsent >= without.unsent {
                return left(format!("a byte waits no longer than {} unsent (simulated)", without.unsent));
            }
            if with.rate < without.rate.mul_div(WORTH.0, WORTH.1) {
                let lost = 100 - 100 * with.rate.as_bps() / without.rate.as_bps().max(1);
                cost = format!(
                    "{lost} % of the rate (simulated): while a loss is repaired the send buffer is full of what arrived behind it, and \
                     what waited unsent would have been a reserve to go on with; a larger tcp_wmem has room for both"
                );
            }
            let text = format!(
                "a byte waits {} in the socket before it is sent, instead of {}, and the socket holds {} instead of {} (simulated, an \
                 application that always has more)",
                with.unsent, without.unsent, with.held, without.held
            );
            let gain = Gain::time(text, without.unsent, with.unsent);
            let rates = (Some(without.rate), Some(with.rate));
            let gain = Gain { without: rates.0, with: rates.1, ..gain };
            Gain { without_bytes: Some(without.held.get()), with_bytes: Some(with.held.get()), ..gain }
        };
        let key = "net.ipv4.tcp_notsent_lowat";
        let ways = advice::limit_unsent().into_iter().map(|command| match command.scope {
            Scope::System => Way {
                command: Command {
                    run: format!("sysctl -w {key}={UNSENT}"),
                    undo: format!("sysctl -w {key}={}", present.get()),
                    ..command
                },
                change: Some(Change::Setting { key: key.into(), value: UNSENT.to_string() }),
                applied: self.asked_for(what),
            },
            _ => Way { command, change: None, applied: false },
        });
        Ok(Ok(Item {
            what,
            host: Host::Sender,
            here: true,
            optional: true,
            present: Some(present.get().to_string()),
            new: UNSENT.to_string(),
            why: format!(
                "up to {sndbuf} that are not even sent may wait in the kernel; with this, a full path is felt in the \
                 application, which can then drop or merge what is stale"
            ),
            gain,
            cost,
            ways: ways.collect(),
        }))
    }

    pub(super) fn slow_start_after_idle(&self) -> Made {
        let what = What::SlowStartAfterIdle;
        let left = |why: String| Err(Left { what, why });
        if !self.here(Host::Sender) {
            return left("it is the sender's".into());
        }
        if self.host.settings.slow_start_after_idle != Some(true) {
            return left("it is off already, or this kernel has none".into());
        }
        if self.forecast.reached.cc.goes_by_rate() {
            return left(
                "BBR keeps its model of the path while it idles: the kernel does not ask this setting then"
                    .into(),
            );
        }
        if self.aim.rtt < LONG_PATH {
            return left("slow start is short on this path".into());
        }
        let reached = self.forecast.reached;
        let burst = self.model.bdp().min(LARGEST_BURST);
        let took = |shrinks| burst_after_pause(self.model, reached, burst, shrinks);
        let gain = match took(true).zip(took(false)) {
            Some((before, after)) if after < before.mul_div(WORTH.0, WORTH.1) => Gain::time(
                format!("a burst of {burst} after a pause takes {after} instead of {before} (simulated)"),
                before,
                after,
            ),
            Some((before, _)) => {
                return left(format!(
                    "a burst of {burst} after a pause takes {before} either way (simulated)"
                ));
            }
            None => return left("bursts of this size do not end on this path (simulated)".into()),
        };
        let key = "net.ipv4.tcp_slow_start_after_idle";
        Ok(Item {
            what,
            host: Host::Sender,
            here: true,
            optional: true,
            present: Some("1".into()),
            new: "0".into(),
            why: "after a pause the window has shrunk, and the next burst starts slowly again; a transfer without pauses does \
                  not meet it"
                .into(),
            gain,
            cost: "a whole window at once after a pause, if the path can still take it or not".into(),
            ways: vec![Way {
                command: Command {
                    run: format!("sysctl -w {key}=0"),
                    host: Host::Sender,
                    scope: Scope::System,
                    undo: format!("sysctl -w {key}=1"),
                    requires: None,
                },
                change: Some(Change::Setting { key: key.into(), value: "0".into() }),
                applied: self.asked_for(what),
            }],
        })
    }
}
