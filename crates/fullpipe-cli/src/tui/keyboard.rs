//! Waits for key presses.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use ratatui::termion::event::Key;
use ratatui::termion::input::TermRead;

/// How a wait for a key press ended.
pub(super) enum Waited {
    Key(Key),
    /// The time has passed without a key press.
    Nothing,
    /// The terminal was closed.
    Closed,
}

/// The keyboard of the terminal. A thread reads it, because a read cannot end at a time.
pub(super) struct Keyboard(Receiver<io::Result<Key>>);

impl Keyboard {
    /// Starts to read the keyboard. The thread ends at the end of the input, or with the process.
    pub(super) fn open() -> io::Result<Self> {
        let (sender, keys) = mpsc::channel();
        let read = move || {
            for key in io::stdin().keys() {
                // The view has ended, or the terminal has failed.
                if sender.send(key).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("keyboard".into()).spawn(read)?;
        Ok(Self(keys))
    }

    /// Waits at most `time` for a key press.
    pub(super) fn wait(&self, time: Duration) -> Waited {
        match self.0.recv_timeout(time) {
            Ok(Ok(key)) => Waited::Key(key),
            Err(RecvTimeoutError::Timeout) => Waited::Nothing,
            // The input of a terminal that was closed ends, or its read fails with EIO.
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => Waited::Closed,
        }
    }
}
