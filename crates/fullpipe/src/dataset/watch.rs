//! Determines the progress of a data set that other processes make, only from the files in its folder.
//!
//! ```text
//!   manifest.json: runs and packets of each part ─┐
//!   runs/part-KKKKK.parquet: exists, and when ────┴─► DatasetProgress: finished, rate, time left
//! ```
//!
//! The processes that make the parts are not queried, so they may run on other machines that share the
//! folder. All file times come from the same clock, that of the file system.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::files::part_number;
use super::manifest::{Manifest, Part};
use super::read_manifest;
use crate::Error;

/// Length of the period, up to the newest part, whose parts determine the rate. If each of a few cores makes
/// one part per minute, the period contains some dozens of parts. It is short enough to exclude times when no
/// process made parts.
const PERIOD: Duration = Duration::from_secs(600);
/// Multiple of the longest interval between two new parts in the period. If there is no new part for a longer
/// time, the remaining time is unknown, because the processes were probably stopped.
const STALLED: u32 = 4;
/// Minimum time without a new part after which the remaining time is unknown. This time is longer than a
/// minute, because making a part takes up to a minute.
const LEAST_STALLED: Duration = Duration::from_secs(120);

/// Watch on a data set.
#[derive(Clone, Debug)]
pub struct DatasetWatch {
    dir: PathBuf,
    manifest: Manifest,
    /// Time at which the manifest was written.
    begun: SystemTime,
    /// Time at which each existing part was written, by its number.
    written: BTreeMap<usize, SystemTime>,
}

/// Progress of a data set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DatasetProgress {
    /// Number of parts.
    pub parts: u64,
    /// Number of parts that exist.
    pub finished_parts: u64,
    /// Number of runs.
    pub runs: u64,
    /// Number of runs in parts that exist.
    pub finished_runs: u64,
    /// Runs per second, computed from the parts of the ten minutes before the newest part; `None` as long as
    /// there are no such parts.
    pub runs_per_second: Option<f64>,
    /// Estimated time until the last part exists, from the predicted packets of the missing parts; `None` if the
    /// rate is not known, or if no part was written for a long time.
    pub left: Option<Duration>,
    /// Time since the newest part was written; `None` if there is no part.
    pub idle: Option<Duration>,
}

impl DatasetProgress {
    /// Returns whether all parts exist.
    pub const fn is_complete(&self) -> bool {
        self.finished_parts == self.parts
    }
}

impl DatasetWatch {
    /// Begins to watch the data set in the folder `dir`.
    ///
    /// # Errors
    /// Returns an error if the manifest cannot be read.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let manifest = read_manifest(dir)?;
        let begun = modified(&dir.join(super::MANIFEST_FILE)).unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(Self { dir: dir.into(), manifest, begun, written: BTreeMap::new() })
    }

    /// Returns the manifest, which describes the content of the data set.
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Looks for new parts, and returns the progress at the time `now`. A part that was deleted counts as missing.
    pub fn progress(&mut self, now: SystemTime) -> DatasetProgress {
        let runs = self.dir.join("runs");
        let entries = fs::read_dir(&runs).into_iter().flatten().flatten();
        let parts = self.manifest.parts.len();
        let numbers = entries.filter_map(|entry| part_number(entry.file_name().to_str()?));
        let mut written = BTreeMap::new();
        for number in numbers.filter(|number| *number < parts) {
            // Only the times of new parts are queried, because a data set may have many parts, and a shared
            // folder may be slow.
            let known = self.written.get(&number).copied();
            if let Some(at) = known.or_else(|| modified(&runs.join(super::part_name(number)))) {
                written.insert(number, at);
            }
        }
        self.written = written;
        let mut finished: Vec<(SystemTime, Part)> =
            self.written.iter().map(|(number, at)| (*at, self.manifest.parts[*number])).collect();
        finished.sort_unstable_by_key(|(at, _)| *at);
        progress(&self.manifest, self.begun, &finished, now)
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// Returns the progress from the `finished` parts, in the order of their times.
fn progress(
    manifest: &Manifest,
    begun: SystemTime,
    finished: &[(SystemTime, Part)],
    now: SystemTime,
) -> DatasetProgress {
    let finished_runs = finished.iter().map(|(_, part)| part.runs).sum();
    let packets = |parts: &mut dyn Iterator<Item = &Part>| parts.map(|part| part.packets as f64).sum::<f64>();
    let missing = packets(&mut manifest.parts.iter()) - packets(&mut finished.iter().map(|(_, part)| part));
    let newest = finished.last().map(|(at, _)| *at);
    // The clock of a file server may be ahead of this one.
    let idle = newest.map(|newest| now.duration_since(newest).unwrap_or_default());
    let pace = newest.and_then(|newest| {
        let since = newest.checked_sub(PERIOD).filter(|since| *since > begun);
        // If the data set is younger than the period, the rate counts from the start of the data set. Otherwise, it
        // counts from the time of the first part in the period, and excludes this part, because its work was done
        // before that time.
        let begin = finished.partition_point(|(at, _)| since.is_some_and(|since| *at < since));
        let (from, counted) = match since {
            None => (begun, &finished[begin..]),
            Some(_) => (finished[begin].0, &finished[begin + 1..]),
        };
        let took = newest.duration_since(from).ok()?.as_secs_f64();
        let (runs, packets) = (
            counted.iter().map(|(_, part)| part.runs as f64).sum::<f64>(),
            packets(&mut counted.iter().map(|(_, part)| part)),
        );
        let times: Vec<SystemTime> = std::iter::once(from).chain(counted.iter().map(|(at, _)| *at)).collect();
        let longest = times.windows(2).filter_map(|pair| pair[1].duration_since(pair[0]).ok()).max();
        (took > 0.0 && packets > 0.0).then(|| (runs / took, packets / took, longest.unwrap_or_default()))
    });
    let left = pace.zip(idle).and_then(|((_, per_second, longest), idle)| {
        let stalled = idle > (longest * STALLED).max(LEAST_STALLED);
        let left = Duration::try_from_secs_f64(missing.max(0.0) / per_second).ok()?;
        // The parts in progress are assumed to have begun when the newest finished part was written.
        (!stalled).then(|| left.saturating_sub(idle))
    });
    DatasetProgress {
        parts: manifest.parts.len() as u64,
        finished_parts: finished.len() as u64,
        runs: manifest.runs,
        finished_runs,
        runs_per_second: pace.map(|(runs, ..)| runs),
        left,
        idle,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SWEEP, folder, small};
    use super::super::{Dataset, Shard};
    use super::*;

    const BEGUN: SystemTime = SystemTime::UNIX_EPOCH;

    fn at(seconds: u64) -> SystemTime {
        BEGUN + Duration::from_secs(seconds)
    }

    /// Returns the progress of a data set of 100 parts with 10 runs and 1000 packets each, of which some were written
    /// at these times.
    fn of(written: &[u64], now: u64) -> DatasetProgress {
        let dataset = Dataset::from_text(SWEEP, &small()).expect("valid");
        let part = |number: u64| Part { first_run: 10 * number, runs: 10, rows: 10, packets: 1_000 };
        let parts: Vec<Part> = (0..100).map(part).collect();
        let manifest = Manifest { parts, runs: 1_000, ..dataset.manifest().clone() };
        let finished: Vec<_> = written.iter().zip(&manifest.parts).map(|(s, part)| (at(*s), *part)).collect();
        progress(&manifest, BEGUN, &finished, at(now))
    }

    fn seconds(progress: &DatasetProgress) -> Option<u64> {
        progress.left.map(|left| left.as_secs())
    }

    #[test]
    fn the_rate_is_that_of_the_finished_parts() {
        let none = of(&[], 5);
        assert_eq!((none.finished_runs, none.runs_per_second, none.left, none.idle), (0, None, None, None));
        let first = of(&[20], 20);
        assert_eq!((first.runs_per_second, seconds(&first)), (Some(0.5), Some(99 * 20)));
        // The time since the newest part counts as work on the next one.
        assert_eq!(seconds(&of(&[20, 40], 50)), Some(98 * 20 - 10));
        let complete = of(&(1..=100).collect::<Vec<_>>(), 500);
        assert!(complete.is_complete() && complete.finished_runs == 1_000 && complete.left.is_none());
        assert_eq!(seconds(&of(&(1..=100).collect::<Vec<_>>(), 100)), Some(0));
    }

    /// A sweep that stood still for a day continues with its new rate; the pause is not part of the period.
    #[test]
    fn a_pause_is_left_out() {
        let day = 86_400;
        let times = [10, 20, 30, day, day + 5, day + 10];
        let found = of(&times, day + 10);
        assert_eq!((found.runs_per_second, seconds(&found)), (Some(2.0), Some(94 * 5)));
        // Right after the pause, a single part says nothing about the rate.
        let found = of(&times[..4], day + 1);
        assert_eq!((found.finished_parts, found.runs_per_second, found.left), (4, None, None));
    }

    /// If no part was written for much longer than before, there is no time left to show.
    #[test]
    fn a_sweep_that_stands_still_has_no_time_left() {
        let found = of(&[20, 40], 40 + 119);
        assert_eq!(seconds(&found), Some(98 * 20 - 119));
        let found = of(&[20, 40], 40 + 121);
        assert_eq!((found.left, found.idle), (None, Some(Duration::from_secs(121))));
        // After parts that took 50 s each, an idle time of up to 200 s is normal.
        assert!(of(&[50, 100], 100 + 199).left.is_some() && of(&[50, 100], 100 + 201).left.is_none());
        // The file server's clock is ahead.
        assert_eq!(of(&[50, 100], 90).idle, Some(Duration::ZERO));
    }

    /// The watch finds parts as they are written, and misses those that are deleted. Other files do not count.
    #[test]
    fn a_watch_follows_the_files() {
        let dir = folder("watched");
        assert!(DatasetWatch::open(&dir).is_err());
        let dataset = Dataset::from_text(SWEEP, &small()).expect("valid");
        dataset.prepare(&dir).expect("a manifest");
        let mut watch = DatasetWatch::open(&dir).expect("a data set");
        let mut counts = || {
            let found = watch.progress(at(u64::from(u32::MAX)));
            (found.finished_parts, found.finished_runs, found.is_complete())
        };
        assert_eq!(counts(), (0, 0, false));
        dataset.make(&dir, Shard::new(0, 2).expect("a shard"), None, &()).expect("made");
        let (parts, all) = (&dataset.manifest().parts, dataset.manifest().runs);
        let even = parts.iter().step_by(2);
        assert_eq!(counts(), (even.len() as u64, even.map(|part| part.runs).sum(), false));
        dataset.make(&dir, Shard::ALL, None, &()).expect("made");
        for other in [".part-00000.parquet.7-0.tmp", "part-99999.parquet", "part-1.parquet", "notes.txt"] {
            fs::write(dir.join("runs").join(other), "").expect("written");
        }
        assert_eq!(counts(), (parts.len() as u64, all, true));
        fs::remove_file(dir.join("runs").join(super::super::part_name(1))).expect("removed");
        assert_eq!(counts(), (parts.len() as u64 - 1, all - parts[1].runs, false));
        let _ = fs::remove_dir_all(dir);
    }
}
