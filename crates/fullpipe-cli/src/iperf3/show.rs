//! Display of a running iperf3 test.

use fullpipe::iperf3::document::{Event, Interval, Start};
use fullpipe::iperf3::text::Text;
use fullpipe::json::Serialize;
use fullpipe::lab::trace::{ReceiverSample, Row};
use fullpipe::linux::Stop;
use fullpipe::linux::iperf3::client::Watch;
use fullpipe::measure::Recorder;

use crate::failure::Failure;
use crate::output;
use crate::tui::Screen;

/// Form of the display.
pub(super) enum Form {
    /// The display prints interval reports and sums as lines of text.
    Text(Text),
    /// The display prints one JSON document at the end of the test (`-J`).
    Document,
    /// The display prints one JSON event per line (`--json-stream`).
    Events,
    /// The display prints nothing; the caller uses only the recorded data.
    Nothing,
}

/// Displays a running test, and records the data for its summary.
pub(super) struct Show {
    pub(super) form: Form,
    /// The live view, and the stop signal that is set when the user quits the view.
    pub(super) screen: Option<(Screen, Stop)>,
    pub(super) recorder: Recorder,
    pub(super) reports: usize,
    failed: Option<Failure>,
}

impl Show {
    pub(super) const fn new(form: Form, recorder: Recorder) -> Self {
        Self { form, screen: None, recorder, reports: 0, failed: None }
    }

    /// Returns the first error that occurred during output.
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

    fn redraw(&mut self, socket: i32, row: &Row) {
        let Some((screen, stop)) = &mut self.screen else { return };
        let connected = self.recorder.document.start.connected.iter().find(|one| one.socket == socket);
        let name = connected.map_or_else(
            || format!("stream {socket}"),
            |one| format!("{}:{}, stream {socket}", one.remote_host, one.remote_port),
        );
        // Streams of a test to a server on this host share the link that the user gives.
        screen.push(socket.into(), &name, true, row);
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
        self.recorder.start(start);
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
        self.recorder.row(socket, row, omitted);
        self.redraw(socket, row);
    }

    fn received(&mut self, socket: i32, sample: &ReceiverSample, omitted: bool) {
        self.recorder.received(socket, sample, omitted);
    }

    fn interval(&mut self, interval: Interval) {
        self.reports += 1;
        self.recorder.interval(interval);
        let Some(interval) = self.recorder.document.intervals.pop() else { return };
        match &mut self.form {
            Form::Text(text) => {
                let lines = text.interval(&interval);
                self.print(Ok(lines));
            }
            Form::Events => self.event("interval", &interval),
            Form::Document | Form::Nothing => {}
        }
        self.recorder.document.intervals.push(interval);
    }
}
