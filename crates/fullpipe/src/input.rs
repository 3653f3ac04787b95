//! Opens the inputs of a diagnosis, and detects their format from the content.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use self::capture::is_capture;
use self::trace::Choice;
use fullpipe_analysis::Measurement;
pub use fullpipe_analysis::input::*;

use crate::Error;
use crate::unpack::{unpacked, unreadable};

/// Maximum size of a log in bytes. A log with one-second intervals for a whole day has a size of a few
/// megabytes, so a larger file is not the log of one test.
const LARGEST_INPUT: u64 = 64 << 20;

/// A parsed input of a diagnosis.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Input {
    /// Name of the input in messages: its path, or "standard input".
    pub name: String,
    /// Measurement that was parsed from the input.
    pub measurement: Measurement,
}

impl Input {
    /// Opens the file `path`, or standard input if `path` is `-`. If the input contains several measurements,
    /// `choice` selects one of them.
    ///
    /// # Errors
    /// Returns an error if the input cannot be read, if its format is unknown, or if the selected measurement
    /// is missing.
    pub fn open(path: &str, choice: &Choice<'_>) -> Result<Self, Error> {
        Self::parse(path, open(path)?, choice)
    }

    /// Parses `bytes` in the same way as [`Input::open`] parses a file; error messages call the input `name`.
    ///
    /// # Errors
    /// Returns the same errors as [`Input::open`].
    pub fn from_bytes(name: &str, bytes: &[u8], choice: &Choice<'_>) -> Result<Self, Error> {
        Self::parse(name, Box::new(bytes), choice)
    }

    fn parse<'a>(file: &str, source: Box<dyn BufRead + 'a>, choice: &Choice<'_>) -> Result<Self, Error> {
        let name = if file == "-" { "standard input" } else { file };
        let about = |e: InputError| Error::from(e).about(name);
        let mut source = unpacked(name, source)?;
        let beginning = source.fill_buf().map_err(|e| unreadable(file, &e))?;
        let measurement = if is_capture(beginning) {
            if choice.point.is_some() || choice.seed.is_some() {
                let message =
                    format!("{name}: --point and --seed apply only to traces, and this file is a capture");
                return Err(Error::new(message, "remove these options; to select a connection, use --flow"));
            }
            capture::read(source, choice.flow.map(|flow| flow as usize))
        } else {
            let text = whole(file, source)?;
            match Kind::of(&text) {
                Kind::Trace => trace::parse(&text, choice),
                Kind::Ss if choice.point.is_some() || choice.seed.is_some() => {
                    let message = format!(
                        "{name}: --point and --seed apply only to traces, and this file is the output of ss"
                    );
                    return Err(Error::new(
                        message,
                        "remove these options; to select a connection, use --flow",
                    ));
                }
                Kind::Ss => ss::parse(&text, choice.flow),
                _ if *choice != Choice::default() => {
                    let message = format!(
                        "{name}: --point, --seed and --flow apply only to traces, and this file is not a trace"
                    );
                    return Err(Error::new(message, "remove them"));
                }
                _ => iperf3::parse(&text),
            }
        };
        Ok(Self { name: name.to_owned(), measurement: measurement.map_err(about)? })
    }
}

/// Opens the file `file`, or standard input if `file` is `-`.
fn open(file: &str) -> Result<Box<dyn BufRead>, Error> {
    if file == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let opened = File::open(file).map_err(|e| unreadable(file, &e))?;
    Ok(Box::new(BufReader::new(opened)))
}

/// Reads the text of `file`, or of standard input for `-`. A gzip file is decompressed.
///
/// # Errors
/// Returns an error if the input cannot be read or is larger than 64 MiB.
pub fn read(file: &str) -> Result<String, Error> {
    whole(file, unpacked(file, open(file)?)?)
}

fn whole(file: &str, source: impl Read) -> Result<String, Error> {
    let mut bytes = Vec::new();
    source.take(LARGEST_INPUT + 1).read_to_end(&mut bytes).map_err(|e| unreadable(file, &e))?;
    if bytes.len() as u64 > LARGEST_INPUT {
        return Err(Error::new(format!("{file} is larger than 64 MiB"), "pass the log of a single test"));
    }
    Ok(decode(bytes))
}
