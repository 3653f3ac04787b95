//! Runs one short TCP test to an iperf3 server, for a diagnosis.
//!
//! The diagnosis determines the limit of one TCP flow from this host, so the test has one stream. The test
//! lasts for many round trips, because on a long path slow start alone takes seconds, and losses are seconds
//! apart.

use std::path::Path;

use fullpipe_analysis::input::trace;
use fullpipe_analysis::measurement::Format;
use fullpipe_analysis::{HostFacts, Measurement};
use fullpipe_iperf3::Params;
use fullpipe_linux::Stop;
use fullpipe_linux::iperf3::ServerAddress;
use fullpipe_linux::iperf3::client::{self, Client};
use fullpipe_units::{Duration, Rate};

use super::explained::is_this_host;
use super::recorder::{ROWS, Recorder};
use crate::Error;
use crate::run::Observer;

/// Minimum and maximum duration of a test, and its target duration in round trips (`ROUND_TRIPS`).
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(30);
const ROUND_TRIPS: u64 = 100;
/// Duration of the control measurement, which can be short because slow start is over quickly on a short
/// path.
const CONTROL: Duration = Duration::from_secs(3);

/// File name extensions by which an argument is recognised as a file, even if the file does not exist.
const FILE_ENDINGS: [&str; 11] =
    ["txt", "log", "json", "jsonl", "csv", "pcap", "pcapng", "cap", "gz", "sysctl", "out"];

/// Parses `name` as the address of an iperf3 server. Returns `None` for standard input, for an existing file,
/// and for any name that looks like a path or file name.
pub fn server(name: &str) -> Option<ServerAddress> {
    let path = Path::new(name);
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    let file = name.is_empty()
        || name == "-"
        || name.contains(['/', ' '])
        || path.exists()
        || ending.is_some_and(|ending| FILE_ENDINGS.contains(&ending.as_str()));
    if file { None } else { ServerAddress::named(name).ok() }
}

/// Source of the reference rate, which is the rate that one flow reaches over a short path.
#[derive(Clone, Debug)]
pub enum Control {
    /// Reference rate that was measured earlier.
    Rate(Rate),
    /// Nearby iperf3 server (`HOST[:PORT]`) with which to measure the reference rate.
    Host(String),
}

/// Result of a test to an iperf3 server.
#[derive(Clone, Debug)]
pub struct Probe {
    measurement: Measurement,
    /// Rate of one flow to the control server; `None` if it was not measured.
    control: Option<Rate>,
    here: bool,
}

impl Probe {
    /// Runs a test to the iperf3 server `place`; before that, runs a test to the control server if there is
    /// one.
    ///
    /// # Errors
    /// Returns an error if a server is unreachable or refuses the test, or if `stop` was set before the test
    /// ended.
    pub fn measure(
        place: &ServerAddress,
        control: Option<&Control>,
        stop: &Stop,
        observer: &impl Observer,
    ) -> Result<Self, Error> {
        let mut notes = Vec::new();
        let control = match control {
            Some(Control::Host(name)) => {
                let near = ServerAddress::named(name).map_err(|why| {
                    Error::usage(
                        format!("--control {name}: {why}"),
                        "write a rate such as 940mbit, or HOST[:PORT]",
                    )
                })?;
                observer.status(&format!(
                    "measuring TCP to {} port {} for {CONTROL}, as the control measurement",
                    near.host, near.port
                ));
                let (recorder, _) = run(&near, None, stop)?;
                let rate = recorder.document.end.arrived();
                notes.push(format!("control measurement: {rate} to {} port {}", near.host, near.port));
                Some(rate)
            }
            Some(Control::Rate(rate)) => Some(*rate),
            None => None,
        };
        observer.status(&format!("measuring TCP to {} port {}", place.host, place.port));
        let (recorder, latency) = run(place, Some(enough), stop)?;
        notes.push(format!("measured with one TCP stream to {} port {}", place.host, place.port));
        notes.push(latency);
        notes.push(super::explained::ONE_END.into());
        let here = is_this_host(&recorder.document);
        let measurement = trace::of_streams(
            recorder.rows.streams(),
            Format::Trace,
            notes,
            "measure for longer: fullpipe iperf3 -c",
        )?;
        Ok(Self { measurement, control, here })
    }

    /// Returns the measurement that the diagnosis explains.
    pub fn measurement(&self) -> &Measurement {
        &self.measurement
    }

    /// Returns the facts about both hosts that the test revealed.
    pub fn hosts(&self) -> HostFacts {
        HostFacts { peer_is_unknown: !self.here, control: self.control, ..HostFacts::default() }
    }
}

/// Runs one test, and returns its result with a line of text about the latency.
fn run(
    place: &ServerAddress,
    length: Option<fn(Duration) -> Duration>,
    stop: &Stop,
) -> Result<(Recorder, String), Error> {
    let params =
        Params { time: CONTROL, client_version: Some(env!("CARGO_PKG_VERSION").into()), ..Params::default() };
    let client = Client { place: place.clone(), params, interval: Duration::ZERO, length };
    let mut recorder = Recorder::new(false, ROWS, None, None);
    let finished = client::run(&client, &mut recorder, stop)?;
    if finished.interrupted {
        return Err(Error::new(
            "the measurement was interrupted",
            "run the command again, and wait 10 to 30 s until the measurement ends",
        ));
    }
    recorder.document.end = finished.end;
    let latency = format!("latency: {}", recorder.latency(finished.idle_rtt));
    Ok((recorder, latency))
}

/// Returns the duration that a test needs on a path with this RTT.
fn enough(rtt: Duration) -> Duration {
    (rtt * ROUND_TRIPS).max(SHORTEST).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a log file does not exist, the error message is about a missing file instead of an unknown host.
    #[test]
    fn files_are_files() {
        for file in ["-", "", "absent.txt", "logs/run", "./run", "Cargo.toml", "trace.CSV", "my log"] {
            assert!(server(file).is_none(), "{file}");
        }
        for host in ["example.com", "192.0.2.1", "server:5201", "::1"] {
            assert!(server(host).is_some(), "{host}");
        }
    }

    #[test]
    fn a_long_path_is_measured_for_longer() {
        assert_eq!(enough(Duration::from_millis(1)), Duration::from_secs(10));
        assert_eq!(enough(Duration::from_millis(210)), Duration::from_secs(21));
        assert_eq!(enough(Duration::from_secs(2)), Duration::from_secs(30));
    }
}
