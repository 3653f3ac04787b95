//! Tests of the parsing of experiment files, and of the errors for invalid files.

use fullpipe_path::Scope;
use fullpipe_tcp::buffers::{Buffer, KernelVersion, WindowRule};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_tcp::{RtoRule, Tunables};
use fullpipe_units::{Bytes, Duration, Probability, Rate};

use super::{Experiment, ExperimentError};
use crate::scenario::{LossPattern, Stack};
use crate::workload::{Reading, Workload, Writing};

/// Returns an experiment file with `path`, `host` and `flow` as the contents of those tables, followed by
/// `rest`.
fn file(path: &str, host: &str, flow: &str, rest: &str) -> String {
    format!("name = 'x'\nduration = '20s'\n[path]\n{path}\n[host]\n{host}\n[[flow]]\n{flow}\n{rest}\n")
}

fn read(path: &str, host: &str, flow: &str, rest: &str) -> Experiment {
    let text = file(path, host, flow, rest);
    Experiment::from_toml(&text).unwrap_or_else(|e| panic!("{e}\nhint: {}\n{text}", e.hint))
}

const PATH: &str = "rate = '340mbit'\nrtt = '140ms'";
const FLOW: &str = "cc = 'cubic'";

fn loss(text: &str) -> Probability {
    text.parse().expect("a probability")
}

fn labels(experiment: &Experiment) -> Vec<&str> {
    experiment.points().iter().map(|point| point.label.as_str()).collect()
}

#[test]
fn defaults_are_a_stock_host_on_a_clean_path() {
    let experiment = read(PATH, "", FLOW, "");
    assert_eq!(labels(&experiment), ["cc=cubic"]);
    assert_eq!(experiment.seeds(), [1]);
    let scenario = &experiment.points()[0].scenario;
    assert_eq!(scenario.duration, Duration::from_secs(20));
    assert_eq!(scenario.sample_every, Duration::from_millis(100));
    assert_eq!(scenario.path.mtu, 1500);
    let (forward, backward) = (&scenario.path.forward, &scenario.path.backward);
    assert_eq!((forward.rate, forward.loss), (Rate::from_bps(340_000_000), Probability::ZERO));
    assert_eq!((forward.delay, backward.delay), (Duration::from_millis(70), Duration::from_millis(70)));
    assert_eq!(forward.queue, Bytes::new(5_950_000), "one BDP");
    assert_eq!((backward.rate, backward.loss, backward.queue), (forward.rate, Probability::ZERO, Bytes::MAX));
    assert_eq!(scenario.host.kernel, KernelVersion::new(6, 18));
    assert_eq!(scenario.host.sndbuf, Buffer::Auto { max: Bytes::from_mib(4) });
    assert_eq!(scenario.host.rcvbuf, Buffer::Auto { max: Bytes::from_mib(32) });
    assert_eq!((scenario.host.window_clamp, scenario.host.fair_queue), (None, false));
    assert_eq!((scenario.host.initcwnd, scenario.host.notsent_lowat), (None, None));
    assert!(scenario.host.slow_start_after_idle);
    assert_eq!(scenario.flows.len(), 1);
    assert_eq!(scenario.flows[0].cc, Algorithm::Cubic);
    assert_eq!((scenario.flows[0].start, scenario.flows[0].bytes), (Duration::ZERO, None));
}

/// Each expectation is compared with each point, so the product of their numbers is checked before any
/// comparison.
#[test]
fn expectations_times_points_are_bounded() {
    let path = "rate = { from = '10mbit', to = '100mbit', steps = 1000 }\nrtt = '40ms'";
    let expectation = "[[expect]]\nmetric = 'goodput_bps'\nmin = '1mbit'\n";
    let of = |count: usize| Experiment::from_toml(&file(path, "", FLOW, &expectation.repeat(count)));
    let error = of(4_001).expect_err("one too many for each point");
    assert_eq!(error.message, "the experiment has 4001 expectations for 1000 points");
    assert_eq!(of(10).map(|experiment| experiment.expectations().len()), Ok(10));
}

#[test]
fn every_field_is_taken() {
    let experiment = read(
        "rate = '1gbit'\nrtt = '10ms'\nloss = '1%'\nqueue = '2bdp'\nmtu = 9000\n\
         forward = { delay = '8ms' }\nbackward = { rate = '10mbit', loss = '20ppm', queue = '64KiB' }",
        "kernel = '4.15'\nadv_win_scale = 2\nsndbuf = { fixed = '1bdp' }\nrcvbuf = '0.5bdp'\n\
         window = '65535B'\nfair_queue = true\nrx_merge = '20us'\ninitcwnd = 30\n\
         slow_start_after_idle = false\nnotsent_lowat = '128KiB'",
        "cc = 'bbr'\ncount = 3\nbytes = '8MB'\nstart = '1s'\nstack = 'fullpipe'\n[[flow]]\ncc = 'reno'",
        "[[sample]]\nevery = '10ms'",
    );
    let scenario = &experiment.points()[0].scenario;
    let (forward, backward) = (&scenario.path.forward, &scenario.path.backward);
    assert_eq!((forward.delay, backward.delay), (Duration::from_millis(8), Duration::from_millis(2)));
    assert_eq!((forward.queue, backward.queue), (Bytes::new(2_500_000), Bytes::from_kib(64)));
    assert_eq!((forward.loss, backward.loss), (loss("1%"), loss("20ppm")));
    assert_eq!((backward.rate, scenario.path.mtu), (Rate::from_bps(10_000_000), 9000));
    assert_eq!(scenario.host.window_rule, WindowRule::AdvWinScale(2));
    assert_eq!(scenario.host.sndbuf, Buffer::Fixed(Bytes::new(1_250_000)));
    assert_eq!(scenario.host.rcvbuf, Buffer::Auto { max: Bytes::new(625_000) });
    assert_eq!(scenario.host.window_clamp, Some(Bytes::new(65_535)));
    assert_eq!((scenario.host.fair_queue, scenario.host.rx_merge), (true, Duration::from_micros(20)));
    assert_eq!((scenario.host.initcwnd, scenario.host.slow_start_after_idle), (Some(30), false));
    assert_eq!(scenario.host.notsent_lowat, Some(Bytes::from_kib(128)));
    let algorithms: Vec<_> = scenario.flows.iter().map(|flow| flow.cc).collect();
    assert_eq!(algorithms, [Algorithm::Bbr1, Algorithm::Bbr1, Algorithm::Bbr1, Algorithm::Reno]);
    assert_eq!(scenario.flows[0].bytes, Some(Bytes::new(8_000_000)));
    assert_eq!(scenario.sample_every, Duration::from_millis(10));
    assert_eq!(experiment.points()[0].parameters["flow2.cc"], "reno");

    let old = read(PATH, "kernel = '6.15'", FLOW, "");
    assert_eq!(old.points()[0].scenario.host.rcvbuf, Buffer::Auto { max: Bytes::from_mib(6) });
    let ratio = read(PATH, "window_ratio = 0.5", FLOW, "");
    assert_eq!(ratio.points()[0].scenario.host.window_rule, WindowRule::ScalingRatio(128));
}

#[test]
fn lists_make_all_combinations_with_the_last_field_fastest() {
    let experiment =
        read("rate = '100mbit'\nrtt = '50ms'\nloss = ['0%', '1.5 %']", "", "cc = ['reno', 'bbr1']", "");
    let expected = ["loss=0% cc=reno", "loss=0% cc=bbr1", "loss=1.5% cc=reno", "loss=1.5% cc=bbr1"];
    assert_eq!(labels(&experiment), expected);
    let last = &experiment.points()[3];
    assert_eq!(last.scenario.path.forward.loss, loss("1.5%"));
    assert_eq!(last.scenario.flows[0].cc, Algorithm::Bbr1);
    assert_eq!(last.parameters["rate"], "100mbit");
    assert_eq!(last.parameters["loss"], "1.5%");
}

/// Tunables reach the connections at both ends. Tunables that the file does not set keep Linux's values.
#[test]
fn tunables_reach_the_connections() {
    let set = "tunables = { rto_min = '50ms', rto_min_prompt = '60ms', tlp_factor = 1.25, reo_wnd = 0.0625, retries = 3 }";
    let experiment = read(PATH, set, FLOW, "");
    let scenario = &experiment.points()[0].scenario;
    for side in 0..2 {
        let tunables = crate::sim::connection(scenario, &scenario.flows[0], 0, side).tunables;
        assert_eq!(tunables.rto, RtoRule::Slack { floor: Duration::from_millis(50) });
        assert_eq!(tunables.rto_prompt, Some(Duration::from_millis(60)));
        assert_eq!((tunables.probe_timeout.srtt_percent, tunables.reo_wnd.share), (125, 4));
        assert_eq!((tunables.retries.data, tunables.rto_max), (3, Tunables::LINUX.rto_max));
    }
}

/// Every field accepts a list instead of a single value, and `where` can select the resulting points.
#[test]
fn every_field_can_be_swept() {
    let path = [
        ("rate", "'1mbit', '2mbit'"),
        ("rtt", "'1ms', '2ms'"),
        ("loss", "'1%', { rate = '1%', burst = 5 }"),
        ("queue", "'1bdp', '64KiB'"),
        ("mtu", "1500, 9000"),
        ("policer.rate", "'1mbit', '2mbit'"),
        ("shaper.rate", "'1mbit', '2mbit'"),
        ("forward.rate", "'1mbit', '2mbit'"),
        ("forward.loss", "'1%', '2%'"),
        ("backward.queue", "'1bdp', '2bdp'"),
        ("backward.delay", "'1ms', '2ms'"),
    ];
    let host = [
        ("kernel", "'4.15', '6.18'"),
        ("window_ratio", "0.5, 0.8"),
        ("sndbuf", "'1MiB', { fixed = '1MiB' }"),
        ("rcvbuf", "'1MiB', '2bdp'"),
        ("window", "'1bdp', '65535B'"),
        ("fair_queue", "true, false"),
        ("rx_merge", "'0s', '20us'"),
        ("initcwnd", "10, 30"),
        ("slow_start_after_idle", "true, false"),
        ("notsent_lowat", "'16KiB', '1bdp'"),
        ("tunables.rto_min", "'50ms', '200ms'"),
        ("tunables.rto_min_prompt", "'100ms', '200ms'"),
        ("tunables.retries", "3, 15"),
        ("tunables.tlp_factor", "1.25, 2"),
        ("tunables.reo_wnd", "0.0625, 0.25"),
        ("tunables.reo_wnd_on_evidence", "true, false"),
        ("tunables.second_copy", "true, false"),
        ("tunables.tail_copies", "0, 2"),
    ];
    let flow = [
        ("cc", "'reno', 'bbr1'"),
        ("count", "1, 2"),
        ("bytes", "'1MB', '2MB'"),
        ("start", "'0s', '1s'"),
        ("stack", "'fullpipe', 'kernel'"),
    ];
    let swept = |table: &str, key: &str, values: &str| {
        let mut tables = [("path", String::new()), ("host", String::new()), ("flow", String::new())];
        for (name, text) in &mut tables {
            for (field, given) in
                [("path", "rate = '10mbit'"), ("path", "rtt = '10ms'"), ("flow", "cc = 'reno'")]
            {
                if field == *name && !(table == *name && given.starts_with(&format!("{key} "))) {
                    *text += &format!("{given}\n");
                }
            }
            if table == *name {
                *text += &format!("{key} = [{values}]\n");
            }
        }
        let [(_, path), (_, host), (_, flow)] = &tables;
        let experiment = read(path, host, flow, "");
        let points: Vec<_> = experiment.points().iter().map(|point| &point.parameters[key]).collect();
        assert!(points.len() == 2 && points[0] != points[1], "{table}.{key}: {points:?}");
        let condition =
            format!("[[expect]]\nwhere = {{ {key:?} = {:?} }}\nmetric = 'goodput_bps'\nmin = 1", points[1]);
        assert_eq!(read(path, host, flow, &condition).expectations()[0].points, [1], "{table}.{key}");
        for point in experiment.points() {
            assert!(point.label.contains(&format!("{key}=")), "{}", point.label);
        }
    };
    for (key, values) in path {
        swept("path", key, values);
    }
    for (key, values) in host {
        swept("host", key, values);
    }
    for (key, values) in flow {
        swept("flow", key, values);
    }

    let second = "cc = 'reno'\n[[flow]]\ncc = ['cubic', 'bbr1']\ncount = [1, 2]";
    let expected =
        ["flow2.count=1 flow2.cc=cubic", "flow2.count=1 flow2.cc=bbr1", "flow2.count=2 flow2.cc=cubic"];
    assert_eq!(labels(&read(PATH, "", second, ""))[..3], expected);

    let text =
        file(PATH, "", FLOW, "[[expect]]\nwhere = { duration = '2000ms' }\nmetric = 'retransmits'\nmax = 1");
    let text = text.replace("duration = '20s'", "duration = ['1s', '2s', '3s']");
    let experiment = Experiment::from_toml(&text).expect("valid");
    assert_eq!(labels(&experiment), ["duration=1s", "duration=2s", "duration=3s"]);
    assert_eq!(experiment.points()[2].scenario.duration, Duration::from_secs(3));
    assert_eq!(experiment.expectations()[0].points, [1]);
}

#[test]
fn multiples_of_the_bdp_follow_each_point() {
    let experiment = read("rate = ['8mbit', '80mbit']\nrtt = '1s'", "window = '0.5bdp'", FLOW, "");
    let sizes = experiment.points().iter().map(|point| {
        (point.scenario.path.forward.queue.get(), point.scenario.host.window_clamp.map(Bytes::get))
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [(1_000_000, Some(500_000)), (10_000_000, Some(5_000_000))]);
}

#[test]
fn ranges_are_even_and_keep_their_ends() {
    let swept = |path: &str, host: &str| -> Vec<String> {
        labels(&read(path, host, FLOW, "")).into_iter().map(str::to_owned).collect()
    };
    let range = "rtt = '1ms'\nrate = { from = '10mbit', to = '0.1gbit', steps = 4 }";
    assert_eq!(swept(range, ""), ["rate=10mbit", "rate=40mbit", "rate=70mbit", "rate=0.1gbit"]);
    let range = "rate = '1mbit'\nrtt = { from = '20ms', to = '10ms', steps = 3 }";
    assert_eq!(swept(range, ""), ["rtt=20ms", "rtt=15ms", "rtt=10ms"]);
    let range = format!("{PATH}\nloss = {{ from = '0%', to = '1%', steps = 3 }}");
    assert_eq!(swept(&range, ""), ["loss=0%", "loss=5000ppm", "loss=1%"]);
    let range = "sndbuf = { from = '1bdp', to = '4bdp', steps = 3 }";
    assert_eq!(swept(PATH, range), ["sndbuf=1bdp", "sndbuf=2.5bdp", "sndbuf=4bdp"]);
    let range = "rcvbuf = [{ fixed = '1MiB' }, '2MiB']\nfair_queue = [false, true]";
    let expected = [
        "rcvbuf=fixed:1MiB fair_queue=false",
        "rcvbuf=fixed:1MiB fair_queue=true",
        "rcvbuf=2MiB fair_queue=false",
        "rcvbuf=2MiB fair_queue=true",
    ];
    assert_eq!(swept(PATH, range), expected);
}

#[test]
fn point_tables_vary_fields_together() {
    let experiment = read(
        PATH,
        "sndbuf = '1MiB'",
        "cc = ['cubic', 'bbr1']",
        "[[point]]\nname = 'small'\nhost = { sndbuf = '4MiB', rcvbuf = '4MiB' }\n\
         [[point]]\npath = { rtt = '10ms', forward = { loss = '1%' } }\nflow = { cc = 'reno' }",
    );
    let expected = ["small cc=cubic", "small cc=bbr1", "rtt=10ms forward.loss=1% cc=reno"];
    assert_eq!(labels(&experiment), expected);
    let points = experiment.points();
    assert_eq!(points[0].scenario.host.sndbuf, Buffer::Auto { max: Bytes::from_mib(4) });
    assert_eq!(points[0].parameters["point"], "small");
    assert_eq!(points[2].scenario.host.sndbuf, Buffer::Auto { max: Bytes::from_mib(1) });
    assert_eq!(points[2].scenario.path.rtt(), Duration::from_millis(10));
    assert_eq!(points[2].scenario.path.forward.rate, Rate::from_bps(340_000_000));
}

#[test]
fn seeds_follow_the_first() {
    let text = file(PATH, "", FLOW, "").replace("[path]", "repeat = 3\nseed = 40\n[path]");
    let experiment = Experiment::from_toml(&text).expect("valid");
    assert_eq!(experiment.seeds(), [40, 41, 42]);
    assert_eq!(experiment.with_seed(7).with_repeat(2).seeds(), [7, 8]);
}

/// A caller that keeps a few figures per run may make more of them than one that keeps those of each flow.
#[test]
fn the_number_of_runs_has_a_limit() {
    let with_flows = FLOW.to_owned() + "\ncount = 1000";
    let experiment = Experiment::from_toml(&file(PATH, "", &with_flows, "")).expect("valid");
    let experiment = |repeat| experiment.clone().with_repeat(repeat);
    assert!(experiment(200).check_size().is_ok());
    let refused = experiment(201).check_size().expect_err("too many flows");
    assert!(refused.to_string().contains("201000 flows in total"), "{refused}");

    let runs = |points: u64| {
        let rtts: Vec<_> = (1..=points).map(|rtt| format!("'{rtt}ms'")).collect();
        let path = format!("rate = '1mbit'\nrtt = [{}]", rtts.join(", "));
        let experiment = Experiment::from_toml(&file(&path, "", FLOW, "")).expect("valid");
        experiment.with_repeat(10_000).check_runs()
    };
    assert!(runs(20).is_ok());
    let refused = runs(21).expect_err("too many runs");
    assert_eq!(refused.to_string(), "the experiment has 210000 runs (21 points x 10000 seeds)");
}

#[test]
fn where_compares_values_not_words() {
    let rest = "[[expect]]\nwhere = { loss = '15000ppm', cc = 'bbr' }\nmetric = 'goodput_bps'\nmin = '95mbit'\n\
                [[expect]]\nmetric = 'share.rwnd'\nmax = '5%'\nkernel = 0.02";
    let experiment = read(&format!("{PATH}\nloss = ['0%', '1.5%']"), "", "cc = ['bbr1', 'reno']", rest);
    let [first, second] = experiment.expectations() else { panic!("two expectations") };
    assert_eq!(first.points, [2]);
    assert_eq!((first.min, first.max), (Some(95e6), None));
    assert_eq!(second.points, [0, 1, 2, 3]);
    assert_eq!((second.max, second.kernel.as_deref()), (Some(0.05), Some("0.02")));
}

/// Every kind of mistake leads to a one-line message that describes the mistake, and a one-line hint that
/// shows what to write.
#[test]
fn mistakes_are_named_in_one_line() {
    let f = file;
    let expect = |body: &str| f(PATH, "", FLOW, &format!("[[expect]]\n{body}"));
    let cases = [
        (
            f("rtt = '140ms'\nrate = '340mbps'", "", FLOW, ""),
            "line 5, column 8: rate '340mbps' has an ambiguous unit",
            "write mbit/s for bits or mB/s for bytes",
        ),
        (
            f("rtt = '140ms'\nrate = 340", "", FLOW, ""),
            "line 5, column 8: rate '340' has no unit",
            "write 100mbit or 1gbit",
        ),
        (
            f("rtt = '140ms'\nrate = '0mbit'", "", FLOW, ""),
            "line 5, column 8: rate '0mbit' is out of range",
            "allowed: 1bit to 1tbit",
        ),
        (
            f("rate = '1mbit'\nrtt = '101s'", "", FLOW, ""),
            "line 5, column 7: time '101s' is out of range",
            "allowed: up to 100s for a path",
        ),
        (
            f(&format!("{PATH}\nloss = ['0%', '101%']"), "", FLOW, ""),
            "line 6, column 15: probability '101%' is out of range",
            "write a share from 0% to 100%, for example 1.5%",
        ),
        (
            f(&format!("{PATH}\nloss = '100%'"), "", FLOW, ""),
            "line 6, column 8: loss '100%' drops all packets",
            "allowed: from 0% to less than 100%",
        ),
        (
            f(&format!("{PATH}\nmtu = 575"), "", FLOW, ""),
            "line 6, column 7: mtu '575' is out of range",
            "allowed: 576 to 65535",
        ),
        (f(PATH, "tunables.retries = 120", FLOW, ""), "retries 120 is out of range", "allowed: 3 to 15"),
        (
            f(&format!("{PATH}\nloss = []"), "", FLOW, ""),
            "line 6, column 8: an empty list defines no point",
            "write 1.5% or 20ppm, { rate = \"1%\", burst = 5 } or { rate = \"1%\", of = \"super_packets\" }",
        ),
        (
            f(&format!("{PATH}\nlost = '1%'"), "", FLOW, ""),
            "line 6, column 1: unknown key 'lost'",
            "allowed here: rate, rtt, loss, queue, duplicate, detour, jitter, mtu, forward, backward, policer, shaper",
        ),
        (
            f(&format!("{PATH}\nqueue = {{ from = '1bdp', to = '2bdp' }}"), "", FLOW, ""),
            "line 6, column 9: this table is not a range",
            "a range is { from = …, to = …, steps = … }",
        ),
        (
            f(PATH, "", "cc = { from = 'reno', to = 'bbr1', steps = 2 }", ""),
            "line 9, column 6: this field does not accept a range",
            "write a list of values",
        ),
        (
            f(PATH, "rcvbuf = '4M'", FLOW, ""),
            "line 7, column 10: size '4M' has an ambiguous unit",
            "write MiB (powers of 1024) or MB (powers of 1000)",
        ),
        (
            f(PATH, "window = '0bdp'", FLOW, ""),
            "line 7, column 10: size '0bdp' is out of range",
            "allowed: at least 1B",
        ),
        (
            f(PATH, "kernel = 6.10", FLOW, ""),
            "line 7, column 10: '6.1' is a number, but text is expected",
            "write the version as text: kernel = \"6.10\"",
        ),
        (
            f(PATH, "adv_win_scale = 2", FLOW, ""),
            "kernel 6.18 ignores adv_win_scale",
            "set window_ratio, or a kernel before 6.6",
        ),
        (
            f(PATH, "adv_win_scale = 2\nkernel = ['4.15', '6.8']", FLOW, ""),
            "point 'kernel=6.8': kernel 6.8 ignores adv_win_scale",
            "set window_ratio, or a kernel before 6.6",
        ),
        (
            f(PATH, "", "cc = 'westwod'", ""),
            "line 9, column 6: unknown congestion control 'westwod'",
            "known: reno, bic, cubic, vegas, bbr1, bbr3, surge; with a kernel's TCP (--world uml) also cdg, dctcp, \
             highspeed, htcp, hybla, illinois, lp, nv, scalable, veno, westwood, yeah",
        ),
        (
            f(PATH, "", "cc = 'reno'\nslow_start = 'quick'", ""),
            "line 10, column 14: unknown slow start 'quick'",
            "known: standard, hystart, hystart++",
        ),
        (
            f(PATH, "", "cc = ['cubic', 'bbr1']\nslow_start = 'hystart++'", ""),
            "point 'cc=bbr1': slow_start applies only to reno and cubic; bbr1 has its own slow start",
            "remove slow_start from flows with another cc",
        ),
        (
            f(PATH, "", "cc = 'reno'\nstack = 'windows'", ""),
            "line 10, column 9: unknown stack 'windows'",
            "known: fullpipe, kernel, kernel-to-fullpipe",
        ),
        (
            f(PATH, "", "cc = 'reno'\napp = { wright = '1mbit' }", ""),
            "line 10, column 7: unknown key 'wright'",
            "allowed here: write, chunk, read, rule, read_buffer, reads_per_second, request",
        ),
        (
            f(PATH, "", "cc = 'reno'\napp = { write = '1mbps' }", ""),
            "line 10, column 7: rate '1mbps' has an ambiguous unit",
            "write mbit/s for bits or mB/s for bytes",
        ),
        (
            f(PATH, "", "cc = 'reno'\napp = { write = '8gbit', chunk = '100B' }", ""),
            "line 10, column 7: app writes 100 B more often than once per 1us",
            "write a chunk of at least 1001 B",
        ),
        (
            f(PATH, "", "cc = 'reno'\napp = { read = '1mbit', rule = 'wget' }", ""),
            "line 10, column 7: unknown app rule 'wget'",
            "known: smooth, curl",
        ),
        (
            f(PATH, "", "cc = 'reno'\napp = { read_buffer = '1KiB', reads_per_second = 0 }", ""),
            "line 10, column 7: reads_per_second '0' is out of range",
            "allowed: 1 to 1000000",
        ),
        (f(PATH, "", "count = 2", ""), "a [[flow]] has no cc", "add cc = \"cubic\""),
        (
            f(PATH, "", "cc = ['reno', 'reno']", ""),
            "point 'cc=reno' is defined twice",
            "give each [[point]] its own name, and list each value only once",
        ),
        (
            f(
                "rate = { from = '1mbit', to = '1gbit', steps = 1000 }\nrtt = { from = '1ms', to = '1s', steps = 1000 }",
                "",
                FLOW,
                "",
            ),
            "the sweep has 1000000 points",
            "allowed: up to 100000; shorten a list or split the experiment",
        ),
        (
            f(PATH, "", FLOW, "").replace("20s", "0s"),
            "duration 0ns is out of range",
            "allowed: 1ms to 86400s",
        ),
        (
            f(PATH, "", FLOW, "").replace("name = 'x'\n", ""),
            "line 1, column 1: missing key 'name'",
            "add name = \"weak-network\"",
        ),
        (f("rtt = '1ms'", "", FLOW, ""), "[path] has no rate", "add rate = \"340mbit\""),
        (
            f("rate = 340mbit\nrtt = '1ms'", "", FLOW, ""),
            "line 4, column 8: string values must be quoted, expected literal string",
            "put text values in quotes, as in rate = \"340mbit\"; write each key only once",
        ),
        (
            expect("metric = 'speed'\nmin = 1"),
            "line 11, column 10: unknown metric 'speed'",
            "known: goodput_bps, goodput_second_half_bps, utilisation, utilisation_second_half, retransmits, \
             retransmit_share, fairness, first_share, first_share_second_half, rtt_mean_ms, rtt_p95_ms, time_from_syn_ms, time_from_request_ms, queue_drops, random_drops, policed, aqm_drops, marked, duplicated, reordered, acks_thinned, \
             wire_peak_bps, wire_peak_second_half_bps, wire_burst, wire_burst_second_half, share.app, share.sndbuf, share.rwnd, share.cwnd, share.slow_start, \
             share.pacing, share.recovery",
        ),
        (
            expect("metric = 'goodput_bps'\nmin = '1mbps'"),
            "line 10, column 1: bound of goodput_bps: rate '1mbps' has an ambiguous unit",
            "write mbit/s for bits or mB/s for bytes",
        ),
        (
            expect("metric = 'goodput_bps'"),
            "line 10, column 1: [[expect]] for goodput_bps has no bound",
            "add min, max or both",
        ),
        (
            expect("metric = 'utilisation'\nmin = 0.9\nwhere = { cc = 'reno' }"),
            "line 10, column 1: no point has cc=reno",
            "the points are 'cc=cubic'",
        ),
        (
            expect("metric = 'utilisation'\nmin = 0.9\nwhere = { speed = 'high' }"),
            "line 10, column 1: 'speed' is not a field of a point",
            "use a field of path, host or flow, such as loss, forward.rate, sndbuf or cc; point selects a [[point]] by name",
        ),
        (
            "name = 'x'\nduration = '1s'\npath = 3\nflow = []".into(),
            "line 3, column 8: invalid type: integer '3', expected a table",
            "see the files in experiments/ for the form of every key",
        ),
        (
            f(PATH, "", FLOW, "").replace("[path]", "repeat = -1\n[path]"),
            "line 3, column 10: invalid value: integer '-1', expected a whole number",
            "see the files in experiments/ for the form of every key",
        ),
        (String::new(), "line 1, column 1: missing key 'name'", "add name = \"weak-network\""),
    ];
    for (text, message, hint) in cases {
        let ExperimentError { message: found, hint: found_hint } =
            Experiment::from_toml(&text).expect_err(message);
        assert_eq!((found.as_str(), found_hint.as_str()), (message, hint), "in:\n{text}");
        assert!(!found.contains('\n') && !found_hint.contains('\n'), "{found:?} {found_hint:?}");
    }
}

#[test]
fn the_experiments_of_the_project_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments");
    let mut labels = Vec::new();
    let files = |folder: &str| {
        let entries = std::fs::read_dir(folder).expect("there are experiments");
        entries.map(|entry| entry.expect("readable").path()).filter(|path| path.is_file()).collect::<Vec<_>>()
    };
    for path in files(folder).into_iter().chain(files(&format!("{folder}/situations"))) {
        let text = std::fs::read_to_string(&path).expect("readable");
        let load = |name: &str| {
            std::fs::read_to_string(path.with_file_name(name)).map_err(|e| format!("cannot read {name}: {e}"))
        };
        let experiment =
            Experiment::from_toml_with(&text, &load).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(path.file_stem().and_then(|s| s.to_str()), Some(experiment.name()));
        labels.extend(experiment.points().iter().map(|point| point.label.clone()));
    }
    for label in ["rtt=140ms window=6291456B", "loss=1.5% cc=bbr1", "64 MiB cc=cubic"] {
        assert!(labels.iter().any(|found| found == label), "{label} in {labels:?}");
    }
}

/// A table of rate and burst is one value, even within a list. Policers and shapers belong to the path or to
/// a direction.
#[test]
fn bursts_and_limiters_are_read() {
    let experiment = read(
        "rate = '1gbit'\nrtt = '210ms'\nloss = ['0%', { rate = '1%', burst = 5 }, { rate = '3 %', of = 'super_packets' }]\n\
         policer = { rate = '115mbit', burst = '1MiB', per_flow = true }\n\
         backward = { shaper = { rate = '10mbit', queue = '0.5bdp' } }",
        "",
        FLOW,
        "",
    );
    assert_eq!(labels(&experiment), ["loss=0%", "loss=1%:burst=5", "loss=3%:of=super_packets"]);
    let forward = &experiment.points()[1].scenario.path.forward;
    assert_eq!((forward.loss, forward.loss_pattern), (loss("1%"), LossPattern::Bursts(5.0)));
    assert_eq!(experiment.points()[2].scenario.path.forward.loss_pattern, LossPattern::SuperPackets);
    let policer = forward.policer.as_ref().expect("a policer");
    assert_eq!((policer.rate.as_bps(), policer.burst), (115_000_000, Bytes::from_mib(1)));
    assert_eq!((policer.scope, &forward.shaper), (Scope::PerFlow, &None));
    // A policer drops every packet that is larger than its bucket, so the smallest bucket depends on the MTU.
    let jumbo = read(&format!("{PATH}\nmtu = 9000\npolicer = {{ rate = '1mbit' }}"), "", FLOW, "");
    let policer = jumbo.points()[0].scenario.path.forward.policer.as_ref().expect("a policer");
    assert_eq!(policer.burst, Bytes::new(18_000));
    let backward = &experiment.points()[0].scenario.path.backward;
    let shaper = backward.shaper.as_ref().expect("a shaper");
    assert_eq!((shaper.queue, shaper.scope), (Bytes::new(131_250), Scope::Aggregate));

    for (path, message) in [
        ("loss = { rate = '1%', burst = 0 }", "burst of loss '0' is out of range"),
        ("loss = { rate = '1%', of = 'bits' }", "loss '1%:of=bits' is invalid"),
        ("loss = { rate = '1%' }", "this table is not a range"),
        ("policer = { burst = '1MiB' }", "the policer has no rate"),
        ("policer = { rate = '1mbit', queue = '1MiB' }", "a policer does not queue"),
    ] {
        let error = Experiment::from_toml(&file(&format!("{PATH}\n{path}"), "", FLOW, "")).unwrap_err();
        assert!(error.message.contains(message), "{path}: {}", error.message);
        assert!(!error.hint.is_empty(), "{path}");
    }
}

/// A table of `app` keys is one value, even within a list. Conflicting keys are rejected.
#[test]
fn applications_are_read() {
    let experiment = read(
        PATH,
        "",
        "cc = 'cubic'\napp = ['greedy', { write = '20mbit' }, { write = '20 mbit', chunk = '64KiB' }, \
         { read = '8mbit', rule = 'curl' }, { read_buffer = '1KiB', reads_per_second = 20 }, \
         { write = '20mbit', request = '200B' }]",
        "[[expect]]\nwhere = { app = 'chunk=65536B,write=20mbit' }\nmetric = 'goodput_bps'\nmin = 1",
    );
    let expected = [
        "app=greedy",
        "app=write=20mbit",
        "app=write=20mbit,chunk=64KiB",
        "app=read=8mbit,rule=curl",
        "app=read_buffer=1KiB,reads_per_second=20",
        "app=write=20mbit,request=200B",
    ];
    assert_eq!(labels(&experiment), expected);
    assert_eq!(experiment.expectations()[0].points, [2], "compared as values");
    let rate = Rate::from_bps;
    let workload = |i: usize| experiment.points()[i].scenario.flows[0].workload;
    assert_eq!(workload(0), Workload::default());
    // The default chunk is one millisecond of data at 20 Mbit/s.
    let writing = |chunk| Writing::Paced { rate: rate(20_000_000), chunk: Bytes::new(chunk) };
    assert_eq!((workload(1).writing, workload(1).reading), (writing(2_500), Reading::Greedy));
    assert_eq!(workload(2).writing, writing(65_536));
    assert_eq!(workload(3).reading, Reading::CurlLimit { rate: rate(8_000_000) });
    let every = Duration::from_millis(50);
    assert_eq!(workload(4).reading, Reading::Loop { buffer: Bytes::from_kib(1), every });
    assert_eq!((workload(4).request, workload(5).request), (None, Some(Bytes::new(200))));
    assert_eq!(workload(5).writing, writing(2_500));

    for (app, message) in [
        ("'curl'", "app 'curl' is invalid"),
        ("{}", "app '' is invalid"),
        ("{ chunk = '1KiB' }", "app has chunk, but not write"),
        ("{ write = '1mbit', rule = 'curl' }", "app has rule, but not read"),
        ("{ write = '1mbit', chunk = '0B' }", "chunk '0B' is out of range"),
        ("{ request = '0B' }", "request '0B' is out of range"),
        ("{ request = '1M' }", "size '1M' has an ambiguous unit"),
        ("{ read_buffer = '1KiB' }", "app has read_buffer, but not reads_per_second"),
        ("{ reads_per_second = 20 }", "app has reads_per_second, but not read_buffer"),
        (
            "{ read = '1mbit', read_buffer = '1KiB', reads_per_second = 1 }",
            "app cannot combine read with read_buffer or reads_per_second",
        ),
    ] {
        let text = file(PATH, "", &format!("{FLOW}\napp = {app}"), "");
        let error = Experiment::from_toml(&text).unwrap_err();
        assert!(error.message.ends_with(message), "{app}: {}", error.message);
        assert!(!error.hint.is_empty(), "{app}");
    }
}

/// A bound of a ratio names two arms and the points to which it applies.
#[test]
fn ratios_are_read() {
    let paths = "rate = '1gbit'\nrtt = '10ms'\nloss = ['0%', '1%']";
    let ratio = |body: &str| file(paths, "", FLOW, &format!("[[ratio]]\n{body}"));
    let text = ratio("where = { loss = '10000ppm' }\narm = 'bbr1+iw'\nagainst = 'bbr'\nmin = 1");
    let experiment = Experiment::from_toml(&text).expect("valid");
    let [bound] = experiment.ratios() else { panic!("one bound") };
    assert_eq!((bound.arm.to_string(), bound.against.to_string()), ("bbr1+iw".into(), "bbr1".into()));
    assert_eq!((bound.arm.launch, bound.min, &bound.points), (true, 1.0, &vec![1]));

    for (body, message, hint) in [
        (
            "arm = 'bbr2'\nagainst = 'bbr1'\nmin = 1.1",
            "line 12, column 7: unknown arm 'bbr2'",
            "known: reno, bic, cubic, vegas, bbr1, bbr3, surge; NAME+iw has the initial window of \
             surge, 44 segments without a profile, NAME+PROFILE has the settings of a profile, and tcpa is short for bbr1+tcpa",
        ),
        (
            "arm = 'bbr1+iw'\nagainst = 'bbr1+iw'\nmin = 1.1",
            "line 11, column 1: [[ratio]] compares bbr1+iw with itself",
            "set against to a different arm",
        ),
        (
            "arm = 'bbr3'\nagainst = 'bbr1'\nmin = 'nan'",
            "line 11, column 1: min 'nan' of [[ratio]] is not a ratio",
            "allowed: 0 to 1000; a value above 1 requires the arm to be faster",
        ),
        (
            "arm = 'bbr3'\nagainst = 'bbr1'\nmin = 1.1\nfloor_share = 1.5",
            "line 11, column 1: floor_share '1.5' of [[ratio]] is not a share",
            "allowed: 0 to 1; 0.95 requires 95 % of the ratio that the path allows",
        ),
        (
            "arm = 'bbr3'\nagainst = 'bbr1'\nmin = 1.1\nwhere = { loss = '2%' }",
            "line 11, column 1: no point has loss=2%",
            "the points are 'loss=0%', 'loss=1%'",
        ),
        ("arm = 'bbr3'\nmin = 1", "missing key 'against'", "add against = \"bbr1\""),
    ] {
        let error = Experiment::from_toml(&ratio(body)).expect_err(message);
        assert!(error.message.ends_with(message), "{body}: {}", error.message);
        assert_eq!(error.hint, hint, "{body}");
    }
}

/// An experiment with flows that need the kernel TCP stack is rejected by the simulator before the first run.
#[test]
fn a_kernels_tcp_is_not_simulated() {
    let of = |flow| read("rate = '1gbit'\nrtt = '10ms'", "", flow, "");
    assert_eq!(of("cc = 'reno'\nstack = 'fullpipe'").check_simulated().map_err(|e| e.message), Ok(()));
    let experiment = of("cc = 'reno'\nstack = ['fullpipe', 'kernel']");
    let stacks: Vec<_> = experiment.points().iter().map(|point| point.scenario.flows[0].stack).collect();
    assert_eq!(stacks, [Some(Stack::Fullpipe), Some(Stack::Kernel)]);
    let error = experiment.check_simulated().expect_err("a kernel's");
    assert_eq!(
        error.message,
        "point 'stack=kernel' requires the kernel TCP stack, which the simulator does not have"
    );
}

/// An experiment may have congestion controls that only Linux has. The simulator rejects it before the first run.
#[test]
fn a_control_of_linux_alone_is_not_simulated() {
    let of = |flow| read("rate = '1gbit'\nrtt = '10ms'", "", flow, "");
    let experiment = of("cc = ['reno', 'westwood']");
    let controls: Vec<_> =
        experiment.points().iter().map(|point| point.scenario.flows[0].cc.name()).collect();
    assert_eq!(controls, ["reno", "westwood"]);
    let error = experiment.check_simulated().expect_err("a control of Linux");
    assert_eq!(
        (error.message.as_str(), error.hint.as_str()),
        (
            "point 'cc=westwood' requires the congestion control 'westwood', which only Linux has",
            "run it on a kernel (--world uml), or choose one that the simulator has: reno, bic, cubic, vegas, bbr1, bbr3, \
             surge"
        )
    );
}

/// Each flow may have its own distance, the sum of its delays in both directions. Flows at the same distance share
/// their hosts.
#[test]
fn flows_may_be_at_other_distances() {
    let text = file(
        "rate = '10mbit'\nrtt = '20ms'",
        "",
        "cc = 'reno'\ncount = 2\n[[flow]]\ncc = 'reno'\naccess_rtt = ['0s', '61ns']\n[[flow]]\ncc = 'reno'\naccess_rtt = '1s'",
        "[[expect]]\nwhere = { 'flow2.access_rtt' = '0.061us' }\nmetric = 'first_share'\nmax = '50%'",
    );
    let experiment = Experiment::from_toml(&text).expect("valid");
    let labels: Vec<_> = experiment.points().iter().map(|point| point.label.as_str()).collect();
    assert_eq!(labels, ["flow2.access_rtt=0s", "flow2.access_rtt=61ns"]);
    let [near, far] = [0, 1].map(|point: usize| &experiment.points()[point].scenario);
    assert_eq!(experiment.expectations()[0].points, [1]);
    assert_eq!((near.host_pairs(), far.host_pairs()), (vec![0, 0, 0, 1], vec![0, 0, 1, 2]));
    let nanos = |n| Duration::from_nanos(n);
    assert_eq!([0, 1].map(|number| far.flows[2].access_delay(number)), [nanos(30), nanos(31)]);
    assert_eq!(far.rtt_of(&far.flows[2]), Duration::from_millis(20) + nanos(61));
    assert_eq!(
        (far.path.rtt(), far.longest_rtt()),
        (Duration::from_millis(20), Duration::from_millis(1_020))
    );

    let text = file("rate = '10mbit'\nrtt = '20ms'", "", "cc = 'reno'\naccess_rtt = '101s'", "");
    let error = Experiment::from_toml(&text).expect_err("too far");
    assert!(error.message.ends_with("time '101s' is out of range"), "{}", error.message);
}
