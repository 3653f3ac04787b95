//! Report as an HTML page: required content, escaped markup, and no network requests.

use std::sync::OnceLock;

use crate::case::Case;
use fullpipe_analysis::input::iperf3;
use fullpipe_analysis::ladder::Fit;
use fullpipe_analysis::report::html::figure::{Charts, Theme, ladder};
use fullpipe_analysis::report::html::{Provenance, render_diagnosis, render_experiment, render_race};
use fullpipe_analysis::{Demand, Diagnosis, HostFacts, HostSettings, Memory, Rung};
use fullpipe_lab::arm::Arm;
use fullpipe_lab::campaign::{JobWatch, Progress, RunResult};
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
    // Besides the chart library, the page contains the data and fullpipe's script.
    assert_eq!(own.matches("<script").count(), 2);
    let begin = own.find(r#"id="charts-data">"#).expect("data") + r#"id="charts-data">"#.len();
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

/// The headline and a paragraph of the page say that the model does not meet the log.
#[test]
fn the_page_says_that_the_model_does_not_meet_the_log() {
    const MARK: &str = "the model does not reproduce the measured rate";
    let (diagnosis, met) = plain();
    assert!(!visible(met).contains(MARK) && !visible(met).contains("Model:"));
    let fit = Fit { met: false, ..diagnosis.fit.expect("a simulation") };
    // A page simulates each rung again.
    let unmet = Diagnosis { fit: Some(fit), ladder: Vec::new(), ..diagnosis.clone() };
    let log = iperf3::parse(&log("iperf 3.17")).expect("a log");
    let page = visible(&render_diagnosis(&log, &unmet, MADE).expect("a page"));
    let (headline, _) = page.split_once("Model:").expect("a paragraph about the model");
    assert!(headline.contains(MARK), "{headline}");
}

/// No element of the page has an external address, and the content security policy forbids every request.
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
    let runs = runs(page);
    let simulated = diagnosis.ladder.iter().filter(|rung| rung.scenario.is_some()).count();
    assert!(simulated >= 2);
    assert_eq!(runs.len(), 1 + simulated);
    let rates = charts(page)["rates"]["data"].as_array().expect("rates").len();
    assert_eq!(rates, runs.len());
    for run in &runs[1..] {
        for name in ["rate", "cwnd", "in flight", "rwnd", "RTT", "queue"] {
            assert!(curve(run, name).is_some(), "{name} of {}", run["label"]);
        }
        assert!(run["phase"].is_object());
        // The band shows one limit at each point in time.
        let band = curve(run, "limit").expect("a band");
        let times: Vec<f64> = values(band, "x");
        assert!(!times.is_empty() && times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
        let limits = &run["time"]["wide"]["yaxis5"]["ticktext"];
        let shares = limits.as_array().expect("limits").iter().map(|text| {
            let text = text.as_str().expect("a text");
            text.split(' ').nth(1).and_then(|share| share.parse::<f64>().ok()).expect("a share")
        });
        assert!((98.0..=102.0).contains(&shares.sum::<f64>()), "{limits}");
    }
    // The log contains RTT and Cwnd but no queue; data in flight is rate times RTT, such as 100 ms x 4.9
    // Mbit/s.
    let log = &runs[0];
    assert!(curve(log, "cwnd").is_some() && curve(log, "queue").is_none() && log["phase"].is_object());
    let inflight = in_base_units(curve(log, "in flight").expect("a curve"))[2];
    assert!((inflight - 65_536.0).abs() < 1.0, "{inflight}");
}

/// Every curve and line of a chart is on an axis of its layouts, and both layouts have the same axes.
#[test]
fn figures_refer_to_their_axes() {
    let (_, page) = plain();
    let charts = charts(page);
    let of_runs = runs(page);
    let figures = of_runs.iter().flat_map(|run| [&run["time"], &run["phase"]]).chain([&charts["rates"]]);
    let mut count = 0;
    for figure in figures {
        let axes = |layout: &serde_json::Value| -> Vec<String> {
            let keys = layout.as_object().expect("a layout").keys();
            keys.filter(|key| key.starts_with("yaxis")).cloned().collect()
        };
        assert_eq!(axes(&figure["wide"]), axes(&figure["narrow"]));
        let axis = |name: &serde_json::Value| name.as_str().unwrap_or("y").replacen('y', "yaxis", 1);
        for trace in figure["data"].as_array().expect("data") {
            assert!(axes(&figure["wide"]).contains(&axis(&trace["yaxis"])), "{}", trace["yaxis"]);
            assert_eq!(trace["x"].as_array().map(Vec::len), trace["y"].as_array().map(Vec::len));
            count += 1;
        }
        for shape in figure["wide"]["shapes"].as_array().expect("shapes") {
            let at = shape["yref"].as_str().expect("an axis");
            assert!(at == "paper" || axes(&figure["wide"]).contains(&axis(&shape["yref"])), "{at}");
        }
    }
    assert!(count > 20);
}

/// A document of Plotly has the values of the page, and the colours of a theme instead of names.
#[test]
fn a_document_has_colours_of_a_theme() {
    let (diagnosis, page) = plain();
    let log = iperf3::parse(&log("iperf 3.17")).expect("a log");
    let charts =
        Charts::of_diagnosis(&log, diagnosis, &|_: Progress| ()).expect("no panic").expect("complete");
    assert_eq!(
        charts.labels().collect::<Vec<_>>(),
        runs(page).iter().map(|run| run["label"].as_str().unwrap()).collect::<Vec<_>>()
    );
    let on_page = &runs(page)[1]["time"];
    for (theme, cwnd, paper) in [(Theme::Light, "#d55e00", "#ffffff"), (Theme::Dark, "#f08a3c", "#13171b")] {
        let document = charts.time(1).expect("a run").document(theme);
        let text = document.to_string();
        assert!(!text.contains("\"@"), "a colour has no value");
        assert_eq!(document["layout"]["paper_bgcolor"], paper);
        let trace = |figure: &serde_json::Value| {
            let data = figure["data"].as_array().expect("data");
            data.iter().find(|trace| trace["name"] == "cwnd").expect("a curve").clone()
        };
        assert_eq!(trace(&document)["line"]["color"], cwnd);
        assert_eq!(trace(&document)["y"], trace(on_page)["y"]);
    }
    assert!(charts.time(9).is_none() && charts.phase(1).is_some());
    // Abandoned runs have no charts.
    struct Abandoning;
    impl JobWatch for Abandoning {
        fn finished(&self, _: Progress) {}
        fn abandons(&self) -> bool {
            true
        }
    }
    assert_eq!(Charts::of_diagnosis(&log, diagnosis, &Abandoning).expect("no panic"), None);

    let ladder = ladder(&diagnosis.ladder, diagnosis.path.link).document(Theme::Light);
    let bars = &ladder["data"][0];
    assert_eq!(bars["x"].as_array().map(Vec::len), Some(diagnosis.ladder.len()));
    let rates = in_base_units(
        &serde_json::json!({ "y": bars["x"], "hovertemplate": ladder["layout"]["xaxis"]["title"]["text"] }),
    );
    for (rung, rate) in diagnosis.ladder.iter().zip(rates) {
        let expected = rung.lasting().as_bps() as f64;
        assert!((rate / expected - 1.0).abs() < 1e-3, "{rate} {expected}");
    }
    let labels = ladder["layout"]["yaxis"]["ticktext"].to_string();
    assert!(
        labels.contains("cwnd: ") || labels.contains("rwnd: ") || labels.contains("sndbuf: "),
        "{labels}"
    );
}

fn charts(page: &str) -> serde_json::Value {
    serde_json::from_str(embedded(page, r#"id="charts-data">"#)).expect("JSON")
}

fn runs(page: &str) -> Vec<serde_json::Value> {
    charts(page)["runs"].as_array().expect("runs").clone()
}

/// Returns the curve with this name over the time of a run.
fn curve<'r>(run: &'r serde_json::Value, name: &str) -> Option<&'r serde_json::Value> {
    run["time"]["data"].as_array()?.iter().find(|trace| trace["name"] == name)
}

fn values(trace: &serde_json::Value, key: &str) -> Vec<f64> {
    trace[key].as_array().expect("values").iter().filter_map(serde_json::Value::as_f64).collect()
}

/// Returns the values of a curve in bytes or bit/s; the text under the pointer names their unit.
fn in_base_units(trace: &serde_json::Value) -> Vec<f64> {
    let unit = trace["hovertemplate"].as_str().and_then(|text| text.split(' ').next_back()).expect("a unit");
    let size = match unit {
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "kbit/s" => 1e3,
        "Mbit/s" => 1e6,
        _ => panic!("{unit}"),
    };
    values(trace, "y").iter().map(|value| value * size).collect()
}

/// Returns the content of the element that begins with `tag`.
fn embedded<'p>(page: &'p str, tag: &str) -> &'p str {
    let begin = page.find(tag).expect("data") + tag.len();
    &page[begin..begin + page[begin..].find("</script>").expect("its end")]
}

/// Returns the chart data of the element that begins with `tag`.
fn data(page: &str, tag: &str) -> Vec<serde_json::Value> {
    serde_json::from_str(embedded(page, tag)).expect("JSON")
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
    // Each point has charts for all flows together, followed by those of each flow.
    let runs = self::runs(&page);
    assert_eq!(runs.len(), 2 * 3);
    let inflight = |run: &serde_json::Value| {
        in_base_units(curve(run, "in flight").expect("a curve")).into_iter().fold(0.0, f64::max)
    };
    // Each of the two flows can have one window of 20 KiB in flight.
    assert!((35_000.0..=2.0 * 20_480.0).contains(&inflight(&runs[0])), "{}", inflight(&runs[0]));
    assert!((17_000.0..=20_480.0).contains(&inflight(&runs[1])), "{}", inflight(&runs[1]));
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
    assert!(text.contains("The machine did not keep up with 2 downloads, which were repeated."), "{text}");
    for cell in &report.cells {
        let ratio = cell.arm("bbr1+iw").and_then(|arm| arm.ratio).expect("a ratio");
        let [base, arm] = ["bbr1", "bbr1+iw"].map(|arm| cell.arm(arm).and_then(|arm| arm.from_syn));
        let (base, arm) = (base.expect("times"), arm.expect("times"));
        let from_request = ["bbr1", "bbr1+iw"].map(|name| {
            let arm = cell.arm(name).expect("an arm");
            arm.from_request.expect("times").mean_s
        });
        let sent = cell.arm("bbr1+iw").and_then(|arm| arm.sent_per_needed).expect("segments");
        let row = format!(
            "{} {:.3} {:.3} {:.3} {:.3} {:.3} {:.3} {:.3} {:.2} {:.2} to {:.2} {sent:.3} {:.3} {:.3}",
            cell.cell,
            cell.link_floor_s,
            cell.window_floor_s,
            cell.ideal_s,
            base.mean_s,
            base.p95_s,
            arm.mean_s,
            arm.p95_s,
            ratio.ratio,
            ratio.low,
            ratio.high,
            from_request[0],
            from_request[1]
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
            near(&chart["ideal"][number][1], cell.ideal_s);
        }
        assert!(chart["arms"][0]["points"][0]["ratio"].is_null(), "the arm against has no ratio");
    }
}
