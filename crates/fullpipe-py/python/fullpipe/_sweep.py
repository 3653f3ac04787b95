"""Sweeps, whose results are data sets of Parquet files."""

import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from . import _fullpipe
from ._errors import InputError, MissingPackageError, UsageError
from ._experiment import Source, of_source
from ._fullpipe import Table
from ._progress import Progress, callback

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import polars

#: Number of parts that are submitted to an executor at a time.
_PENDING = 64


class Origin(NamedTuple):
    """Where a row of a data set comes from."""

    #: Label of the point.
    point: str
    #: Values of the fields of the point, as written.
    settings: dict[str, str]
    #: Random seed of the run.
    seed: int
    #: Number of the run.
    run: int
    #: Number of the flow in the run.
    flow: int
    #: Command that repeats the run.
    command: str


class Problem(NamedTuple):
    """A file of a data set that is missing, damaged or foreign."""

    #: ``missing``, ``damaged`` or ``foreign``.
    kind: str
    #: Name of the file, relative to the folder of the data set.
    file: str


class Dataset:
    """A data set: the results of a sweep in a folder.

    ``docs/reference/dataset.md`` describes its files and columns. Other libraries read the Parquet files themselves,
    or the :class:`Table` that :meth:`table` returns.

    :param folder: folder that :func:`sweep` or ``fullpipe run --dataset`` has made
    :raises InputError: the folder contains no data set, or one of another version

    >>> import fullpipe, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = fullpipe.sweep({
    ...         "name": "two", "duration": "1s", "path": {"rate": "10mbit", "rtt": ["20ms", "40ms"]},
    ...         "flow": [{"cc": "cubic"}],
    ...     }, out=folder)
    ...     dataset = fullpipe.Dataset(folder)
    ...     dataset.missing(), len(dataset), dataset.table().column("rtt_ms")
    ([], 2, [20.0, 40.0])
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        #: Folder of the data set.
        self.folder = pathlib.Path(folder)
        self._dataset = _fullpipe.Dataset.open(os.fspath(folder))

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What the data set consists of (``docs/schema/dataset.json``)."""
        manifest: dict[str, Any] = json.loads(self._dataset.manifest())
        return manifest

    def __len__(self) -> int:
        """Return the number of rows of the complete data set: one for each flow of each run."""
        return cast("int", self.manifest["rows"])

    def missing(self) -> list[int]:
        """Return the numbers of the parts that do not exist yet."""
        return self._dataset.missing(self.folder)

    def make(
        self, *, threads: int | None = None, on: "str | Executor" = "local", progress: Progress = True
    ) -> "Dataset":
        """Make the parts that are missing, and return this data set.

        Ctrl-C ends the work within 0.2 s, keeps finished parts, and raises ``KeyboardInterrupt``; the next call makes
        the rest.

        :param threads: number of threads; one per core if it is left out
        :param on: ``"local"`` for threads of this process, or a ``concurrent.futures.Executor`` that gets one task per
            part. Its processes need this version of fullpipe, and access to the folder under the same path.
        :param progress: True to print the progress, or a function that is called with the numbers of finished and of
            all runs; with an executor, with the numbers of parts
        """
        with callback(progress) as report:
            if on == "local":
                self._dataset.make(self.folder, index=0, of=1, threads=threads, progress=report)
            elif callable(getattr(on, "submit", None)):
                self._submit(cast("Executor", on), report)
            else:
                raise UsageError(f"on={on!r} is no executor", 'pass "local" or a concurrent.futures.Executor')
        return self

    def _submit(self, executor: "Executor", report: Callable[[int, int], object] | None) -> None:
        # The import takes longer than that of this package.
        from concurrent.futures import FIRST_COMPLETED, Future, wait

        parts = len(self.manifest["parts"])
        rest = iter(self.missing())
        done = parts - len(self.missing())
        pending: set[Future[None]] = set()
        try:
            while True:
                for number in rest:
                    pending.add(executor.submit(make_part, os.path.abspath(self.folder), number))
                    if len(pending) >= _PENDING:
                        break
                if not pending:
                    return
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                done += len(finished)
                if report:
                    report(done, parts)
        finally:
            for future in pending:
                future.cancel()

    def table(self) -> Table:
        """Read the rows of all parts that exist."""
        return self._dataset.table(self.folder)

    def trace(self) -> Table | None:
        """Read the trace rows of all parts that exist; None if the data set has no trace."""
        return self._dataset.trace(self.folder)

    def scan(self) -> "polars.LazyFrame":
        """Return the rows as a lazy frame of polars, which reads only the columns that a query needs.

        :raises MissingPackageError: polars is not installed
        """
        try:
            import polars
        except ImportError:
            raise MissingPackageError("scan needs polars", "pip install polars, or use table()") from None
        if len(self.missing()) == len(self.manifest["parts"]):
            raise InputError(f"{self.folder} has no part yet", "make() makes the parts that are missing")
        return polars.scan_parquet(self.folder / "runs" / "part-*.parquet")

    def check(self) -> list[Problem]:
        """Compare all files with the manifest, and return what is missing, damaged or foreign."""
        return [Problem(*problem) for problem in _fullpipe.check_dataset(self.folder)]

    def origin(self, row: int) -> Origin:
        """Return where a row comes from, and the command that repeats its run.

        :param row: number of the row, from 0, over all parts
        :raises UsageError: there is no such row
        """
        import shlex

        if row < 0:
            raise UsageError(f"the data set has no row {row}", f"allowed: 0 to {len(self) - 1}")
        point, settings, seed, run, flow = self._dataset.origin(row)
        command = f"fullpipe run {shlex.quote(os.fspath(self.folder))} --row {row}"
        return Origin(point, dict(settings), seed, run, flow, command)

    def __repr__(self) -> str:
        runs, missing = self.manifest["runs"], len(self.missing())
        return f"<fullpipe.Dataset: {self.folder}, {runs} runs, {missing} of {len(self.manifest['parts'])} parts missing>"


def sweep(
    source: Source,
    *,
    out: str | os.PathLike[str],
    points: object = None,
    seed: int | None = None,
    repeat: int | None = None,
    trace: str | None = None,
    threads: int | None = None,
    on: "str | Executor" = "local",
    part_packets: int | None = None,
    progress: Progress = True,
) -> Dataset:
    """Run a sweep, and write its results to a folder as a data set.

    Memory does not grow with the number of runs. What exists in the folder is not made again, so the same call
    continues a sweep that was interrupted. Ctrl-C ends the work within 0.2 s, keeps finished parts, and raises
    ``KeyboardInterrupt``.

    :param source: path of an experiment file, its text (with a line feed), a dict with its keys, or an
        :class:`Experiment`
    :param out: folder of the data set
    :param points: points that replace values of the experiment: the path of a CSV or Parquet file, a dict of columns,
        a list of dicts, or a data frame of pandas or polars. The columns are fields (``"loss"``), or fields and units
        (``"rtt_ms"``).
    :param seed: first seed; that of the experiment if it is left out
    :param repeat: number of seeds per point, 1 to 10 000
    :param trace: interval of the trace, such as ``"100ms"``; no trace if it is left out
    :param threads: number of threads; one per core if it is left out
    :param on: ``"local"``, or a ``concurrent.futures.Executor``, as for :meth:`Dataset.make`
    :param part_packets: size of a part in predicted packets
    :param progress: True to print the progress, or a function, as for :meth:`Dataset.make`
    :raises InputError: the experiment or a point is not valid, or the folder contains another data set
    :raises UsageError: an argument has the wrong type or is out of range

    >>> import fullpipe, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dataset = fullpipe.sweep(
    ...         "experiments/tiny-window.toml", out=folder, points={"rtt_ms": [10, 25]}, progress=False
    ...     )
    ...     dataset.origin(1).point
    'rtt=25ms'
    """
    path, text = of_source(source)
    with _points_file(points) as points_path:
        planned = _fullpipe.Dataset.plan(
            path, text, points=points_path, seed=seed, repeat=repeat, trace=trace, part_packets=part_packets
        )
    planned.prepare(out)
    return Dataset(out).make(threads=threads, on=on, progress=progress)


def make_part(folder: str, number: int) -> None:
    """Make one part of the data set in a folder. This is the task that an executor gets."""
    changed = os.stat(os.path.join(folder, "manifest.json")).st_mtime_ns
    opened = _opened.get((folder, changed))
    if opened is None:
        dataset = _fullpipe.Dataset.open(folder)
        opened = dataset, len(json.loads(dataset.manifest())["parts"])
        _opened.clear()
        _opened[folder, changed] = opened
    dataset, parts = opened
    # With as many shards as parts, shard N is part N.
    dataset.make(folder, index=number, of=parts, threads=1, progress=None)


#: The last data set of :func:`make_part` and the number of its parts. Opening it computes each point once.
_opened: dict[tuple[str, int], tuple[_fullpipe.Dataset, int]] = {}


@contextmanager
def _points_file(points: object) -> Iterator[str | None]:
    """Provide the path of a table of points."""
    match points:
        case None:
            yield None
        case str() | os.PathLike():
            yield os.fsdecode(os.fspath(points))
        case _:
            # These imports take a third of the time of this package's.
            import csv
            import tempfile

            names, rows = _table_of(points)
            with tempfile.TemporaryDirectory(prefix="fullpipe-") as folder:
                path = os.path.join(folder, "points.csv")
                with open(path, "w", encoding="utf-8", newline="") as file:
                    writer = csv.writer(file, lineterminator="\n")
                    writer.writerow(names)
                    writer.writerows(rows)
                yield path


def _table_of(points: object) -> tuple[list[str], Iterable[Iterable[object]]]:
    """Return names of columns and rows of a table of points."""
    to_dicts = getattr(points, "to_dicts", None) or getattr(points, "to_pylist", None)
    if callable(to_dicts):
        # polars, pyarrow
        points = to_dicts()
    elif callable(to_dict := getattr(points, "to_dict", None)):
        # pandas
        points = to_dict("records")
    if isinstance(points, Mapping):
        names = [str(name) for name in points]
        columns = [list(column) for column in points.values()]
        if len({len(column) for column in columns}) > 1:
            raise UsageError(
                "the columns of the points have different lengths", "give each column a value per point"
            )
        return names, zip(*columns, strict=True)
    if isinstance(points, list) and points and all(isinstance(row, Mapping) for row in points):
        names = [str(name) for name in points[0]]
        for number, row in enumerate(points):
            if list(row) != names:
                raise UsageError(
                    f"row {number} of the points has other columns than row 0", "give all rows the same keys"
                )
        return names, ([row[name] for name in row] for row in points)
    raise UsageError(
        f"a {type(points).__name__} is not a table of points",
        "pass the path of a CSV or Parquet file, a dict of columns, a list of dicts, or a data frame",
    )
