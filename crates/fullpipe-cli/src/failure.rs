//! How a command ends when it cannot do what it was asked.

use std::fmt;
use std::process::ExitCode;

use fullpipe::InputError;
use fullpipe_lab::campaign::RunPanicked;
use fullpipe_lab::experiment::ExperimentError;

/// The input cannot be used, or the run went wrong.
pub(crate) const RUNTIME: u8 = 1;
/// The run is fine and an expectation is not met.
pub(crate) const EXPECTATION: u8 = 5;

/// What went wrong and what to do instead, in a line each.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: String,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }

    /// The same, with what it is about in front.
    pub(crate) fn about(self, subject: impl fmt::Display) -> Self {
        Self { message: format!("{subject}: {}", self.message), ..self }
    }

    /// Tells the user; the exit code of the process.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("error: {}", self.message);
        if !self.hint.is_empty() {
            eprintln!("hint: {}", self.hint);
        }
        ExitCode::from(RUNTIME)
    }
}

impl From<ExperimentError> for Failure {
    fn from(error: ExperimentError) -> Self {
        Self { message: error.message, hint: error.hint }
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Self { message: error.message, hint: error.hint }
    }
}

impl From<RunPanicked> for Failure {
    fn from(error: RunPanicked) -> Self {
        Self::new(error.to_string(), "this is a defect of fullpipe: please report it with the input")
    }
}
