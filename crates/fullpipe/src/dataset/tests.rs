use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fullpipe_lab::campaign::Progress;
use fullpipe_lab::sim;

use super::*;

pub(super) const SWEEP: &str = "name = 'sweep'\nduration = '1s'\nrepeat = 3\n[path]\nrate = '5mbit'\nrtt = ['10ms', '40ms']\n\
                     loss = ['0%', '1%']\n[[flow]]\ncc = ['reno', 'cubic', 'bbr1']\n[[flow]]\ncc = 'reno'";

/// Options with which the sweep has several parts.
pub(super) fn small() -> DatasetOptions {
    DatasetOptions { part_packets: Some(2_500), ..DatasetOptions::default() }
}

pub(super) fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("fullpipe-dataset-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

/// Returns the names and the contents of all files in a folder.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for folder in [".", "inputs", "runs", "trace"] {
        for entry in fs::read_dir(dir.join(folder)).into_iter().flatten().flatten() {
            if entry.path().is_file() {
                let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
                found.insert(name, fs::read(entry.path()).expect("a file"));
            }
        }
    }
    found
}

/// An observer that stops the work after a number of runs, and either lets parts in progress finish or
/// abandons them.
struct StopAfter {
    runs: usize,
    abandon: bool,
    done: AtomicUsize,
}

impl StopAfter {
    fn new(runs: usize, abandon: bool) -> Self {
        Self { runs, abandon, done: AtomicUsize::new(0) }
    }

    fn is_over(&self) -> bool {
        self.done.load(Ordering::SeqCst) >= self.runs
    }
}

impl Observer for StopAfter {
    fn goes_on(&self) -> bool {
        !self.is_over()
    }

    fn abandons(&self) -> bool {
        self.abandon && self.is_over()
    }

    fn progress(&self, _: Progress) {
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

/// A data set made by one thread, by two threads, by seven shards in another order, or with repeated
/// interruptions always consists of the same files with the same bytes.
#[test]
fn a_part_has_the_same_bytes_however_it_is_made() {
    let dataset = Dataset::from_text(SWEEP, &small()).expect("valid");
    let parts = dataset.manifest().parts.len();
    assert!(parts > 7, "{parts} parts");
    let threads = |n| NonZeroUsize::new(n);
    let one = folder("one");
    let made = dataset.make(&one, Shard::ALL, threads(1), &()).expect("made");
    assert_eq!(made, Made { made: parts as u64, existed: 0, missing: 0 });
    let expected = files(&one);
    assert_eq!(expected.len(), parts + 1);

    let two = folder("two");
    dataset.make(&two, Shard::ALL, threads(3), &()).expect("made");
    assert!(files(&two) == expected, "threads");

    let shards = folder("shards");
    for index in [4, 0, 6, 2, 5, 1, 3] {
        let shard = Shard::new(index, 7).expect("a shard");
        dataset.make(&shards, shard, threads(1), &()).expect("made");
    }
    assert!(files(&shards) == expected, "shards");

    let often = folder("often");
    let mut calls = 0;
    loop {
        // Existing parts are reported to the observer as well.
        let observer = StopAfter::new(7 + files(&often).len(), calls % 2 == 0);
        let Made { missing, .. } = dataset.make(&often, Shard::ALL, threads(2), &observer).expect("made");
        assert!(files(&often).iter().all(|(name, bytes)| expected.get(name) == Some(bytes)), "call {calls}");
        calls += 1;
        if missing == 0 {
            break;
        }
    }
    assert!(calls > 3 && files(&often) == expected, "{calls} calls");
    let again = dataset.make(&often, Shard::ALL, None, &()).expect("made");
    assert_eq!(again, Made { made: 0, existed: parts as u64, missing: 0 });
    for dir in [one, two, shards, often] {
        let _ = fs::remove_dir_all(dir);
    }
}

/// The experiment of a row has the same point, seed and digest as the row.
#[test]
fn a_row_leads_to_its_run() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, RowAccessor};

    let dir = folder("row");
    let options = DatasetOptions { seed: Some(7), repeat: Some(2), ..small() };
    let dataset = Dataset::from_text(SWEEP, &options).expect("valid");
    dataset.make(&dir, Shard::ALL, None, &()).expect("made");
    let opened = Dataset::open(&dir).expect("a data set");
    assert_eq!(opened.manifest(), dataset.manifest());
    let row = 31;
    let origin = opened.origin(row).expect("a row");
    assert_eq!((origin.run, origin.flow, origin.seed), (15, 1, 8));
    assert_eq!(origin.label, "rtt=40ms loss=0% cc=cubic");
    let file = fs::File::open(dir.join(&origin.file)).expect("a part");
    let reader = SerializedFileReader::new(file).expect("Parquet");
    let stored = reader.get_row_iter(None).expect("rows").nth(origin.row_in_file as usize).expect("a row");
    let stored = stored.expect("a row");
    let column = |name: &str| stored.get_column_iter().position(|(column, _)| column == name).expect(name);
    assert_eq!(stored.get_double(column("rtt_ms")).ok(), Some(40.0));
    assert_eq!(stored.get_double(column("loss_percent")).ok(), Some(0.0));
    assert_eq!(stored.get_string(column("cc")).ok().map(String::as_str), Some("cubic"));
    assert_eq!(stored.get_string(column("flow_cc")).ok().map(String::as_str), Some("reno"));
    let experiment = opened.experiment(row).expect("an experiment");
    let mut scenario = experiment.points()[0].scenario.clone();
    scenario.seed = experiment.seeds()[0];
    let digest = stored.get_column_iter().find(|(name, _)| *name == "digest").map(|(_, field)| field.clone());
    assert_eq!(digest, Some(Field::ULong(sim::run(&scenario).digest)));
    assert!(opened.origin(opened.manifest().rows).is_err());
    let _ = fs::remove_dir_all(dir);
}

#[test]
fn another_data_set_is_refused_with_the_difference() {
    let dir = folder("other");
    let made = Dataset::from_text(SWEEP, &small()).expect("valid");
    made.make(&dir, Shard::ALL, None, &StopAfter::new(1, true)).expect("made");
    let refused = |text: &str, options: &DatasetOptions| {
        let other = Dataset::from_text(text, options).expect("valid");
        let error = other.make(&dir, Shard::ALL, None, &()).expect_err("another data set");
        assert!(!error.message.contains('\n') && !error.hint.is_empty(), "{error:?}");
        error.message
    };
    let text = SWEEP.replace("40ms", "41ms");
    let expected = "line 6 of the experiment: 'rtt = ['10ms', '40ms']' in the data set, 'rtt = ['10ms', '41ms']' in this command";
    assert!(refused(&text, &small()).ends_with(expected), "{}", refused(&text, &small()));
    for (options, expected) in [
        (DatasetOptions { seed: Some(2), ..small() }, "first seed: 1 in the data set, 2 in this command"),
        (
            DatasetOptions { repeat: Some(2), ..small() },
            "seeds per point: 3 in the data set, 2 in this command",
        ),
        (
            DatasetOptions { part_packets: None, ..small() },
            "packets per part: 2500 in the data set, \
            32000000 in this command",
        ),
        (
            DatasetOptions { trace: Some(Duration::from_millis(10)), ..small() },
            "interval of the trace: none in the data set, 10 ms in this command",
        ),
    ] {
        let message = refused(SWEEP, &options);
        assert!(message.ends_with(expected), "{message}");
    }
    let manifest = dir.join(MANIFEST_FILE);
    let text = fs::read_to_string(&manifest).expect("a manifest");
    fs::write(&manifest, text.replace(env!("CARGO_PKG_VERSION"), "0.0.9")).expect("written");
    assert!(refused(SWEEP, &small()).contains("version of fullpipe: 0.0.9 in the data set"));
    assert!(Dataset::open(&dir).expect_err("old").message.contains("was made by fullpipe 0.0.9"));
    fs::write(&manifest, "{").expect("written");
    assert!(refused(SWEEP, &small()).contains("is not the manifest of a data set"));
    fs::remove_file(&manifest).expect("removed");
    fs::create_dir_all(dir.join("runs")).expect("a folder");
    fs::write(dir.join("runs").join(part_name(0)), "").expect("written");
    assert!(refused(SWEEP, &small()).contains("contains parts of a data set, but no manifest.json"));
    let _ = fs::remove_dir_all(dir);
}

#[test]
fn a_check_names_missing_damaged_and_foreign_files() {
    let (dir, other) = (folder("check"), folder("check-other"));
    let points = folder("points.csv");
    fs::write(&points, "rtt_ms,loss\n10,0%\n30,1%\n").expect("written");
    let trace = Some(Duration::from_millis(250));
    let options = DatasetOptions { points: Some(points.clone()), trace, ..small() };
    let dataset = Dataset::from_text(SWEEP, &options).expect("valid");
    dataset.make(&dir, Shard::ALL, None, &()).expect("made");
    let report = check(&dir).expect("a data set");
    assert_eq!((report.problems.as_slice(), report.rows), (&[][..], 36));
    // The stored copy of the points is sufficient to continue the data set.
    assert_eq!(Dataset::open(&dir).expect("a data set").manifest(), dataset.manifest());

    let seeded = DatasetOptions { seed: Some(9), ..options };
    Dataset::from_text(SWEEP, &seeded).expect("valid").make(&other, Shard::ALL, None, &()).expect("made");
    let runs = dir.join("runs");
    fs::remove_file(runs.join(part_name(1))).expect("removed");
    let part = fs::read(runs.join(part_name(2))).expect("a part");
    fs::write(runs.join(part_name(2)), &part[..part.len() - 1]).expect("written");
    fs::copy(other.join("runs").join(part_name(3)), runs.join(part_name(3))).expect("copied");
    fs::write(runs.join("notes.txt"), "").expect("written");
    fs::copy(dir.join("trace").join(part_name(0)), dir.join("trace").join(part_name(1))).expect("copied");
    fs::copy(dir.join("trace").join(part_name(4)), runs.join(part_name(4))).expect("copied");
    let problems: Vec<_> =
        check(&dir).expect("a data set").problems.iter().map(ToString::to_string).collect();
    let expected = [
        "missing: runs/part-00001.parquet",
        "damaged: runs/part-00002.parquet",
        "foreign: runs/part-00003.parquet",
        "foreign: runs/part-00004.parquet",
        "foreign: runs/notes.txt",
        "foreign: trace/part-00001.parquet",
    ];
    assert_eq!(problems, expected);
    assert!(check(&points).is_err());
    for dir in [dir, other] {
        let _ = fs::remove_dir_all(dir);
    }
    let _ = fs::remove_file(points);
}

/// The column names of the fields do not collide with those of the results.
#[test]
fn every_column_has_its_own_name() {
    let text = "name = 'x'\nduration = ['1s', '2s']\n[path]\nrate = ['5mbit', '6mbit']\nrtt = '10ms'\nqueue = ['1bdp', '2bdp']\n\
                policer = { rate = ['4mbit', '5mbit'] }\n[[flow]]\ncc = 'reno'\nbytes = ['1MB', '2MB']\nstart = ['0s', '1ms']";
    let dataset = Dataset::from_text(text, &DatasetOptions::default()).expect("valid");
    let names: Vec<_> = dataset.manifest().columns.iter().map(|column| column.name.as_str()).collect();
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "{names:?}");
    assert_eq!(names[..6], ["duration_ms", "rate_bps", "queue_bdp", "policer_rate_bps", "bytes", "start_ms"]);
}

#[test]
fn shards_are_read_strictly() {
    assert_eq!("2/7".parse::<Shard>().ok(), Shard::new(2, 7));
    for text in ["7/7", "1", "a/b", "-1/2", "0/0", ""] {
        assert!(text.parse::<Shard>().is_err(), "{text}");
    }
}

/// Reading the parts back gives the same table as simulating the experiment without a data set.
#[test]
fn parts_are_read_back_as_a_table() {
    use crate::table::{SimulateOptions, Source, simulate};

    let dir = folder("table");
    let text = SWEEP.replace("repeat = 3", "repeat = 1").replace("duration = '1s'", "duration = '500ms'");
    let options = DatasetOptions { trace: Some(Duration::from_millis(100)), ..small() };
    let dataset = Dataset::from_text(&text, &options).expect("a data set");
    assert_eq!(dataset.missing(&dir).len(), dataset.manifest().parts.len());
    dataset.make(&dir, Shard::ALL, None, &()).expect("it runs");
    let options = SimulateOptions { traced: true, ..SimulateOptions::default() };
    let made = simulate(Source::Text(&text), options, &()).expect("it runs");
    let rows = |table: &Table| {
        let batches = table.batches().iter();
        let rows = batches.flat_map(|batch| (0..batch.rows).map(|row| (Arc::clone(batch), row)));
        rows.map(|(batch, row)| batch.columns.iter().map(|column| column.cell(row)).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let read = dataset.table(&dir).expect("whole parts");
    assert_eq!((read.columns(), rows(&read)), (made.runs.columns(), rows(&made.runs)));
    let (read, made) = (dataset.trace(&dir).expect("whole parts"), made.trace);
    assert_eq!(read.as_ref().map(rows), made.as_ref().map(rows));
    assert!(read.is_some_and(|trace| trace.rows() == 12 * 2 * 5));

    let part = dir.join("runs").join(part_name(0));
    let bytes = fs::read(&part).expect("a part");
    let refused = |content: &[u8], problem: &str| {
        fs::write(&part, content).expect("a file");
        let error = dataset.table(&dir).expect_err("an unusable part");
        assert!(error.message.contains("part-00000.parquet") && !error.hint.is_empty(), "{error:?}");
        assert!(error.message.ends_with(problem), "{error:?}");
    };
    refused(&bytes[..bytes.len() - 9], "it is damaged");
    // Another value: the file is still valid Parquet.
    let mut changed = bytes.clone();
    changed[20] ^= 1;
    refused(&changed, "it is damaged");
    let other = fs::read(dir.join("runs").join(part_name(1))).expect("a part");
    refused(&other, "it is not this part of this data set");
    fs::remove_file(&part).expect("a file");
    assert_eq!(dataset.missing(&dir), [0]);
    let _ = fs::remove_dir_all(&dir);
}
