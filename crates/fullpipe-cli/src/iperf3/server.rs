//! `fullpipe iperf3 -s`: runs an iperf3 server, and prints its events as text, JSON documents or JSON events.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fullpipe::iperf3::document::Document;
use fullpipe::iperf3::results::ServerOutput;
use fullpipe::iperf3::text::{Side, Text};
use fullpipe::iperf3::unit::RateFormat;
use fullpipe::json::Serialize;
use fullpipe::lab::trace::{Csv, Sink as _};
use fullpipe::linux::iperf3::client::Watch;
use fullpipe::linux::iperf3::server::{self, Audience, Limits, ServerEvent, ServerNotice, Settings, Tag};
use fullpipe::measure::{Recorder, numbered_event};

use super::args::Iperf3Args;
use super::client::{family, stop_on_signal};
use super::server_args::ServerArgs;
use super::show::{Form, Show};
use crate::failure::Failure;
use crate::output;

/// Maximum number of bytes of a test's text output that are stored for a client that requests them
/// (`--get-server-output`).
const PRINTED_MOST: usize = 1 << 20;

/// Maximum number of socket samples of a test, over all streams, that are stored for a client that requests
/// them; as lines of a trace, they take about 400 KB.
const ROWS_MOST: usize = 2_000;

/// Maximum number of interval reports of a test, over all streams, that are stored for a JSON document. One
/// day of one stream takes about 20 MB. Later reports are omitted.
const REPORTS_MOST: usize = 90_000;

/// Output format of the iperf3 server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputMode {
    /// The server prints lines of text, as iperf3 does.
    Text,
    /// The server prints one JSON document per test (`-J`).
    Documents,
    /// The server prints one JSON event per line (`--json-stream`).
    Events,
}

/// Runs the server until Ctrl-C or, with `--one-off`, until one test has ended.
pub(super) fn serve(args: &Iperf3Args) -> Result<ExitCode, Failure> {
    let ServerArgs { one_off, max_tests, max_per_address, server_max_duration, server_bitrate_limit } =
        args.serve;
    let usual = Limits::default();
    let limits = Limits {
        tests: max_tests.into(),
        per_address: max_per_address.into(),
        duration: server_max_duration,
        rate: server_bitrate_limit.map(|(rate, _)| rate),
        rate_over: server_bitrate_limit.and_then(|(_, over)| over).unwrap_or(usual.rate_over),
    };
    let settings = Settings {
        address: args.bind,
        family: family(args),
        port: args.port,
        one_off,
        interval: args.interval,
        limits,
    };
    let stop = stop_on_signal()?;
    let shown = match (args.json, args.json_stream) {
        (true, _) => OutputMode::Documents,
        (_, true) => OutputMode::Events,
        _ => OutputMode::Text,
    };
    let printer = Printer { shown, rates: args.format, verbose: args.verbose, tests: Mutex::default() };
    server::serve(&settings, &stop, &printer)?;
    Ok(ExitCode::SUCCESS)
}

struct Printer {
    shown: OutputMode,
    rates: RateFormat,
    verbose: bool,
    tests: Mutex<BTreeMap<u64, Test>>,
}

/// Display of a running test.
struct Test {
    /// Display of the test, which also records the samples of the sending sockets.
    show: Show,
    reports: usize,
    text: Text,
    /// The printed text without the test number; the client receives this text if it requests the server's
    /// output.
    own: Text,
    printed: String,
    keeps: bool,
}

impl Audience for Printer {
    fn hear(&self, said: ServerNotice) {
        match said {
            ServerNotice::Listening { port, number } => {
                if self.shown == OutputMode::Text {
                    let line = "-".repeat(59);
                    print(&format!("{line}\nServer listening on {port} (test #{number})\n{line}\n"));
                }
            }
            ServerNotice::TurnedAway { peer, why } => eprintln!("note: {peer}: {why}"),
            ServerNotice::Test(tag, told) => self.of_test(tag, told),
        }
    }

    fn printed(&self, of: &Tag) -> Option<ServerOutput> {
        let mut tests = self.lock();
        let test = tests.get_mut(&of.number)?;
        match self.shown {
            OutputMode::Text => Some(ServerOutput::Text(std::mem::take(&mut test.printed))),
            OutputMode::Documents | OutputMode::Events => {
                serde_json::to_value(&test.show.recorder.document).ok().map(ServerOutput::Json)
            }
        }
    }

    fn trace(&self, of: &Tag) -> Option<String> {
        let rows = self.lock().get(&of.number)?.show.recorder.rows.streams();
        let mut lines = Csv::default();
        rows.iter().flatten().for_each(|row| lines.row(row));
        Some(lines.into_text())
    }
}

impl Printer {
    fn of_test(&self, tag: Tag, told: ServerEvent) {
        let mut tests = self.lock();
        let number = tag.number;
        match (tests.get_mut(&number), told) {
            (_, ServerEvent::Accepted(params)) => {
                let text = Text::new(Side::Server, &params, self.rates, self.verbose);
                let own = text.clone();
                let text = if tag.running > 1 { text.tagged(format!("#{number} ")) } else { text };
                // The client computes the diagnosis after the test, so the server only stores the samples
                // that the client requests.
                let kept = if params.wants_trace { ROWS_MOST } else { 0 };
                let mut show = Show::new(Form::Nothing, Recorder::new(true, kept, None, None));
                show.recorder.document.extra_data = params.extra_data.clone();
                let keeps = params.get_server_output;
                tests.insert(number, Test { show, reports: 0, text, own, printed: String::new(), keeps });
            }
            (_, ServerEvent::Failed(why)) => {
                let document =
                    tests.remove(&number).map(|test| test.show.recorder.document).unwrap_or_default();
                self.failed(tag, why, document);
            }
            (_, ServerEvent::Left) => drop(tests.remove(&number)),
            (Some(test), told) => self.told(test, number, told),
            (None, _) => {}
        }
    }

    fn told(&self, test: &mut Test, number: u64, told: ServerEvent) {
        match told {
            ServerEvent::Started(start) => {
                test.print(self, |text| text.start(&start));
                self.event(number, "start", &start);
                test.show.start(&start);
            }
            ServerEvent::Row { socket, row, omitted } => {
                test.show.row(socket, &row, omitted);
            }
            ServerEvent::Interval(interval) => {
                test.reports += 1;
                test.show.interval(*interval);
                let Some(interval) = test.show.recorder.document.intervals.pop() else { return };
                test.print(self, |text| text.interval(&interval));
                self.event(number, "interval", &interval);
                let documents = self.shown == OutputMode::Documents;
                if documents
                    && test.show.recorder.document.intervals.len() * interval.streams.len() < REPORTS_MOST
                {
                    test.show.recorder.document.intervals.push(interval);
                }
            }
            ServerEvent::Ended(end) => {
                let several = test.reports > 1;
                test.print(self, |text| text.end(&end, several));
                self.event(number, "end", &end);
                test.show.recorder.document.end = *end;
                if self.shown == OutputMode::Documents {
                    print_json(output::json(&test.show.recorder.document));
                }
            }
            ServerEvent::Accepted(_) | ServerEvent::Failed(_) | ServerEvent::Left => {}
        }
    }

    fn failed(&self, tag: Tag, why: String, document: Document) {
        match self.shown {
            OutputMode::Text => eprintln!("error: test {} of {}: {why}", tag.number, tag.peer),
            OutputMode::Documents => print_json(output::json(&Document { error: Some(why), ..document })),
            OutputMode::Events => self.event(tag.number, "error", &why),
        }
    }

    fn event(&self, number: u64, event: &str, data: &impl Serialize) {
        if self.shown == OutputMode::Events {
            print_json(numbered_event(number, event, data).map_err(Failure::from));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Test>> {
        self.tests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Test {
    fn print(&mut self, printer: &Printer, lines: impl Fn(&mut Text) -> String) {
        if printer.shown != OutputMode::Text {
            return;
        }
        print(&lines(&mut self.text));
        if self.keeps && self.printed.len() < PRINTED_MOST {
            self.printed += &lines(&mut self.own);
        }
    }
}

fn print_json(text: Result<String, Failure>) {
    if let Ok(text) = text {
        print(&text);
    }
}

/// Prints to standard output. An error is ignored, so that the server keeps running.
fn print(text: &str) {
    let _ = output::print(text);
}
