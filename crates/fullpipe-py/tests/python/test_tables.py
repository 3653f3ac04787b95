"""Rows of a trace from other libraries as a measurement."""

from typing import Any

import fullpipe
import pytest

TRACE = {
    "name": "trace",
    "duration": "4s",
    "repeat": 2,
    "path": {"rate": "10mbit", "rtt": "40ms", "loss": "0.1%"},
    "flow": [{"cc": "cubic"}, {"cc": "reno"}],
}


@pytest.fixture(scope="module")
def trace() -> fullpipe.Table:
    made = fullpipe.run(TRACE, trace=True).trace
    assert made is not None
    return made


@pytest.fixture(scope="module")
def expected(trace: fullpipe.Table) -> fullpipe.Diagnosis:
    return fullpipe.diagnose(trace, link="10mbit", run=1, flow=2)


def test_a_table_is_diagnosed_like_a_file(
    trace: fullpipe.Table, expected: fullpipe.Diagnosis, tmp_path: Any
) -> None:
    columns = {name: values for name, values in trace.to_pydict().items() if name != "run"}
    rows = [number for number, run in enumerate(trace.column("run")) if run == 1]

    def text(value: object) -> str:
        return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    lines = [",".join(columns)]
    lines += [",".join(text(values[row]) for values in columns.values()) for row in rows]
    (tmp_path / "trace.csv").write_text("\n".join(lines) + "\n")
    assert fullpipe.diagnose(tmp_path / "trace.csv", link="10mbit", flow=2) == expected
    assert expected["input"]["kind"] == "trace"
    other = fullpipe.diagnose(trace, link="10mbit", run=0, flow=2)
    assert other != expected, "another seed"
    with pytest.raises(fullpipe.UsageError, match="several runs") as raised:
        fullpipe.diagnose(trace)
    assert "run=0" in raised.value.hint


def test_frames_of_polars_are_measurements(trace: fullpipe.Table, expected: fullpipe.Diagnosis) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(trace)
    one = frame.filter(polars.col("run") == 1)
    for table in (
        one,
        # The table has other types, another order, chunks, and columns that a trace does not have.
        one.with_columns(polars.col("cc").cast(polars.String), mine=polars.lit(7)).select(
            *sorted(one.columns), "mine"
        ),
        one.with_columns(polars.col("cwnd_bytes").cast(polars.Int64), polars.col("flow").cast(polars.UInt8)),
        polars.concat([one[:17], one[17:]], rechunk=False),
        one[5:][:-3],
    ):
        found = fullpipe.diagnose(table, link="10mbit", flow=2)
        if len(table) == len(one):
            assert found == expected
    assert fullpipe.diagnose(frame, link="10mbit", run=1, flow=2) == expected
    with pytest.raises(fullpipe.InputError, match="column mss_bytes is missing"):
        fullpipe.diagnose(one.drop("mss_bytes"))
    with pytest.raises(fullpipe.InputError, match="no column t_s"):
        fullpipe.diagnose(polars.DataFrame({"a": [1]}))
    with pytest.raises(fullpipe.InputError, match="column cwnd_bytes has no values of the type u64"):
        fullpipe.diagnose(one.with_columns(polars.col("cwnd_bytes").cast(polars.String)))
    with pytest.raises(fullpipe.InputError, match="column t_s has the Arrow type"):
        fullpipe.diagnose(one.with_columns(polars.lit([1]).alias("t_s")))


def test_tables_of_pyarrow_are_measurements(trace: fullpipe.Table, expected: fullpipe.Diagnosis) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import compute

    table = pyarrow.table(trace)
    one = table.filter(compute.equal(table["run"], 1))
    at = one.schema.get_field_index("cc")
    texts = one["cc"].cast(pyarrow.string())
    for column in (texts, texts.cast(pyarrow.large_string()), texts.cast(pyarrow.string_view())):
        assert fullpipe.diagnose(one.set_column(at, "cc", column), link="10mbit", flow=2) == expected
    # A slice begins within its buffers.
    begin = compute.index(table["run"], 1).as_py()
    assert fullpipe.diagnose(table.slice(begin), link="10mbit", flow=2) == expected
    nulls = one.set_column(at, "cc", pyarrow.nulls(len(one)))
    assert fullpipe.diagnose(nulls, link="10mbit", flow=2)["input"]["kind"] == "trace"
    # A reader can be read only once.
    reader = pyarrow.RecordBatchReader.from_stream(one)
    assert fullpipe.diagnose(reader, link="10mbit", flow=2) == expected


def test_frames_of_pandas_are_measurements(trace: fullpipe.Table, expected: fullpipe.Diagnosis) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    # Integers with missing values become floating-point numbers.
    frame = pandas.DataFrame(trace.to_pydict())
    assert fullpipe.diagnose(frame[frame["run"] == 1], link="10mbit", flow=2) == expected


def test_relations_of_duckdb_are_measurements(trace: fullpipe.Table, expected: fullpipe.Diagnosis) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("trace", trace)
    relation = connection.sql("from trace where run = 1")
    assert fullpipe.diagnose(relation, link="10mbit", flow=2) == expected


def test_a_failing_producer_is_an_error() -> None:
    pyarrow = pytest.importorskip("pyarrow")

    def batches() -> Any:
        yield pyarrow.record_batch({"t_s": [0.0]})
        raise RuntimeError("the source broke")

    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema({"t_s": pyarrow.float64()}), batches())
    with pytest.raises(fullpipe.InputError, match="the source broke"):
        fullpipe.diagnose(reader)
