//! Loss rates that a log shows, compared with those of the simulated path that wrote it.

use fullpipe_analysis::Findings;
use fullpipe_units::Duration;

use crate::case::Case;
use crate::simulated_log::Transferred;

const MIB64: &str = "sndbuf = '64MiB'\nrcvbuf = '64MiB'";

/// Path of a test: link rate in Mbit/s, RTT in milliseconds, and the lines about the hosts.
type Line = (u64, u64, &'static str);

fn path((link, rtt, _): Line, loss: f64) -> String {
    format!("rate = '{link}mbit'\nrtt = '{rtt}ms'\nqueue = '1bdp'\nloss = '{loss}%'")
}

/// Returns what the text log and the JSON log of a run show.
fn logs((link, rtt, host): Line, loss: f64, cc: &str, seed: u64, known: bool) -> [Findings; 2] {
    let run = Transferred::of(&path((link, rtt, host), loss), host, &format!("cc = '{cc}'"), seed);
    let link = known.then(|| format!("{link}mbit").parse().expect("a rate"));
    let name = if cc == "bbr1" { "bbr" } else { cc };
    [run.text(), run.json(name)].map(|log| {
        let case = Case::of(&log).link(link).rtt(Some(Duration::from_millis(rtt)));
        case.explain().expect("an explanation")
    })
}

/// BBR does not react to losses, so a log has retransmissions in every interval, and counting one event per
/// interval ignores all but one of them: a loss of 2 % was once reported as 0.03 %.
#[test]
fn each_retransmission_of_bbr_is_a_loss() {
    // The path has room, because small buffers limit the flow.
    let lines = [
        (1000, 210, "sndbuf = '8MiB'\nrcvbuf = '8MiB'"),
        (500, 40, "sndbuf = '1MiB'\nrcvbuf = '1MiB'"),
        (200, 140, "sndbuf = '2MiB'\nrcvbuf = '4MiB'"),
    ];
    for line in lines {
        for loss in [0.1, 0.5, 2.0, 3.0] {
            for (seed, known) in [(1, true), (2, false)] {
                for found in logs(line, loss, "bbr1", seed, known) {
                    let told = found.loss.expect("a loss rate");
                    let (truth, rate) = (loss / 100.0, told.rate.as_f64());
                    let label = format!("{line:?} {loss} % {:?}: {told}", found.sender);
                    println!("{label}");
                    assert!((0.8..1.25).contains(&(rate / truth)), "{label}");
                    assert!(told.low.as_f64() <= truth && truth <= told.high.as_f64(), "{label}");
                    assert!(told.at_most.as_f64() >= 0.8 * truth, "{label}");
                }
            }
        }
    }
}

/// On a full link, BBR's retransmissions may repair what its own queue dropped: they are an upper bound.
#[test]
fn retransmissions_on_a_full_link_are_an_upper_bound() {
    for loss in [0.0, 0.5, 2.0] {
        for found in logs((50, 100, MIB64), loss, "bbr1", 1, true) {
            let told = found.loss.expect("a loss rate");
            let label = format!("{loss} % {:?} {:?}: {told}", found.sender, found.findings[0].limit);
            println!("{label}");
            let truth = loss / 100.0;
            assert!(told.low.as_f64() <= truth && truth <= told.high.as_f64(), "{label}");
        }
    }
}

/// A loss-based sender on a bad path loses something in every interval, too. Its small window makes most
/// losses separate events.
#[test]
fn events_of_a_loss_based_sender_are_told_apart() {
    for line in [(100, 40, MIB64), (100, 20, MIB64), (1000, 100, MIB64)] {
        for loss in [0.5, 1.0, 2.0] {
            for found in logs(line, loss, "cubic", 1, true) {
                let told = found.loss.expect("a loss rate");
                let (truth, rate) = (loss / 100.0, told.rate.as_f64());
                let label = format!("{line:?} {loss} % {:?}: {told}", found.sender);
                println!("{label}");
                assert!((0.6..1.4).contains(&(rate / truth)), "{label}");
                assert!(told.low.as_f64() <= truth && truth <= told.high.as_f64(), "{label}");
            }
        }
    }
}

/// Even if most intervals have no retransmission, some contain two losses. A count of lossy intervals alone
/// is on average a quarter too low.
#[test]
fn events_that_share_an_interval_are_counted() {
    for (line, loss) in [((100, 100, MIB64), 0.1), ((50, 100, MIB64), 0.2)] {
        let ratios: Vec<f64> = (1..=16)
            .map(|seed| {
                let [_, json] = logs(line, loss, "reno", seed, true);
                let told = json.loss.expect("a loss rate");
                println!("{line:?} {loss} %, seed {seed}: {told}");
                told.rate.as_f64() / (loss / 100.0)
            })
            .collect();
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        println!("{line:?} {loss} %: mean ratio {mean:.3}");
        assert!((0.85..1.15).contains(&mean), "{line:?} {loss} %: {ratios:?}");
    }
}
