//! Output of results as text and JSON, to the terminal and to files.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fullpipe::files::{AtomicFile, cannot_write, write_atomically, write_to};
use fullpipe::lab::campaign::Progress;
use fullpipe::lab::experiment::Experiment;
use fullpipe::lab::results::{Expect, LatenessMs, Report, RunValidity, Spread, Summary};
use fullpipe::prove::Prover;
use fullpipe::report;
use fullpipe::report::html::Provenance;
use fullpipe::units::Rate;
use fullpipe::{Look, Observer, Rung, json};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::Color;
use crate::failure::Failure;
use crate::{interrupt, invocation};

/// Maximum width of tables in columns, so that a table fits into a terminal and into a quoted e-mail.
const COLUMNS: usize = 100;

/// Number of bytes of a file that are written to standard output at a time.
const PRINTED_BLOCK: usize = 1 << 16;

/// Width in columns of reports that consist of sentences.
const WIDTH: usize = 80;
/// Maximum width of prose in columns; longer lines are hard to read.
const WIDEST: usize = 100;

/// Determines width and colour of reports for the user's terminal; the option `--color` overrides the
/// terminal's defaults.
pub(crate) fn look(color: Color) -> Look {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let welcome = || {
        io::stdout().is_terminal()
            && set("NO_COLOR").is_none()
            && set("TERM").is_none_or(|term| term != "dumb")
    };
    let colour = match color {
        Color::Auto => welcome(),
        Color::Always => true,
        Color::Never => false,
    };
    Look { width: terminal_columns().map_or(WIDTH, |columns| columns.min(WIDEST)), colour }
}

/// Returns the number of columns of the terminal; `None` if standard output is not a terminal.
fn terminal_columns() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let (columns, _) = ratatui::termion::terminal_size().ok()?;
    (columns > 0).then_some(columns.into())
}

/// Returns the maximum width of lines that are not prose: the width of the terminal, or no limit.
#[cfg(target_os = "linux")]
pub(crate) fn columns() -> usize {
    terminal_columns().unwrap_or(usize::MAX)
}

/// Calls `work`, and shows the progress of the runs that simulate a ladder.
pub(crate) fn with_progress<T>(work: impl FnOnce(&RunBar) -> T) -> T {
    with_bar("simulating the ladder {bar:30} {pos}/{len} runs", work)
}

/// Calls `work` like [`with_progress`]; the observer abandons the runs once `ended` is set.
#[cfg(target_os = "linux")]
pub(crate) fn with_progress_until<T>(ended: Arc<AtomicBool>, work: impl FnOnce(&RunBar) -> T) -> T {
    with_progress(|shown| work(&RunBar { ended: Some(ended), ..shown.clone() }))
}

/// Runs the rungs of `ladder` on the kernel of `prover` if there is a prover, and shows the progress of the
/// runs.
pub(crate) fn prove(prover: Option<&Prover>, ladder: &mut [Rung]) -> Result<(), fullpipe::Error> {
    let Some(prover) = prover else { return Ok(()) };
    with_bar("running the ladder on the kernel {bar:30} {pos}/{len} runs", |observer| {
        prover.prove(ladder, observer)
    })
}

/// Calls `work`, and shows its progress with the template `template`. The progress bar appears only on a
/// terminal, because redrawn lines are noise in a log.
pub(crate) fn with_bar<T>(template: &str, work: impl FnOnce(&RunBar) -> T) -> T {
    let bar = io::stderr().is_terminal().then(|| {
        let style = ProgressStyle::with_template(template);
        ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    });
    let shown = RunBar { bar, ended: None, stopped: None };
    let done = work(&shown);
    if let Some(bar) = &shown.bar {
        bar.finish_and_clear();
    }
    done
}

/// Calls `work` like [`with_bar`]. After the first Ctrl-C, the runs in progress are completed, and no other run starts. The
/// second Ctrl-C ends the process.
pub(crate) fn with_interruptible_bar<T>(
    template: &str,
    work: impl FnOnce(&RunBar) -> Result<T, fullpipe::Error>,
) -> Result<T, Failure> {
    with_bar(template, |shown| {
        let told = shown.clone();
        let stopped = interrupt::noted(move || {
            told.status("interrupted: finishing the current runs; press Ctrl-C again to exit at once");
        })?;
        Ok(work(&RunBar { stopped: Some(stopped), ..shown.clone() })?)
    })
}

/// Observer that prints notes, status lines and measured rates to standard error.
pub(crate) struct Notes;

impl Observer for Notes {
    fn measuring(&self, what: &str) {
        eprint!("measuring {what}: ");
    }

    fn measured(&self, rate: Option<Rate>) {
        eprintln!("{}", rate.map_or_else(String::new, |rate| rate.to_string()));
    }

    fn note(&self, text: &str) {
        eprintln!("note: {text}");
    }

    fn status(&self, text: &str) {
        eprintln!("{text}");
    }
}

/// Observer that shows the progress of simulated runs.
#[derive(Clone)]
pub(crate) struct RunBar {
    bar: Option<ProgressBar>,
    /// Flag that ends the runs; `None` for runs that are not ended early.
    ended: Option<Arc<AtomicBool>>,
    /// Flag after which no further run starts; `None` if all runs are made.
    stopped: Option<Arc<AtomicBool>>,
}

impl Observer for RunBar {
    fn goes_on(&self) -> bool {
        self.stopped.as_ref().is_none_or(|stopped| !stopped.load(Ordering::Relaxed))
    }

    fn abandons(&self) -> bool {
        self.ended.as_ref().is_some_and(|ended| ended.load(Ordering::Relaxed))
    }

    fn progress(&self, progress: Progress) {
        if let Some(bar) = &self.bar {
            bar.set_length(progress.total as u64);
            bar.set_position(progress.done as u64);
        }
    }

    fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("note: {text}")),
            None => eprintln!("note: {text}"),
        }
    }

    fn status(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }
}

/// Serialises `report` as a JSON document that ends with a newline.
pub(crate) fn json(report: &impl json::Serialize) -> Result<String, Failure> {
    Ok(json::document(report)?)
}

/// Serialises `value` as one line of JSON that ends with a newline.
pub(crate) fn json_line(value: &impl json::Serialize) -> Result<String, Failure> {
    Ok(json::line(value)?)
}

/// Writes `text` to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    Ok(write_to(&mut io::stdout().lock(), "standard output", text)?)
}

/// Writes the file `path` to standard output.
pub(crate) fn print_file(path: &Path) -> Result<(), Failure> {
    let cannot_read = |e| Failure::new(format!("cannot read {}: {e}", path.display()), "make the runs again");
    let mut file = BufReader::new(File::open(path).map_err(cannot_read)?);
    let mut block = String::new();
    while file.read_line(&mut block).map_err(cannot_read)? > 0 {
        // Writing each line separately would take longer than reading the file.
        if block.len() >= PRINTED_BLOCK {
            print(&block)?;
            block.clear();
        }
    }
    print(&block)
}

/// Checks that a page can be written to `path`, before work that takes minutes.
pub(crate) fn check_html(path: &Path) -> Result<(), Failure> {
    let refused = |e| cannot_write(path, &e, "choose a writable folder");
    // Dropping the temporary file removes it.
    Ok(AtomicFile::create(path).map(drop).map_err(refused)?)
}

/// Renders the page with `render` and writes it to `path`.
pub(crate) fn write_html<E: Into<fullpipe::Error>>(
    path: &Path,
    render: impl FnOnce(Provenance<'_>) -> Result<String, E>,
) -> Result<(), Failure> {
    let Some(name) = path.file_name() else {
        return Err(Failure::new(
            format!("{} is not a file", path.display()),
            "pass a file, for example --html report.html",
        ));
    };
    let made = Provenance { command: &command_line(), version: env!("CARGO_PKG_VERSION") };
    let page = render(made).map_err(Into::into)?;
    Ok(write_atomically(path.parent().unwrap_or(Path::new("")), &name.to_string_lossy(), page)?)
}

/// Returns the command line of this process, quoted for use in a shell.
pub(crate) fn command_line() -> String {
    let arguments = invocation::words().into_iter().map(|argument| quoted(&argument));
    std::iter::once("fullpipe".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Quotes `word` for use in a shell, if necessary.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Formats one line per point, followed by one line per expectation.
pub(crate) fn table(experiment: &Experiment, summaries: &[Summary], report: &Report) -> String {
    let repeats = summaries.first().map_or(0, |summary| summary.repeats);
    let seeds = experiment.seeds();
    let mut text = experiment.name().to_owned();
    if !experiment.description().is_empty() {
        text += &format!(": {}", experiment.description());
    }
    text += &match seeds.as_slice() {
        [first, .., last] => format!(
            "\nworld {}, mean (min..max) of seeds {first} to {last}; goodput in Mbit/s\n\n",
            report.world
        ),
        seeds => format!("\nworld {}, seed {}; goodput in Mbit/s\n\n", report.world, seeds[0]),
    };

    let rows = summaries.iter().map(|summary| {
        let limit = summary.main_limit().map(|(limit, share)| format!("{limit} {:.0}%", share * 100.0));
        vec![
            summary.point.clone(),
            spread(summary.goodput, repeats),
            spread(summary.goodput_second_half, repeats),
            summary.retransmits.map_or("-".into(), |n| format!("{n:.0}")),
            summary.rtt_mean_ms.map_or("-".into(), |ms| format!("{ms:.1}")),
            limit.unwrap_or("-".into()),
        ]
    });
    let header = ["point", "goodput", "second half", "retrans", "RTT ms", "sender waits for"];
    text += &aligned(&header, rows.collect());

    text += &validity(report);

    if !report.expect.is_empty() {
        text += "\n";
        let measured = report.expect.iter().any(|expect| expect.kernel.is_some());
        let header = ["", "point", "metric", "value", "expected", if measured { "kernel" } else { "" }];
        text += &aligned(&header, report.expect.iter().map(expectation).collect());
        let (met, all) = (report.expect.len() - report.failed(), report.expect.len());
        text += &format!("\n{met} of {all} expectations met\n");
    }
    text
}

/// Formats the validity measurements of each run in real time; returns an empty string for runs in virtual
/// time.
fn validity(report: &Report) -> String {
    let rows = report.runs.iter().filter_map(|run| {
        let measured = run.validity.as_ref()?;
        let late = measured.lateness_ms;
        let resent = measured.retransmits.map_or("-".into(), |retransmits| retransmits.to_string());
        let mut row: Vec<_> = [late.p50, late.p99, late.p999, late.max].map(|ms| format!("{ms:.2}")).into();
        row.splice(0..0, [if measured.valid { "valid" } else { "INVALID" }.into(), run.point.clone()]);
        row.push(measured.tun_drops.to_string());
        row.push(format!("{resent}/{}+{}", measured.drops, measured.duplicates));
        row.push(format!("{:.0}%", 100.0 * measured.cpu));
        Some(row)
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let header =
        ["", "point", "late ms p50", "p99", "p99.9", "max", "TUN drops", "resent/dropped+twice", "CPU"];
    let (valid, all) = (rows.len() - report.invalid().count(), rows.len());
    let mut text = format!("\n{}\n{valid} of {all} runs valid\n", aligned(&header, rows));
    text += &hosts(report).unwrap_or_default();
    for (run, measured) in report.invalid() {
        text += &format!("'{}' with seed {}: {}\n", run.point, run.seed, measured.problems.join("; "));
    }
    text
}

/// Formats the delays that the hosts caused in the worst run; the JSON document contains the delays
/// of every run.
fn hosts(report: &Report) -> Option<String> {
    let worst = |of: fn(&RunValidity) -> Option<LatenessMs>| {
        let measured = report.runs.iter().filter_map(|run| of(run.validity.as_ref()?));
        measured.reduce(|a, b| LatenessMs { p99: a.p99.max(b.p99), max: a.max.max(b.max), ..a })
    };
    let (woken, answered) = (worst(|run| run.woken_ms)?, worst(|run| run.answered_ms)?);
    Some(format!(
        "hosts in the worst run (no limit applies): wake-up delay p99 {:.2} ms, max {:.1}; response delay \
         p99 {:.2} ms, max {:.1}\n",
        woken.p99, woken.max, answered.p99, answered.max
    ))
}

fn expectation(expect: &Expect) -> Vec<String> {
    vec![
        if expect.pass { "pass" } else { "FAIL" }.into(),
        expect.point.clone(),
        expect.metric.clone(),
        expect.value_words(),
        expect.bounds_words(),
        expect.kernel.clone().unwrap_or_default(),
    ]
}

fn spread(spread: Option<Spread>, repeats: usize) -> String {
    spread.map_or("-".into(), |spread| spread.words(repeats))
}

/// Aligns each column to its widest cell. If a row would exceed [`COLUMNS`], its label is printed on a
/// separate line, because truncated labels could look alike.
fn aligned(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let widest = |column: usize, limit: usize| {
        let cells = rows.iter().map(|row| report::columns(&row[column])).filter(|width| *width <= limit);
        cells.chain([report::columns(header[column])]).max().unwrap_or(0)
    };
    let label = header.iter().position(|name| *name == "point").unwrap_or(0);
    let others: usize = (0..header.len()).filter(|c| *c != label).map(|c| widest(c, COLUMNS) + 2).sum();
    let room = COLUMNS.saturating_sub(others);
    let widths: Vec<usize> =
        (0..header.len()).map(|c| widest(c, if c == label { room } else { COLUMNS })).collect();

    let mut text = String::new();
    let mut line = |cells: &[&str]| {
        let mut line = String::new();
        for (column, (cell, full)) in cells.iter().zip(&widths).enumerate() {
            line += cell;
            let used = report::columns(cell);
            if used > *full {
                text.push_str(line.trim_end());
                text.push('\n');
                line = " ".repeat(widths[..=column].iter().map(|width| width + 2).sum());
            } else {
                line += &" ".repeat(full - used + 2);
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    line(header);
    for row in &rows {
        line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wide character takes up two columns and must not be counted as one.
    #[test]
    fn columns_align_beside_wide_characters() {
        let row = |label: &str, rate: &str| vec![label.to_owned(), rate.to_owned()];
        let text = aligned(&["point", "Mbit/s"], vec![row("cc=下载", "9"), row("cc=cubic", "10")]);
        assert_eq!(text, "point     Mbit/s\ncc=下载   9\ncc=cubic  10\n");
    }
}
