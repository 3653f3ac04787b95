//! All remedies, one kind per file, in the order in which they are applied, recommended and planned.
//!
//! To add one, write its file here, declare it, and list it in [`ALL`].

mod application;
pub(super) mod buffers;
mod congestion_control;
pub(super) mod connections;
mod ecn;
mod initial_window;
mod notsent_lowat;
pub(super) mod qdisc;
mod slow_start_after_idle;

use fullpipe_measurement::classify::Limit;

use super::{Part, Remedy, Step, What};

/// All remedies.
pub static ALL: [&Remedy; 12] = [
    &congestion_control::REMEDY,
    &buffers::REMEDY,
    &application::BOUNDED_QUEUE,
    &initial_window::REMEDY,
    &notsent_lowat::REMEDY,
    &slow_start_after_idle::REMEDY,
    &connections::REMEDY,
    &qdisc::PACING,
    &ecn::REMEDY,
    &qdisc::MANAGED_QUEUE,
    &application::BUFFERS,
    &application::PACING,
];

/// Returns all parts, each with the remedy that it belongs to.
pub fn parts() -> impl Iterator<Item = (&'static Remedy, &'static Part)> {
    ALL.into_iter().flat_map(|remedy| remedy.parts.iter().map(move |part| (remedy, part)))
}

/// Returns the remedies that the ladder uses.
pub fn of_ladder() -> impl DoubleEndedIterator<Item = &'static Remedy> {
    ALL.into_iter().filter(|remedy| remedy.is_of_ladder())
}

/// Returns the ladder's steps in the order in which they are tried.
pub fn steps() -> Vec<(&'static Remedy, &'static Step)> {
    let mut steps: Vec<_> =
        of_ladder().flat_map(|remedy| remedy.steps().iter().map(move |step| (remedy, step))).collect();
    steps.sort_by_key(|(_, step)| step.order);
    steps
}

/// Returns the remedies that lift or raise `limit`.
pub fn lifting(limit: Limit) -> impl Iterator<Item = &'static Remedy> {
    ALL.into_iter().filter(move |remedy| remedy.lifts.contains(&limit))
}

/// Returns the reason why no remedy lifts `limit`; `None` if a remedy does.
pub const fn no_remedy(limit: Limit) -> Option<&'static str> {
    match limit {
        Limit::ReceiverApp => Some(
            "the receiving application reads too slowly, and no setting of a host or of the path changes that",
        ),
        Limit::Link => Some("the link is full, and only a faster link carries more"),
        Limit::Cpu => {
            Some("the processor of a host is busy all the time, and no setting of the path changes that")
        }
        Limit::Unknown => Some("the input does not show what limits the transfer"),
        Limit::App
        | Limit::Rwnd
        | Limit::Sndbuf
        | Limit::Cwnd
        | Limit::SlowStart
        | Limit::Pacing
        | Limit::Cap
        | Limit::Policer => None,
    }
}

/// Returns the names of the parts that are applied only on request, narrowest scope first.
pub fn on_request() -> Vec<What> {
    let mut parts: Vec<_> =
        parts().filter(|(remedy, _)| remedy.is_on_request()).map(|(_, part)| part).collect();
    parts.sort_by_key(|part| part.scope);
    parts.into_iter().map(|part| part.what).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fullpipe_tcp::cc::Algorithm;

    use super::*;
    use crate::remedy::made::case;
    use crate::remedy::{Change, Command, Commands, Mechanism, State, Transition};
    use fullpipe_measurement::input::sysctl::HostSettings;

    /// Returns the commands of a part for hosts about which only two facts are known: they run kernel 4.10,
    /// and every switch is off.
    fn commands(remedy: &Remedy, part: &Part) -> Vec<Command> {
        let off =
            "kernel.osrelease = 4.10\nnet.ipv4.tcp_window_scaling = 0\nnet.ipv4.tcp_moderate_rcvbuf = 0";
        let settings = HostSettings::parse(off).unwrap();
        let settings = Some(&settings);
        let case = crate::remedy::Case {
            sender: settings,
            sender_buffers: settings,
            receiver_buffers: settings,
            ..case()
        };
        part.commands(&case, State::present(Algorithm::Cubic).with(remedy.change))
    }

    #[test]
    fn every_part_has_commands_with_an_undo_or_says_why_it_has_none() {
        for (remedy, part) in parts() {
            let (commands, what) = (commands(remedy, part), part.what);
            let state = State::present(Algorithm::Cubic).with(remedy.change);
            assert!(!(part.cost)(&case(), state).to_string().is_empty(), "{what}");
            if let Commands::None(why) = part.commands {
                assert!(!why.is_empty() && commands.is_empty() && part.plan.is_none(), "{what}");
                continue;
            }
            assert!(!commands.is_empty(), "{what}");
            let narrowest = commands.iter().map(|command| command.scope).min();
            assert_eq!(narrowest, Some(part.scope), "{what}");
            assert!(
                commands.is_sorted_by_key(|command| (command.host, command.scope)),
                "{what}: narrowest first"
            );
            for Command { run, undo, host, sets, .. } in &commands {
                assert!(!run.is_empty() && !undo.is_empty() && run != undo, "{what}");
                assert!(part.hosts.contains(host), "{what} on the {host}");
                let named = match sets.expect("a command of the catalogue has it") {
                    Mechanism::Setting(key) => run.contains(key) && undo.contains(key),
                    Mechanism::Route => run.starts_with("ip route ") && undo.starts_with("ip route "),
                    Mechanism::Qdisc => run.starts_with("tc qdisc ") && undo.starts_with("tc qdisc "),
                    Mechanism::Application => !run.contains("sysctl"),
                };
                assert!(named, "{what}: {sets:?} by {run}, undone by {undo}");
            }
        }
    }

    #[test]
    fn names_are_unique_and_every_remedy_has_a_part_and_a_title() {
        let names: BTreeSet<_> = ALL.iter().map(|remedy| remedy.name).collect();
        assert_eq!(names.len(), ALL.len());
        let planned = || parts().filter(|(_, part)| part.plan.is_some());
        let whats: BTreeSet<_> = planned().map(|(_, part)| part.what).collect();
        assert_eq!(whats.len(), planned().count(), "an item of a plan has one remedy");
        for remedy in ALL {
            assert!(!remedy.parts.is_empty(), "{}", remedy.name);
            let state = State::present(Algorithm::Cubic).with(remedy.change);
            let present = State::present(Algorithm::Cubic);
            let step = Transition { before: present, after: state, buffers: (case().bdp, case().bdp) };
            assert!(!(remedy.title)(&step).is_empty(), "{}", remedy.name);
        }
    }

    #[test]
    fn every_limit_has_a_remedy_or_a_reason_why_not() {
        for limit in Limit::ALL {
            let (remedies, why) = (lifting(limit).count(), no_remedy(limit));
            assert_eq!(remedies == 0, why.is_some(), "{limit}: {remedies} remedies, {why:?}");
        }
    }

    fn is_simulated(change: &Change) -> bool {
        !matches!(change, Change::NotSimulated(_))
    }

    /// Remedies that affect others least are tried first.
    #[test]
    fn the_order_of_the_steps_is_fixed() {
        let names: Vec<&str> = steps().into_iter().map(|(remedy, _)| remedy.name).collect();
        let buffers = ["buffers"; 3];
        assert_eq!(names[..2], ["application_buffers", "application_pacing"]);
        assert_eq!((&names[2..5], &names[5..]), (&buffers[..], &["bbr", "connections"][..]));
    }

    /// The ladder compares simulated states, so all of its remedies must be simulated.
    #[test]
    fn the_ladder_climbs_with_what_is_simulated_and_lifts_a_limit() {
        for remedy in of_ladder() {
            assert!(!remedy.steps().is_empty() && !remedy.lifts.is_empty(), "{}", remedy.name);
            for step in remedy.steps() {
                assert!(step.lifts.iter().all(|limit| remedy.lifts.contains(limit)), "{}", remedy.name);
                assert!(!step.sizes.is_empty() && step.sizes.iter().all(is_simulated), "{}", remedy.name);
            }
        }
    }

    #[test]
    fn what_can_be_asked_for_is_found_by_its_name() {
        for what in on_request() {
            assert_eq!(what.name().parse(), Ok(what));
        }
        let error = "bbr".parse::<What>().unwrap_err().to_string();
        assert_eq!(error, "'bbr' is not one of notsent_lowat, initcwnd, slow_start_after_idle");
    }
}
