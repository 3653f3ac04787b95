//! `fullpipe completions` and `fullpipe man`: print shell completions and manual pages, for packages of
//! fullpipe.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use fullpipe::files::write_atomically;

use crate::output;

pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "fullpipe", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    let mut fullpipe = Args::command().disable_help_subcommand(true);
    // `build` sets the full name and the global options of every subcommand.
    fullpipe.build();
    if let Some(dir) = &args.out {
        for command in std::iter::once(&fullpipe).chain(fullpipe.get_subcommands()) {
            let (name, text) = page(command)?;
            write_atomically(dir, &name, text)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let command = match &args.command {
        None => &fullpipe,
        Some(name) => fullpipe.find_subcommand(name).ok_or_else(|| {
            let names: Vec<_> = fullpipe.get_subcommands().map(clap::Command::get_name).collect();
            Failure::new(
                format!("there is no command '{name}'"),
                format!("the commands are {}", names.join(", ")),
            )
        })?,
    };
    output::print(&page(command)?.1)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the file name and the text of a command's manual page.
fn page(command: &clap::Command) -> Result<(String, String), Failure> {
    let man = Man::new(command.clone()).source(concat!("fullpipe ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    man.render(&mut text).map_err(|e| Failure::new(format!("cannot generate the manual page: {e}"), ""))?;
    Ok((man.get_filename(), String::from_utf8_lossy(&text).into_owned()))
}
