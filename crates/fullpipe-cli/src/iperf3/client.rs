//! `fullpipe iperf3 -c`: runs an iperf3 test, reports its results and diagnoses it.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fullpipe::classify::SocketFacts;
use fullpipe::host::{LOCAL, settings};
use fullpipe::iperf3::document::{Document, End};
use fullpipe::iperf3::results::ServerOutput;
use fullpipe::iperf3::text::{Side, Text};
use fullpipe::iperf3::{Mode, Params, Protocol};
use fullpipe::linux::iperf3::client::{self, Client, TestResult};
use fullpipe::linux::iperf3::{Family, ServerAddress};
use fullpipe::linux::{Clock, Stop};
use fullpipe::measure::{ExplainResult, Explanations, ROWS, Recorder, TestContext, ending, explain};
use fullpipe::units::{Duration, Rate};
use fullpipe::{
    HostSettings, Latency, Look, PathFacts, TcpVsUdp, render_latency, render_tcp_vs_udp, render_text,
};

use super::args::Iperf3Args;
use super::show::{Form, Show};
use crate::failure::{Failure, RUNTIME};
use crate::interrupt::at_signal;
use crate::output;
use crate::tui::{self, Screen};

/// Delay before the UDP test of `--tcp-and-udp` is retried if the server is still busy with the TCP test, and
/// maximum number of retries.
const BETWEEN_TESTS: Duration = Duration::from_millis(250);
const RETRIES: u32 = 8;

pub(super) fn measure(args: &Iperf3Args, look: Look) -> Result<ExitCode, Failure> {
    let mut params = args.test.params()?;
    // If the server is fullpipe's and sends, its socket samples contain more information about the transfer
    // than this host's samples.
    params.wants_trace =
        params.mode != Mode::Forward && params.protocol == Protocol::Tcp && !args.explain.no_diagnosis;
    let stop = stop_on_signal()?;
    let own = settings(LOCAL).ok();
    // With `--tcp-and-udp`, the rate limit of `-b` applies only to the UDP test.
    let rate = params.rate.filter(|_| args.explain.tcp_and_udp);
    if args.explain.tcp_and_udp {
        params.rate = None;
    }
    let mut show = shown(args, &params, own.as_ref());
    if args.explain.tui && tui::has_terminal() {
        let host = SocketFacts { link: args.explain.link, ..SocketFacts::default() };
        show.form = Form::Nothing;
        show.screen = Some((Screen::open(host, look)?, stop.clone()));
    }
    let client = Client { place: place(args), params, interval: args.interval, length: None };
    let finished = match client::run(&client, &mut show, &stop) {
        Ok(finished) => finished,
        Err(error) => {
            show.screen = None;
            return failed(show, error.into());
        }
    };
    // Closing the live view restores the normal screen, on which the remaining output appears.
    if show.screen.take().is_some() {
        show.form = form(args, &client.params);
    }
    if !args.explain.tcp_and_udp || finished.interrupted {
        conclude(args, show, finished, own.as_ref(), look, None)?;
        return Ok(ExitCode::SUCCESS);
    }
    print_end(&mut show, &finished)?;
    match over_udp(args, &client, &finished.end, rate, &stop) {
        Ok(udp) => conclude(args, show, finished, own.as_ref(), look, Some(udp))?,
        Err((udp, failure)) => return failed(*udp, failure),
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates the display of a test with the parameters `params`.
fn shown(args: &Iperf3Args, params: &Params, own: Option<&HostSettings>) -> Show {
    let told = !args.explain.no_diagnosis;
    let recorder = Recorder::new(told, ROWS, args.explain.link, own);
    let mut show = Show::new(form(args, params), recorder);
    show.recorder.document.start = fullpipe::linux::iperf3::this_host();
    show.recorder.document.title = params.title.clone();
    show.recorder.document.extra_data = params.extra_data.clone();
    show
}

/// Runs the second test of `--tcp-and-udp`, which uses UDP at `rate` or at the rate that the first test
/// (`tcp`) reached.
fn over_udp(
    args: &Iperf3Args,
    client: &Client,
    tcp: &End,
    rate: Option<Rate>,
    stop: &Stop,
) -> Result<(Document, TcpVsUdp), (Box<Show>, Failure)> {
    let reached = tcp.arrived();
    let each = rate.unwrap_or(reached.mul_div(1, client.params.parallel.max(1).into()));
    let params = Params {
        protocol: Protocol::Udp,
        rate: Some(each),
        len: None,
        mss: None,
        congestion: None,
        nodelay: false,
        ..client.params.clone()
    };
    let mut show = shown(args, &params, None);
    let client = Client { params, ..client.clone() };
    let mut finished = client::run(&client, &mut show, stop);
    let clock = Clock::starting_in(Duration::ZERO);
    for _ in 0..RETRIES {
        // An iperf3 server that runs one test at a time may not have closed the first test yet.
        if finished.is_ok() || !show.recorder.document.start.connected.is_empty() {
            break;
        }
        clock.sleep_until(clock.now() + BETWEEN_TESTS);
        finished = client::run(&client, &mut show, stop);
    }
    let finished = match finished {
        Ok(finished) => finished,
        Err(error) => return Err((Box::new(show), Failure::from(error))),
    };
    if let Err(failure) = print_end(&mut show, &finished) {
        return Err((Box::new(show), failure));
    }
    let end = finished.end;
    let udp = end.sum_received.as_ref().and_then(|sum| sum.udp.as_ref());
    let tcp_vs_udp = TcpVsUdp {
        tcp: reached,
        retransmits: tcp.sum_sent.as_ref().and_then(|sum| sum.retransmits),
        offered: end.sum_sent.as_ref().map_or(Rate::ZERO, |sum| sum.amount.rate()),
        udp: end.arrived(),
        lost: udp.and_then(|udp| udp.lost_percent()).unwrap_or(0.0) / 100.0,
        jitter: udp.and_then(|udp| udp.heard).map_or(Duration::ZERO, |heard| heard.jitter),
    };
    show.recorder.document.end = end;
    Ok((show.recorder.document, tcp_vs_udp))
}

pub(super) fn place(args: &Iperf3Args) -> ServerAddress {
    ServerAddress {
        host: args.client.clone().unwrap_or_default(),
        port: args.port,
        family: family(args),
        bind: args.bind,
        connect_timeout: args.test.connect_timeout,
    }
}

/// Returns the address family that the flags `-4` and `-6` select.
pub(super) const fn family(args: &Iperf3Args) -> Family {
    match (args.test.version4, args.test.version6) {
        (true, _) => Family::V4,
        (_, true) => Family::V6,
        _ => Family::Any,
    }
}

fn form(args: &Iperf3Args, params: &Params) -> Form {
    match (args.json, args.json_stream) {
        (true, _) => Form::Document,
        (_, true) => Form::Events,
        _ => Form::Text(Text::new(Side::Client, params, args.format, args.verbose)),
    }
}

/// Returns a stop signal that is set by Ctrl-C.
pub(super) fn stop_on_signal() -> Result<Stop, Failure> {
    let stop = Stop::new()?;
    let word = stop.clone();
    at_signal(move || word.stop())?;
    Ok(stop)
}

/// Prints the sums of the test in text mode. In the JSON modes, the JSON output already contains the sums.
fn print_end(show: &mut Show, finished: &TestResult) -> Result<(), Failure> {
    let Form::Text(text) = &show.form else { return Ok(()) };
    let mut lines = text.end(&finished.end, show.reports > 0);
    if let Some(ServerOutput::Text(output)) = &finished.server_output {
        lines += &format!("\nServer output:\n{}\n", output.trim_end());
    }
    lines += if finished.interrupted { "\n(interrupted)\n" } else { "\niperf Done.\n" };
    output::print(&lines)
}

/// Completes the output of a test: the sums of the test, the sums of the UDP test if there was one, and the
/// diagnosis.
fn conclude(
    args: &Iperf3Args,
    mut show: Show,
    finished: TestResult,
    own: Option<&HostSettings>,
    look: Look,
    udp: Option<(Document, TcpVsUdp)>,
) -> Result<(), Failure> {
    let latency = show.recorder.latency(finished.idle_rtt);
    if udp.is_none() {
        print_end(&mut show, &finished)?;
    }
    show.recorder.document.end = finished.end;
    match finished.server_output {
        Some(ServerOutput::Text(text)) => show.recorder.document.server_output_text = Some(text),
        Some(ServerOutput::Json(document)) => show.recorder.document.server_output_json = Some(document),
        None => {}
    }
    let explained: Option<Explanations> = if args.explain.no_diagnosis {
        None
    } else {
        let peer = args.explain.peer_sysctl.as_deref().map(settings).transpose()?;
        let known = TestContext {
            path: PathFacts { link: args.explain.link, rtt: args.explain.rtt, ..PathFacts::default() },
            idle_rtt: finished.idle_rtt,
            own,
            peer: peer.as_ref(),
            server_trace: finished.server_trace.as_deref(),
        };
        // After the test, Ctrl-C ends the simulation, and the results of the test are printed.
        let ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ended);
        at_signal(move || flag.store(true, Ordering::Relaxed))?;
        Some(output::with_progress_until(ended, |observer| explain(&show.recorder, &known, observer))?)
    };
    let tcp_vs_udp = udp.as_ref().map(|(_, tcp_vs_udp)| *tcp_vs_udp);
    if explained.is_some() || udp.is_some() {
        show.recorder.document.end.fullpipe =
            Some(ending(&show.recorder, latency, explained.as_ref(), udp.as_ref())?);
    }
    let (form, document) = (&show.form, &show.recorder.document);
    match form {
        Form::Text(_) => output::print(&told(latency, explained.as_ref(), tcp_vs_udp, look))?,
        Form::Document => output::print(&output::json(document)?)?,
        Form::Events => {
            let end = document.end.clone();
            let (text, json) = (document.server_output_text.clone(), document.server_output_json.clone());
            text.iter().for_each(|text| show.event("server_output_text", text));
            json.iter().for_each(|json| show.event("server_output_json", json));
            show.event("end", &end);
        }
        Form::Nothing => {}
    }
    show.printed()
}

fn told(
    latency: Latency,
    explained: Option<&Explanations>,
    tcp_vs_udp: Option<TcpVsUdp>,
    look: Look,
) -> String {
    let tcp_vs_udp =
        tcp_vs_udp.map(|both| format!("\n{}", render_tcp_vs_udp(&both, look))).unwrap_or_default();
    let Some(explained) = explained else { return tcp_vs_udp };
    let render = |explained: &ExplainResult| match explained {
        Ok(diagnosis) => render_text(diagnosis, look),
        Err(why) => format!("No diagnosis: {why}.\n"),
    };
    let diagnosis = match &explained.reverse {
        None => render(&explained.main),
        Some(reverse) => {
            let main = render(&explained.main);
            format!("To the server\n\n{main}\nFrom the server\n\n{}", render(reverse))
        }
    };
    let latency = render_latency(&latency, look);
    format!("{tcp_vs_udp}\n{latency}\n{diagnosis}")
}

/// Ends the output of a failed test: text that was already printed remains, and JSON output contains the
/// error message.
fn failed(mut show: Show, failure: Failure) -> Result<ExitCode, Failure> {
    match show.form {
        Form::Document => {
            show.recorder.document.error = Some(failure.message().to_owned());
            output::print(&output::json(&show.recorder.document)?)?;
        }
        Form::Events => {
            show.event("error", &failure.message());
            show.printed()?;
        }
        Form::Text(_) | Form::Nothing => return Err(failure),
    }
    Ok(ExitCode::from(RUNTIME))
}
