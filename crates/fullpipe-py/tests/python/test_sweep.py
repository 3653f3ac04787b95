"""Data sets: their bytes do not depend on how they are made, and other libraries can read them."""

import pathlib
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import fullpipe
import pytest

from conftest import SWEEP, Command

PARTS = {"part_packets": 1_000, "progress": False}


def files(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_executors_shards_and_the_command_make_the_same_bytes(
    command: Command, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    done = command("run", tmp_path / "sweep.toml", "--dataset", tmp_path / "command", "--part-packets", 1_000)
    assert done.returncode == 0, done.stderr
    expected = files(tmp_path / "command")
    calls: list[tuple[int, int]] = []
    local = fullpipe.sweep(
        SWEEP, out=tmp_path / "local", part_packets=1_000, progress=lambda *at: calls.append(at)
    )
    assert files(tmp_path / "local") == expected
    assert calls[-1] == (24, 24)
    with ThreadPoolExecutor(2) as executor:
        fullpipe.sweep(SWEEP, out=tmp_path / "threads", on=executor, **PARTS)
    assert files(tmp_path / "threads") == expected
    with ProcessPoolExecutor(1) as executor:
        fullpipe.sweep(SWEEP, out=tmp_path / "processes", on=executor, **PARTS)
    assert files(tmp_path / "processes") == expected

    assert (len(local), local.missing(), local.check()) == (24, [], [])
    assert len(local.manifest["parts"]) > 2
    table, result = local.table(), fullpipe.run(SWEEP)
    assert table.to_pydict() == result.runs.to_pydict()
    origin = local.origin(23)
    assert (origin.point, origin.seed) == ("rtt=70ms loss=1% cc=cubic", 2)
    again = command(*origin.command.split()[1:], "--json")
    assert f'"{table.column("digest")[23]:016x}"' in again.stdout

    (tmp_path / "local/runs/part-00001.parquet").unlink()
    (tmp_path / "local/runs/part-00000.parquet").write_bytes(b"PAR1")
    assert local.missing() == [1]
    assert {problem.kind for problem in local.check()} == {"missing", "damaged"}
    with pytest.raises(fullpipe.InputError, match="part-00000.parquet"):
        local.table()


def test_points_come_from_python(tmp_path: pathlib.Path) -> None:
    points = {"rtt_ms": [12.5, 80.0], "loss": ["0%", "2%"]}
    rows = [{"rtt_ms": 12.5, "loss": "0%"}, {"rtt_ms": 80.0, "loss": "2%"}]
    one = fullpipe.sweep(SWEEP, out=tmp_path / "one", points=points, trace="100ms", progress=False)
    other = fullpipe.sweep(SWEEP, out=tmp_path / "other", points=rows, trace="100ms", progress=False)
    assert files(one.folder) == files(other.folder)
    trace = one.trace()
    assert trace is not None and trace.num_rows == 8 * 5
    assert trace.to_pydict().keys() >= {"run", "t_s", "cwnd_bytes"}
    with pytest.raises(fullpipe.InputError, match="another data set"):
        fullpipe.sweep(SWEEP, out=tmp_path / "one", progress=False)


def test_an_unknown_executor_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(fullpipe.UsageError, match="slurm"):
        fullpipe.sweep(SWEEP, out=tmp_path, on="slurm")


def test_other_libraries_read_tables_without_a_copy(tmp_path: pathlib.Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = fullpipe.run(SWEEP, trace=True).trace
    assert table is not None
    read = pyarrow.table(table)
    read.validate(full=True)
    assert read.to_pydict() == table.to_pydict()
    addresses = [pyarrow.table(table)["cwnd_bytes"].chunk(0).buffers()[1].address for _ in range(2)]
    assert addresses[0] == addresses[1]
    assert pyarrow.schema(table).names == table.column_names
    words = [name for name, kind in table.schema.items() if kind == "word"]
    assert words == ["cc", "send_limit", "phase"]
    for name in words:
        # Each batch contains each distinct word once.
        assert all(len(chunk.dictionary) < 20 for chunk in read[name].chunks)
        assert read[name].cast(pyarrow.string()).to_pylist() == table.column(name)
    # A stream can be read only once. A consumer that stops early, or never begins, leaks nothing.
    reader = pyarrow.RecordBatchReader.from_stream(table)
    next(iter(reader))
    del reader
    table.__arrow_c_stream__()
    del table
    assert read["flow"].to_pylist() == [0] * len(read)


def test_polars_reads_tables_and_data_sets(tmp_path: pathlib.Path) -> None:
    polars = pytest.importorskip("polars")
    dataset = fullpipe.sweep(SWEEP, out=tmp_path, **PARTS)
    frame = polars.DataFrame(dataset.table())
    assert dataset.scan().collect().equals(frame)
    trace = fullpipe.run(SWEEP, trace=True).trace
    assert trace is not None
    words = polars.DataFrame(trace)["phase"]
    assert (words.dtype, words.to_list()) == (polars.Categorical, trace.column("phase"))
    assert frame["loss_percent"].unique().sort().to_list() == [0.0, 1.0]
    points = polars.DataFrame({"rtt_ms": [15.0]})
    assert len(fullpipe.sweep(SWEEP, out=tmp_path / "points", points=points, **PARTS)) == 8


def test_tables_are_freed() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import resource

    table = fullpipe.run(SWEEP, trace=True).runs
    for turn in range(300):
        pyarrow.table(table)
        if turn == 100:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 4_096


INTERRUPTED = """
import sys, time, fullpipe
text = '''{sweep}'''.replace('500ms', '2000s').replace('5mbit', '1gbit')
print("begun", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    # No work continues in the background.
    time.sleep(0.3)
    before = time.process_time()
    time.sleep(0.5)
    print(time.process_time() - before, flush=True)
"""


@pytest.mark.parametrize(
    "call",
    [
        "fullpipe.sweep(text, out=sys.argv[1])",
        "fullpipe.run(text)",
        "fullpipe.whatif(link='1gbit', rtt='100ms', loss='0.01%')",
        "fullpipe.diagnose('examples/cross-border/cubic.iperf3.txt', link='1gbit', rtt='210ms')",
    ],
)
def test_ctrl_c_ends_at_once(call: str, tmp_path: pathlib.Path) -> None:
    code = textwrap.dedent(INTERRUPTED).format(sweep=SWEEP, call=call)
    words = [sys.executable, "-c", code, str(tmp_path / "out")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.3)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        took = time.monotonic() - sent
        afterwards = float(process.stdout.readline())
        process.wait(10)
    # On an idle machine it takes 0.05 s.
    assert took < 1
    assert afterwards < 0.1
    assert not list((tmp_path / "out").rglob("*.tmp"))
