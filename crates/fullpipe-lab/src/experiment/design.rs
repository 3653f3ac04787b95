//! The design of an experiment: its points, each computed when it is needed.
//!
//! ```text
//!   [[point]] tables x rows of a table of points x combinations of lists and ranges ─► points ─► x seeds ─► runs
//! ```
//!
//! [`Experiment`] keeps all of its points in memory. A design computes each point on demand, so its memory
//! use does not grow with the number of runs. Points are numbered from zero: `[[point]]` tables first, then
//! rows, then combinations, in which the last field varies fastest. Runs are numbered by point, then by seed.

use std::collections::{BTreeMap, BTreeSet};

use fullpipe_units::Duration;

use super::error::Source;
use super::file::{ExperimentFile, FlowFile, HostFile, PathFile, PointFile};
use super::impairments::Traces;
use super::number::Number;
use super::point_table::{MOST_POINTS, PointTable};
use super::profiles::resolved;
use super::resolve::scenario;
use super::seeds::Seeds;
use super::swept::{Choice, Picker, Row, Sweep};
use super::{Experiment, ExperimentError, MOST_RESULTS, Point};
use crate::columns::{Cell, Kind};
use crate::nearest::nearest_name;
use crate::profile::Profiles;
use crate::scenario::Scenario;

/// Default interval between trace rows.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Shortest interval between trace rows.
const FINEST_SAMPLE: Duration = Duration::from_micros(10);

/// The path, host and flow tables, with the overrides of one `[[point]]` applied.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    name: Option<String>,
    limit: Option<String>,
    pub(super) path: PathFile,
    pub(super) host: HostFile,
    pub(super) flows: Vec<FlowFile>,
    /// Number of combinations of the lists and ranges, for each row of the table of points.
    combinations: u64,
}

impl Tables {
    fn plain(file: &ExperimentFile) -> Self {
        Self {
            name: None,
            limit: None,
            path: file.path.clone(),
            host: file.host.clone(),
            flows: file.flow.clone(),
            combinations: 0,
        }
    }

    fn overlaid(file: &ExperimentFile, point: &PointFile) -> Self {
        Self {
            name: point.name.clone(),
            limit: point.limit.clone(),
            path: file.path.overlaid(&point.path),
            host: file.host.overlaid(&point.host),
            flows: file.flow.iter().map(|flow| flow.overlaid(&point.flow)).collect(),
            combinations: 0,
        }
    }
}

/// Settings of a design that all of its points share.
#[derive(Clone, Copy)]
pub(super) struct Settings<'d> {
    pub(super) traces: &'d Traces,
    pub(super) profiles: &'d Profiles,
    pub(super) duration: &'d Sweep<Duration>,
    pub(super) sample_every: Duration,
}

/// A description of the points and the seeds of an experiment, from which any point can be computed.
///
/// ```
/// use fullpipe_lab::experiment::{Design, PointTable};
///
/// let text = "name = 'sweep'\nduration = '1s'\nrepeat = 3\n[path]\nrate = '10mbit'\nrtt = '20ms'\n\
///             [[flow]]\ncc = ['reno', 'cubic']";
/// let points = PointTable::from_csv("rtt_ms,loss\n20,0%\n80,1%\n".as_bytes())?;
/// let design = Design::from_toml(text, Some(points))?;
/// assert_eq!((design.points(), design.runs()), (4, 12));
/// assert_eq!(design.point(3)?.point.label, "rtt=80ms loss=1% cc=cubic");
/// # Ok::<(), fullpipe_lab::experiment::ExperimentError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Design {
    name: String,
    description: String,
    pub(super) seeds: Seeds,
    duration: Sweep<Duration>,
    sample_every: Duration,
    tables: Vec<Tables>,
    rows: Option<PointTable>,
    traces: Traces,
    profiles: Profiles,
    points: u64,
}

/// Point of a design, with all fields that the file and the table of points set.
#[derive(Clone, Debug, PartialEq)]
pub struct DesignPoint {
    /// The point, with its label and its scenario.
    pub point: Point,
    /// Fields of the point, in order; from point to point, the last field varies fastest.
    pub settings: Vec<Setting>,
}

/// Value of a field at one point.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Name of the field, such as `rtt` or `flow2.cc`; `point` for the name of the `[[point]]`.
    pub key: String,
    /// Value as written, without spaces.
    pub text: String,
    /// Value as a number; `None` if it is a name, or more than one number.
    pub number: Option<Number>,
    /// Whether the field is a list, a range, a column of the table of points, or set by the `[[point]]`.
    pub differs: bool,
}

impl Design {
    /// Reads the design of an experiment that refers to no other file; `rows` replaces the values of some
    /// fields.
    ///
    /// # Errors
    /// Returns the same errors as [`from_toml_with`](Self::from_toml_with).
    pub fn from_toml(text: &str, rows: Option<PointTable>) -> Result<Self, ExperimentError> {
        Self::from_toml_with(
            text,
            &|name| {
                Err(format!(
                    "cannot read the trace '{name}', because this \
            experiment may not refer to other files"
                ))
            },
            rows,
        )
    }

    /// Reads the design of an experiment. `load` returns the text of another file to which the experiment
    /// refers, as in [`Experiment::from_toml_with`]; `rows` replaces the values of some fields, and each row
    /// is combined with all lists of the other fields.
    ///
    /// # Errors
    /// Returns an error if the experiment is invalid, if `rows` has a column that is not a field of a point,
    /// or if the design has too many points. If values contradict each other only at some points,
    /// [`point`](Self::point) returns the error.
    pub fn from_toml_with(
        text: &str,
        load: &dyn Fn(&str) -> Result<String, String>,
        rows: Option<PointTable>,
    ) -> Result<Self, ExperimentError> {
        let source = Source(text);
        let file: ExperimentFile = toml::from_str(text).map_err(|e| source.explain(&e))?;
        Self::of(&file, &source, load, rows)
    }

    pub(super) fn of(
        file: &ExperimentFile,
        source: &Source<'_>,
        load: &dyn Fn(&str) -> Result<String, String>,
        rows: Option<PointTable>,
    ) -> Result<Self, ExperimentError> {
        let refused = |message: String, hint: &str| Err(ExperimentError::new(message, hint));
        if file.name.trim().is_empty() {
            return refused("the name is empty".into(), "add name = \"weak-network\"");
        }
        let seeds = Seeds::new(file.seed, file.repeat)?;
        if file.flow.is_empty() {
            return refused("the experiment has no flow".into(), "add a [[flow]] with cc = \"cubic\"");
        }
        let overrides = file.point.iter().map(|point| &point.path);
        let named = std::iter::once(&file.path).chain(overrides).flat_map(PathFile::traces);
        let traces = Traces::read(named, load)?;
        let profiles = resolved(&file.profile, source)?;
        let sample_every = match file.sample.as_slice() {
            [] => SAMPLE_EVERY,
            [sample] => sample.every.0,
            _ => {
                return refused(
                    "more than one [[sample]]".into(),
                    "keep only the [[sample]] with the \
                    shortest interval",
                );
            }
        };
        check_sample(sample_every)?;
        let tables = match file.point.as_slice() {
            [] => vec![Tables::plain(file)],
            points => points.iter().map(|point| Tables::overlaid(file, point)).collect(),
        };
        let (name, description, duration) =
            (file.name.clone(), file.description.clone(), file.duration.clone());
        let mut design = Self {
            name,
            description,
            seeds,
            duration,
            sample_every,
            tables,
            rows,
            traces,
            profiles,
            points: 0,
        };
        design.count()?;
        Ok(design)
    }

    /// Counts the combinations of each table, and checks the columns of the table of points.
    fn count(&mut self) -> Result<(), ExperimentError> {
        let rows = self.rows.as_ref().map_or(1, PointTable::rows);
        let mut combinations = Vec::new();
        for tables in &self.tables {
            let mut counting = Picker::counting(self.row(0));
            let resolved = self.scenario(tables, &mut counting);
            for column in self.rows.iter().flat_map(PointTable::names) {
                // If the resolution failed, some fields were not picked, so report the resolution error,
                // which is more precise.
                if resolved.is_ok() && counting.chosen.iter().all(|choice| choice.key != *column) {
                    return Err(unknown_column(column));
                }
            }
            resolved?;
            combinations.push(counting.count());
            let total = combinations.iter().fold(0, |sum: u64, n| sum.saturating_add(n.saturating_mul(rows)));
            if total > MOST_POINTS {
                return Err(ExperimentError::new(
                    format!("the sweep has {total} points"),
                    format!("allowed: up to {MOST_POINTS}; shorten a list or split the experiment"),
                ));
            }
            self.points = total;
        }
        for (tables, combinations) in self.tables.iter_mut().zip(combinations) {
            tables.combinations = combinations;
        }
        Ok(())
    }

    fn row(&self, row: u64) -> Row<'_> {
        self.rows.as_ref().map_or(Row::default(), |rows| rows.row(row))
    }

    fn scenario(&self, tables: &Tables, picker: &mut Picker<'_>) -> Result<Scenario, ExperimentError> {
        let Self { traces, profiles, duration, sample_every, .. } = self;
        let settings = Settings { traces, profiles, duration, sample_every: *sample_every };
        let resolved = scenario(tables, settings, picker);
        // A value that its field does not accept leaves the field unset, which may cause a second error.
        let resolved = picker.refused.take().map_or(resolved, Err);
        resolved.map_err(|error| {
            let label = differences(tables.name.as_deref(), &picker.chosen);
            let at = if label.is_empty() { label } else { format!("point '{label}': ") };
            ExperimentError { message: format!("{at}{}", error.message), ..error }
        })
    }

    /// Returns the name of the experiment.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of points.
    pub const fn points(&self) -> u64 {
        self.points
    }

    /// Returns the number of seeds per point.
    pub const fn repeat(&self) -> u64 {
        self.seeds.count()
    }

    /// Returns the first seed.
    pub const fn seed(&self) -> u64 {
        self.seeds.first()
    }

    /// Returns the number of runs: points x seeds.
    pub const fn runs(&self) -> u64 {
        self.seeds.runs(self.points)
    }

    /// Returns the seed of a run.
    pub const fn seed_of(&self, run: u64) -> u64 {
        self.seeds.of_run(run)
    }

    /// Returns the number of the point of a run.
    pub const fn point_of(&self, run: u64) -> u64 {
        self.seeds.point_of_run(run)
    }

    /// Replaces the first seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seeds: self.seeds.with_first(seed), ..self }
    }

    /// Sets the number of seeds per point, at least one and at most [`MOST_REPEATS`](super::MOST_REPEATS).
    #[must_use]
    pub fn with_repeat(self, repeat: u64) -> Self {
        Self { seeds: self.seeds.with_count(repeat), ..self }
    }

    /// Sets the interval between trace rows.
    ///
    /// # Errors
    /// Returns an error if the interval is shorter than 10 us.
    pub fn with_sample_every(self, sample_every: Duration) -> Result<Self, ExperimentError> {
        check_sample(sample_every)?;
        Ok(Self { sample_every, ..self })
    }

    /// Returns the names of the files to which the experiment refers, in alphabetical order and without
    /// duplicates.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.traces.names()
    }

    /// Returns the point with the number `index`, from zero.
    ///
    /// # Errors
    /// Returns an error if the values of the point contradict each other, or if there is no such point.
    pub fn point(&self, index: u64) -> Result<DesignPoint, ExperimentError> {
        let rows = self.rows.as_ref().map_or(1, PointTable::rows);
        let mut position = index;
        for tables in &self.tables {
            let count = tables.combinations.saturating_mul(rows);
            if position >= count {
                position -= count;
                continue;
            }
            let row = self.row(position / tables.combinations);
            let mut picker = Picker::at(position % tables.combinations, tables.combinations, row);
            let scenario = self.scenario(tables, &mut picker)?;
            let (label, settings) = named(tables.name.as_deref(), picker.chosen);
            let parameters = settings.iter().map(|it| (it.key.clone(), it.text.clone()));
            let parameters: BTreeMap<_, _> = parameters.collect();
            let point = Point { label, parameters, limit: tables.limit.clone(), scenario };
            return Ok(DesignPoint { point, settings });
        }
        Err(ExperimentError::new(
            format!("there is no point {index}"),
            format!("the experiment has {} points, numbered from 0", self.points),
        ))
    }

    /// Calls `visit` with each point, in order.
    ///
    /// # Errors
    /// Returns an error if the values of a point contradict each other or two points have the same label, and
    /// otherwise the first error of `visit`.
    pub fn visit(
        &self,
        mut visit: impl FnMut(DesignPoint) -> Result<(), ExperimentError>,
    ) -> Result<(), ExperimentError> {
        let mut labels = BTreeSet::new();
        for index in 0..self.points {
            let point = self.point(index)?;
            let label = &point.point.label;
            if !labels.insert(label.clone()) {
                return Err(ExperimentError::new(
                    format!("point '{label}' is defined twice"),
                    "give each [[point]] its own name, and list each value only once",
                ));
            }
            visit(point)?;
        }
        Ok(())
    }

    /// Returns all points, for callers that keep the results of all runs.
    pub(super) fn all_points(&self) -> Result<Vec<Point>, ExperimentError> {
        let (mut points, mut flows) = (Vec::new(), 0);
        self.visit(|DesignPoint { point, .. }| {
            flows += point.scenario.flows.len() as u64;
            if flows > MOST_RESULTS {
                return Err(ExperimentError::new(
                    format!("the points have more than {MOST_RESULTS} flows in total"),
                    "lower count, shorten a list or split the experiment",
                ));
            }
            points.push(point);
            Ok(())
        })?;
        Ok(points)
    }

    pub(super) fn into_profiles(self) -> Profiles {
        self.profiles
    }

    /// Returns the experiment that consists of one run of this design, without expectations.
    ///
    /// # Errors
    /// Returns the same errors as [`point`](Self::point).
    pub fn only(&self, run: u64) -> Result<Experiment, ExperimentError> {
        Ok(Experiment {
            name: self.name.clone(),
            description: self.description.clone(),
            seeds: Seeds::only(self.seed_of(run)),
            points: vec![self.point(self.point_of(run))?.point],
            profiles: self.profiles.clone(),
            expectations: Vec::new(),
            ratios: Vec::new(),
            harms: Vec::new(),
        })
    }
}

fn check_sample(every: Duration) -> Result<(), ExperimentError> {
    if every >= FINEST_SAMPLE {
        return Ok(());
    }
    Err(ExperimentError::new(format!("sample interval {every} is out of range"), "allowed: 10us or more"))
}

fn unknown_column(column: &str) -> ExperimentError {
    const TYPICAL: [&str; 10] =
        ["rate", "rtt", "loss", "queue", "cc", "duration", "sndbuf", "rcvbuf", "count", "bytes"];
    let hint = nearest_name(column, TYPICAL.into_iter()).map_or_else(
        || "columns are fields of path, host or flow, for example rtt, rtt_ms, loss, flow2.cc".into(),
        |meant| format!("did you mean '{meant}'?"),
    );
    ExperimentError::new(format!("the points have an unknown column '{column}'"), hint)
}

/// Returns the label of a point, made of the values that differ between points.
fn differences(name: Option<&str>, chosen: &[Choice]) -> String {
    // In a label, the name of a [[point]] replaces the fields that the [[point]] sets, but swept fields must
    // still appear.
    let differs = |choice: &&Choice| choice.swept || (choice.varied && name.is_none());
    let pairs = chosen.iter().filter(differs).map(|choice| format!("{}={}", choice.key, choice.text));
    name.map(str::to_owned).into_iter().chain(pairs).collect::<Vec<_>>().join(" ")
}

/// Returns the label and the fields of a point, from the values that were picked for it.
fn named(name: Option<&str>, chosen: Vec<Choice>) -> (String, Vec<Setting>) {
    let mut label = differences(name, &chosen);
    if label.is_empty() {
        let cc = chosen.iter().find(|choice| choice.key == "cc");
        label = cc.map(|cc| format!("cc={}", cc.text)).unwrap_or_default();
    }
    let setting =
        |Choice { key, text, number, swept, varied }| Setting { key, text, number, differs: swept || varied };
    let name =
        name.map(|name| Setting { key: "point".into(), text: name.into(), number: None, differs: true });
    (label, name.into_iter().chain(chosen.into_iter().map(setting)).collect())
}

/// Columns for the fields of a design that differ between its points, collected from its points.
///
/// A field is a column of numbers if all of its values are numbers with the same unit; its name then ends in
/// that unit: `rtt_ms`. Otherwise it is a column of strings, as written in the file: `queue`.
#[derive(Clone, Debug, Default)]
pub struct FieldColumns {
    columns: Vec<FieldColumn>,
    points: u64,
}

/// Column for one field of a design.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldColumn {
    /// Name of the field, such as `flow2.cc`.
    pub key: String,
    /// Unit of the numbers, as written at the end of the column's name; empty for strings and plain numbers.
    pub unit: &'static str,
    /// Type of the values.
    pub kind: Kind,
    differs: bool,
    points: u64,
}

impl FieldColumns {
    /// Adds the fields of a point.
    pub fn add(&mut self, settings: &[Setting]) {
        self.points += 1;
        for Setting { key, number, differs, .. } in settings {
            let (unit, kind) = number.map_or(("", Kind::Text), |number| (number.unit, number.kind()));
            match self.columns.iter_mut().find(|column| column.key == *key) {
                Some(column) => {
                    if (column.unit, column.kind) != (unit, kind) {
                        (column.unit, column.kind) = ("", Kind::Text);
                    }
                    column.differs |= differs;
                    column.points += 1;
                }
                None => {
                    let key = key.clone();
                    self.columns.push(FieldColumn { key, unit, kind, differs: *differs, points: 1 });
                }
            }
        }
    }

    /// Returns the columns of the fields that differ between points.
    pub fn columns(&self) -> impl Iterator<Item = &FieldColumn> {
        self.columns.iter().filter(|column| column.differs)
    }

    /// Returns whether some points lack a value for the column.
    pub const fn is_optional(&self, column: &FieldColumn) -> bool {
        column.points < self.points
    }

    /// Returns the values of a point, in the order of [`columns`](Self::columns).
    pub fn cells<'s>(&'s self, settings: &'s [Setting]) -> impl Iterator<Item = Cell> + 's {
        self.columns().map(|column| {
            let setting = settings.iter().find(|setting| setting.key == column.key);
            match setting {
                None => Cell::Null,
                Some(Setting { text, .. }) if column.kind == Kind::Text => Cell::Text(text.clone().into()),
                Some(Setting { number, .. }) => number.map_or(Cell::Null, Number::cell),
            }
        })
    }
}

impl FieldColumn {
    /// Returns the name of the column: the name of the field, and the unit. Dots become underscores, because
    /// some readers take a dot for a nested field.
    pub fn name(&self) -> String {
        let key = self.key.replace('.', "_");
        let named = key == self.unit || key.ends_with(&format!("_{}", self.unit));
        if named || self.unit.is_empty() { key } else { format!("{key}_{}", self.unit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEEP: &str = "name = 'x'\nduration = '1s'\nrepeat = 2\n[path]\nrate = '10mbit'\n\
                         rtt = ['20ms', '0.5s']\nloss = ['0%', '0.1%']\n[[flow]]\ncc = ['reno', 'cubic']";

    fn design(rows: &str) -> Result<Design, ExperimentError> {
        Design::from_toml(SWEEP, Some(PointTable::from_csv(rows.as_bytes())?))
    }

    fn columns(design: &Design) -> (Vec<String>, Vec<Vec<Cell>>) {
        let (mut fields, mut settings) = (FieldColumns::default(), Vec::new());
        let visited = design.visit(|point| {
            fields.add(&point.settings);
            settings.push(point.settings);
            Ok(())
        });
        visited.expect("valid points");
        let cells = settings.iter().map(|settings| fields.cells(settings).collect()).collect();
        (fields.columns().map(FieldColumn::name).collect(), cells)
    }

    fn refused(rows: &str) -> String {
        let tried = design(rows).and_then(|design| design.visit(|_| Ok(())));
        let error = tried.expect_err(rows);
        format!("{error}; {}", error.hint)
    }

    #[test]
    fn a_design_has_the_points_of_the_experiment() {
        let design = Design::from_toml(SWEEP, None).expect("valid");
        let experiment = Experiment::from_toml(SWEEP).expect("valid");
        let points: Vec<_> = (0..8).map(|at| design.point(at).expect("a point").point).collect();
        assert_eq!(points, experiment.points());
        assert_eq!((design.points(), design.runs(), design.seed_of(15), design.point_of(15)), (8, 16, 2, 7));
        let only = design.only(15).expect("a run");
        assert_eq!((only.points(), only.seeds()), (&experiment.points()[7..], vec![2]));
        assert!(design.point(8).is_err());
    }

    /// Each row sets its fields, and the lists of the other fields are combined with every row. A number in a
    /// column with a unit is the same value as a string with that unit.
    #[test]
    fn rows_replace_values_and_keep_the_other_lists() {
        let rows = design("rtt_ms,loss,forward.queue\n12.5,2%,1bdp\n80,0%,64KiB\n").expect("valid");
        let points: Vec<_> = (0..rows.points()).map(|at| rows.point(at).expect("a point").point).collect();
        let labels: Vec<_> = points.iter().map(|point| point.label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "rtt=12.5ms loss=2% forward.queue=1bdp cc=reno",
                "rtt=12.5ms loss=2% forward.queue=1bdp cc=cubic",
                "rtt=80ms loss=0% forward.queue=64KiB cc=reno",
                "rtt=80ms loss=0% forward.queue=64KiB cc=cubic",
            ]
        );
        assert_eq!(points[0].scenario.path.rtt(), Duration::from_micros(12_500));
        assert_eq!(points[2].scenario.path.forward.queue.get(), 64 << 10);
        let again = PointTable::from_csv(rows.rows.as_ref().expect("rows").to_csv().as_bytes());
        assert_eq!(again.expect("CSV").to_csv(), rows.rows.as_ref().expect("rows").to_csv());
    }

    /// The numbers of a sampling design have up to 17 digits, which is more than a value with a unit may have.
    #[test]
    fn numbers_with_many_digits_are_rounded() {
        let row = "48.32866473123431,1.7662419755011797e-3,61145685.3505224";
        let rows = design(&format!("rtt_ms, loss_percent ,rate_bps\n{row}\n")).expect("valid");
        let point = rows.point(0).expect("a point").point;
        let label = "rate=61145685.3505224bit rtt=48.328664731ms loss=0.001766242% cc=reno";
        assert_eq!(point.label, label);
        assert_eq!(point.scenario.path.rtt(), Duration::from_nanos(48_328_665));
    }

    #[test]
    fn bad_rows_are_refused_in_one_line() {
        for (rows, expected) in [
            ("rtx\n20ms\n", "the points have an unknown column 'rtx'; did you mean 'rtt'?"),
            ("rtt_ms\nNaN\n", "row 1 of the points: 'NaN' in column 'rtt' is not a number"),
            ("rtt_ms\ninf\n", "'inf' in column 'rtt' is not a number"),
            ("rtt_ms\n20ms\n", "'20ms' in column 'rtt' is not a number"),
            ("rtt\n20\n", "column 'rtt': "),
            ("loss\nNaN\n", "column 'loss': "),
            ("rtt,loss\n20ms\n", "row 1 of the points and the header differ in their number of cells"),
            ("rtt,loss\n20ms,\n", "row 1 of the points has no value for 'loss'"),
            ("rtt,rtt_ms\n20ms,20\n", "two columns of the points set the field 'rtt'"),
            ("rtt\n20ms\n20ms\n", "is defined twice"),
            ("rtt\n", "the points have no row"),
            ("flow2.cc\ncubic\n", "unknown column 'flow2.cc'"),
        ] {
            let refusal = refused(rows);
            assert!(refusal.contains(expected) && !refusal.contains('\n'), "{rows}: {refusal}");
        }
        let many = "rtt_ms\n".to_owned() + &"20\n".repeat(100_001);
        assert!(refused(&many).starts_with("the points have more than 100000 rows"));
        let many = "rtt_ms\n".to_owned() + &"20\n".repeat(60_000);
        assert!(refused(&many).starts_with("the sweep has 240000 points"), "{}", refused(&many));
    }

    #[test]
    fn fields_that_differ_are_typed_columns() {
        let (names, cells) = columns(&Design::from_toml(SWEEP, None).expect("valid"));
        assert_eq!(names, ["rtt_ms", "loss_percent", "cc"]);
        let last = [Cell::F64(500.0), Cell::F64(0.1), Cell::Text("cubic".into())];
        assert_eq!(cells.last().map(Vec::as_slice), Some(&last[..]));
        let text = "name = 'x'\nduration = ['1s', '2s']\n[path]\nrate = '10mbit'\nrtt = '20ms'\n\
                    queue = ['1bdp', { aqm = 'codel' }]\n[[flow]]\ncc = 'reno'\nbytes = ['1MiB', '2MiB']\n\
                    [[point]]\nname = 'a'\n[[point]]\nname = 'b'\nhost = { sndbuf = { fixed = '1MiB' } }";
        let (names, cells) = columns(&Design::from_toml(text, None).expect("valid"));
        let expected = ["point", "duration_ms", "queue", "bytes", "sndbuf_fixed_bytes"];
        let mut sorted = names.clone();
        sorted.sort_unstable();
        let mut expected = expected.map(str::to_owned);
        expected.sort_unstable();
        assert_eq!(sorted, expected);
        let sndbuf = names.iter().position(|name| name == "sndbuf_fixed_bytes").expect("a column");
        assert_eq!((&cells[0][sndbuf], &cells[15][sndbuf]), (&Cell::Null, &Cell::U64(1 << 20)));
        assert!(cells[0].contains(&Cell::U64(1 << 20)), "bytes: {:?}", cells[0]);
    }
}
