//! Takes control of the terminal, and gives it back.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use ratatui::Terminal;
use ratatui::backend::TermionBackend;
use ratatui::termion::cursor;
use ratatui::termion::screen::{ToAlternateScreen, ToMainScreen};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// The terminal while the live view has control of it: in raw mode, and on its alternate screen.
pub(super) struct TakenTerminal {
    terminal: Terminal<TermionBackend<io::Stdout>>,
    former: Former,
}

/// The terminal's former mode; `None` when the terminal has been given back.
type Former = Arc<Mutex<Option<Termios>>>;

impl TakenTerminal {
    /// Takes control of the terminal. A panic gives it back before its message is printed.
    pub(super) fn take() -> io::Result<Self> {
        let mode = tcgetattr(io::stdin())?;
        let terminal = Terminal::new(TermionBackend::new(io::stdout()))?;
        let former = Arc::new(Mutex::new(Some(mode.clone())));
        let hook = std::panic::take_hook();
        let at_panic = Arc::clone(&former);
        std::panic::set_hook(Box::new(move |panic| {
            give_back(&at_panic);
            hook(panic);
        }));
        let taken = Self { terminal, former };
        let mut raw = mode;
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        write!(io::stdout(), "{ToAlternateScreen}{}", cursor::Hide)?;
        io::stdout().flush()?;
        Ok(taken)
    }

    /// Draws one frame.
    pub(super) fn draw(&mut self, render: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(render).map(|_| ())
    }
}

impl Drop for TakenTerminal {
    fn drop(&mut self) {
        give_back(&self.former);
    }
}

/// Gives the terminal back, unless this has already happened. If the terminal was closed, it can be neither restored
/// nor used to show the error.
fn give_back(former: &Former) {
    if let Some(mode) = former.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = write!(io::stdout(), "{}{ToMainScreen}", cursor::Show);
        let _ = io::stdout().flush();
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &mode);
    }
}
