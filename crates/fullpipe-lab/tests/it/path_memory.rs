//! Tests of a sending host that remembers paths from one connection to the next.

use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::trace::{Row, Sink};

/// Data in flight of the last flow, over time in seconds.
struct Inflight {
    flow: u32,
    rows: Vec<(f64, u64)>,
}

impl Inflight {
    /// Runs flows on a path whose rate follows the trace [`falling`].
    fn of(text: &str) -> Self {
        let experiment =
            Experiment::from_toml_with(text, &|_| Ok(falling())).unwrap_or_else(|e| panic!("{e}"));
        let scenario = &experiment.points()[0].scenario;
        let mut inflight = Self { flow: scenario.flows.len() as u32 - 1, rows: Vec::new() };
        sim::run_traced(scenario, &mut inflight);
        inflight
    }

    /// Returns the maximum amount in flight between two times.
    fn most(&self, from: f64, to: f64) -> u64 {
        let rows = self.rows.iter().filter(|(at, _)| (from..to).contains(at));
        rows.map(|(_, inflight)| *inflight).max().expect("rows")
    }
}

impl Sink for Inflight {
    fn row(&mut self, row: &Row) {
        if row.flow == self.flow {
            self.rows.push((row.at.as_secs_f64(), row.sender.inflight.get()));
        }
    }
}

/// Returns three downloads of 100 kB, one after the other, over a path whose queue overflows during a launch.
fn downloads(memory: bool) -> Scenario {
    let text = format!(
        "name = 'x'\nduration = '60s'\n[path]\nrate = '10mbit'\nrtt = '100ms'\nqueue = '0.25bdp'\n\
         [host]\nrcvbuf = '6MiB'\npath_memory = {memory}\n\
         [[flow]]\ncc = 'surge'\nbytes = '100kB'\ncount = 3\nevery = '20s'\napp = {{ request = '200B' }}"
    );
    let experiment = Experiment::from_toml(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
    experiment.points()[0].scenario.clone()
}

/// Returns the times of the first and the last download, from the SYN to the last byte, in seconds.
fn first_and_last(scenario: &Scenario) -> [f64; 2] {
    let flows = sim::run(scenario).flows;
    let time = |flow: usize| flows[flow].response.expect("complete").from_syn.as_secs_f64();
    [time(0), time(flows.len() - 1)]
}

/// With path memory, a later connection starts at the rate of the bottleneck. Without it, each connection starts like
/// the first one.
#[test]
fn a_later_download_knows_the_bottleneck() {
    let ([first, last], [cold, again]) =
        (first_and_last(&downloads(true)), first_and_last(&downloads(false)));
    assert_eq!((first, cold), (again, again));
    assert!(last < 0.9 * first, "{last} {first}");
}

/// Returns a Mahimahi trace of a link with 100 Mbit/s for ten seconds and 5 Mbit/s for the next twenty seconds.
fn falling() -> String {
    let times = |from: u64, until: u64, bits: u64| {
        let packets = (until - from) * bits / 12_000_000;
        (0..packets).map(move |packet| from + packet * 12_000_000 / bits)
    };
    let times = times(0, 10_000, 100_000_000).chain(times(10_000, 30_000, 5_000_000));
    times.skip(1).chain([30_000]).map(|time| format!("{time}\n")).collect()
}

/// BDP of the path after its rate has fallen, in bytes.
const NEW_BDP: u64 = 5_000_000 / 8 / 10;

/// The rate of the path falls from 100 to 5 Mbit/s between two connections. Two seconds after its start, the second
/// connection has at most two BDP of the slower path in flight, although it remembers the faster path.
#[test]
fn a_remembered_path_may_have_become_slower() {
    let text = "name = 'x'\nduration = '30s'\n[path]\nrate = { trace = 'falling' }\nrtt = '100ms'\nqueue = '300kB'\n\
                [host]\nrcvbuf = '6MiB'\npath_memory = true\n\
                [[flow]]\ncc = 'surge'\nbytes = '8MB'\ncount = 2\nevery = '12s'\napp = { request = '200B' }\n\
                [[sample]]\nevery = '10ms'";
    let most = Inflight::of(text).most(14.0, 25.0);
    assert!((NEW_BDP..=2 * NEW_BDP).contains(&most), "{most} of {NEW_BDP}");
}

/// The rate of the path falls from 100 to 5 Mbit/s during a transfer. Two seconds later, at most two BDP of the new
/// path are in flight. The queue holds half of the data that the slower path carries in this time.
#[test]
fn a_path_may_become_slower_during_a_transfer() {
    let text = "name = 'x'\nduration = '30s'\n[path]\nrate = { trace = 'falling' }\nrtt = '100ms'\nqueue = '600kB'\n\
                [[flow]]\ncc = 'surge'\n[[sample]]\nevery = '10ms'";
    let most = Inflight::of(text).most(12.0, 30.0);
    assert!((NEW_BDP..=2 * NEW_BDP).contains(&most), "{most} of {NEW_BDP}");
}
