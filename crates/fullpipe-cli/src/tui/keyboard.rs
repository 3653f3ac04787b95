//! Waits for key presses.

use std::io::{self, Read};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// A key that the live view recognises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Character(char),
    Escape,
    /// In raw mode, Ctrl-C arrives as an ordinary key.
    ControlC,
    /// The arrow keys down and right.
    Next,
    /// The arrow keys up and left.
    Previous,
}

/// Result of a wait for key presses.
pub(super) enum Waited {
    Keys(Vec<Key>),
    /// The timeout expired without a key press.
    Nothing,
    /// The terminal was closed.
    Closed,
}

/// The keyboard of the terminal. A separate thread reads it, because a blocking read has no
/// timeout.
pub(super) struct Keyboard(Receiver<Vec<Key>>);

impl Keyboard {
    /// Starts to read the keyboard. The thread ends at the end of the input, or with the process.
    pub(super) fn open() -> io::Result<Self> {
        let (sender, typed) = mpsc::channel();
        let read = move || {
            let mut bytes = [0; 256];
            // When the terminal is closed, its input ends, or the read fails with EIO.
            while let Ok(length @ 1..) = io::stdin().read(&mut bytes) {
                if sender.send(keys(&bytes[..length])).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("keyboard".into()).spawn(read)?;
        Ok(Self(typed))
    }

    /// Waits at most `time` for key presses.
    pub(super) fn wait(&self, time: Duration) -> Waited {
        match self.0.recv_timeout(time) {
            Ok(keys) => Waited::Keys(keys),
            Err(RecvTimeoutError::Timeout) => Waited::Nothing,
            Err(RecvTimeoutError::Disconnected) => Waited::Closed,
        }
    }
}

/// Returns the keys in the bytes that a terminal sends for one or several key presses. Other keys and mouse events
/// are omitted. The parser of termion panics on some sequences that a user can paste, for example `ESC[1000~`.
fn keys(mut typed: &[u8]) -> Vec<Key> {
    const ESC: u8 = 0x1b;
    const CONTROL_C: u8 = 0x03;
    let mut found = Vec::new();
    while let [first, rest @ ..] = typed {
        typed = rest;
        match (first, rest) {
            // An arrow; `O` instead of `[` in the terminal's application mode. Digits and semicolons encode modifier keys.
            (&ESC, [b'[' | b'O', sequence @ ..]) => {
                let length = sequence.iter().take_while(|byte| !(0x40..=0x7e).contains(*byte)).count();
                found.extend(match sequence.get(length) {
                    Some(b'B' | b'C') => Some(Key::Next),
                    Some(b'A' | b'D') => Some(Key::Previous),
                    _ => None,
                });
                typed = sequence.get(length + 1..).unwrap_or_default();
            }
            (&ESC, []) => found.push(Key::Escape),
            // A key together with Alt.
            (&ESC, [_, after @ ..]) => typed = after,
            (&CONTROL_C, _) => found.push(Key::ControlC),
            (b' '..=b'~', _) => found.push(Key::Character(char::from(*first))),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_what_a_terminal_sends() {
        assert_eq!(keys(b"q"), [Key::Character('q')]);
        assert_eq!(keys(b"\x03"), [Key::ControlC]);
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(keys(b"\x1b[A\x1b[B\x1bOC\x1bOD"), [Key::Previous, Key::Next, Key::Next, Key::Previous]);
        assert_eq!(keys(b"\x1b[1;5Bf "), [Key::Next, Key::Character('f'), Key::Character(' ')]);
    }

    /// F5, Alt-q, a letter with an accent, a mouse click, a key that does not exist, and sequences that are cut off are
    /// not keys of the view.
    #[test]
    fn other_keys_are_omitted() {
        for typed in ["\x1b[15~", "\x1bq", "\u{e9}", "\x1b[<0;10;20M", "\x1b[1000~", "\x1b[", "\x1b[1;"] {
            assert_eq!(keys(typed.as_bytes()), [], "{typed:?}");
        }
    }
}
