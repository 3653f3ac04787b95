//! `fullpipe iperf3 -c`: one test, its report and its diagnosis.

use std::process::ExitCode;

use fullpipe::{Diagnosis, HostSettings, Latency, Look, render_text};
use fullpipe_iperf3::Params;
use fullpipe_iperf3::results::ServerOutput;
use fullpipe_iperf3::text::{Side, Text};
use fullpipe_linux::Stop;
use fullpipe_linux::iperf3::client::{self, Client, Finished};
use fullpipe_linux::iperf3::{Family, Place};
use serde::Serialize;
use serde_json::Value;

use super::args::Iperf3Args;
use super::explained::{Explained, Known, explain};
use super::show::{Form, Show};
use crate::diagnose::{LOCAL, settings};
use crate::failure::{Failure, RUNTIME};
use crate::output;

/// What fullpipe adds to the end of a document.
#[derive(Serialize)]
struct Added<'a> {
    latency: Latency,
    limit_seconds: std::collections::BTreeMap<&'static str, f64>,
    diagnosis: Option<&'a Diagnosis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_diagnosis: Option<&'a str>,
}

pub(super) fn measure(args: &Iperf3Args, look: Look) -> Result<ExitCode, Failure> {
    let params = args.test.params()?;
    let stop = stop_on_signal()?;
    let own = settings(LOCAL).ok();
    let form = form(args, &params);
    let told = !args.explain.no_diagnosis;
    let mut show = Show::new(form, told, args.explain.link, own.as_ref());
    show.document.start = fullpipe_linux::iperf3::this_host();
    show.document.title = params.title.clone();
    show.document.extra_data = params.extra_data.clone();
    let client = Client { place: place(args), params, interval: args.interval };
    match client::run(&client, &mut show, &stop) {
        Ok(finished) => conclude(args, show, finished, own.as_ref(), look),
        Err(error) => failed(show, error.into()),
    }
}

pub(super) fn place(args: &Iperf3Args) -> Place {
    Place {
        host: args.client.clone().unwrap_or_default(),
        port: args.port,
        family: match (args.test.version4, args.test.version6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        },
        bind: args.bind,
        connect_timeout: args.test.connect_timeout,
    }
}

fn form(args: &Iperf3Args, params: &Params) -> Form {
    match (args.json, args.json_stream) {
        (true, _) => Form::Document,
        (_, true) => Form::Events,
        _ => Form::Text(Text::new(Side::Client, params, args.format, args.verbose)),
    }
}

/// Ctrl-C ends the test and leaves what it has shown.
pub(super) fn stop_on_signal() -> Result<Stop, Failure> {
    let stop = Stop::new()?;
    let word = stop.clone();
    ctrlc::set_handler(move || word.stop())
        .map_err(|e| Failure::new(format!("cannot listen for Ctrl-C: {e}"), ""))?;
    Ok(stop)
}

fn conclude(
    args: &Iperf3Args,
    mut show: Show,
    finished: Finished,
    own: Option<&HostSettings>,
    look: Look,
) -> Result<ExitCode, Failure> {
    let latency = show.latency(finished.idle_rtt);
    show.document.end = finished.end;
    match finished.server_output {
        Some(ServerOutput::Text(text)) => show.document.server_output_text = Some(text),
        Some(ServerOutput::Json(document)) => show.document.server_output_json = Some(document),
        None => {}
    }
    if let Form::Text(text) = &show.form {
        let mut lines = text.end(&show.document.end, show.reports > 0);
        if let Some(output) = &show.document.server_output_text {
            lines += &format!("\nServer output:\n{}\n", output.trim_end());
        }
        lines += if finished.interrupted { "\n(interrupted)\n" } else { "\niperf Done.\n" };
        output::print(&lines)?;
    }
    let explained: Option<Explained> = if args.explain.no_diagnosis {
        None
    } else {
        let peer = args.explain.peer_sysctl.as_deref().map(settings).transpose()?;
        let known = Known {
            link: args.explain.link,
            rtt: args.explain.rtt,
            idle_rtt: finished.idle_rtt,
            own,
            peer: peer.as_ref(),
            control: None,
        };
        Some(explain(&show, &known)?)
    };
    if let Some(explained) = &explained {
        show.document.end.fullpipe = Some(added(&show, latency, explained)?);
    }
    let Show { form, document, .. } = &show;
    match form {
        Form::Text(_) => output::print(&told(latency, explained.as_ref(), look))?,
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
    show.printed()?;
    Ok(ExitCode::SUCCESS)
}

fn added(show: &Show, latency: Latency, explained: &Explained) -> Result<Value, Failure> {
    let added = Added {
        latency,
        limit_seconds: show.limit_seconds(),
        diagnosis: explained.as_deref().ok(),
        no_diagnosis: explained.as_ref().err().map(String::as_str),
    };
    serde_json::to_value(added).map_err(|e| Failure::new(format!("cannot write JSON: {e}"), ""))
}

fn told(latency: Latency, explained: Option<&Explained>, look: Look) -> String {
    let Some(explained) = explained else { return String::new() };
    let diagnosis = match explained {
        Ok(diagnosis) => render_text(diagnosis, look),
        Err(why) => format!("No diagnosis: {why}.\n"),
    };
    format!("\n{latency}\n\n{diagnosis}")
}

/// A test that failed: what it has shown stays, and where that is JSON the failure is part of it.
fn failed(mut show: Show, failure: Failure) -> Result<ExitCode, Failure> {
    match show.form {
        Form::Document => {
            show.document.error = Some(failure.message().to_owned());
            output::print(&output::json(&show.document)?)?;
        }
        Form::Events => {
            show.event("error", &failure.message());
            show.printed()?;
        }
        Form::Text(_) | Form::Nothing => return Err(failure),
    }
    Ok(ExitCode::from(RUNTIME))
}
