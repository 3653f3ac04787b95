"""Every invalid argument raises an exception with a one-line message and a hint."""

import json
import math
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Callable

import fullpipe
import pytest

from conftest import SWEEP

ONE = {"name": "one", "duration": "1s", "path": {"rate": "10mbit", "rtt": "20ms"}, "flow": [{"cc": "cubic"}]}


def experiment(**changes: object) -> dict[str, object]:
    return {**ONE, **changes}


@pytest.mark.parametrize(
    "call, kind",
    [
        (lambda: fullpipe.diagnose("no/such/file"), fullpipe.InputError),
        (lambda: fullpipe.diagnose("neither a log\nnor a trace\n"), fullpipe.InputError),
        (lambda: fullpipe.diagnose(b"\xff\x00\n" * 100), fullpipe.InputError),
        (lambda: fullpipe.diagnose({}), fullpipe.InputError),
        (lambda: fullpipe.diagnose({"end": math.nan}), fullpipe.UsageError),
        (lambda: fullpipe.diagnose({"end": object()}), fullpipe.UsageError),
        (lambda: fullpipe.diagnose(3), fullpipe.UsageError),  # type: ignore[arg-type]
        (lambda: fullpipe.diagnose("examples", link=1e9), fullpipe.UsageError),  # type: ignore[arg-type]
        (lambda: fullpipe.diagnose("examples", link="1 parsec"), fullpipe.UsageError),
        (lambda: fullpipe.diagnose("examples", sysctl=3), fullpipe.UsageError),  # type: ignore[arg-type]
        (lambda: fullpipe.diagnose("examples/iperf3/udp.txt", sysctl={"a": 1}), fullpipe.InputError),
        (lambda: fullpipe.diagnose("examples/iperf3/udp.txt", memory="1GiB"), fullpipe.UsageError),
        (lambda: fullpipe.diagnose("examples/iperf3/udp.txt", kernel="new"), fullpipe.UsageError),
        (lambda: fullpipe.whatif(link="10mbit", rtt="50ms", cc="cubik"), fullpipe.UsageError),
        (lambda: fullpipe.whatif(link="10mbit", rtt="50ms", loss="90%"), fullpipe.InputError),
        (lambda: fullpipe.whatif(link="10mbit", rtt="1h"), fullpipe.Error),
        (
            lambda: fullpipe.whatif(link="9mbit", rtt="9ms", buffers="1MiB", sndbuf="1MiB"),
            fullpipe.UsageError,
        ),
        (lambda: fullpipe.run("no/such/file"), fullpipe.InputError),
        (lambda: fullpipe.run(7), fullpipe.UsageError),  # type: ignore[arg-type]
        (lambda: fullpipe.run("name = \n"), fullpipe.InputError),
        (lambda: fullpipe.run(experiment(duration=5)), fullpipe.InputError),
        (lambda: fullpipe.run(experiment(duration=math.nan)), fullpipe.UsageError),
        (lambda: fullpipe.run(experiment(duration={1, 2})), fullpipe.UsageError),
        (lambda: fullpipe.run(experiment(flows=[])), fullpipe.InputError),
        (lambda: fullpipe.run(ONE, repeat=0), fullpipe.UsageError),
        (lambda: fullpipe.run(ONE, repeat=10_001), fullpipe.UsageError),
        (lambda: fullpipe.run(experiment(duration="24h"), repeat=9_999, trace=True), fullpipe.InputError),
        (
            lambda: fullpipe.Experiment(name="x", duration="1s", path={"rate": math.inf}, flow=[]),
            fullpipe.UsageError,
        ),
        (lambda: fullpipe.Dataset("no/such/folder"), fullpipe.InputError),
        (lambda: fullpipe.diagnose("examples/iperf3/udp.txt", run=1), fullpipe.UsageError),
        (lambda: fullpipe.diagnose(fullpipe.run(ONE).runs), fullpipe.InputError),
        (lambda: fullpipe.diagnose(fullpipe.run(ONE, trace=True).trace, run=7), fullpipe.UsageError),
        (lambda: fullpipe.diagnose(fullpipe.run(ONE, trace=True).trace, run=-1), fullpipe.UsageError),
        (lambda: fullpipe.diagnose(fullpipe.run(ONE, repeat=2, trace=True).trace), fullpipe.UsageError),
        (lambda: fullpipe.run(ONE).chart("phase", run=1), fullpipe.UsageError),
        (lambda: fullpipe.run(ONE).chart("phase", run=-1), fullpipe.UsageError),
        (lambda: fullpipe.run(ONE).chart("ladder"), fullpipe.UsageError),  # type: ignore[arg-type]
        (lambda: fullpipe.diagnose("examples/iperf3/udp.txt").chart("phase"), fullpipe.UsageError),
    ],
)
def test_it_is_refused_with_a_hint(call: Callable[[], object], kind: type[fullpipe.Error]) -> None:
    with pytest.raises(kind) as raised:
        call()
    error = raised.value
    assert str(error) and "\n" not in str(error) + error.hint
    assert error.hint
    assert error.__notes__ == [f"hint: {error.hint}"]


@pytest.mark.parametrize(
    "call",
    [
        lambda: fullpipe.run(ONE, repeat="3"),  # type: ignore[arg-type]
        lambda: fullpipe.run(ONE, repeat=1.5),  # type: ignore[arg-type]
        lambda: fullpipe.run(ONE, repeat=True),
        lambda: fullpipe.run(ONE, repeat=-1),
        lambda: fullpipe.run(ONE, seed=math.nan),  # type: ignore[arg-type]
        lambda: fullpipe.run(ONE, seed=2**64),
        lambda: fullpipe.run(ONE, seed=10**5000),
        lambda: fullpipe.run(ONE, trace="100ms"),  # type: ignore[arg-type]
        lambda: fullpipe.run(ONE, progress=3),  # type: ignore[arg-type]
        lambda: fullpipe.run("name = '\ud800'\n"),
        lambda: fullpipe.run("\ud800"),
        lambda: fullpipe.run(ONE).chart("phase", run="1"),  # type: ignore[arg-type]
        lambda: fullpipe.run(ONE).chart("phase", dark="yes"),  # type: ignore[arg-type]
        lambda: fullpipe.run(ONE).runs.column("speed"),
        lambda: fullpipe.run(ONE).runs.column(3),  # type: ignore[arg-type]
        lambda: fullpipe.sweep(SWEEP, out="unused", part_packets=0),
        lambda: fullpipe.sweep(SWEEP, out="unused", part_packets=-1),
        lambda: fullpipe.sweep(SWEEP, out="unused", trace=0.1),  # type: ignore[arg-type]
        lambda: fullpipe.sweep(SWEEP, out=3),  # type: ignore[arg-type]
        lambda: fullpipe.sweep(SWEEP, out=""),
        lambda: fullpipe.Dataset(None),  # type: ignore[arg-type]
        lambda: fullpipe.diagnose("a\ud800\n"),
        lambda: fullpipe.diagnose("a\ud800"),
        lambda: fullpipe.diagnose("examples/iperf3/udp.txt", seed="1"),  # type: ignore[arg-type]
        lambda: fullpipe.diagnose("examples/iperf3/udp.txt", flow=-1),
        lambda: fullpipe.diagnose("examples/iperf3/udp.txt", point=1),  # type: ignore[arg-type]
        lambda: fullpipe.diagnose("examples/iperf3/udp.txt", rtt="NaNms"),
        lambda: fullpipe.diagnose("examples/iperf3/udp.txt", link="-5mbit"),
        lambda: fullpipe.diagnose("examples/iperf3/udp.txt").text("wide"),  # type: ignore[arg-type]
        lambda: fullpipe.diagnose(fullpipe.run(ONE, trace=True).trace, run="0"),  # type: ignore[arg-type]
        lambda: fullpipe.whatif(link="1mbit", rtt="1ms", flows="2"),  # type: ignore[arg-type]
        lambda: fullpipe.whatif(link="\ud800", rtt="1ms"),
    ],
)
def test_wrong_types_are_refused_with_a_hint(call: Callable[[], object]) -> None:
    with pytest.raises(fullpipe.UsageError) as raised:
        call()
    assert raised.value.hint and "\n" not in str(raised.value) + raised.value.hint
    assert not pathlib.Path("unused").exists()


def test_an_experiment_that_contains_itself_is_refused() -> None:
    endless: dict[str, object] = dict(ONE)
    endless["path"] = endless
    with pytest.raises(fullpipe.UsageError):
        fullpipe.run(endless)


@pytest.mark.parametrize(
    "points",
    [
        {"rtt_ms": [1, 2], "loss": ["0%"]},
        {"rttt": [1]},
        {"rtt_ms": [math.nan]},
        {"rtt_ms": [None]},
        {"rtt_ms": []},
        [{"rtt_ms": 1}, {"loss": "1%"}],
        [],
        7,
        "no/such/points.csv",
        {"rtt_ms": range(1, 200_000)},
        {"rtt_ms": range(1, 10_000_000)},
        {"rtt_ms": ["20ms"]},
        {"rtt": [20]},
        {"rtt_ms": ["20"], "unknown": [1]},
        {"rtt_ms": 20},
        {"cc": "reno"},
        {"cc": ["\ud800"]},
    ],
    ids=lambda points: str(points)[:40],
)
def test_points_are_refused_with_a_hint(points: object, tmp_path: pathlib.Path) -> None:
    with pytest.raises(fullpipe.Error) as raised:
        fullpipe.sweep(SWEEP, out=tmp_path / "out", points=points, progress=False)
    assert raised.value.hint and "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "content, expected",
    [
        ("rtt_ms\n" + "20\n" * 10_000_000, "more than 100000 rows"),
        ("rtt_ms,speed\n20,1\n", "unknown column 'speed'"),
        ("rtt_ms\nNaN\n", "'NaN'"),
        ("rtt_ms,loss\n20\n", "row 1"),
        ("PAR1 and nothing else", "not readable as Parquet"),
    ],
    ids=["ten million rows", "unknown column", "NaN", "ragged", "damaged Parquet"],
)
def test_files_of_points_are_refused_with_a_hint(content: str, expected: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "points").write_text(content)
    with pytest.raises(fullpipe.InputError, match=expected) as raised:
        fullpipe.sweep(SWEEP, out=tmp_path / "out", points=tmp_path / "points", progress=False)
    assert raised.value.hint and "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


FULL_DISK = """
import sys, fullpipe
try:
    fullpipe.sweep(sys.argv[1], out=sys.argv[2], trace="1ms", progress=False)
except fullpipe.InputError as error:
    print(error, error.hint, sep="\\n")
"""


def test_a_full_disk_is_one_line_and_leaves_no_half_part(tmp_path: pathlib.Path) -> None:
    mount = "mount -t tmpfs -o size=64k tmpfs \"$0\" && exec \"$@\""
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(tmp_path)]
    if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        pytest.skip("no permission to mount a file system")
    code = FULL_DISK + "import os\nprint(os.listdir(sys.argv[2] + '/trace'), os.listdir(sys.argv[2]))\n"
    done = subprocess.run(
        [*words, sys.executable, "-P", "-c", code, SWEEP, str(tmp_path / "out")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    message, hint, trace, _ = [*done.stdout.splitlines(), ""]
    assert message.startswith("cannot write ") and "No space left" in message and hint
    assert ".tmp" not in trace


FULL_TEMPORARY_FOLDER = """
import sys, tempfile, fullpipe
sweep, tempfile.tempdir = sys.argv[1:]
many = {"rtt_ms": [1 + number / 1000 for number in range(30_000)]}
for out, points, trace in ((tempfile.tempdir + "/out", many, None), ("memory://full", None, "1ms")):
    try:
        fullpipe.sweep(sweep, out=out, points=points, trace=trace, progress=False)
    except fullpipe.InputError as error:
        print(error, error.hint, sep="\\n")
"""


def test_a_full_temporary_folder_is_one_line(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("fsspec")
    mount = "mount -t tmpfs -o size=64k tmpfs \"$0\" && exec \"$@\""
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(tmp_path)]
    if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        pytest.skip("no permission to mount a file system")
    code = [sys.executable, "-P", "-c", FULL_TEMPORARY_FOLDER, SWEEP, str(tmp_path)]
    done = subprocess.run([*words, *code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4 and all(line.startswith("cannot write ") for line in lines[::2]), lines
    assert all("No space left" in line for line in lines[::2]) and all(lines), lines


def test_a_file_system_without_rename_is_one_line(tmp_path: pathlib.Path) -> None:
    fullpipe.sweep(SWEEP, out=tmp_path, progress=False)
    part = tmp_path / "runs/part-00000.parquet"
    part.unlink()
    # A folder in place of the part makes the rename fail.
    (part / "in the way").mkdir(parents=True)
    with pytest.raises(fullpipe.InputError, match="cannot write .*part-00000.parquet") as raised:
        fullpipe.Dataset(tmp_path).make(progress=False)
    assert "rename" in raised.value.hint
    assert [path.name for path in part.parent.iterdir()] == [part.name]


def test_a_damaged_part_is_one_line(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    dataset = fullpipe.sweep(SWEEP, out=tmp_path, trace="100ms", progress=False)
    for table, call in (("runs", dataset.table), ("trace", dataset.trace)):
        part = tmp_path / table / "part-00000.parquet"
        whole = part.read_bytes()
        # The last one is a whole part of the other table.
        other = (tmp_path / {"runs": "trace", "trace": "runs"}[table] / part.name).read_bytes()
        for kind, content in (
            ("damaged", b""),
            ("damaged", whole[:-9]),
            ("damaged", whole[:200] + bytes(100) + whole[300:]),
            ("damaged", whole[:50] + bytes([whole[50] ^ 1]) + whole[51:]),
            ("damaged", b"PAR1" * 9),
            ("foreign", other),
        ):
            part.write_bytes(content)
            assert dataset.check() == [(kind, f"{table}/{part.name}")]
            with pytest.raises(fullpipe.InputError, match=part.name) as raised:
                call()
            assert raised.value.hint and "\n" not in str(raised.value)
        part.write_bytes(whole)
    assert dataset.check() == []
    # A panic of the Parquet reader would print a message.
    assert capfd.readouterr().err == ""
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(fullpipe.InputError, match="not the manifest") as raised:
        fullpipe.Dataset(tmp_path)
    assert raised.value.hint


@pytest.mark.parametrize(
    "call",
    [
        lambda dataset: dataset.ratio({"cc": "bbr9"}, {"cc": "reno"}),
        lambda dataset: dataset.ratio({"cc": "reno"}, {"rtt_ms": 10}),
        lambda dataset: dataset.ratio({"speed": 1}, {"speed": 2}),
        lambda dataset: dataset.ratio({"cc": None}, {"cc": "reno"}),
        lambda dataset: dataset.ratio({"cc": "reno"}, {"cc": "cubic"}, column="flow_cc"),
        lambda dataset: dataset.ratio({"cc": "reno"}, {"cc": "cubic"}, column="finished_s"),
        lambda dataset: dataset.ratio({"cc": "reno"}, {"cc": "cubic"}, seed=-1),
        lambda dataset: dataset.origin(-1),
        lambda dataset: dataset.origin(1_000_000),
        lambda dataset: dataset.ratio({"cc": "reno"}, {"cc": "cubic"}, seed="1"),
        lambda dataset: dataset.ratio({"cc": "reno"}, {"cc": "cubic"}, column=1),
        lambda dataset: dataset.ratio(["cc"], ["cc"]),
        lambda dataset: dataset.ratio({3: "reno"}, {3: "cubic"}),
        lambda dataset: dataset.origin("1"),
        lambda dataset: dataset.make(threads=0),
        lambda dataset: dataset.make(threads="2"),
        lambda dataset: dataset.make(on="ray", address=6379),
        lambda dataset: dataset.make(progress="yes"),
    ],
)
def test_unusable_arguments_of_a_data_set_are_refused(
    call: Callable[[fullpipe.Dataset], object], tmp_path: pathlib.Path
) -> None:
    dataset = fullpipe.sweep(SWEEP, out=tmp_path, progress=False)
    with pytest.raises(fullpipe.Error) as raised:
        call(dataset)
    assert raised.value.hint and "\n" not in str(raised.value)


def test_a_failed_expectation_is_an_error() -> None:
    expect = [{"metric": "goodput_bps", "min": 1e12}]
    result = fullpipe.run(experiment(expect=expect))
    with pytest.raises(fullpipe.ExpectationError, match="1 of 1") as raised:
        result.check()
    assert raised.value.exit_code == 5


def test_errors_and_documents_can_be_pickled() -> None:
    error = fullpipe.InputError("what", "do")
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), copied.message, copied.hint) == (fullpipe.InputError, "what", "do")
    diagnosis = fullpipe.diagnose("examples/iperf3/udp.txt")
    assert pickle.loads(pickle.dumps(diagnosis)) == diagnosis


def test_notebooks_get_escaped_text() -> None:
    text = pathlib.Path("examples/iperf3/udp.json").read_text()
    diagnosis = fullpipe.diagnose(json.loads(text))
    diagnosis["ladder"] = [
        {"bps": 2e9, "steady_bps": None, "limit": "cap", "what": "<b>|*", "source": "given", "remedy": None}
    ]
    assert "<td>2 Gbit/s</td><td>cap: &lt;b&gt;|* (given)</td><td></td>" in diagnosis._repr_html_()
    assert r"| 2 Gbit/s | cap: \<b\>\|\* (given) |  |" in diagnosis._repr_markdown_()
