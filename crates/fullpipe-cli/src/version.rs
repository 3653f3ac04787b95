//! `fullpipe --version`: prints the version, and the source and options of the build.

use std::ffi::OsString;
use std::process::ExitCode;

use serde_json::json;

use crate::failure::Failure;
use crate::output;

/// Version, with the commit and date of the source if they were known at build time.
pub(crate) const LONG: &str = env!("FULLPIPE_VERSION");

/// Returns true if the command line asks for the version as a JSON document.
pub(crate) fn asks_for_json(arguments: &[OsString]) -> bool {
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    arguments.len() == 2 && (has("--version") || has("-V")) && has("--json")
}

/// Prints the version as a JSON document, for bug reports.
pub(crate) fn print_json() -> Result<ExitCode, Failure> {
    let linux = cfg!(target_os = "linux");
    let built = [
        ("accelerate", linux),
        ("copy", linux && cfg!(feature = "copy")),
        ("exporter", linux),
        ("html", true),
        ("pcapng", true),
        ("tables", cfg!(feature = "tables")),
    ];
    let features: Vec<&str> = built.iter().filter(|(_, there)| *there).map(|(name, _)| *name).collect();
    output::print(&output::json(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": known(env!("FULLPIPE_COMMIT")),
        "commit_date": known(env!("FULLPIPE_COMMIT_DATE")),
        "profile": known(env!("FULLPIPE_PROFILE")),
        "target": known(env!("FULLPIPE_TARGET")),
        "features": features,
    }))?)?;
    Ok(ExitCode::SUCCESS)
}

fn known(value: &'static str) -> Option<&'static str> {
    (!value.is_empty()).then_some(value)
}
