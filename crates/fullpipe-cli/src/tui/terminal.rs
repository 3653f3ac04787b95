//! Takes control of the terminal, and gives it back.

use std::io::{self, Stdout, Write};
use std::panic;
use std::sync::{Arc, Mutex, PoisonError};

use ratatui::Terminal;
use ratatui::backend::TermionBackend;
use ratatui::termion::cursor;
use ratatui::termion::raw::{IntoRawMode, RawTerminal};
use ratatui::termion::screen::{ToAlternateScreen, ToMainScreen};

/// The terminal while the live view has control of it: in raw mode, and on its alternate screen.
pub(super) struct TakenTerminal {
    terminal: Terminal<TermionBackend<Stdout>>,
    raw: Raw,
}

/// The terminal in raw mode; `None` when it has been given back.
type Raw = Arc<Mutex<Option<RawTerminal<Stdout>>>>;

impl TakenTerminal {
    /// Takes control of the terminal. If the program panics, the terminal is given back before the panic
    /// message is printed.
    pub(super) fn take() -> io::Result<Self> {
        let terminal = Terminal::new(TermionBackend::new(io::stdout()))?;
        let raw = Arc::new(Mutex::new(Some(io::stdout().into_raw_mode()?)));
        let taken = Self { terminal, raw: Arc::clone(&raw) };
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back(&raw);
            hook(info);
        }));
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
        give_back(&self.raw);
    }
}

/// Gives the terminal back, unless this has already happened. If the terminal was closed, it can be neither restored
/// nor used to show the error.
fn give_back(raw: &Raw) {
    if let Some(raw) = raw.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = write!(io::stdout(), "{}{ToMainScreen}", cursor::Show);
        let _ = io::stdout().flush();
        // Restores the former mode of the terminal.
        drop(raw);
    }
}
