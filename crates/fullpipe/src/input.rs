//! What there is to explain, opened and told apart by its content.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use self::capture::is_capture;
use self::trace::Choice;
pub use fullpipe_analysis::input::*;
use fullpipe_analysis::{Capture, Facts, Iperf3Log, Trace};

use crate::Error;

/// A log of a day's one-second intervals is a few megabytes; a larger one is something else.
const LARGEST_INPUT: u64 = 64 << 20;

/// An input of one of the known formats.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// The log of iperf3, text or JSON.
    Log(Iperf3Log),
    /// A trace, or a sample of `ss`.
    Trace(Trace),
    /// A capture, pcap or pcapng.
    Capture(Capture),
}

impl Input {
    /// Opens the file `path`, or standard input for `-`. `choice` says which part of it, where it has several.
    ///
    /// # Errors
    /// It cannot be read, has no known format, or does not have the part.
    pub fn open(path: &str, choice: &Choice<'_>) -> Result<Self, Error> {
        Self::parse(path, open(path)?, choice)
    }

    /// Reads `bytes` as [`Input::open`] reads a file; `name` stands for it in errors.
    ///
    /// # Errors
    /// As [`Input::open`].
    pub fn from_bytes(name: &str, bytes: &[u8], choice: &Choice<'_>) -> Result<Self, Error> {
        Self::parse(name, bytes, choice)
    }

    fn parse(file: &str, mut source: impl BufRead, choice: &Choice<'_>) -> Result<Self, Error> {
        let name = if file == "-" { "standard input" } else { file };
        let about = |e: InputError| Error::from(e).about(name);
        let beginning = source.fill_buf().map_err(|e| unreadable(file, &e))?;
        if is_capture(beginning) {
            if choice.point.is_some() || choice.seed.is_some() {
                let message = format!("{name}: --point and --seed choose in a trace, and this is a capture");
                return Err(Error::new(message, "leave them out; --flow chooses a connection"));
            }
            let number = choice.flow.map(|flow| flow as usize);
            return Capture::read(source, number).map(Self::Capture).map_err(about);
        }
        let text = whole(file, source)?;
        match Kind::of(&text) {
            Kind::Trace => Trace::parse(&text, choice).map(Self::Trace).map_err(about),
            Kind::Ss if choice.point.is_some() || choice.seed.is_some() => {
                let message =
                    format!("{name}: --point and --seed choose in a trace, and this is output of ss");
                Err(Error::new(message, "leave them out; --flow chooses a connection"))
            }
            Kind::Ss => ss::parse(&text, choice.flow).map(Self::Trace).map_err(about),
            _ if *choice != Choice::default() => {
                let message =
                    format!("{name}: --point, --seed and --flow choose in a trace, and this is none");
                Err(Error::new(message, "leave them out"))
            }
            _ => Iperf3Log::parse(&text).map(Self::Log).map_err(about),
        }
    }

    /// What it says, as the explainer wants it.
    pub fn facts(&self) -> Facts<'_> {
        match self {
            Self::Log(log) => Facts::of(log),
            Self::Trace(trace) => Facts::of_trace(trace),
            Self::Capture(capture) => Facts::of_capture(capture),
        }
    }
}

/// `file`, or standard input for `-`.
fn open(file: &str) -> Result<Box<dyn BufRead>, Error> {
    if file == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(file).map_err(|e| unreadable(file, &e))?;
    Ok(Box::new(BufReader::new(opened)))
}

fn unreadable(file: &str, error: &io::Error) -> Error {
    Error::new(format!("cannot read {file}: {error}"), "give a file, or - to read standard input")
}

/// The text of `file`, or of standard input for `-`.
///
/// # Errors
/// It cannot be read, or is larger than any log.
pub fn read(file: &str) -> Result<String, Error> {
    whole(file, open(file)?)
}

fn whole(file: &str, source: impl Read) -> Result<String, Error> {
    let mut bytes = Vec::new();
    source.take(LARGEST_INPUT + 1).read_to_end(&mut bytes).map_err(|e| unreadable(file, &e))?;
    if bytes.len() as u64 > LARGEST_INPUT {
        return Err(Error::new(
            format!("{file} is larger than 64 MiB"),
            "give the log of one test, not an archive",
        ));
    }
    Ok(decode(&bytes))
}
