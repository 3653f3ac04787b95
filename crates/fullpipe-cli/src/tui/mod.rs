//! The live view (`--tui`): shows the current state of a transfer and its limit.
//!
//! ```text
//!   rows ──► Screen ──► Picture (values) ──► draw (cells) ──► terminal
//!              ▲ keys: q quits, f and space freeze, arrows choose
//! ```
//!
//! Without a terminal, the live view prints one plain line per second instead. However the view ends (`q`,
//! Ctrl-C, a signal, a closed terminal or a panic), it restores the terminal.

mod draw;
mod keyboard;
mod picture;
mod terminal;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as Wait;

use fullpipe::Look;
use fullpipe::classify::SocketFacts;
use fullpipe::lab::trace::Row;
use fullpipe::live::{ConcurrentFlows, Live};
use fullpipe::units::{Duration, Instant};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};

use crate::failure::Failure;
use crate::output;
use draw::{View, draw};
use keyboard::{Key, Keyboard, Waited};
use picture::{Picture, SocketView};
use terminal::TakenTerminal;

/// Interval between two pictures of the live view on a terminal, and interval between two lines without a
/// terminal.
const FRAME: Duration = Duration::from_millis(100);
const LINE: Duration = Duration::from_secs(1);

/// State of the live view, including the watched sockets.
struct Model {
    host: SocketFacts,
    sockets: BTreeMap<i64, SocketView>,
    /// Flows that share the link with the displayed flows, but are not displayed.
    companions: BTreeMap<u32, Live>,
    chosen: usize,
    frozen: Option<Option<Picture>>,
}

impl Model {
    fn new(host: SocketFacts) -> Self {
        Self { host, sockets: BTreeMap::new(), companions: BTreeMap::new(), chosen: 0, frozen: None }
    }

    fn push(&mut self, socket: i64, name: &str, crosses_link: bool, row: &Row) {
        let host = self.host;
        self.sockets
            .entry(socket)
            .or_insert_with(|| SocketView::new(name.to_owned(), crosses_link, Live::new(host)))
            .push(row);
    }

    fn push_companion(&mut self, row: &Row) {
        let host = self.host;
        self.companions.entry(row.flow).or_insert_with(|| Live::new(host)).push(row);
    }

    /// Returns the flows that share the link.
    fn on_link(&self) -> ConcurrentFlows {
        let shown = self.sockets.values().filter_map(SocketView::on_link);
        ConcurrentFlows::now(shown.chain(self.companions.values()))
    }

    fn live(&self) -> Option<Picture> {
        self.sockets.values().nth(self.chosen)?.picture(&self.on_link())
    }

    fn picture(&self) -> Option<Picture> {
        self.frozen.clone().unwrap_or_else(|| self.live())
    }

    /// Handles a key press, and returns whether the live view should end.
    fn key(&mut self, key: Key) -> bool {
        let last = self.sockets.len().saturating_sub(1);
        match key {
            Key::Character('q') | Key::Escape | Key::ControlC => return true,
            Key::Character('f' | ' ') => {
                self.frozen = if self.frozen.is_some() { None } else { Some(self.live()) };
            }
            Key::Next => self.choose((self.chosen + 1).min(last)),
            Key::Previous => self.choose(self.chosen.saturating_sub(1)),
            Key::Character(_) => {}
        }
        false
    }

    fn choose(&mut self, chosen: usize) {
        self.chosen = chosen;
        if self.frozen.is_some() {
            self.frozen = Some(self.live());
        }
    }
}

/// Output device of the live view.
enum Surface {
    Terminal {
        terminal: TakenTerminal,
        keyboard: Keyboard,
    },
    /// The live view prints one line per socket and second, because its output is not a terminal; the value
    /// is the time of the last line.
    Lines(Option<Instant>),
}

/// Returns whether both standard input and standard output are a terminal.
pub(crate) fn has_terminal() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// The live view and its output device.
pub(crate) struct Screen {
    model: Model,
    surface: Surface,
    colour: bool,
    /// Flag that a signal sets to end the live view.
    asked_to_end: Arc<AtomicBool>,
    /// Flag that a signal sets when the size of the terminal has changed.
    resized: Arc<AtomicBool>,
    drawn: Option<Instant>,
    ended: bool,
}

impl Screen {
    /// Takes control of the terminal, if there is one.
    pub(crate) fn open(host: SocketFacts, look: Look) -> Result<Self, Failure> {
        let asked_to_end = Arc::new(AtomicBool::new(false));
        let resized = Arc::new(AtomicBool::new(false));
        let surface = if has_terminal() {
            // The live view restores the terminal before a signal ends the process.
            set_on_signals(&asked_to_end, &[SIGHUP, SIGINT, SIGTERM])?;
            set_on_signals(&resized, &[SIGWINCH])?;
            let terminal = TakenTerminal::take().map_err(|e| cannot("take over the terminal", &e))?;
            let keyboard = Keyboard::open().map_err(|e| cannot("read the keyboard", &e))?;
            Surface::Terminal { terminal, keyboard }
        } else {
            Surface::Lines(None)
        };
        let model = Model::new(host);
        Ok(Self { model, surface, colour: look.colour, asked_to_end, resized, drawn: None, ended: false })
    }

    /// Adds a sample of a socket to the live view. `crosses_link` is false if both ends are on this host.
    pub(crate) fn push(&mut self, socket: i64, name: &str, crosses_link: bool, row: &Row) {
        self.model.push(socket, name, crosses_link, row);
    }

    /// Draws the picture for the time `now`, on the clock of the trace rows, and returns whether to continue.
    pub(crate) fn show(&mut self, now: Instant) -> Result<bool, Failure> {
        if self.drawn.is_none_or(|drawn| now.saturating_since(drawn) >= FRAME || now < drawn) {
            self.drawn = Some(now);
            self.paint(now)?;
        }
        self.wait(Duration::ZERO)
    }

    /// Waits for `time`, handles key presses in the meantime, and returns whether to continue. Without a
    /// terminal, the function returns immediately.
    pub(crate) fn wait(&mut self, time: Duration) -> Result<bool, Failure> {
        let mut left = Wait::from_nanos(time.as_nanos());
        loop {
            if self.asked_to_end.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if self.resized.swap(false, Ordering::Relaxed) {
                self.repaint()?;
            }
            // Each wait lasts at most one frame, so that a signal takes effect within one frame.
            let slice = left.min(Wait::from_nanos(FRAME.as_nanos()));
            let waited = match &self.surface {
                Surface::Lines(_) => return Ok(true),
                Surface::Terminal { keyboard, .. } => keyboard.wait(slice),
            };
            match waited {
                Waited::Keys(keys) => {
                    if keys.into_iter().any(|key| self.model.key(key)) {
                        return Ok(false);
                    }
                    self.repaint()?;
                }
                Waited::Closed => return Ok(false),
                Waited::Nothing => {
                    left = left.saturating_sub(slice);
                    if left.is_zero() {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// Shows the last picture until the user quits the live view.
    pub(crate) fn stay(&mut self) -> Result<(), Failure> {
        self.ended = true;
        self.repaint()?;
        if matches!(self.surface, Surface::Lines(_)) {
            return Ok(());
        }
        while self.wait(FRAME)? {}
        Ok(())
    }

    fn repaint(&mut self) -> Result<(), Failure> {
        if matches!(self.surface, Surface::Terminal { .. }) { self.paint(Instant::ZERO) } else { Ok(()) }
    }

    fn paint(&mut self, now: Instant) -> Result<(), Failure> {
        match &mut self.surface {
            Surface::Terminal { terminal, .. } => {
                let picture = self.model.picture();
                let view = View {
                    chosen: self.model.chosen,
                    sockets: self.model.sockets.len(),
                    frozen: self.model.frozen.is_some(),
                    ended: self.ended,
                    colour: self.colour,
                };
                terminal
                    .draw(|frame| draw(picture.as_ref(), view, frame.area(), frame.buffer_mut()))
                    .map_err(|e| cannot("draw on the terminal", &e))?;
            }
            Surface::Lines(last) => {
                if last.is_some_and(|last| now.saturating_since(last) < LINE && now >= last) {
                    return Ok(());
                }
                *last = Some(now);
                let flows = self.model.on_link();
                for picture in self.model.sockets.values().filter_map(|socket| socket.picture(&flows)) {
                    output::print(&format!("{}\n", picture.line()))?;
                }
            }
        }
        Ok(())
    }
}

fn cannot(what: &str, error: &io::Error) -> Failure {
    Failure::new(format!("cannot {what}: {error}"), "remove --tui, or redirect the output to get plain lines")
}

/// Sets `flag` whenever the process receives one of `signals`.
fn set_on_signals(flag: &Arc<AtomicBool>, signals: &[i32]) -> Result<(), Failure> {
    for &signal in signals {
        signal_hook::flag::register(signal, Arc::clone(flag))
            .map_err(|e| cannot("listen for signals", &e))?;
    }
    Ok(())
}

/// Replays the rows of a trace in the live view, at the pace at which they were recorded. `companions`
/// contains the rows of the flows that shared the link.
pub(crate) fn replay(
    rows: &[Row],
    companions: &[&[Row]],
    host: SocketFacts,
    look: Look,
) -> Result<(), Failure> {
    let mut screen = Screen::open(host, look)?;
    let mut before: Option<Instant> = None;
    let mut companions = companions.to_vec();
    for row in rows {
        let pause = before.map_or(Duration::ZERO, |before| row.at.saturating_since(before));
        before = Some(row.at);
        if !screen.wait(pause)? {
            return Ok(());
        }
        let name = row
            .sender
            .cc
            .map_or_else(|| format!("flow {}", row.flow), |cc| format!("flow {} ({cc})", row.flow));
        for rows in &mut companions {
            let (past, later) = rows.split_at(rows.partition_point(|companion| companion.at <= row.at));
            past.iter().for_each(|companion| screen.model.push_companion(companion));
            *rows = later;
        }
        screen.push(row.flow.into(), &name, true, row);
        if !screen.show(row.at)? {
            return Ok(());
        }
    }
    screen.stay()
}

#[cfg(test)]
mod tests;
