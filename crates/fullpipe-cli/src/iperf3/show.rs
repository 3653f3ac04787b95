//! What a test shows while it runs, and what is kept of it for the end.

use std::collections::BTreeMap;

use fullpipe_analysis::classify::{HostFacts, of_one_of_several};
use fullpipe_analysis::live::Live;
use fullpipe_analysis::{HostSettings, Latency};
use fullpipe_iperf3::document::{Document, Event, Interval, Start, Told};
use fullpipe_iperf3::text::Text;
use fullpipe_lab::trace::{Received, Row};
use fullpipe_linux::Stop;
use fullpipe_linux::iperf3::client::Watch;
use fullpipe_units::{Duration, Instant, Rate};
use serde::Serialize;

use super::kept::Kept;
use crate::failure::Failure;
use crate::output;
use crate::tui::Screen;

/// Samples of a test that are kept for its diagnosis, less than 50 MB: an hour of one stream at twenty a second.
pub(super) const ROWS: usize = 72_000;

/// How a test is shown.
pub(super) enum Form {
    /// As lines.
    Text(Text),
    /// As a document at the end (`-J`).
    Document,
    /// As an event a line (`--json-stream`).
    Events,
    /// Not at all: something else is made of it.
    Nothing,
}

/// Shows a test and keeps what the end of it wants.
pub(super) struct Show {
    pub(super) form: Form,
    /// The live view, and what ends the test when somebody quits it.
    pub(super) screen: Option<(Screen, Stop)>,
    pub(super) document: Document,
    /// Rows of the sending streams, without the warm-up.
    pub(super) rows: Kept<Row>,
    /// Samples of the receiving streams, without the warm-up.
    pub(super) received: Kept<Received>,
    pub(super) reports: usize,
    flows: BTreeMap<i32, Live>,
    host: HostFacts,
    told: bool,
    loaded: Loaded,
    last_report: Instant,
    last_row: Instant,
    failed: Option<Failure>,
}

/// Smoothed round trips while data flowed.
#[derive(Default)]
struct Loaded {
    sum: f64,
    samples: u64,
    longest: Duration,
}

impl Show {
    /// `told` adds what fullpipe knows to each report; so many samples are `kept`, and `settings` are those of this host.
    pub(super) fn new(
        form: Form,
        told: bool,
        kept: usize,
        link: Option<Rate>,
        settings: Option<&HostSettings>,
    ) -> Self {
        let wmem = settings.and_then(|settings| settings.tcp_wmem).map(|wmem| wmem[2]);
        Self {
            form,
            screen: None,
            document: Document::default(),
            rows: Kept::new(kept),
            received: Kept::new(kept),
            reports: 0,
            flows: BTreeMap::new(),
            host: HostFacts { line: link, wmem, ..HostFacts::default() },
            told,
            loaded: Loaded::default(),
            last_report: Instant::ZERO,
            last_row: Instant::ZERO,
            failed: None,
        }
    }

    /// Round trips before, as they were given, and during the test.
    pub(super) fn latency(&self, idle: Option<Duration>) -> Latency {
        let Loaded { sum, samples, longest } = self.loaded;
        let mean = (samples > 0).then(|| Duration::from_secs_f64(sum / samples as f64));
        Latency { idle, loaded: mean, longest: mean.map(|_| longest), samples }
    }

    /// How long each limit held the streams, in seconds by their names: the mean of the streams.
    pub(super) fn limit_seconds(&self) -> BTreeMap<&'static str, f64> {
        let mut seconds = BTreeMap::new();
        for times in self.flows.values().map(Live::times) {
            for (limit, time) in times {
                *seconds.entry(limit.name()).or_insert(0.0) += time.as_secs_f64() / self.flows.len() as f64;
            }
        }
        seconds
    }

    /// The first failure to print something.
    pub(super) fn printed(&mut self) -> Result<(), Failure> {
        self.failed.take().map_or(Ok(()), Err)
    }

    pub(super) fn event(&mut self, event: &str, data: &impl Serialize) {
        let line = output::json_line(&Event { event, data });
        self.print(line);
    }

    fn print(&mut self, text: Result<String, Failure>) {
        let printed = text.and_then(|text| output::print(&text));
        if self.failed.is_none() {
            self.failed = printed.err();
        }
    }

    fn told(&self, socket: i32) -> Option<Told> {
        let live = self.flows.get(&socket)?;
        let last = live.last()?.sender;
        let mut held = live.held_since(self.last_report);
        if let Some(held) = held.as_mut().filter(|_| self.flows.len() > 1) {
            (held.limit, held.confidence) = of_one_of_several(held.limit, held.confidence);
        }
        Some(Told {
            min_rtt: last.min_rtt,
            srtt: last.srtt,
            rwnd: last.rwnd,
            inflight: last.inflight,
            delivery_rate: last.delivery_rate,
            notsent: last.notsent,
            sndbuf: last.sndbuf,
            sndbuf_used: last.sndbuf_used,
            limit: held.as_ref().map(|held| held.limit.name().into()),
            confidence: held.map(|held| format!("{:?}", held.confidence).to_lowercase()),
        })
    }
}

impl Show {
    fn redraw(&mut self, socket: i32, row: &Row) {
        let Some((screen, stop)) = &mut self.screen else { return };
        let connected = self.document.start.connected.iter().find(|one| one.socket == socket);
        let name = connected.map_or_else(
            || format!("stream {socket}"),
            |one| format!("{}:{}, stream {socket}", one.remote_host, one.remote_port),
        );
        screen.push(socket.into(), &name, row);
        match screen.show(row.at) {
            Ok(true) => {}
            Ok(false) => stop.stop(),
            Err(error) => {
                stop.stop();
                self.failed.get_or_insert(error);
            }
        }
    }
}

impl Watch for Show {
    fn start(&mut self, start: &Start) {
        self.document.start = start.clone();
        match &self.form {
            Form::Text(text) => {
                let lines = text.start(start);
                self.print(Ok(lines));
            }
            Form::Events => self.event("start", start),
            Form::Document | Form::Nothing => {}
        }
    }

    fn row(&mut self, socket: i32, row: &Row, omitted: bool) {
        let host = self.host;
        self.flows.entry(socket).or_insert_with(|| Live::new(host)).push(row);
        self.last_row = row.at;
        self.redraw(socket, row);
        if omitted {
            return;
        }
        if let Some(srtt) = row.sender.srtt.filter(|_| !row.sender.delivered.is_zero()) {
            self.loaded.sum += srtt.as_secs_f64();
            self.loaded.samples += 1;
            self.loaded.longest = self.loaded.longest.max(srtt);
        }
        self.rows.push(socket, row);
    }

    fn received(&mut self, socket: i32, sample: &Received, omitted: bool) {
        if !omitted {
            self.received.push(socket, sample);
        }
    }

    fn interval(&mut self, mut interval: Interval) {
        self.reports += 1;
        if self.told {
            for stream in interval.streams.iter_mut().filter(|stream| stream.tcp.is_some()) {
                stream.fullpipe = self.told(stream.socket);
            }
        }
        self.last_report = self.last_row;
        match &mut self.form {
            Form::Text(text) => {
                let lines = text.interval(&interval);
                self.print(Ok(lines));
            }
            Form::Events => self.event("interval", &interval),
            Form::Document | Form::Nothing => {}
        }
        self.document.intervals.push(interval);
    }
}
