//! One short test of TCP to an iperf3 server, made for its diagnosis.
//!
//! What is unknown of a path to HOST is what stops one TCP flow to it, so that is what is measured: one stream, from here. It
//! lasts for many round trips, because on a long path the start alone takes seconds and losses come seconds apart.

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

/// Shortest and longest test, and how many round trips it is to have.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(30);
const ROUND_TRIPS: u64 = 100;
/// A control measurement has no long path to get used to.
const CONTROL: Duration = Duration::from_secs(3);

/// Names of files that are missing, rather than hosts.
const FILE_ENDINGS: [&str; 11] =
    ["txt", "log", "json", "jsonl", "csv", "pcap", "pcapng", "cap", "gz", "sysctl", "out"];

/// The server that `name` means, if it means one. What is a file, looks like the path or the name of one, or is standard input,
/// is none.
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

/// What the limits of the path may be compared with: the rate of one flow where the path is short.
#[derive(Clone, Debug)]
pub enum Control {
    /// A measured rate.
    Rate(Rate),
    /// An iperf3 server nearby, as `HOST[:PORT]`, to measure it to.
    Host(String),
}

/// What a test has shown.
#[derive(Clone, Debug)]
pub struct Probe {
    measurement: Measurement,
    /// What one flow reaches to the control server, if there is one.
    control: Option<Rate>,
    here: bool,
}

impl Probe {
    /// Measures to `place`, after the control server if there is one.
    ///
    /// # Errors
    /// A server cannot be reached or refuses, or `stop` came before the end.
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
                    "measuring {CONTROL} of TCP to {} port {}, the control",
                    near.host, near.port
                ));
                let (recorder, _) = run(&near, None, stop)?;
                let rate = recorder.document.end.arrived();
                notes.push(format!("the control: {rate} to {} port {}", near.host, near.port));
                Some(rate)
            }
            Some(Control::Rate(rate)) => Some(*rate),
            None => None,
        };
        observer.status(&format!("measuring TCP to {} port {}", place.host, place.port));
        let (recorder, latency) = run(place, Some(enough), stop)?;
        notes.push(format!("measured by one stream of TCP to {} port {}", place.host, place.port));
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

    /// What was measured.
    pub fn measurement(&self) -> &Measurement {
        &self.measurement
    }

    /// What the test says of the hosts.
    pub fn hosts(&self) -> HostFacts {
        HostFacts { peer_is_unknown: !self.here, control: self.control, ..HostFacts::default() }
    }
}

/// One test; with the line that tells of its latency.
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
        return Err(Error::new("the measurement was interrupted", "let it finish; it takes 10 to 30 s"));
    }
    recorder.document.end = finished.end;
    let latency = format!("latency: {}", recorder.latency(finished.idle_rtt));
    Ok((recorder, latency))
}

/// How long a test must be for a path of this round trip.
fn enough(rtt: Duration) -> Duration {
    (rtt * ROUND_TRIPS).max(SHORTEST).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log that is missing is a missing log, not a host that nobody knows.
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
