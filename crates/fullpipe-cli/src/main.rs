//! The `fullpipe` command: arguments to calls, results to text.
#![forbid(unsafe_code)]

mod args;
mod diagnose;
mod failure;
mod output;
mod run;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Diagnose(args) => diagnose::diagnose(&args),
        Command::Run(args) => run::run(&args),
    };
    result.unwrap_or_else(|failure| failure.report())
}
