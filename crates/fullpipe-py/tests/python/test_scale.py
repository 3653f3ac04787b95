"""Tables as large as those of real sweeps: all readers get equal values, without a copy, and memory is freed.

These tests take minutes and up to 10 GB of memory, so they are not part of CI: python -m pytest -m slow -k scale.
"""

import gc
import pathlib
import time
from typing import Any

import fullpipe
import pytest

pytestmark = pytest.mark.slow


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    raise AssertionError("no VmRSS")


#: 10 000 runs of 100 short flows.
MILLION = """
name = "million"
duration = "100ms"
repeat = 100
[path]
rate = "100mbit"
rtt = { from = "2ms", to = "20ms", steps = 10 }
loss = { from = "0%", to = "3%", steps = 10 }
[[flow]]
cc = "cubic"
bytes = "3kB"
count = 100
"""


def test_a_million_rows_are_equal_in_all_readers(tmp_path: pathlib.Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    pandas = pytest.importorskip("pandas")
    duckdb = pytest.importorskip("duckdb")
    dataset = fullpipe.sweep(MILLION, out=tmp_path, progress=False)
    assert len(dataset) == 1_000_000
    ours = dataset.table()
    expected = pyarrow.table(ours)
    pattern = str(tmp_path / "runs/*.parquet")
    import pyarrow.dataset

    read: dict[str, Any] = {
        "pyarrow": pyarrow.dataset.dataset(tmp_path / "runs").to_table(),
        "polars": polars.scan_parquet(pattern).collect().to_arrow(),
        "pandas": pyarrow.Table.from_pandas(pandas.read_parquet(tmp_path / "runs"), preserve_index=False),
        "duckdb": duckdb.sql(f"from '{pattern}'").to_arrow_table(),
        "the table in polars": polars.DataFrame(ours).to_arrow(),
        "the table in pandas": pyarrow.Table.from_pandas(
            pandas.DataFrame.from_arrow(ours), preserve_index=False
        ),
    }
    for name, table in read.items():
        assert table.column_names == expected.column_names, name
        order = [("run", "ascending"), ("flow", "ascending")]
        table = table.sort_by(order).cast(expected.schema)
        for column in expected.column_names:
            assert table[column].equals(expected[column]), f"{name} differs in {column}"
    begin = time.monotonic()
    groups = dataset.scan().group_by("rtt_ms", "loss_percent").agg(polars.col("goodput_bps").mean()).collect()
    took = time.monotonic() - begin
    print(f"group-by of a million rows: {took:.2f} s")
    assert len(groups) == 100 and took < 1


def test_ten_million_rows_cross_without_a_copy_and_are_freed() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    experiment = {
        "name": "rows",
        "duration": "100s",
        "repeat": 10,
        "path": {"rate": "1mbit", "rtt": "20ms"},
        "flow": [{"cc": "cubic", "count": 10}],
        "sample": [{"every": "1ms"}],
    }
    before = resident()
    table = fullpipe.run(experiment, trace=True).trace
    assert table is not None and 9_900_000 <= len(table) <= 10_000_000
    gc.collect()
    made = resident()
    crossed = pyarrow.table(table)
    assert crossed.num_rows == len(table)
    growth = (resident() - made) / (made - before)
    print(f"{len(table)} rows: {(made - before) / 2**30:.2f} GiB, growth at the border {growth:.1%}")
    assert growth < 0.05
    # In polars, strings would take 16 more bytes each, but the words of a trace are categories there. polars converts
    # the keys to another type of four bytes, and copies nothing else.
    with_arrow = resident()
    frame = polars.DataFrame(table)
    assert len(frame) == len(table)
    assert polars.String not in frame.dtypes
    growth = (resident() - with_arrow) / (made - before)
    print(f"polars: growth {growth:.1%}")
    assert growth < 0.05
    del crossed, frame
    gc.collect()
    for _ in range(1000):
        pyarrow.table(table)
    again = (resident() - made) / (made - before)
    print(f"growth after 1000 tables: {again:.1%}")
    assert again < 0.05
    # The last owner of the rows frees them.
    crossed = pyarrow.table(table)
    del table
    assert resident() - before > 0.9 * (made - before)
    del crossed
    gc.collect()
    assert resident() - before < 0.2 * (made - before)
