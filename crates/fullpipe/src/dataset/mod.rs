//! Data sets: the results of a sweep as Parquet files, which any number of processes can make in parts
//! (feature `tables`).
//!
//! ```text
//!   experiment, table of points, seeds ─► Dataset (manifest) ─► parts ─► DIR/runs/part-KKKKK.parquet
//! ```
//!
//! A part is a function of the manifest and its own number, so it always consists of the same bytes, wherever
//! and however often it is made. Existing parts are not made again, so the same call continues an interrupted
//! data set, and shards need no coordination. `docs/reference/dataset.md` describes the files and columns.
//!
//! ```
//! use fullpipe::dataset::{Dataset, DatasetOptions, Shard};
//!
//! let dir = std::env::temp_dir().join(format!("fullpipe-doc-{}", std::process::id()));
//! let text = "name = 'sweep'\nduration = '1s'\nrepeat = 2\n[path]\nrate = '10mbit'\n\
//!             rtt = ['20ms', '80ms']\n[[flow]]\ncc = ['reno', 'cubic']\n";
//! let dataset = Dataset::from_text(text, &DatasetOptions::default())?;
//! let made = dataset.make(&dir, Shard::ALL, None, &())?;
//! assert_eq!((dataset.manifest().rows, made.missing), (8, 0));
//! let origin = Dataset::open(&dir)?.origin(5)?;
//! assert_eq!((origin.label.as_str(), origin.seed), ("rtt=80ms cc=reno", 2));
//! # std::fs::remove_dir_all(&dir).map_err(|e| fullpipe::Error::new(e.to_string(), ""))?;
//! # Ok::<(), fullpipe::Error>(())
//! ```

mod check;
mod contained;
mod files;
mod make;
mod manifest;
mod part;
mod points;
mod ratio;
mod read;
mod watch;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;

use fullpipe_lab::experiment::{Design, Experiment, FieldColumns, PointTable, Setting};
use fullpipe_units::Duration;

pub use check::{CheckReport, Problem, ProblemKind, check};
pub use make::Made;
pub(crate) use make::trace_columns;
pub use manifest::{ColumnSpec, InputFile, Manifest, PART_PACKETS, Part, SCHEMA};
pub use ratio::{Comparison, PairedRatio, Selection};
pub use watch::{DatasetProgress, DatasetWatch};

use crate::run::{LARGEST_EXPERIMENT, beside, read_at_most};
use crate::table::Table;
use crate::{Error, Observer};
use files::{part_name, remove_temporary, write_whole};
use manifest::{Sources, hash};

/// Name of the manifest in the folder of a data set.
const MANIFEST_FILE: &str = "manifest.json";
/// Maximum size of a manifest and of a table of points in bytes.
const LARGEST_MANIFEST: u64 = 256 << 20;

/// Options of a data set.
#[derive(Clone, Debug, Default)]
pub struct DatasetOptions {
    /// CSV or Parquet file with a table of points, whose columns replace fields of the experiment.
    pub points: Option<PathBuf>,
    /// First random seed; `None` for the seed that the experiment sets.
    pub seed: Option<u64>,
    /// Number of random seeds per point, 1 to 10 000; `None` for the number that the experiment sets.
    pub repeat: Option<u64>,
    /// Interval between trace rows; `None` for a data set without traces.
    pub trace: Option<Duration>,
    /// Maximum size of a part in predicted packets; `None` for [`PART_PACKETS`].
    pub part_packets: Option<u64>,
}

/// A subset of the parts of a data set: every `of`-th part, starting with part `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    of: usize,
}

impl Shard {
    /// The shard that contains all parts.
    pub const ALL: Self = Self { index: 0, of: 1 };

    /// Creates the shard `index` (from zero) of `of`; returns `None` if there is no such shard.
    pub fn new(index: usize, of: usize) -> Option<Self> {
        (index < of).then_some(Self { index, of })
    }

    /// Returns whether the shard contains the part with this number.
    pub const fn has(self, part: usize) -> bool {
        part % self.of == self.index
    }
}

impl FromStr for Shard {
    type Err = Error;

    /// Parses a shard such as `0/4`, which is the first of four shards.
    fn from_str(text: &str) -> Result<Self, Error> {
        let numbers =
            text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        numbers.and_then(|(index, of)| Self::new(index, of)).ok_or_else(|| {
            Error::usage(
                format!("'{text}' is not a shard"),
                "write K/N with K from 0 to N-1, for example 0/4",
            )
        })
    }
}

/// A data set: its manifest and its design.
#[derive(Clone, Debug)]
pub struct Dataset {
    design: Design,
    fields: FieldColumns,
    manifest: Manifest,
    /// Contents of the input files, by hash.
    inputs: BTreeMap<String, String>,
}

/// Origin of a row of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct RowOrigin {
    /// Number of the run.
    pub run: u64,
    /// Number of the flow in the run.
    pub flow: u64,
    /// Random seed of the run.
    pub seed: u64,
    /// Label of the point.
    pub label: String,
    /// Fields of the point, as written in the experiment or the table of points.
    pub settings: Vec<Setting>,
    /// File that contains the row, relative to the folder of the data set.
    pub file: String,
    /// Number of the row in that file, from zero.
    pub row_in_file: u64,
}

impl Dataset {
    /// Plans the data set of the experiment in the file `path`. File names in the experiment are relative to
    /// the folder of that file. Each point is resolved once, which takes about 20 us.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if the experiment, a point or the table of points is
    /// invalid.
    pub fn plan(path: &Path, options: &DatasetOptions) -> Result<Self, Error> {
        let text = read_at_most(LARGEST_EXPERIMENT, path).map_err(|e| {
            Error::new(
                format!("cannot read {}: {e}", path.display()),
                "pass an experiment file: fullpipe run sweep.toml",
            )
        })?;
        let rows = options.points.as_deref().map(points::read).transpose()?;
        Self::of(text, &beside(path), rows, options).map_err(|error| error.about(path.display()))
    }

    /// Plans the data set of an experiment that refers to no other file.
    ///
    /// # Errors
    /// Returns the same errors as [`plan`](Self::plan).
    pub fn from_text(text: &str, options: &DatasetOptions) -> Result<Self, Error> {
        let load = |name: &str| {
            Err(format!(
                "cannot read the trace '{name}', because the folder of the experiment \
                                      is not known"
            ))
        };
        let rows = options.points.as_deref().map(points::read).transpose()?;
        Self::of(text.into(), &load, rows, options)
    }

    fn of(
        text: String,
        load: &dyn Fn(&str) -> Result<String, String>,
        rows: Option<PointTable>,
        options: &DatasetOptions,
    ) -> Result<Self, Error> {
        let loaded = RefCell::new(BTreeMap::new());
        let remembering = |name: &str| {
            let content = load(name)?;
            loaded.borrow_mut().insert(name.to_owned(), content.clone());
            Ok(content)
        };
        let mut inputs = BTreeMap::new();
        let points_blake3 = rows.as_ref().map(|rows| {
            let text = rows.to_csv();
            let blake3 = hash(text.as_bytes());
            inputs.insert(blake3.clone(), text);
            blake3
        });
        let mut design = Design::from_toml_with(&text, &remembering, rows)?;
        if let Some(seed) = options.seed {
            design = design.with_seed(seed);
        }
        if let Some(repeat) = options.repeat {
            design = design.with_repeat(repeat);
        }
        if let Some(every) = options.trace {
            design = design.with_sample_every(every)?;
        }
        let mut files = Vec::new();
        for (name, content) in loaded.into_inner() {
            let blake3 = hash(content.as_bytes());
            files.push(InputFile { name, blake3: blake3.clone() });
            inputs.insert(blake3, content);
        }
        let sources = Sources {
            text,
            inputs: files,
            points_blake3,
            trace_ns: options.trace.map(Duration::as_nanos),
            part_packets: options.part_packets.unwrap_or(PART_PACKETS),
        };
        let (manifest, fields) = Manifest::of(&design, sources)?;
        Ok(Self { design, fields, manifest, inputs })
    }

    /// Opens the data set in the folder `dir`.
    ///
    /// # Errors
    /// Returns an error if the manifest or an input file is missing or damaged, or if another version of
    /// fullpipe made the data set.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let manifest = read_manifest(dir)?;
        let here = env!("CARGO_PKG_VERSION");
        if manifest.version != here {
            return Err(Error::new(
                format!(
                    "{} was made by fullpipe {}, but this is fullpipe {here}",
                    dir.display(),
                    manifest.version
                ),
                format!(
                    "run fullpipe {}, because another version may produce different results",
                    manifest.version
                ),
            ));
        }
        let input = |blake3: &str| {
            let path = dir.join("inputs").join(blake3);
            let text = read_at_most(LARGEST_MANIFEST, &path)
                .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            let whole = hash(text.as_bytes()) == *blake3;
            if whole { Ok(text) } else { Err(format!("{} is damaged", path.display())) }
        };
        let named = |name: &str| {
            let file = manifest.inputs.iter().find(|file| file.name == name);
            input(&file.ok_or_else(|| format!("the data set has no file '{name}'"))?.blake3)
        };
        let damaged = |problem: String| Error::new(problem, "restore the file, or make the data set again");
        let rows = match &manifest.points_blake3 {
            Some(blake3) => Some(PointTable::from_csv(input(blake3).map_err(damaged)?.as_bytes())?),
            None => None,
        };
        let options = DatasetOptions {
            points: None,
            seed: Some(manifest.seed),
            repeat: Some(manifest.repeat),
            trace: manifest.trace_ns.map(Duration::from_nanos),
            part_packets: Some(manifest.part_packets),
        };
        let dataset = Self::of(manifest.text.clone(), &named, rows, &options)
            .map_err(|error| error.about(dir.join(MANIFEST_FILE).display()))?;
        fits(dir, &manifest, &dataset.manifest)?;
        Ok(dataset)
    }

    /// Returns the manifest, which describes the content of the data set.
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Makes those parts of `shard` that are missing in the folder `dir`, on `threads` threads (`None` for
    /// one per core); writes the manifest first if there is none. If the observer stops the work, no further
    /// part starts; if it abandons the work, incomplete parts are discarded.
    ///
    /// # Errors
    /// Returns an error if `dir` contains another data set, if an experiment requires a kernel, if a file
    /// cannot be written, or if a run panics because of a defect. Complete parts remain in the folder.
    pub fn make(
        &self,
        dir: &Path,
        shard: Shard,
        threads: Option<NonZeroUsize>,
        observer: &impl Observer,
    ) -> Result<Made, Error> {
        self.prepare(dir)?;
        let threads = threads.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
        let made = make::make(self, dir, shard, threads, observer)?;
        for folder in ["", "inputs", "runs", "trace"] {
            remove_temporary(&dir.join(folder));
        }
        Ok(made)
    }

    /// Writes the manifest to the folder `dir` if there is none; [`make`](Self::make) starts with this step.
    ///
    /// # Errors
    /// Returns those errors of [`make`](Self::make) that can be detected before the first run.
    pub fn prepare(&self, dir: &Path) -> Result<(), Error> {
        match read_manifest_if_any(dir)? {
            Some(existing) => fits(dir, &existing, &self.manifest),
            None => self.begin(dir),
        }
    }

    /// Writes the inputs and the manifest to a folder that contains no data set.
    fn begin(&self, dir: &Path) -> Result<(), Error> {
        if dir.join("runs").join(part_name(0)).exists() {
            return Err(Error::new(
                format!("{} contains parts of a data set, but no {MANIFEST_FILE}", dir.display()),
                "choose an empty folder, or restore the manifest",
            ));
        }
        for (blake3, content) in &self.inputs {
            write_whole(&dir.join("inputs"), blake3, content.as_bytes())?;
        }
        write_whole(dir, MANIFEST_FILE, self.manifest.to_text()?.as_bytes())
    }

    /// Returns the numbers of the parts that are missing in the folder `dir`, in ascending order.
    pub fn missing(&self, dir: &Path) -> Vec<usize> {
        let exists = |folder: &str, number| dir.join(folder).join(part_name(number)).is_file();
        let traced = self.manifest.trace_ns.is_some();
        let missing = |number: &usize| !exists("runs", *number) || traced && !exists("trace", *number);
        (0..self.manifest.parts.len()).filter(missing).collect()
    }

    /// Reads the rows of all parts that exist in the folder `dir`.
    ///
    /// # Errors
    /// Returns an error if a part is damaged.
    pub fn table(&self, dir: &Path) -> Result<Table, Error> {
        let source = read::Source { dir, table: "runs", manifest: &self.manifest };
        read::table(&source, &self.manifest.columns, None)
    }

    /// Reads the trace rows of all parts that exist in the folder `dir`; returns `None` if the data set has no
    /// trace.
    ///
    /// # Errors
    /// Returns an error if a part is damaged.
    pub fn trace(&self, dir: &Path) -> Result<Option<Table>, Error> {
        let source = read::Source { dir, table: "trace", manifest: &self.manifest };
        self.manifest.trace_ns.map(|_| read::table(&source, &trace_columns(), None)).transpose()
    }

    /// Compares two selections of rows, pair by pair, in the parts that exist in the folder `dir`.
    ///
    /// ```
    /// use fullpipe::dataset::{Comparison, Dataset, DatasetOptions, Shard};
    /// use fullpipe::lab::columns::Cell;
    ///
    /// let dir = std::env::temp_dir().join(format!("fullpipe-doc-ratio-{}", std::process::id()));
    /// let text = "name = 'sweep'\nduration = '2s'\nrepeat = 8\n[path]\nrate = '10mbit'\nrtt = '80ms'\n\
    ///             loss = '1%'\n[[flow]]\ncc = ['reno', 'bbr1']\n";
    /// let dataset = Dataset::from_text(text, &DatasetOptions::default())?;
    /// dataset.make(&dir, Shard::ALL, None, &())?;
    /// let of = |cc: &'static str| vec![("cc".to_owned(), Cell::Text(cc.into()))];
    /// let found = dataset.ratio(&dir, &Comparison { a: of("bbr1"), b: of("reno"), ..Comparison::default() })?;
    /// assert!(found.pairs == 8 && found.low > 1.0, "BBR is faster under loss: {found:?}");
    /// # std::fs::remove_dir_all(&dir).map_err(|e| fullpipe::Error::new(e.to_string(), ""))?;
    /// # Ok::<(), fullpipe::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a column is unknown or not comparable, if fewer than two pairs have a ratio, or if a part
    /// is damaged.
    pub fn ratio(&self, dir: &Path, comparison: &Comparison) -> Result<PairedRatio, Error> {
        ratio::ratio(self, dir, comparison)
    }

    /// Returns the origin of a row; rows are numbered from zero, over all parts of `runs`.
    ///
    /// # Errors
    /// Returns an error if there is no such row.
    pub fn origin(&self, row: u64) -> Result<RowOrigin, Error> {
        let Some((number, row_in_file)) = self.manifest.part_of(row) else {
            return Err(Error::usage(
                format!("the data set has no row {row}"),
                format!("allowed: 0 to {}", self.manifest.rows.saturating_sub(1)),
            ));
        };
        let (mut run, mut flow) = (self.manifest.parts[number].first_run, row_in_file);
        loop {
            let point = self.design.point(self.design.point_of(run))?;
            let flows = point.point.scenario.flows.len() as u64;
            if flow < flows {
                let file = format!("runs/{}", part_name(number));
                let (label, settings, seed) = (point.point.label, point.settings, self.design.seed_of(run));
                return Ok(RowOrigin { run, flow, seed, label, settings, file, row_in_file });
            }
            flow -= flows;
            run += 1;
        }
    }

    /// Returns an experiment without expectations that consists only of the run to which a row belongs. With
    /// the same version of fullpipe, this experiment gives the digest in the row.
    ///
    /// # Errors
    /// Returns an error if there is no such row.
    pub fn experiment(&self, row: u64) -> Result<Experiment, Error> {
        Ok(self.design.only(self.origin(row)?.run)?)
    }
}

/// Checks that an existing manifest equals the wanted one.
fn fits(dir: &Path, existing: &Manifest, wanted: &Manifest) -> Result<(), Error> {
    match existing.difference(wanted) {
        None => Ok(()),
        Some(difference) => Err(Error::new(
            format!("{} contains another data set; {difference}", dir.display()),
            "choose another folder, or use the same experiment, options and version as for this data set",
        )),
    }
}

fn read_manifest_if_any(dir: &Path) -> Result<Option<Manifest>, Error> {
    match fs::metadata(dir.join(MANIFEST_FILE)) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        _ => read_manifest(dir).map(Some),
    }
}

fn read_manifest(dir: &Path) -> Result<Manifest, Error> {
    let path = dir.join(MANIFEST_FILE);
    let text = read_at_most(LARGEST_MANIFEST, &path).map_err(|e| {
        Error::new(
            format!("cannot read {}: {e}", path.display()),
            "pass a folder that fullpipe run --dataset has made",
        )
    })?;
    serde_json::from_str(&text).map_err(|e| {
        Error::new(
            format!("{} is not the manifest of a data set: {e}", path.display()),
            "restore the file, or make the data set again",
        )
    })
}

#[cfg(test)]
mod tests;
