//! Results as text and JSON, to the terminal and to files.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use fullpipe_analysis::Look;
use fullpipe_analysis::report::html::Made;
use fullpipe_lab::campaign::{Progress, RunPanicked};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::results::{Expect, LatenessMs, Report, RunValidity, Spread, Summary};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::Color;
use crate::failure::Failure;

/// Width that fits a terminal and a quoted mail.
const COLUMNS: usize = 100;

/// Columns of a report in prose.
const WIDTH: usize = 80;

/// How reports in prose look. What the user says outright outranks what the terminal says.
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
    Look { width: WIDTH, colour }
}

/// Does `work` with a bar of its simulated runs: on a terminal only, for in a log redrawn lines are noise.
pub(crate) fn with_progress<T>(work: impl FnOnce(&(dyn Fn(Progress) + Sync)) -> T) -> T {
    if !io::stderr().is_terminal() {
        return work(&|_| ());
    }
    let style = ProgressStyle::with_template("simulating the ladder {bar:30} {pos}/{len} runs");
    let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let done = work(&|progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
    });
    bar.finish_and_clear();
    done
}

/// `report` as a document that ends with a newline.
pub(crate) fn json(report: &impl serde::Serialize) -> Result<String, Failure> {
    let document = serde_json::to_string_pretty(report);
    document.map(|text| text + "\n").map_err(|e| Failure::new(format!("cannot write JSON: {e}"), ""))
}

/// `value` on one line, its end included.
pub(crate) fn json_line(value: &impl serde::Serialize) -> Result<String, Failure> {
    let line = serde_json::to_string(value);
    line.map(|text| text + "\n").map_err(|e| Failure::new(format!("cannot write JSON: {e}"), ""))
}

/// Writes `text` to standard output. A reader that has seen enough (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(cannot_write(Path::new("standard output"), &e, "give it somewhere to write to"))
        }
        _ => Ok(()),
    }
}

/// Writes the page that `render` makes to `path`.
pub(crate) fn write_html(
    path: &Path,
    render: impl FnOnce(Made<'_>) -> Result<String, RunPanicked>,
) -> Result<(), Failure> {
    let Some(name) = path.file_name() else {
        return Err(Failure::new(format!("{} is no file", path.display()), "give --html report.html"));
    };
    let made = Made { command: &command_line(), version: env!("CARGO_PKG_VERSION") };
    write_atomically(path.parent().unwrap_or(Path::new("")), &name.to_string_lossy(), render(made)?)
}

/// The command line as a shell would take it.
fn command_line() -> String {
    let quoted = |argument: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
        if !argument.is_empty() && argument.chars().all(plain) {
            argument
        } else {
            format!("'{}'", argument.replace('\'', "'\\''"))
        }
    };
    let arguments =
        std::env::args_os().skip(1).map(|argument| quoted(argument.to_string_lossy().into_owned()));
    std::iter::once("fullpipe".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Writes `dir/name` so that it is there whole or not at all.
pub(crate) fn write_atomically(dir: &Path, name: &str, content: impl Display) -> Result<(), Failure> {
    let target = dir.join(name);
    let write = || -> io::Result<()> {
        let mut file = AtomicFile::create(&target)?;
        write!(file, "{content}")?;
        file.commit()
    };
    write().map_err(|e| cannot_write(&target, &e, "give a place you may write to"))
}

/// A file that cannot be written; `otherwise` is what to do unless it is for want of room.
pub(crate) fn cannot_write(target: &Path, error: &io::Error, otherwise: &str) -> Failure {
    let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge];
    let hint =
        if full.contains(&error.kind()) { "make room there, or give another place" } else { otherwise };
    Failure::new(format!("cannot write {}: {error}", target.display()), hint)
}

/// A file that is in its place whole or not at all: written beside it under another name, and gone unless committed.
pub(crate) struct AtomicFile {
    file: BufWriter<File>,
    temporary: PathBuf,
    target: PathBuf,
}

impl AtomicFile {
    /// Begins `target`, making its folder where there is none.
    pub(crate) fn create(target: &Path) -> io::Result<Self> {
        let no_file = || io::Error::new(ErrorKind::InvalidInput, "it is no regular file");
        let name = target.file_name().ok_or_else(no_file)?;
        // A device or a pipe would be replaced.
        if fs::metadata(target).is_ok_and(|found| !found.is_file()) {
            return Err(no_file());
        }
        let dir = target.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(dir)?;
        let temporary = dir.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
        remove_abandoned(dir, name);
        let file = BufWriter::new(File::create(&temporary)?);
        Ok(Self { file, temporary, target: target.to_owned() })
    }

    /// Puts it in its place.
    pub(crate) fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::rename(&self.temporary, &self.target)
    }
}

/// Removes what processes that were killed have left of `name`: who wrote it is not there any more. Where processes cannot
/// be looked up nothing is removed.
fn remove_abandoned(dir: &Path, name: &OsStr) {
    let processes = Path::new("/proc");
    if !processes.join("self").exists() {
        return;
    }
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let prefix = format!(".{}.", name.to_string_lossy());
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let writer = file.to_str().and_then(|file| file.strip_prefix(&prefix)?.strip_suffix(".tmp"));
        let writer = writer.filter(|writer| writer.bytes().all(|digit| digit.is_ascii_digit()));
        if writer.is_some_and(|writer| !processes.join(writer).exists()) {
            // Who may not remove it leaves it as it was.
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // A committed one is not there any more under this name; nothing can be done about one that cannot be removed.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// One line for each point, then one for each expectation.
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
    let header = ["point", "goodput", "second half", "retrans", "RTT ms", "held back by"];
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

/// How well each run in real time kept its times; nothing where time is virtual.
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

/// How the hosts kept up in the worst of the runs; the document has each.
fn hosts(report: &Report) -> Option<String> {
    let worst = |of: fn(&RunValidity) -> Option<LatenessMs>| {
        let measured = report.runs.iter().filter_map(|run| of(run.validity.as_ref()?));
        measured.reduce(|a, b| LatenessMs { p99: a.p99.max(b.p99), max: a.max.max(b.max), ..a })
    };
    let (woken, answered) = (worst(|run| run.woken_ms)?, worst(|run| run.answered_ms)?);
    Some(format!(
        "hosts at worst, not judged: woken late by p99 {:.2} ms, at most {:.1}; answered after p99 {:.2} ms, at most {:.1}\n",
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

/// Columns as wide as they need to be. Where a row would be wider than [`COLUMNS`], its first long
/// column gets a line of its own: a label cut short would no longer tell points apart.
fn aligned(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let width = |text: &str| text.chars().count();
    let widest = |column: usize, limit: usize| {
        let cells = rows.iter().map(|row| width(&row[column])).filter(|width| *width <= limit);
        cells.chain([width(header[column])]).max().unwrap_or(0)
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
            let used = width(cell);
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
