"""Sweeps, whose results are data sets of Parquet files."""

import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from . import _fullpipe
from ._errors import InputError, MissingPackageError, UsageError
from ._experiment import Source, of_source
from ._fullpipe import Table
from ._progress import Progress, callback
from ._store import Store, is_url, location, not_written, temporary

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    import polars

    from ._ray import RayExecutor

#: Maximum number of points, as in the extension.
_MOST_POINTS = 100_000
#: Number of parts that are submitted to an executor at a time; the executor of Ray sets its own number.
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


class Ratio(NamedTuple):
    """Median of the ratios of paired rows, with its 95 % confidence interval (bootstrap)."""

    #: Median of the ratios.
    median: float
    #: Lower end of the interval.
    low: float
    #: Upper end of the interval.
    high: float
    #: Number of pairs.
    pairs: int
    #: Number of selected rows that are in no pair: their partner or their value is missing, or both values are zero.
    left_out: int


class Problem(NamedTuple):
    """A file of a data set that is missing, damaged or foreign."""

    #: ``missing``, ``damaged`` or ``foreign``.
    kind: str
    #: Name of the file, relative to the folder of the data set.
    file: str


class Dataset:
    """A data set: the results of a sweep in a folder, or in an object store.

    ``docs/reference/dataset.md`` describes its files and columns. Other libraries read the Parquet files themselves,
    or the :class:`Table` that :meth:`table` returns.

    :param folder: folder that :func:`sweep` or ``fullpipe run --dataset`` has made, or a URL that fsspec knows
        (``"s3://bucket/name"``). Methods that read rows copy the parts of a URL to a temporary folder first.
    :raises InputError: the folder contains no data set, or one of another version
    :raises MissingPackageError: the folder is a URL, and fsspec is not installed

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
        #: Absolute path of the data set, or its URL.
        self.location = location(folder)
        self._store = Store(self.location) if is_url(self.location) else None
        if self._store is None:
            #: Folder of the data set; for a URL, a temporary copy, which exists as long as this object.
            self.folder = pathlib.Path(self.location if "://" in os.fsdecode(folder) else folder)
            self._dataset = _fullpipe.Dataset.open(os.fspath(self.folder))
        else:
            self._copy = temporary()
            self.folder = pathlib.Path(self._copy.name)
            self._dataset = self._store.open(self._copy.name)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest, which describes the parts of the data set (``docs/schema/dataset.json``)."""
        manifest: dict[str, Any] = json.loads(self._dataset.manifest())
        return manifest

    def __len__(self) -> int:
        """Return the number of rows of the complete data set: one for each flow of each run."""
        return cast("int", self.manifest["rows"])

    def missing(self) -> list[int]:
        """Return the numbers of the parts that do not exist yet, as in the example of :meth:`make`."""
        if self._store is not None:
            return self._store.missing(len(self.manifest["parts"]), self.manifest["trace_ns"] is not None)
        return self._dataset.missing(self.folder)

    def make(
        self,
        *,
        threads: int | None = None,
        on: "str | Executor" = "local",
        address: str | None = None,
        progress: Progress = True,
    ) -> "Dataset":
        """Make the parts that are missing, and return this data set.

        Ctrl-C ends the work within 0.2 s, keeps finished parts, and raises ``KeyboardInterrupt``; the next call makes
        the rest.

        :param threads: number of threads; one per core if it is left out
        :param on: ``"local"`` for threads of this process, ``"ray"`` for a cluster of Ray, or a
            ``concurrent.futures.Executor``. Ray and executors get one task per part. Their workers need this version
            of fullpipe, and access to the folder under the same path, or to the URL.
        :param address: address of Ray; if it is left out, that of ``RAY_ADDRESS``, or else this machine. A process
            that is connected to Ray stays connected.
        :param progress: True to print the progress, or a function that is called with the number of finished runs and
            the number of all runs; with Ray or an executor, whenever a part is finished
        :raises MissingPackageError: Ray is not installed
        :raises NetworkError: Ray cannot be reached

        >>> import fullpipe, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> dataset = fullpipe.sweep("experiments/tiny-window.toml", out=folder.name, progress=False)
        >>> (dataset.folder / "runs/part-00000.parquet").unlink()
        >>> dataset.missing(), dataset.make(progress=False).missing()
        ([0], [])
        >>> folder.cleanup()
        """
        if address is not None and not isinstance(address, str):
            raise UsageError(
                f"address is a {type(address).__name__}, but a str is expected", 'pass address="10.0.0.1:6379"'
            )
        if address is not None and on != "ray":
            raise UsageError("address applies only to Ray", 'pass on="ray", or leave address out')
        with callback(progress) as report:
            if on == "local":
                if self._store is None:
                    self._dataset.make(self.folder, index=0, of=1, threads=threads, progress=report)
                else:
                    self._make_here(threads, report)
            elif on == "ray":
                self._make_on_ray(address, report)
            elif callable(getattr(on, "submit", None)):
                self._submit(cast("Executor", on), _PENDING, report)
            else:
                raise UsageError(
                    f"on={on!r} is not an executor", 'pass "local", "ray" or a concurrent.futures.Executor'
                )
        return self

    def _make_here(self, threads: int | None, report: Callable[[int, int], object] | None) -> None:
        """Make the parts of a URL with threads of this process, one after the other."""
        counted = self._counter(missing := self.missing())
        for number in missing:
            make_part(self.location, number, _fullpipe.version(), threads)
            done = counted(number)
            if report:
                report(*done)

    def _make_on_ray(self, address: str | None, report: Callable[[int, int], object] | None) -> None:
        from ._ray import connected

        with connected(address) as executor:
            try:
                self._submit(executor, executor.pending, report, executor.cancel)
            except Exception as error:
                failure = executor.failure(error)
                if failure is None:
                    raise
                raise failure from None

    def _counter(self, missing: list[int]) -> Callable[[int], tuple[int, int]]:
        """Return a function that counts a finished part, and returns the numbers of finished and of all runs."""
        parts, total = self.manifest["parts"], self.manifest["runs"]
        done = total - sum(parts[number]["runs"] for number in missing)

        def counted(number: int) -> tuple[int, int]:
            nonlocal done
            done += parts[number]["runs"]
            return done, total

        return counted

    def _submit(
        self,
        executor: "Executor | RayExecutor",
        most: int,
        report: Callable[[int, int], object] | None,
        cancel: "Callable[[Future[None]], object] | None" = None,
    ) -> None:
        # Import this module only here, because its import takes longer than that of this package.
        from concurrent.futures import FIRST_COMPLETED, Future, wait

        counted = self._counter(missing := self.missing())
        rest = iter(missing)
        pending: dict[Future[None], int] = {}
        try:
            while True:
                while len(pending) < most and (number := next(rest, None)) is not None:
                    task = executor.submit(make_part, self.location, number, _fullpipe.version())
                    pending[task] = number
                if not pending:
                    break
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    number = pending.pop(future)
                    future.result()
                    done = counted(number)
                if report:
                    report(*done)
        finally:
            for future in pending:
                (cancel or Future.cancel)(future)
        if self._store is None:
            # This shard has no part: the call only removes the temporary files of workers that were killed.
            parts = len(self.manifest["parts"])
            self._dataset.make(self.folder, index=parts, of=parts + 1, threads=1, progress=None)

    def _fetch(self) -> None:
        """Copy the parts of a URL that exist and are not copied yet."""
        if self._store is not None:
            self._store.fetch_parts(os.fspath(self.folder))

    def table(self) -> Table:
        """Read the rows of all parts that exist.

        >>> import fullpipe, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> dataset = fullpipe.sweep("experiments/tiny-window.toml", out=folder.name, progress=False)
        >>> set(dataset.table().column("flow_cc")), dataset.table().num_rows == len(dataset)
        ({'reno'}, True)
        >>> folder.cleanup()
        """
        self._fetch()
        return self._dataset.table(self.folder)

    def trace(self) -> Table | None:
        """Read the trace rows of all parts that exist; None if the data set has no trace."""
        self._fetch()
        return self._dataset.trace(self.folder)

    def scan(self) -> "polars.LazyFrame":
        """Return the rows as a lazy frame of polars, which reads only the columns that a query needs.

        :raises MissingPackageError: polars is not installed

        .. code-block:: python

            fullpipe.Dataset("out").scan().group_by("cc").agg(polars.col("goodput_bps").mean()).collect()
        """
        try:
            import polars
        except ImportError:
            raise MissingPackageError("scan needs polars", "pip install polars, or use table()") from None
        if len(self.missing()) == len(self.manifest["parts"]):
            raise InputError(f"{self.location} has no part yet", "make() makes the parts that are missing")
        self._fetch()
        return polars.scan_parquet(self.folder / "runs" / "part-*.parquet")

    def ratio(
        self,
        a: Mapping[str, str | float | bool],
        b: Mapping[str, str | float | bool],
        *,
        column: str = "goodput_bps",
        seed: int = 1,
    ) -> Ratio:
        """Compare two selections of rows, pair by pair: the median of ``a / b``, and its 95 % confidence interval.

        Both rows of a pair have the same seed, and therefore the same random losses, and the same values of all fields
        that ``a`` and ``b`` do not name. The interval comes from a bootstrap whose resamples ``seed`` selects: the same
        data set always has the same interval.

        :param a: fields of the numerators, such as ``{"cc": "bbr1"}`` or ``{"flow": 0}``
        :param b: fields of the denominators; the same names with other values
        :param column: result to compare, such as ``"goodput_bps"`` or ``"p95_rtt_ms"``
        :param seed: seed of the resamples
        :raises UsageError: a field is unknown, or no row has its value
        :raises InputError: fewer than two pairs have values, or a part is damaged

        >>> import fullpipe, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dataset = fullpipe.sweep({
        ...         "name": "pairs", "duration": "2s", "repeat": 8, "flow": [{"cc": ["reno", "bbr1"]}],
        ...         "path": {"rate": "10mbit", "rtt": "80ms", "loss": "1%"},
        ...     }, out=folder, progress=False)
        ...     ratio = dataset.ratio({"cc": "bbr1"}, {"cc": "reno"})
        >>> ratio.pairs, ratio.median > ratio.low > 1
        (8, True)
        """
        for name, selection in (("a", a), ("b", b)):
            if not isinstance(selection, Mapping):
                raise UsageError(
                    f"{name} is a {type(selection).__name__}, but a dict is expected",
                    'select rows by columns, for example {"cc": "bbr1"}',
                )
        self._fetch()
        found = self._dataset.ratio(self.folder, list(a.items()), list(b.items()), column=column, seed=seed)
        return Ratio(*found)

    def check(self) -> list[Problem]:
        """Compare all files with the manifest, and return the files that are missing, damaged or foreign.

        >>> import fullpipe, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> dataset = fullpipe.sweep("experiments/tiny-window.toml", out=folder.name, progress=False)
        >>> part = dataset.folder / "runs/part-00000.parquet"
        >>> _ = part.write_bytes(part.read_bytes()[:-1])
        >>> dataset.check()
        [Problem(kind='damaged', file='runs/part-00000.parquet')]
        >>> folder.cleanup()
        """
        if self._store is None:
            return [Problem(*problem) for problem in _fullpipe.check_dataset(self.folder)]
        with temporary() as folder:
            self._store.fetch_manifest(folder)
            self._store.fetch_parts(folder)
            return [Problem(*problem) for problem in _fullpipe.check_dataset(folder)]

    def origin(self, row: int) -> Origin:
        """Return where a row comes from, and the command that repeats its run.

        :param row: number of the row, from 0, over all parts
        :raises UsageError: there is no such row

        >>> import fullpipe, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> dataset = fullpipe.sweep("experiments/tiny-window.toml", out=folder.name, progress=False)
        >>> dataset.origin(0).point, dataset.origin(0).command.endswith("--row 0")
        ('rtt=2ms', True)
        >>> folder.cleanup()
        """
        import shlex

        point, settings, seed, run, flow = self._dataset.origin(row)
        command = f"fullpipe run {shlex.quote(os.fspath(self.folder))} --row {row}"
        return Origin(point, dict(settings), seed, run, flow, command)

    def __repr__(self) -> str:
        runs, missing = self.manifest["runs"], len(self.missing())
        place = self.folder if self._store is None else self.location
        return f"<fullpipe.Dataset: {place}, {runs} runs, {missing} of {len(self.manifest['parts'])} parts missing>"


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
    address: str | None = None,
    part_packets: int | None = None,
    progress: Progress = True,
) -> Dataset:
    """Run a sweep, and write its results to a folder as a data set.

    Memory does not grow with the number of runs. Parts that exist in the folder are not made again, so the same call
    continues an interrupted sweep. Ctrl-C ends the work within 0.2 s, keeps finished parts, and raises
    ``KeyboardInterrupt``.

    :param source: path of an experiment file, its text (with a line feed), a dict with its keys, or an
        :class:`Experiment`
    :param out: folder of the data set, or a URL that fsspec knows (``"s3://bucket/name"``); each file is stored with
        one put
    :param points: points that replace values of the experiment: the path of a CSV or Parquet file, a dict of columns,
        a list of dicts, or a data frame of pandas or polars. The columns are fields (``"loss"``), or fields and units
        (``"rtt_ms"``).
    :param seed: first seed; that of the experiment if it is left out
    :param repeat: number of seeds per point, 1 to 10 000
    :param trace: interval of the trace, such as ``"100ms"``; no trace if it is left out
    :param threads: number of threads; one per core if it is left out
    :param on: ``"local"``, ``"ray"``, or a ``concurrent.futures.Executor``, as for :meth:`Dataset.make`
    :param address: address of Ray, as for :meth:`Dataset.make`
    :param part_packets: maximum size of a part in predicted packets; the last parts are smaller
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
    place = location(out)
    if is_url(place):
        Store(place).prepare(planned)
    else:
        planned.prepare(place if "://" in os.fsdecode(out) else out)
    return Dataset(out).make(threads=threads, on=on, address=address, progress=progress)


def make_part(place: str, number: int, version: str, threads: int | None = 1) -> None:
    """Make one part of a data set. This is the task that Ray or an executor gets.

    :param place: absolute path of the folder, or URL
    :param number: number of the part
    :param version: version of fullpipe that submits the task
    :raises InputError: this process runs another version
    """
    here = _fullpipe.version()
    if version != here:
        raise InputError(
            f"the sweep runs fullpipe {version}, but this worker has {here}",
            f"install fullpipe {version} on all workers: another version may give other results",
        )
    if is_url(place):
        _make_stored_part(Store(place), number, threads)
        return
    changed = str(os.stat(os.path.join(place, "manifest.json")).st_mtime_ns).encode()
    opened = _opened.get(place)
    if opened is None or opened.identity != changed:
        opened = _keep(place, changed, _fullpipe.Dataset.open(place))
    opened.make(place, number, threads)


def _make_stored_part(store: Store, number: int, threads: int | None) -> None:
    manifest = store.get("manifest.json") or b""
    opened = _opened.get(store.url)
    # The folder exists only as long as this call, because the exit of a worker deletes nothing.
    with temporary() as folder:
        if opened is None or opened.identity != manifest:
            opened = _keep(store.url, manifest, store.open(folder))
        if not store.has(number, traced=opened.manifest["trace_ns"] is not None):
            opened.make(folder, number, threads)
            store.put_part(folder, number)


class _Opened(NamedTuple):
    """A data set that :func:`make_part` has opened. Opening it computes each point once."""

    #: Value that changes with the manifest.
    identity: bytes
    dataset: _fullpipe.Dataset
    manifest: dict[str, Any]

    def make(self, folder: str, number: int, threads: int | None) -> None:
        # With as many shards as parts, shard N is part N.
        parts = len(self.manifest["parts"])
        self.dataset.make(folder, index=number, of=parts, threads=threads, progress=None)


def _keep(place: str, identity: bytes, dataset: _fullpipe.Dataset) -> _Opened:
    _opened.clear()
    _opened[place] = _Opened(identity, dataset, json.loads(dataset.manifest()))
    return _opened[place]


#: The last data set that :func:`make_part` opened, by its location.
_opened: dict[str, _Opened] = {}


@contextmanager
def _points_file(points: object) -> Iterator[str | None]:
    """Provide the path of a table of points."""
    match points:
        case None:
            yield None
        case str() | os.PathLike():
            yield os.fsdecode(os.fspath(points))
        case _:
            # Import these modules only here: they take a third of the import time of this package.
            import csv

            names, rows = _table_of(points)
            with temporary() as folder:
                path = os.path.join(folder, "points.csv")
                try:
                    with open(path, "w", encoding="utf-8", newline="") as file:
                        writer = csv.writer(file, lineterminator="\n")
                        writer.writerow(names)
                        writer.writerows(rows)
                except OSError as error:
                    raise not_written(path, error) from None
                except UnicodeEncodeError:
                    raise UsageError("the points are not valid Unicode", "pass text that UTF-8 can encode") from None
                yield path


def _table_of(points: object) -> tuple[list[str], Iterable[Iterable[object]]]:
    """Return the column names and the rows of a table of points."""
    sized = list(points.values()) if isinstance(points, Mapping) else [points]
    if any(isinstance(part, Sized) and len(part) > _MOST_POINTS for part in sized):
        # Check the number first, because the conversion of ten million rows would take gigabytes.
        raise InputError(
            f"the points have more than {_MOST_POINTS} rows", f"allowed: up to {_MOST_POINTS}; split the table"
        )
    to_dicts = getattr(points, "to_dicts", None) or getattr(points, "to_pylist", None)
    if callable(to_dicts):
        # polars, pyarrow
        points = to_dicts()
    elif callable(to_dict := getattr(points, "to_dict", None)):
        # pandas
        points = to_dict("records")
    if isinstance(points, Mapping):
        names = [str(name) for name in points]
        for name, column in zip(names, points.values(), strict=True):
            if isinstance(column, str | bytes) or not isinstance(column, Iterable):
                raise UsageError(
                    f"column '{name}' of the points is a {type(column).__name__}, but a list is expected",
                    "give each column a list of values, one per point",
                )
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
