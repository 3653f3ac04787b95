//! Logs for tests.

use fullpipe_measurement::PathFacts;
use fullpipe_measurement::input::{InputError, iperf3};
use fullpipe_measurement::measurement::Measurement;

use super::{Facts, Findings, HostFacts, explain};

/// Builds a log with one-second intervals from rates in Mbit/s, retransmissions, and Cwnd in KiB.
pub(crate) fn log_of(rows: impl IntoIterator<Item = (f64, u64, u64)>) -> Measurement {
    let mut text =
        String::from("Connecting to host h, port 5201\n[ ID] Interval Transfer Bitrate Retr Cwnd\n");
    let mut total = 0.0;
    let mut end = 0;
    for (mbps, retr, cwnd) in rows {
        let mib = mbps * 1e6 / 8.0 / 1048576.0;
        let start = end;
        end += 1;
        total += mib;
        text +=
            &format!("[  5] {start}.00-{end}.00 sec {mib} MBytes {mbps} Mbits/sec {retr} {cwnd} KBytes\n");
    }
    let mean = total * 8.0 * 1.048_576 / f64::from(end);
    text += &format!("[  5] 0.00-{end}.00 sec {total} MBytes {mean} Mbits/sec 0 sender\n");
    iperf3::parse(&text).unwrap()
}

/// Returns a path with only the RTT known.
pub(crate) fn path(rtt: &str) -> PathFacts {
    PathFacts { rtt: rtt.parse().ok(), ..PathFacts::default() }
}

/// Returns the findings of a measurement.
pub(crate) fn explained(
    measurement: &Measurement,
    path: PathFacts,
    hosts: &HostFacts,
) -> Result<Findings, InputError> {
    explain(&Facts { measurement, transfer: &measurement.transfer(), path, hosts })
}
