//! Report as an HTML page: required content, escaped markup, and no network requests.

use std::sync::OnceLock;

use crate::case::Case;
use fullpipe_analysis::input::iperf3;
use fullpipe_analysis::report::html::{Provenance, render_diagnosis, render_experiment, render_race};
use fullpipe_analysis::{Demand, Diagnosis, HostFacts, HostSettings, Memory, Rung};
use fullpipe_lab::arm::Arm;
use fullpipe_lab::campaign::RunResult;
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::race::{RacePlan, RaceReport};
use fullpipe_lab::results::{Report, TimedOutcome, summaries};
use fullpipe_lab::sim;
use fullpipe_units::{Bytes, Duration, Rate};

const MADE: Provenance<'static> =
    Provenance { command: "fullpipe diagnose 'a <b>.txt' --html \"r\".html", version: "9.8.7" };

/// Maximum size of the chart library, which a page contains once; `OWN` is the maximum size of the rest of a
/// page.
const PLOTLY: usize = 1_200_000;
const OWN: usize = 400_000;

/// Returns the log of a 12 s transfer limited by loss, from a tool whose version text is `version`; the text
/// may contain an attack.
fn log(version: &str) -> String {
    let mut intervals = Vec::new();
    for second in 0..12u32 {
        let cwnd = [24, 48, 64, 45, 50, 56, 62, 44, 49, 55, 61, 43][second as usize] * 1024;
        let resent = u32::from([3, 7, 11].contains(&second)) * 2;
        let (bytes, bps) = (cwnd * 10, cwnd * 80);
        intervals.push(format!(
            r#"{{"streams":[{{"socket":5,"start":{second},"end":{},"seconds":1,"bytes":{bytes},"bits_per_second":{bps},
            "retransmits":{resent},"snd_cwnd":{cwnd},"rtt":100000,"rttvar":100,"pmtu":1500,"omitted":false,"sender":true}}],
            "sum":{{"start":{second},"end":{},"seconds":1,"bytes":{bytes},"bits_per_second":{bps},"retransmits":{resent},
            "omitted":false,"sender":true}}}}"#,
            second + 1,
            second + 1
        ));
    }
    format!(
        r#"{{"start":{{"connected":[{{"socket":5}}],"version":{},"tcp_mss_default":1448,
        "test_start":{{"protocol":"TCP","num_streams":1,"reverse":0,"duration":12}}}},"intervals":[{}],"end":{{}},
        "error":{}}}"#,
        serde_json::to_string(version).expect("a string"),
        intervals.join(","),
        serde_json::to_string(&format!("{version} & \"broken\"")).expect("a string"),
    )
}

/// Returns a page without the chart library, which is long and not part of this project.
fn without_library(page: &str) -> String {
    let begin = page.find(r#"<script type="text/plain" id="plotly">"#).expect("the library");
    let end = begin + page[begin..].find("</script>").expect("its end");
    format!("{}{}", &page[..begin], &page[end..])
}

/// Returns the visible text: the page without scripts, styles and markup.
fn visible(page: &str) -> String {
    let body = &page[page.find("<body>").expect("a body")
        ..page.find(r#"<script type="application/json""#).expect("data")];
    let mut text = String::new();
    let mut inside = false;
    for c in body.chars() {
        match c {
            '<' => inside = true,
            '>' => {
                inside = false;
                text.push(' ');
            }
            c if !inside => text.push(c),
            _ => {}
        }
    }
    let text = text.replace("&#60;", "<").replace("&#62;", ">").replace("&#34;", "\"").replace("&#39;", "'");
    text.replace("&#38;", "&").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the page of a log without an attack, rendered once for all tests.
fn plain() -> &'static (Diagnosis, String) {
    static PLAIN: OnceLock<(Diagnosis, String)> = OnceLock::new();
    PLAIN.get_or_init(|| page("iperf 3.17"))
}

fn page(version: &str) -> (Diagnosis, String) {
    let log = iperf3::parse(&log(version)).expect("a log");
    let sysctl =
        HostSettings::parse("net.ipv4.tcp_wmem = 4096 16384 65536\nnet.ipv4.tcp_rmem = 4096 87380 90000");
    let sysctl = sysctl.expect("settings");
    let hosts = HostFacts { local: Some(sysctl), ..HostFacts::default() };
    let case = Case::of(&log).rtt(Some(Duration::from_millis(100))).link(Some(Rate::from_bps(20_000_000)));
    let diagnosis = case.hosts(hosts).diagnose().expect("a diagnosis");
    let page = render_diagnosis(&log, &diagnosis, MADE).expect("a page");
    (diagnosis, page)
}

#[test]
fn what_a_log_says_is_text_and_never_markup() {
    let attack = "</script><script>alert('x')</script>\"><img src=x onerror=alert(1)>";
    let (diagnosis, page) = page(attack);
    assert_eq!(diagnosis.input.version.as_deref(), Some(attack), "the attack never got as far as the page");
    let own = without_library(&page);
    assert!(
        !own.contains("<script>alert") && !own.contains("<img"),
        "markup of the log is markup of the page"
    );
    assert!(visible(&page).contains(attack), "the reader sees it as it was");
    assert!(visible(&page).contains(MADE.command));
    // Besides the chart library, the page contains the data and a script of its own.
    assert_eq!(own.matches("<script").count(), 2);
    let begin = own.find(r#"id="scenes">"#).expect("data") + r#"id="scenes">"#.len();
    let data = &own[begin..begin + own[begin..].find("</script>").expect("its end")];
    assert!(!data.contains('<'), "data may not end its own element");
    serde_json::from_str::<serde_json::Value>(data).expect("JSON");
}

/// Like the text report, the page compares the offered load with each rung.
#[test]
fn the_page_says_what_becomes_of_the_queue() {
    let (diagnosis, before) = plain();
    let demand =
        Demand::new(Rate::from_bps(19_000_000), Memory::Given(Bytes::from_mib(512))).expect("a rate");
    let diagnosis = diagnosis.clone().against(demand);
    let log = iperf3::parse(&log("iperf 3.17")).expect("a log");
    let page = visible(&render_diagnosis(&log, &diagnosis, MADE).expect("a page"));
    for said in [
        "What the application offers: 19 Mbit/s",
        "the queue grows by",
        "512 MiB",
        "bound the application's queue",
    ] {
        assert!(page.contains(said) && !visible(before).contains(said), "{said}");
    }
}

/// No element of the page has an external address, and the policy forbids every request.
#[test]
fn the_page_needs_no_network() {
    let (_, page) = plain();
    let own = without_library(page);
    assert!(own.contains(r#"http-equiv="Content-Security-Policy" content="default-src 'none';"#));
    for attribute in ["src=", "href=", "action=", "data=", "url(", "@import"] {
        for (at, _) in own.match_indices(attribute) {
            let value = own[at + attribute.len()..].trim_start_matches(['"', '\'']);
            assert!(value.starts_with('#'), "{attribute}{}", &value[..value.len().min(60)]);
        }
    }
    for word in ["http:", "https:", "//cdn", "fetch(", "XMLHttpRequest", "<link", "<iframe"] {
        assert!(!own.contains(word), "{word}");
    }
    assert_eq!(page.matches("* plotly.js (basic - minified) v").count(), 1, "the library is within, once");
    assert!(page.contains("return Plotly;\n}));</script>"), "the library is within to its last line");
}

/// The page contains all parts of a diagnosis, readable without scripts.
#[test]
fn the_facts_are_there_without_scripts() {
    let (diagnosis, page) = plain();
    let text = visible(page);
    let has = |part: &str| {
        let part = part.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&part), "no '{part}' in {text}");
    };
    for rung in &diagnosis.ladder {
        has(&rung.lasting().to_string());
        has(&rung.what);
        rung.remedies.title().iter().for_each(|remedy| has(remedy));
        if let (Some(low), Some(high)) = (rung.low, rung.high) {
            assert!(low == high || text.contains(&format!("{low} to {high}")), "{low} to {high}");
        }
        for command in rung.remedies.commands() {
            has(&command.run);
            has(&command.undo);
            has(command.scope.words());
            has(&format!("On the {}", command.host));
            command.requires.iter().for_each(|needs| has(needs));
        }
    }
    let climbs = |rung: &Rung| rung.remedies.commands().next().is_some();
    assert!(diagnosis.ladder.iter().any(climbs), "a ladder to climb");
    for finding in &diagnosis.findings {
        has(&finding.what);
        finding.evidence.iter().chain(&finding.could_not_tell).chain(&finding.next_test).for_each(|t| has(t));
    }
    diagnosis.excluded.iter().for_each(|excluded| has(&excluded.evidence));
    diagnosis.assumptions.iter().chain(&diagnosis.notes).for_each(|text| has(text));
    has("Made by fullpipe 9.8.7");
}

/// The charts contain the log and each simulated rung, with all curves of a simulated run.
#[test]
fn the_charts_have_the_log_and_every_simulated_rung() {
    let (diagnosis, page) = plain();
    let scenes = scenes(page);
    let simulated = diagnosis.ladder.iter().filter(|rung| rung.scenario.is_some()).count();
    assert!(simulated >= 2);
    assert_eq!(scenes.len(), 1 + simulated);
    let keys = [
        "rate_bps",
        "mean_bps",
        "cwnd_bytes",
        "inflight_bytes",
        "rwnd_bytes",
        "rtt_ms",
        "queue_bytes",
        "phase",
    ];
    for scene in &scenes[1..] {
        for key in keys {
            assert!(scene[key].is_object(), "{key} of {}", scene["label"]);
        }
        let band = scene["band"].as_array().expect("a band");
        let ends: Vec<(f64, f64)> = band
            .iter()
            .map(|held| (held["from_s"].as_f64().unwrap(), held["to_s"].as_f64().unwrap()))
            .collect();
        assert!(!ends.is_empty() && ends.iter().all(|(from, to)| from < to), "{ends:?}");
        assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "limits do not overlap: {ends:?}");
    }
    // The log contains RTT and Cwnd but no queue; data in flight is rate times RTT, such as 100 ms x 4.9
    // Mbit/s.
    let log = &scenes[0];
    assert!(log["cwnd_bytes"].is_object() && log["queue_bytes"].is_null() && log["phase"].is_object());
    let inflight = log["inflight_bytes"]["v"][2].as_f64().expect("bytes");
    assert!((inflight - 65_536.0).abs() < 1.0, "{inflight}");
}

fn scenes(page: &str) -> Vec<serde_json::Value> {
    data(page, r#"id="scenes">"#)
}

/// Returns the chart data of the element that begins with `tag`.
fn data(page: &str, tag: &str) -> Vec<serde_json::Value> {
    let begin = page.find(tag).expect("data") + tag.len();
    let data = &page[begin..begin + page[begin..].find("</script>").expect("its end")];
    serde_json::from_str(data).expect("JSON")
}

#[test]
fn the_same_input_makes_the_same_small_page() {
    let (first, second) = (&plain().1, &page("iperf 3.17").1);
    assert!(first == second, "two pages of one log differ");
    let own = without_library(first).len();
    assert!(own < OWN && first.len() < PLOTLY + own, "{own} bytes of {}", first.len());
}

const EXPERIMENT: &str = r#"
name = "a <b> & \"c\""
description = "two windows, <script>alert(1)</script>"
duration = "2s"
repeat = 2
[path]
rate = "20mbit"
rtt = "40ms"
[host]
window = ["20KiB", "200KiB"]
[[flow]]
cc = "cubic"
count = 2
[[expect]]
where = { window = "20KiB" }
metric = "goodput_bps"
min = "7mbit"
max = "9mbit"
kernel = "<i>8</i> Mbit/s"
[[expect]]
where = { window = "200KiB" }
metric = "goodput_bps"
min = "50mbit"
"#;

#[test]
fn an_experiment_shows_every_point_and_expectation() {
    let experiment = Experiment::from_toml(EXPERIMENT).expect("an experiment");
    let seeds = experiment.seeds();
    let runs: Vec<RunResult<TimedOutcome>> = experiment
        .points()
        .iter()
        .enumerate()
        .flat_map(|(point, of)| seeds.iter().map(move |seed| (point, of, *seed)))
        .map(|(point, of, seed)| {
            let scenario = fullpipe_lab::scenario::Scenario { seed, ..of.scenario.clone() };
            RunResult {
                point,
                seed,
                value: TimedOutcome { outcome: sim::run(&scenario), wall_s: 0.0, validity: None },
            }
        })
        .collect();
    let (summaries, report) = (summaries(&experiment, &runs), Report::new(&experiment, "sim", &runs));
    let page = render_experiment(&experiment, &summaries, &report, MADE).expect("a page");
    let own = without_library(&page);
    assert!(
        !own.contains("<script>alert") && !own.contains("<i>8"),
        "markup of the file is markup of the page"
    );
    let text = visible(&page);
    for part in [
        "a <b> & \"c\": 1 of 2 expectations not met",
        "<script>alert(1)</script>",
        "window=20KiB",
        "<i>8</i> Mbit/s",
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    assert!(
        text.contains("✓ pass window=20KiB goodput_bps") && text.contains("✗ FAIL window=200KiB goodput_bps"),
        "{text}"
    );
    for summary in &summaries {
        let goodput = summary.goodput.expect("a goodput").words(summary.repeats);
        assert!(text.contains(&goodput), "{goodput}");
        assert!(summary.limits.iter().all(|(limit, _)| text.contains(limit.name())));
    }
    // Each point has a scene for all flows together, followed by one for each flow.
    let scenes = scenes(&page);
    assert_eq!(scenes.len(), 2 * 3);
    let inflight = |scene: &serde_json::Value| {
        let values = scene["inflight_bytes"]["v"].as_array().expect("values");
        values.iter().filter_map(serde_json::Value::as_f64).fold(0.0, f64::max)
    };
    // Each of the two flows can have one window of 20 KiB in flight.
    assert!((35_000.0..=2.0 * 20_480.0).contains(&inflight(&scenes[0])), "{}", inflight(&scenes[0]));
    assert!((17_000.0..=20_480.0).contains(&inflight(&scenes[1])), "{}", inflight(&scenes[1]));
}

#[test]
fn a_race_shows_every_cell_and_a_chart_of_each_path() {
    let text = "name = 'a <b>'\nduration = '60s'\nrepeat = 3\n\
                [path]\nrate = '20mbit'\nrtt = '50ms'\nloss = ['0%', '1%']\n\
                [[flow]]\ncc = 'bbr1'\nbytes = ['100kB', '60kB']\napp = { request = '200B' }\n\
                [[ratio]]\nwhere = { loss = '0%' }\narm = 'bbr1+iw'\nagainst = 'bbr1'\nmin = 50\n";
    let experiment = Experiment::from_toml(text).expect("valid");
    let [bbr1, iw] = ["bbr1", "bbr1+iw"].map(|arm| arm.parse::<Arm>().expect("an arm"));
    let plan = RacePlan::new(&experiment, &[bbr1, iw], bbr1).expect("a plan");
    let pairs = plan.cells().iter().map(|cell| {
        let scenario = |seed| fullpipe_lab::scenario::Scenario { seed, ..cell.point.scenario.clone() };
        cell.seeds.iter().map(|seed| plan.run_pair(cell, &scenario(*seed))).collect()
    });
    let mut report = RaceReport::new(&plan, "sim", &pairs.collect::<Vec<Vec<_>>>());
    report.cells[3].arms[1].repeated = 2;
    let page = render_race(&report, MADE);
    let own = without_library(&page);
    assert!(!own.contains("a <b>") && own.len() < OWN && page.len() < PLOTLY + own.len());

    let text = visible(&page);
    assert!(text.contains("a <b>: 2 of 2 bounds not met"), "{text}");
    assert!(text.contains("The machine did not keep up with 2 downloads, which were made again."), "{text}");
    for cell in &report.cells {
        let ratio = cell.arm("bbr1+iw").and_then(|arm| arm.ratio).expect("a ratio");
        let [base, arm] = ["bbr1", "bbr1+iw"].map(|arm| cell.arm(arm).and_then(|arm| arm.from_syn));
        let (base, arm) = (base.expect("times"), arm.expect("times"));
        let row = format!(
            "{} {:.3} {:.3} {:.3} {:.3} {:.3} {:.3} {:.2} {:.2} to {:.2}",
            cell.cell,
            cell.link_floor_s,
            cell.window_floor_s,
            base.mean_s,
            base.p95_s,
            arm.mean_s,
            arm.p95_s,
            ratio.ratio,
            ratio.low,
            ratio.high
        );
        assert!(text.contains(&row), "no '{row}' in {text}");
    }
    let near = |found: &serde_json::Value, expected: f64| {
        assert!(found.as_f64().is_some_and(|found| (found - expected).abs() < 1e-9), "{found}, {expected}");
    };
    // Each path has a chart with its sizes in ascending order.
    let charts = data(&page, r#"id="races">"#);
    let labels: Vec<_> = charts.iter().map(|chart| chart["label"].as_str().expect("a label")).collect();
    assert_eq!(labels, ["loss=0%", "loss=1%"]);
    for (chart, cells) in charts.iter().zip(report.cells.chunks(2)) {
        for (number, cell) in [(0, &cells[1]), (1, &cells[0])] {
            let point = &chart["arms"][1]["points"][number];
            let arm = cell.arm("bbr1+iw").expect("an arm");
            assert_eq!(point["size_bytes"], cell.size_bytes);
            near(&point["mean_s"], arm.from_syn.expect("times").mean_s);
            near(&point["ratio"]["low"], arm.ratio.expect("a ratio").low);
            near(&chart["floors"][number][1], cell.link_floor_s.max(cell.window_floor_s));
        }
        assert!(chart["arms"][0]["points"][0]["ratio"].is_null(), "the arm against has no ratio");
    }
}
