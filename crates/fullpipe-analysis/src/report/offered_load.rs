//! Offered load on each rung of the ladder, as text.

use fullpipe_units::{Bytes, Duration};

use super::page::{Page, RATE_WIDTH};
use crate::demand::{Backlog, Carries, MemorySource};
use crate::offered_load::OfferedLoad;

impl Page {
    /// Adds the growth of the application's queue on each rung, and the remedies for it.
    pub(super) fn offered(&mut self, offered: Option<&OfferedLoad>) {
        let Some(offered) = offered else { return };
        self.heading(&format!("The application's queue with an offered load of {}", offered.rate));
        for (carried, becomes) in on_each_rung(offered) {
            self.hanging(&format!("  {carried:>RATE_WIDTH$}  "), &becomes);
        }
        self.heading("What to do: first the queue, then the path");
        for (number, remedy) in offered.remedies.iter().enumerate() {
            self.hanging(&format!("  {}. ", number + 1), &remedy.what);
            self.commands(&remedy.commands.iter().collect::<Vec<_>>());
        }
    }
}

/// Returns the rate of each rung and the growth of the queue there. The source of the memory size appears
/// only once.
pub(super) fn on_each_rung(offered: &OfferedLoad) -> Vec<(String, String)> {
    let mut whose = whose(offered.memory_source);
    let rung = |backlog: &Backlog| {
        let becomes = becomes(backlog, Bytes::new(offered.memory_bytes), whose);
        if backlog.carries == Carries::Less {
            whose = "";
        }
        (backlog.carried.to_string(), becomes)
    };
    offered.rungs.iter().map(rung).collect()
}

/// Describes the growth of an application's queue; `whose` is a clause about the source of the memory size.
pub(super) fn becomes(backlog: &Backlog, memory: Bytes, whose: &str) -> String {
    match backlog.carries {
        Carries::All => "carries it".into(),
        Carries::OnAverage => "carries the load on average; at the low end of the simulated range, the \
                               queue grows"
            .into(),
        Carries::Unknown => "not known, because the link may carry more".into(),
        Carries::Less => {
            let full = backlog.memory_full_after_s.map(span).unwrap_or_default();
            format!(
                "the queue grows by {} per second, {} per minute, and fills {memory}{whose} after {full}",
                Bytes::new(backlog.growth_bytes_per_s),
                Bytes::new(backlog.growth_bytes_per_minute)
            )
        }
    }
}

fn whose(source: MemorySource) -> &'static str {
    match source {
        MemorySource::Available => " (the free memory of this host)",
        MemorySource::Example => " (give the size with --memory)",
        MemorySource::Given => "",
    }
}

/// Formats a duration as `96.3s`, `5.8 min`, `3.2 h` or `2.1 days`.
fn span(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => Duration::from_secs_f64(s).to_string(),
        s if s < 7_200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3_600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_said_in_the_unit_that_people_use() {
        assert_eq!([5.0, 348.0, 12_000.0, 200_000.0].map(span), ["5s", "5.8 min", "3.3 h", "2.3 days"]);
    }
}
