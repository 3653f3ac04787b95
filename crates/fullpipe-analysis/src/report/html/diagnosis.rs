//! HTML page of a diagnosis.

use std::collections::BTreeSet;

use askama::Template;
use fullpipe_lab::campaign::{Job, JobWatch, Progress, RunPanicked};
use fullpipe_measurement::classify::{Limit, LimitPeriod};
use fullpipe_measurement::loss_estimate::LossEstimate;
use fullpipe_measurement::measurement::{Measurement, Protocol};
use fullpipe_units::{Bytes, Duration, Rate};

use super::scene::replay;
use super::{Frame, LimitSpan, Provenance, Scene};
use crate::advice::{Command, Host, Scope};
use crate::diagnosis::Diagnosis;
use crate::explain::RttSource;
use crate::ladder::{Rung, Source};
use crate::report::offered_load::on_each_rung;
use crate::report::page::percent;
use crate::report::text::{headline, measurement, present};

/// Renders a diagnosis as a page. Each simulated rung is simulated again to obtain its timeline, with one of
/// the seeds over which its mean rate was taken.
///
/// # Errors
/// Returns an error if a simulated run panicked, which is a defect of this library.
pub fn render_diagnosis(
    measurement: &Measurement,
    diagnosis: &Diagnosis,
    made: Provenance<'_>,
) -> Result<String, RunPanicked> {
    let scenes = scenes(measurement, diagnosis, &|_: Progress| ())?.unwrap_or_default();
    Ok(render(diagnosis, Frame::new(made, scenes)))
}

/// Returns the scenes of a diagnosis: the measurement, and each simulated rung. Returns `None` if `watch` abandons
/// the runs.
pub(super) fn scenes(
    measurement: &Measurement,
    diagnosis: &Diagnosis,
    watch: &dyn JobWatch,
) -> Result<Option<Vec<Scene>>, RunPanicked> {
    let held = |limit: &LimitPeriod| LimitSpan {
        from_s: limit.from.as_secs_f64(),
        to_s: limit.to.as_secs_f64(),
        limit: limit.limit.name(),
    };
    let band = diagnosis.limits.iter().map(held).collect();
    let measured = match measurement.packets() {
        Some(packets) => Scene::of_capture(&packets.samples, &diagnosis.path),
        None => Scene::of_log(&measurement.transfer(), &diagnosis.path),
    };
    let Some(simulated) = of_rungs(&diagnosis.ladder, watch)? else { return Ok(None) };
    Ok(Some(std::iter::once(measured.with_band(band)).chain(simulated).collect()))
}

/// Returns the scenes of the simulated rungs, or `None` if `watch` abandons the runs.
pub(super) fn of_rungs(ladder: &[Rung], watch: &dyn JobWatch) -> Result<Option<Vec<Scene>>, RunPanicked> {
    let job = |rung: &Rung| {
        let label = match rung.remedies.title() {
            Some(remedy) => format!("Simulated: after {remedy}"),
            None => "Simulated: the fitted path without changes".into(),
        };
        Some(Job { label, scenario: rung.scenario.clone()? })
    };
    let jobs: Vec<Job> = ladder.iter().filter_map(job).collect();
    replay(&jobs, "One of the runs whose mean is on the ladder. RTT is the smoothed RTT.", 0, watch)
}

#[derive(Template)]
#[template(path = "diagnosis.html")]
struct DiagnosisPage<'a> {
    frame: Frame<'a>,
    title: String,
    headline: String,
    measurement: String,
    rungs: Vec<RungView<'a>>,
    steps: Vec<StepView<'a>>,
    findings: Vec<FindingView<'a>>,
    excluded: Vec<&'a str>,
    /// Each rung's rate, and the growth of the application's queue at that rate.
    backlogs: Vec<(String, String)>,
    figures: Vec<(&'static str, String)>,
    diagnosis: &'a Diagnosis,
}

/// View of a rung as a bar.
struct RungView<'a> {
    rate: String,
    limit: Option<&'static str>,
    what: &'a str,
    /// Limit on which the rung depends.
    only_if: Option<&'static str>,
    /// Source of the rate: `measured`, `simulated` or `given`.
    source: &'static str,
    range: Option<String>,
    /// Round-trip times under load and of the idle path.
    rtt: Option<String>,
    remedy: Option<String>,
    /// Length of the bar as a percentage of the longest bar; `low` is the start and the length of the range
    /// of the rate.
    bar: String,
    low: Option<(String, String)>,
    share: Option<String>,
}

/// View of a remedy with its commands.
struct StepView<'a> {
    remedy: String,
    /// Limit that the remedy lifts.
    lifts: String,
    reaches: String,
    hosts: Vec<(Host, Vec<&'a Command>)>,
    alternatives: bool,
}

struct FindingView<'a> {
    limit: Limit,
    what: &'a str,
    share: String,
    confidence: &'static str,
    evidence: Vec<&'a str>,
    open: Vec<&'a str>,
    tests: Vec<&'a str>,
}

fn render(diagnosis: &Diagnosis, frame: Frame<'_>) -> String {
    let ladder = &diagnosis.ladder;
    let full = diagnosis.path.link.into_iter().chain(ladder.iter().map(Rung::lasting)).max();
    let page = DiagnosisPage {
        frame,
        title: present(diagnosis),
        headline: headline(diagnosis),
        measurement: measurement(diagnosis),
        rungs: ladder.iter().map(|rung| rung_view(rung, full, diagnosis.path.link)).collect(),
        steps: steps(ladder),
        findings: findings(diagnosis),
        excluded: diagnosis.excluded.iter().map(|excluded| excluded.evidence.as_str()).collect(),
        backlogs: diagnosis.offered.as_ref().map(on_each_rung).unwrap_or_default(),
        figures: figures(diagnosis),
        diagnosis,
    };
    // Writing to a string does not fail.
    page.render().unwrap_or_default()
}

fn rung_view<'a>(rung: &'a Rung, full: Option<Rate>, link: Option<Rate>) -> RungView<'a> {
    let share = |rate: Rate| 100.0 * rate.as_bps() as f64 / full.unwrap_or_default().as_bps().max(1) as f64;
    let rate = rung.lasting();
    let range = rung.low.zip(rung.high).filter(|(low, high)| low < high);
    RungView {
        rate: rate.to_string(),
        limit: (rung.limit != Limit::Link && !rung.undecided).then_some(rung.limit.name()),
        only_if: rung.only_if.map(Limit::name),
        what: &rung.what,
        source: match rung.source {
            Source::Measured => "measured",
            Source::Simulated => "simulated",
            Source::Given => "given",
        },
        range: range.map(|(low, high)| format!("{low} to {high}")),
        rtt: rung.rtt.map(|rtt| rtt.to_string()),
        remedy: rung.remedies.title(),
        bar: format!("{:.2}", share(rate)),
        low: range
            .map(|(low, high)| (format!("{:.2}", share(low)), format!("{:.2}", share(high) - share(low)))),
        share: link.map(|link| percent(rate.as_bps() as f64 / link.as_bps().max(1) as f64)),
    }
}

fn steps(ladder: &[Rung]) -> Vec<StepView<'_>> {
    let pairs = ladder.windows(2).filter(|pair| pair[1].remedies.commands().next().is_some());
    let step = |pair: &'_ [Rung]| (pair[0].what.clone(), pair[1].lasting());
    pairs
        .map(|pair| {
            let (lifts, reaches) = step(pair);
            let rung = &pair[1];
            let of = |host| {
                let commands: Vec<&Command> = rung.remedies.commands().filter(|c| c.host == host).collect();
                (!commands.is_empty()).then_some((host, commands))
            };
            StepView {
                remedy: rung.remedies.title().unwrap_or_default(),
                lifts,
                reaches: match rung.low.zip(rung.high).filter(|(low, high)| low < high) {
                    Some((low, high)) => format!("{reaches} ({low} to {high}, simulated)"),
                    None => format!("{reaches} (simulated)"),
                },
                hosts: [Host::Sender, Host::Receiver].into_iter().filter_map(of).collect(),
                alternatives: rung.remedies.commands().any(|c| c.scope != Scope::System),
            }
        })
        .collect()
}

/// Returns the findings; evidence and open questions that several alternatives share appear only once.
fn findings(diagnosis: &Diagnosis) -> Vec<FindingView<'_>> {
    let mut said = BTreeSet::new();
    let mut views = Vec::new();
    for finding in &diagnosis.findings {
        views.push(FindingView {
            limit: finding.limit,
            what: &finding.what,
            share: percent(finding.share),
            confidence: finding.confidence.words(),
            evidence: unsaid(&finding.evidence, &mut said),
            open: unsaid(&finding.could_not_tell, &mut said),
            tests: unsaid(finding.next_test.as_slice(), &mut said),
        });
    }
    views
}

fn unsaid<'a>(texts: &'a [String], said: &mut BTreeSet<&'a str>) -> Vec<&'a str> {
    texts.iter().map(String::as_str).filter(|text| said.insert(text)).collect()
}

/// Returns the figures of the path and the transfer.
fn figures(diagnosis: &Diagnosis) -> Vec<(&'static str, String)> {
    let path = &diagnosis.path;
    let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3).to_string();
    let bytes = |bytes: u64| Bytes::new(bytes).to_string();
    let tcp = diagnosis.input.protocol == Protocol::Tcp;
    let rtt = match path.rtt_source {
        RttSource::Given => Some(format!("{} (given)", ms(path.rtt_ms))),
        RttSource::Log => Some(format!("{} (the smallest in the log)", ms(path.rtt_ms))),
        RttSource::Bound => {
            Some(format!("{} at most (upper bound from the ramp in the log)", ms(path.rtt_ms)))
        }
        RttSource::Unknown => None,
    };
    let loss = path.loss.map(|loss| LossEstimate::from(loss).to_string());
    let ratio = |bytes: u64, ratio: Option<f64>| {
        let of = ratio.map(|ratio| format!(", of which {} in flight", percent(ratio))).unwrap_or_default();
        format!("{}{of}", Bytes::new(bytes))
    };
    let figures = [
        ("Link", path.link.map(|link| link.to_string())),
        ("Mean goodput", Some(path.mean.to_string())),
        ("After the ramp", Some(path.steady.to_string())),
        ("RTT", rtt),
        ("Mean RTT in the log", path.mean_rtt_ms.map(ms)),
        ("BDP (link x RTT)", path.bdp_bytes.map(bytes)),
        ("In flight, median", tcp.then(|| bytes(path.inflight_bytes))),
        ("Cwnd, median", path.cwnd_bytes.map(|cwnd| ratio(cwnd, path.inflight_per_cwnd))),
        ("Receiver's window, median", path.snd_wnd_bytes.map(|wnd| ratio(wnd, path.inflight_per_snd_wnd))),
        ("Expected receive window", tcp.then(|| bytes(path.window_bytes))),
        ("Send buffer", tcp.then(|| bytes(path.sndbuf_bytes))),
        (
            "Congestion control",
            tcp.then(|| format!("{} ({})", path.congestion_control, path.congestion_control_source)),
        ),
        ("Cap on one flow", path.cap.map(|cap| cap.to_string())),
        ("Loss", loss),
        ("Jitter", path.jitter_ms.map(ms)),
        ("Streams", Some(diagnosis.input.streams.to_string())),
        (
            "Input",
            Some(match &diagnosis.input.version {
                Some(version) => format!("{}, {version}", diagnosis.input.kind.name()),
                None => diagnosis.input.kind.name().to_owned(),
            }),
        ),
    ];
    figures.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
