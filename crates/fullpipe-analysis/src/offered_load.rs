//! Offered load: the rate that an application offers, compared with each rung of the ladder.
//!
//! If the path carries less than the application offers, the rest stays in a queue of the application. If
//! this queue has no bound, the kernel eventually kills the application for lack of memory, no matter how
//! much memory there is ([`crate::demand`]).
//!
//! The first remedy therefore concerns the application: a bound for its queue, and a rule for a full queue.
//! The second one limits the kernel's part of the queue (`tcp_notsent_lowat`), and the last one improves the
//! path up to the rung that carries the rate.

use fullpipe_units::Rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::advice::Command;
use crate::demand::{Backlog, Carries, Demand, MemorySource};
use crate::ladder::{Rung, Source};
use crate::remedy::catalogue;

/// The ladder, compared with the rate that an application offers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OfferedLoad {
    /// Rate of the payload that the application produces: key `offered_bps`.
    #[serde(rename = "offered_bps", with = "fullpipe_measurement::json::Bps")]
    pub rate: Rate,
    /// Memory assumed to be available to the application's queue, in bytes.
    pub memory_bytes: u64,
    /// Source of the memory size.
    pub memory_source: MemorySource,
    /// Growth of the queue on each rung of the ladder.
    pub rungs: Vec<Backlog>,
    /// Index, from 0, of the first rung that carries the rate; null if no rung does.
    pub first_that_carries: Option<usize>,
    /// Remedies, most important first.
    pub remedies: Vec<Remedy>,
}

/// Remedy for a growing queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Remedy {
    /// The remedy as a sentence.
    pub what: String,
    /// Commands that apply the remedy; empty if only a change to the application's source helps. The commands
    /// for the path are part of the ladder.
    pub commands: Vec<Command>,
}

impl OfferedLoad {
    /// Compares `demand` with each rung of a ladder. `line` tells whether the rate of the last rung is a
    /// known link rate or rate cap.
    pub fn of(demand: Demand, ladder: &[Rung], line: bool) -> Self {
        let rungs: Vec<Backlog> = ladder.iter().map(|rung| backlog(demand, rung, line)).collect();
        let enough = |backlog: &Backlog| matches!(backlog.carries, Carries::All | Carries::OnAverage);
        let first_that_carries = rungs.iter().position(enough);
        Self {
            rate: demand.rate,
            memory_bytes: demand.memory.bytes().get(),
            memory_source: demand.memory.source(),
            first_that_carries,
            remedies: remedies(demand, ladder, &rungs, first_that_carries),
            rungs,
        }
    }
}

fn backlog(demand: Demand, rung: &Rung, line: bool) -> Backlog {
    let (offered, carried) = (demand.rate, rung.lasting());
    let low = rung.low.unwrap_or(carried).min(carried);
    let carries = if offered <= low {
        Carries::All
    } else if offered <= carried {
        Carries::OnAverage
    } else if rung.source == Source::Given && !line {
        Carries::Unknown
    } else {
        Carries::Less
    };
    Backlog::grown(demand, carried, carries)
}

fn remedies(demand: Demand, ladder: &[Rung], rungs: &[Backlog], first: Option<usize>) -> Vec<Remedy> {
    let path = match first {
        Some(0) => Some(format!(
            "the path already carries {} (its rate is {}); if the queue still grows, it has another \
             cause, such as a receiver that pauses",
            demand.rate, rungs[0].carried
        )),
        Some(index) => Some(carrying(demand, ladder, &rungs[index], index)),
        None if rungs.is_empty() => None,
        None => Some(match rungs.last() {
            Some(last) if last.carries == Carries::Unknown => format!(
                "then improve the path: no remedy on this ladder carries {}, and the rate of the link is not known",
                demand.rate
            ),
            Some(last) => format!(
                "the path cannot carry {}, only {}: send less, compress the data, or add a link",
                demand.rate, last.carried
            ),
            None => String::new(),
        }),
    };
    // The queue needs a bound on every path, because even a path that carries the mean rate carries less at
    // times.
    let mut remedies: Vec<Remedy> = catalogue::ALL
        .iter()
        .filter_map(|remedy| remedy.backlog.as_ref())
        .map(|backlog| Remedy { what: backlog.what.into(), commands: (backlog.commands)() })
        .collect();
    remedies.extend(path.map(|what| Remedy { what, commands: Vec::new() }));
    remedies
}

fn carrying(demand: Demand, ladder: &[Rung], backlog: &Backlog, index: usize) -> String {
    let steps: Vec<String> = ladder[..=index].iter().filter_map(|rung| rung.remedies.title()).collect();
    if ladder[index].source == Source::Given {
        return format!(
            "no remedy on this ladder carries {} on one connection, but the link could carry it ({}): use \
             several connections, or send less",
            demand.rate, backlog.carried
        );
    }
    let bad_times = match backlog.carries {
        Carries::OnAverage => "; at the low end of the simulated range, the queue still grows",
        _ => "",
    };
    format!(
        "then improve the path with {}, which carries {} (offered: {}){bad_times}",
        steps.join(", then "),
        backlog.carried,
        demand.rate
    )
}

#[cfg(test)]
mod tests {
    use fullpipe_units::Bytes;

    use super::*;
    use crate::advice::AppliedRemedy;
    use crate::demand::{Memory, MemorySource};
    use crate::ladder::RungRemedies;
    use fullpipe_measurement::classify::Limit;

    fn mbit(n: u64) -> Rate {
        Rate::from_bps(n * 1_000_000)
    }

    fn titled(title: &str) -> AppliedRemedy {
        AppliedRemedy { title: title.into(), ..AppliedRemedy::default() }
    }

    /// Returns four rungs of 70, 95 (90 to 100), 830 (700 to 900) and 965 Mbit/s; the last one is the link.
    fn ladder() -> Vec<Rung> {
        let rung = |rate, range: Option<(u64, u64)>, source, remedy: Option<&str>| Rung {
            steady: Some(mbit(rate)),
            low: range.map(|(low, _)| mbit(low)),
            high: range.map(|(_, high)| mbit(high)),
            remedies: RungRemedies(remedy.map(titled).into_iter().collect()),
            ..Rung::new(Limit::Cwnd, "a limit", mbit(rate), source)
        };
        vec![
            rung(70, None, Source::Measured, None),
            rung(95, Some((90, 100)), Source::Simulated, Some("BBR on the sender")),
            rung(830, Some((700, 900)), Source::Simulated, Some("larger buffers")),
            rung(965, None, Source::Given, None),
        ]
    }

    fn offered(rate: u64) -> OfferedLoad {
        OfferedLoad::of(
            Demand { rate: mbit(rate), memory: Memory::Given(Bytes::new(1_000_000_000)) },
            &ladder(),
            true,
        )
    }

    fn carries(offered: &OfferedLoad) -> Vec<Carries> {
        offered.rungs.iter().map(|backlog| backlog.carries).collect()
    }

    #[test]
    fn what_the_path_does_not_carry_piles_up() {
        let offered = offered(150);
        assert_eq!(carries(&offered), [Carries::Less, Carries::Less, Carries::All, Carries::All]);
        assert_eq!(offered.first_that_carries, Some(2));
        // 80 Mbit/s in excess of the path: 10 MB per second, or 1 GB after 100 s.
        let present = &offered.rungs[0];
        assert_eq!((present.growth_bytes_per_s, present.growth_bytes_per_minute), (10_000_000, 600_000_000));
        assert_eq!(present.memory_full_after_s, Some(100.0));
        assert_eq!((offered.rungs[2].growth_bytes_per_s, offered.rungs[2].memory_full_after_s), (0, None));
    }

    #[test]
    fn the_queue_comes_before_the_path() {
        let remedies = offered(150).remedies;
        let [queue, kernel, path] = remedies.as_slice() else { panic!("{remedies:#?}") };
        assert!(queue.what.starts_with("bound the application's queue") && queue.what.contains("conflate"));
        assert!(kernel.commands.iter().any(|command| command.run.contains("TCP_NOTSENT_LOWAT")));
        assert_eq!(
            path.what,
            "then improve the path with BBR on the sender, then larger buffers, which carries 830 Mbit/s \
             (offered: 150 Mbit/s)"
        );
        let fine = offered(60);
        assert!(fine.remedies[0].what == queue.what, "the bound is wanted all the same");
        assert!(
            fine.remedies[2].what.starts_with("the path already carries 60 Mbit/s (its rate is 70 Mbit/s)")
        );
    }

    #[test]
    fn a_mean_that_suffices_is_no_promise() {
        let offered = offered(92);
        assert_eq!(carries(&offered)[1], Carries::OnAverage);
        assert_eq!(offered.first_that_carries, Some(1));
        assert!(
            offered.remedies[2]
                .what
                .ends_with("at the low end of the simulated range, the queue still grows")
        );
    }

    #[test]
    fn what_nothing_carries_is_said() {
        let of_line = offered(900);
        assert_eq!(of_line.first_that_carries, Some(3));
        assert!(of_line.remedies[2].what.contains("several connections"));
        let beyond = offered(2000);
        assert_eq!(beyond.first_that_carries, None);
        assert!(beyond.remedies[2].what.contains("only 965 Mbit/s"));
        let unknown = OfferedLoad::of(Demand { rate: mbit(2000), memory: Memory::Unknown }, &ladder(), false);
        assert_eq!(unknown.rungs[3].carries, Carries::Unknown);
        assert_eq!((unknown.memory_bytes, unknown.memory_source), (1 << 30, MemorySource::Example));
        assert!(unknown.remedies[2].what.contains("the link is not known"));
    }
}
