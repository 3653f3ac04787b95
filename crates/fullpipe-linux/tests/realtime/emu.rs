//! Tests of kernel flows on an emulated path, as root: the path behaves like that of the simulator, and the
//! reports are accurate.

use crate::rights;
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::scenario::{HostSpec, Scenario};
use fullpipe_lab::trace::{NoTrace, Row};
use fullpipe_linux::Datapath;
use fullpipe_linux::emu::{EmuRun, Options, hosts, run, run_between};
use fullpipe_path::{PacketKind, Verdict};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_units::Duration;

/// Returns a scenario of 1 s on a short path on which packets are dropped and delayed for all possible
/// reasons.
fn scenario(flow: &str) -> Scenario {
    let text = format!(
        "name = 'x'\nduration = '1s'\n[path]\nrate = '100mbit'\nrtt = '10ms'\nloss = '1%'\nqueue = '30KiB'\n\
         shaper = {{ rate = '80mbit', burst = '30KiB', queue = '60KiB' }}\n[host]\nrcvbuf = '4MiB'\n\
         [[flow]]\n{flow}\n[[sample]]\nevery = '50ms'\n"
    );
    let experiment = Experiment::from_toml(&text).expect("valid");
    Scenario { seed: 7, ..experiment.points()[0].scenario.clone() }
}

fn logged(scenario: &Scenario, datapath: Datapath) -> EmuRun {
    run(scenario, Options { datapath, logged: true }, &mut NoTrace).unwrap_or_else(|e| panic!("{e}"))
}

/// Replaying the arrivals of a run on a new path in virtual time gives the same verdicts and departures, to
/// the nanosecond. The verdicts and departures therefore do not depend on the wake-up times and the lateness
/// of the loop.
fn replays(datapath: Datapath) {
    let Some(_alone) = rights::alone() else { return };
    let scenario = scenario("cc = 'bbr1'\ncount = 2");
    let logs = logged(&scenario, datapath).logs.expect("asked for");
    let directions = [&scenario.path.forward, &scenario.path.backward];
    for (number, (log, spec)) in logs.iter().zip(directions).enumerate() {
        let replayed = log.replayed(spec, &scenario.flows, scenario.seed, number as u64);
        assert_eq!(log.arrivals, replayed.arrivals, "direction {number}");
        assert!(log.arrivals.len() > 500, "{} arrivals", log.arrivals.len());
        // The link stopped before the last packets were due, so it wrote only the first of the replayed
        // departures.
        let written = log.departures.len();
        assert_eq!(log.departures, replayed.departures[..written], "direction {number}");
        assert!(replayed.departures.len() - written < 200, "{written} of {}", replayed.departures.len());
    }
    let verdicts = |verdict| logs[0].arrivals.iter().filter(|arrival| arrival.verdict == verdict).count();
    assert!(verdicts(Verdict::Lost) > 10 && verdicts(Verdict::QueueFull) > 10, "nothing was dropped");
    let cut = logs[0].arrivals.iter().filter(|arrival| arrival.packet.continues).count();
    assert_eq!(cut > 0, datapath == Datapath::Offload, "{cut} segments of super-packets");
    // In both datapaths, the logged packets are wire segments of at most the MTU, and never super-packets.
    let longest = logs[0].arrivals.iter().map(|arrival| arrival.packet.len).max();
    assert_eq!(longest, Some(1_500));
}

#[test]
fn the_path_of_a_run_replays_bit_for_bit() {
    replays(Datapath::Plain);
}

#[test]
fn the_path_of_an_offload_run_replays_bit_for_bit() {
    replays(Datapath::Offload);
}

/// A path with internal timers also replays identically: CoDel drops packets or marks them with CE between
/// arrivals, ACKs are aggregated and decimated, packets are duplicated and reordered, and the hosts are at two
/// distances. The kernels have
/// negotiated ECN and respond to the CE marks.
#[test]
fn a_path_with_times_of_its_own_replays_bit_for_bit() {
    let Some(_alone) = rights::alone() else { return };
    let text = "name = 'x'\nduration = '1s'\n[path]\nrate = '50mbit'\nrtt = '10ms'\nduplicate = '1%'\n\
                queue = { size = '60KiB', aqm = 'AQM', target = '1ms', interval = '10ms', ecn = true }\n\
                jitter = { up_to = '1ms', share = '5%', order = false }\n\
                backward = { ack_thinning = 2, aggregation = { within = '1ms', packets = 8 } }\n\
                [host]\nrcvbuf = '4MiB'\necn = ECN\n[[flow]]\ncc = 'cubic'\n[[flow]]\ncc = 'cubic'\naccess_rtt = '6ms'\n\
                [[sample]]\nevery = '50ms'\n";
    for (aqm, ecn, datapath) in [
        ("codel", "true", Datapath::Plain),
        ("codel", "false", Datapath::Offload),
        ("fq_codel", "true", Datapath::Offload),
    ] {
        let experiment = Experiment::from_toml(&text.replace("ECN", ecn).replace("AQM", aqm)).expect("valid");
        let scenario = Scenario { seed: 7, ..experiment.points()[0].scenario.clone() };
        let ran = logged(&scenario, datapath);
        let logs = ran.logs.expect("asked for");
        let directions = [&scenario.path.forward, &scenario.path.backward];
        for (number, (log, spec)) in logs.iter().zip(directions).enumerate() {
            let replayed = log.replayed(spec, &scenario.flows, scenario.seed, number as u64);
            assert_eq!(log.arrivals, replayed.arrivals, "{datapath:?}, direction {number}");
            let written = log.departures.len();
            assert!(written > 200, "{written} departures");
            assert_eq!(log.departures, replayed.departures[..written], "{datapath:?}, direction {number}");
        }
        let path = ran.outcome.path;
        assert!(path.duplicated > 10 && path.reordered > 10 && path.acks_thinned > 100, "{path:?}");
        match ecn {
            "true" => assert!(path.marked > 5, "{path:?}"),
            _ => assert!(path.marked == 0 && path.aqm_drops > 5, "{path:?}"),
        }
        // The reconciliation of drops and retransmits includes every drop inside the path.
        assert!(ran.validity.drops >= path.aqm_drops + path.queue_drops, "{:?}, {path:?}", ran.validity);
        assert_eq!(ran.validity.tun_drops, 0);
        if ecn == "true" {
            // With ECN marks, the kernel retransmits almost nothing.
            assert!(path.aqm_drops <= path.marked, "{path:?}");
        }
    }
}

/// In both datapaths, both ends count the same number of bytes as the path: no byte is lost or added between
/// kernel and path.
#[test]
fn a_transfer_of_limited_size_arrives_whole() {
    let Some(_alone) = rights::alone() else { return };
    for datapath in [Datapath::Plain, Datapath::Offload] {
        let mut rows: Vec<Row> = Vec::new();
        // The transfer takes a tenth of this duration, plus some timeouts on a busy machine.
        let duration = Duration::from_secs(2);
        let scenario = Scenario { duration, ..scenario("cc = 'cubic'\nbytes = '300kB'") };
        let ran =
            run(&scenario, Options { datapath, logged: true }, &mut rows).unwrap_or_else(|e| panic!("{e}"));
        let [flow] = &ran.outcome.flows[..] else { panic!("one flow") };
        assert_eq!((flow.cc, flow.bytes.get()), (Algorithm::Cubic.into(), 300_000), "{datapath:?}");
        let finished = flow.finished.expect("it fits");
        assert!(finished.as_secs_f64() > 0.03, "no faster than the line: {finished}");
        let last = rows.last().expect("rows");
        assert_eq!(rows.len(), 40, "a row each 50 ms");
        assert_eq!(last.received().map(|bytes| bytes.get()), Some(300_000));
        let path = last.path.expect("the path is ours");
        assert_eq!((path.queue.get(), last.sender.notsent.get()), (0, 0));
        assert_eq!(
            path.random_drops + path.queue_drops,
            ran.outcome.path.random_drops + ran.outcome.path.queue_drops
        );

        let logs = ran.logs.expect("asked for");
        let data = |verdict| {
            let of =
                logs[0].arrivals.iter().filter(|a| a.packet.kind == PacketKind::Data && a.verdict == verdict);
            of.map(|arrival| u64::from(arrival.packet.len) - 52).sum::<u64>()
        };
        let resent = ran.validity.retransmits.expect("our sockets");
        assert!(data(Verdict::Accepted) >= 300_000, "{datapath:?}");
        // Every byte that crossed the path more than once belongs to a retransmission.
        assert!(data(Verdict::Accepted) <= 300_000 + resent * 1_448, "{datapath:?}");
        assert_eq!(ran.validity.tun_drops, 0);
    }
}

/// The host settings of an experiment apply to the kernel sockets.
#[test]
fn buffers_and_windows_are_imposed() {
    let Some(_alone) = rights::alone() else { return };
    let text = "name = 'x'\nduration = '400ms'\n[path]\nrate = '50mbit'\nrtt = '20ms'\n\
                [host]\nsndbuf = { fixed = '200KiB' }\nrcvbuf = { fixed = '300KiB' }\nwindow = '20kB'\n\
                [[flow]]\ncc = 'reno'\nmax_pacing = '40mbit'\n";
    let experiment = Experiment::from_toml(text).expect("valid");
    let mut rows: Vec<Row> = Vec::new();
    run(&experiment.points()[0].scenario, Options::default(), &mut rows).unwrap_or_else(|e| panic!("{e}"));
    let last = rows.last().expect("rows");
    assert_eq!(last.sender.sndbuf.get(), 200 << 10);
    assert_eq!(last.receiver.expect("watched").rcvbuf.get(), 300 << 10);
    assert_eq!(last.sender.max_pacing_rate.map(|rate| rate.as_bps()), Some(40_000_000));
    assert!(last.sender.pacing_rate.is_some());
    assert!(last.sender.rwnd.get() <= 20_000, "{}", last.sender.rwnd);
    // A window of 20 kB per round trip of 20 ms gives 8 Mbit/s, at any link rate.
    let goodput = 8.0 * last.received().expect("watched").get() as f64 / last.at.as_secs_f64();
    assert!(goodput < 8.5e6, "{goodput} bit/s");
}

/// The route metric initcwnd sets the initial congestion window: exactly this number of segments is sent
/// before the first ACK.
#[test]
fn the_first_flight_has_as_many_segments_as_the_route_says() {
    let Some(_alone) = rights::alone() else { return };
    for (line, segments) in [("", 10), ("initcwnd = 30", 30), ("initcwnd = 3", 3)] {
        let text = format!(
            "name = 'x'\nduration = '400ms'\n[path]\nrate = '100mbit'\nrtt = '100ms'\n[host]\n{line}\n\
             [[flow]]\ncc = 'cubic'\n"
        );
        let experiment = Experiment::from_toml(&text).expect("valid");
        let ran = logged(&experiment.points()[0].scenario, Datapath::Plain);
        let [forward, _] = ran.logs.expect("asked for");
        let data: Vec<_> = forward.arrivals.iter().filter(|a| a.packet.kind == PacketKind::Data).collect();
        let acknowledged = data.first().expect("data").at + Duration::from_millis(100);
        let flight = data.iter().take_while(|arrival| arrival.at < acknowledged);
        assert_eq!(flight.clone().count(), segments, "{line}");
        assert!(flight.clone().all(|arrival| arrival.packet.len == 1_500), "{line}");
    }
}

/// An idle period reduces the congestion window if the experiment requests this, in the kernel as in the
/// simulator.
#[test]
fn a_burst_after_a_pause_begins_with_the_window_that_is_left() {
    let Some(_alone) = rights::alone() else { return };
    for (shrinks, segments) in [(true, 10), (false, 40)] {
        // The application writes 40 segments every 2 s, which is seven retransmission timeouts of 280 ms.
        let text = format!(
            "name = 'x'\nduration = '2800ms'\n[path]\nrate = '1gbit'\nrtt = '80ms'\n[host]\n\
             slow_start_after_idle = {shrinks}\n[[flow]]\ncc = 'reno'\n\
             app = {{ write = '231680bit/s', chunk = '57920B' }}\n"
        );
        let experiment = Experiment::from_toml(&text).expect("valid");
        let ran = logged(&experiment.points()[0].scenario, Datapath::Plain);
        let [forward, _] = ran.logs.expect("asked for");
        let data: Vec<_> = forward.arrivals.iter().filter(|a| a.packet.kind == PacketKind::Data).collect();
        let pause = Duration::from_millis(500);
        let after = data.windows(2).position(|pair| pair[1].at.saturating_since(pair[0].at) > pause);
        let second = &data[after.expect("a pause") + 1..];
        let acknowledged = second[0].at + Duration::from_millis(80);
        let flight = second.iter().take_while(|arrival| arrival.at < acknowledged).count();
        assert_eq!(flight, segments, "shrinks: {shrinks}");
    }
}

/// `notsent_lowat` limits the amount of unsent data without reducing the rate. The kernel requests more data
/// when the unsent data has fallen to half of the limit, and sending that half takes 65 ms at the link rate.
/// On a busy machine, the application may be late by this time, and sometimes by more.
#[test]
fn little_waits_unsent_where_the_experiment_says_so() {
    let Some(_alone) = rights::alone() else { return };
    let scenario = |line: &str| {
        let text = format!(
            "name = 'x'\nduration = '3s'\n[path]\nrate = '4mbit'\nrtt = '40ms'\nqueue = '1bdp'\n[host]\n{line}\n\
             sndbuf = {{ fixed = '2MiB' }}\n[[flow]]\ncc = 'cubic'\n"
        );
        Experiment::from_toml(&text).expect("valid").points()[0].scenario.clone()
    };
    let of = |rows: &[Row]| {
        let late = rows.iter().filter(|row| row.at.as_secs_f64() > 0.3);
        let most = late.map(|row| row.sender.notsent.get()).max().expect("rows");
        (most, rows.last().expect("rows").sender.delivered.get())
    };
    let simulated = |scenario: &Scenario| {
        let mut rows: Vec<Row> = Vec::new();
        fullpipe_lab::sim::run_traced(scenario, &mut rows);
        of(&rows)
    };
    let kernel = |scenario: &Scenario| {
        let mut rows: Vec<Row> = Vec::new();
        let ran = run(scenario, Options::default(), &mut rows).unwrap_or_else(|e| panic!("{e}"));
        eprintln!("{:?}, {:?}", of(&rows), ran.validity.stalls.woken);
        of(&rows)
    };
    let [limited, unlimited] = ["notsent_lowat = '64KiB'", ""].map(scenario);
    // If an application waits for a CPU, a run becomes slower but never faster. The test therefore passes if
    // one of several runs reaches the rate.
    type World<'a> = &'a dyn Fn(&Scenario) -> (u64, u64);
    let worlds: [(World<'_>, u32); 2] = [(&simulated, 1), (&kernel, 6)];
    for (world, attempts) in worlds {
        let (free, rate) = world(&unlimited);
        assert!(free > 1_000_000, "{free}");
        let as_fast = (0..attempts).any(|_| {
            let (bounded, slower) = world(&limited);
            // The kernel may start an skb of 64 KiB while the amount of unsent data is still below the limit.
            assert!(bounded < 2 * 65_536, "{bounded}");
            slower * 20 > rate * 19
        });
        assert!(as_fast, "less than {rate} in each of {attempts} runs");
    }
}

/// The buffer must grow to the limit that the experiment sets, rather than to the host's limit. The kernel
/// determines how much payload fits into a send buffer, because it checks the limit only when it allocates a
/// new skb, not when it appends to one.
#[test]
fn an_autotuned_buffer_grows_to_its_limit_and_no_further() {
    let Some(_alone) = rights::alone() else { return };
    let text = "name = 'x'\nduration = '1s'\n[path]\nrate = '200mbit'\nrtt = '20ms'\n\
                [host]\nsndbuf = '128KiB'\nrcvbuf = '200KiB'\n[[flow]]\ncc = 'cubic'\n";
    let experiment = Experiment::from_toml(text).expect("valid");
    let mut rows: Vec<Row> = Vec::new();
    run(&experiment.points()[0].scenario, Options::default(), &mut rows).unwrap_or_else(|e| panic!("{e}"));
    let buffers = |row: &Row| (row.sender.sndbuf.get(), row.receiver.map_or(0, |r| r.rcvbuf.get()));
    assert!(rows.iter().all(|row| buffers(row).0 <= 128 << 10 && buffers(row).1 <= 200 << 10));
    let (sndbuf, rcvbuf) = buffers(rows.last().expect("rows"));
    assert_eq!(sndbuf, 128 << 10);
    // The receive buffer has grown from its default of 128 KiB, which the data of one round trip exceeds
    // immediately.
    assert!(rcvbuf > 128 << 10, "{rcvbuf}");
}

/// The applications of an experiment limit the rate at either end, as in the simulator. The receive buffer
/// holds the data of a quarter of a second, because the reading application may be delayed on a busy machine.
#[test]
fn applications_write_and_read_at_their_rates() {
    let Some(_alone) = rights::alone() else { return };
    for app in ["write = '8mbit'", "read = '8mbit'"] {
        let text = format!(
            "name = 'x'\nduration = '3s'\n[path]\nrate = '100mbit'\nrtt = '10ms'\n[host]\nrcvbuf = {{ fixed = '256KiB' }}\n\
             [[flow]]\ncc = 'cubic'\napp = {{ {app} }}\n"
        );
        let experiment = Experiment::from_toml(&text).expect("valid");
        let mut rows: Vec<Row> = Vec::new();
        run(&experiment.points()[0].scenario, Options::default(), &mut rows)
            .unwrap_or_else(|e| panic!("{e}"));
        let (half, last) = (&rows[14], rows.last().expect("rows"));
        let received = |row: &Row| row.received().map_or(0, |bytes| bytes.get());
        let seconds = last.at.saturating_since(half.at).as_secs_f64();
        let rate = 8.0 * (received(last) - received(half)) as f64 / seconds;
        // The mean rate is computed over the whole run, because a delayed application catches up.
        let mean = 8.0 * received(last) as f64 / last.at.as_secs_f64();
        assert!(rate > 4e6 && mean < 9.5e6, "{app}: {rate} bit/s in the second half, {mean} bit/s in all");
    }
}

/// With a request, the receiver opens the connection, and the accepted socket has the congestion control of
/// its flow. Flows with and without a request can share a path.
#[test]
fn a_request_precedes_the_response() {
    let Some(_alone) = rights::alone() else { return };
    let text = "name = 'x'\nduration = '1s'\n[path]\nrate = '100mbit'\nrtt = '20ms'\n\
                [[flow]]\ncc = 'bbr1'\nbytes = '300kB'\napp = { request = '200B' }\n\
                [[flow]]\ncc = 'reno'\nbytes = '60kB'\nstart = '100ms'\napp = { request = '6kB' }\n\
                [[flow]]\ncc = 'cubic'\nbytes = '60kB'\n[[sample]]\nevery = '10ms'\n";
    let scenario = Experiment::from_toml(text).expect("valid").points()[0].scenario.clone();
    let mut rows: Vec<Row> = Vec::new();
    let options = Options { datapath: Datapath::Plain, logged: true };
    let ran = run(&scenario, options, &mut rows).unwrap_or_else(|e| panic!("{e}"));
    let bytes = ran.outcome.flows.iter().map(|flow| flow.bytes.get()).collect::<Vec<_>>();
    assert_eq!(bytes, [300_000, 60_000, 60_000]);
    assert!(ran.outcome.flows.iter().all(|flow| flow.finished.is_some()));
    // The handshake takes one round trip, and so does the time from the request to the first byte of the
    // response.
    let round_trip = Duration::from_millis(20);
    for flow in &ran.outcome.flows[..2] {
        let response = flow.response.expect("complete");
        assert!(response.from_request >= round_trip, "{response:?}");
        assert!(response.from_syn >= response.from_request + round_trip, "{response:?}");
    }
    assert_eq!(ran.outcome.flows[2].response, None);
    // Only BBR reports its path model, and only after the connection has been accepted.
    let has_model = |flow: u32| rows.iter().any(|row| row.flow == flow && row.sender.bbr.is_some());
    assert_eq!([0, 1, 2].map(has_model), [true, false, false]);
    let first = rows.iter().find(|row| row.flow == 1).expect("a row");
    assert_eq!((first.sender.cwnd.get(), first.receiver.map(|r| r.received.get())), (0, Some(0)));

    let [forward, backward] = ran.logs.expect("asked for");
    let data = |log: &fullpipe_linux::link::Log, flow: u32| {
        let of_flow = log.arrivals.iter().map(|arrival| arrival.packet);
        of_flow
            .filter(|packet| packet.flow == flow && packet.kind == PacketKind::Data)
            .map(|packet| u64::from(packet.len) - 52)
            .sum::<u64>()
    };
    assert!(data(&backward, 0) >= 200 && data(&backward, 1) >= 6_000, "the requests");
    assert_eq!(data(&backward, 2), 0);
    assert!(data(&forward, 0) >= 300_000 && data(&forward, 1) >= 60_000, "the responses");
}

/// The same hosts make several downloads one after the other, each with its own initial window. A larger
/// initial window shortens a download in the kernel as much as in the simulator.
#[test]
fn a_larger_initial_window_makes_downloads_faster() {
    let Some(_alone) = rights::alone() else { return };
    let text = "name = 'x'\nduration = '20s'\n[path]\nrate = '100mbit'\nrtt = '50ms'\nqueue = '1bdp'\n\
                [host]\nrcvbuf = '6MiB'\n[[flow]]\ncc = 'bbr1'\nbytes = '60kB'\napp = { request = '200B' }\n\
                [[sample]]\nevery = '20s'\n";
    let scenario = Experiment::from_toml(text).expect("valid").points()[0].scenario.clone();
    let arms = [None, Some(44)].map(|initcwnd| Scenario {
        host: HostSpec { initcwnd, ..scenario.host.clone() },
        ..scenario.clone()
    });
    let mut hosts = hosts(&scenario, Datapath::Plain).unwrap_or_else(|e| panic!("{e}"));
    let mut shortest = [f64::INFINITY; 2];
    for _ in 0..5 {
        for (arm, shortest) in arms.iter().zip(&mut shortest) {
            let ran = run_between(&mut hosts, arm, &mut NoTrace).unwrap_or_else(|e| panic!("{e}"));
            let response = ran.outcome.flows[0].response.expect("complete");
            assert!(response.from_syn >= response.from_request + Duration::from_millis(50), "{response:?}");
            assert!(ran.outcome.path.delivered >= 42, "{:?}", ran.outcome.path);
            assert_eq!(ran.validity.tun_drops, 0);
            // A busy machine can make a download slower, but never faster.
            *shortest = shortest.min(response.from_syn.as_secs_f64());
        }
    }
    let simulated = arms.each_ref().map(|arm| {
        let outcome = fullpipe_lab::sim::run(arm);
        outcome.flows[0].response.expect("complete").from_syn.as_secs_f64()
    });
    let ratio = |[default, larger]: [f64; 2]| default / larger;
    let (kernel, simulator) = (ratio(shortest), ratio(simulated));
    assert!(kernel > 1.3, "{shortest:?}");
    assert!((kernel / simulator - 1.0).abs() < 0.1, "{shortest:?}, simulated {simulated:?}");
}
