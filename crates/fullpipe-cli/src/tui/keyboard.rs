//! Waits for key presses.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A key that the live view knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Character(char),
    Escape,
    /// In raw mode, Ctrl-C arrives as an ordinary key.
    ControlC,
    /// The arrows down and right.
    Next,
    /// The arrows up and left.
    Previous,
}

/// How a wait for key presses ended.
pub(super) enum Waited {
    Keys(Vec<Key>),
    /// The time has passed without a key press, or a signal has arrived.
    Nothing,
    /// The terminal was closed.
    Closed,
}

/// Waits at most `time` for key presses.
pub(super) fn wait(time: Duration) -> io::Result<Waited> {
    let keyboard = io::stdin();
    let mut watched = [PollFd::new(&keyboard, PollFlags::IN)];
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    match poll(&mut watched, Some(&time)) {
        Ok(0) | Err(Errno::INTR) => return Ok(Waited::Nothing),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    if watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return Ok(Waited::Closed);
    }
    let mut typed = [0; 256];
    match rustix::io::read(&keyboard, &mut typed) {
        Ok(0) => Ok(Waited::Closed),
        Ok(length) => Ok(Waited::Keys(keys(&typed[..length]))),
        Err(Errno::INTR | Errno::AGAIN) => Ok(Waited::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// Returns the keys in the bytes that a terminal sends for one or several key presses. Other keys and mouse events
/// are omitted.
fn keys(mut typed: &[u8]) -> Vec<Key> {
    const ESC: u8 = 0x1b;
    const CONTROL_C: u8 = 0x03;
    let mut found = Vec::new();
    while let [first, rest @ ..] = typed {
        typed = rest;
        match (first, rest) {
            // An arrow; `O` instead of `[` in the terminal's application mode. Digits and semicolons state modifiers.
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

    /// F5, Alt-q, a letter with an accent, a mouse click, and a sequence that is cut off are not keys of the view.
    #[test]
    fn other_keys_are_omitted() {
        for typed in ["\x1b[15~", "\x1bq", "\u{e9}", "\x1b[<0;10;20M", "\x1b[", "\x1b[1;"] {
            assert_eq!(keys(typed.as_bytes()), [], "{typed:?}");
        }
    }
}
