//! The worker process as seen by the keeper: a child process, and a socket with its reports.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::process::Child;

use crate::worker::Beat;

/// Maximum length in bytes of a report that the keeper accepts.
const MOST_REPORT: usize = 16 << 10;

/// A worker process and the reports that it has sent.
pub(super) struct RunningWorker {
    pub(super) child: Child,
    pub(super) control: UnixStream,
    /// Bytes of an incomplete report.
    pub(super) line: Vec<u8>,
    /// Number of ticks since the last report.
    pub(super) silent: u32,
}

/// Result of reading from the worker's socket.
pub(super) enum Heard {
    /// No complete report has arrived.
    Nothing,
    /// A report has arrived.
    Beat(Box<Beat>),
    /// The worker has closed the socket.
    End,
}

impl RunningWorker {
    /// Reads the next report.
    pub(super) fn read(&mut self) -> Heard {
        let mut room = [0; 4_096];
        loop {
            if let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                // The worker is not trusted, so a line that is not a report is ignored.
                match serde_json::from_slice(&line) {
                    Ok(beat) => return Heard::Beat(Box::new(beat)),
                    Err(_) => continue,
                }
            }
            if self.line.len() > MOST_REPORT {
                return Heard::End;
            }
            match self.control.read(&mut room) {
                Ok(0) => return Heard::End,
                Ok(len) => self.line.extend_from_slice(&room[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Heard::End,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use fullpipe_linux::Clock;
    use fullpipe_units::{Duration, Instant};

    use super::*;

    /// Longest time that the test waits.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Reports arrive in pieces, and lines that are not reports are ignored; the end of the socket means that
    /// the worker has ended.
    #[test]
    fn reports_are_read_line_by_line() {
        let (control, mut worker) = UnixStream::pair().expect("a socket pair");
        control.set_nonblocking(true).expect("a socket");
        let child = Command::new("true").spawn().expect("a process");
        let mut running = RunningWorker { child, control, line: Vec::new(), silent: 0 };
        let beat = Beat { connections: 7, ..Beat::default() };
        let line = serde_json::to_vec(&beat).expect("JSON");
        worker.write_all(b"noise\n").expect("room");
        worker.write_all(&line[..10]).expect("room");
        assert!(matches!(running.read(), Heard::Nothing));
        worker.write_all(&line[10..]).expect("room");
        worker.write_all(b"\n").expect("room");
        assert!(matches!(running.read(), Heard::Beat(read) if *read == beat));
        assert!(matches!(running.read(), Heard::Nothing));
        drop(worker);
        // A child process of another test may hold a copy of the descriptor until it starts its program.
        let clock = Clock::starting_in(Duration::ZERO);
        while matches!(running.read(), Heard::Nothing) && clock.now() < Instant::ZERO + PATIENCE {
            clock.sleep_until(clock.now() + Duration::from_millis(1));
        }
        assert!(matches!(running.read(), Heard::End));
        let _ = running.child.wait();
    }
}
