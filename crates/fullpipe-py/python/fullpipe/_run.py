"""Runs of experiments in the simulator."""

import json
from typing import Any, Literal

from . import _figure, _fullpipe
from ._errors import ExpectationError
from ._experiment import Source, of_source
from ._fullpipe import Table
from ._progress import Progress, callback


class Result:
    """Results of an experiment.

    >>> import fullpipe
    >>> result = fullpipe.run({
    ...     "name": "two", "duration": "1s", "path": {"rate": "10mbit", "rtt": ["20ms", "40ms"]},
    ...     "flow": [{"cc": "cubic"}],
    ... })
    >>> result.runs.column("rtt_ms")
    [20.0, 40.0]
    """

    def __init__(
        self,
        document: dict[str, Any],
        runs: Table,
        trace: Table | None,
        source: tuple[str | None, str | None, int | None] = (None, None, None),
    ) -> None:
        #: The document of ``fullpipe run --json`` (``docs/schema/run.json``).
        self.document = document
        #: One row per run and flow, with the columns of a data set (``docs/reference/dataset.md``).
        self.runs = runs
        #: One row per run, flow and sampling time (``docs/reference/trace.md``); None unless ``trace=True``.
        self.trace = trace
        self._source = source
        self._charts: _fullpipe.Charts | None = None

    @property
    def expect(self) -> list[dict[str, Any]]:
        """The comparison of each expectation with each point to which it applies."""
        expect: list[dict[str, Any]] = self.document["expect"]
        return expect

    def check(self) -> "Result":
        """Return this result if all expectations are met.

        :raises ExpectationError: an expectation is not met

        >>> import fullpipe
        >>> fullpipe.run("experiments/tiny-window.toml").check()
        <fullpipe.Result: tiny-window, 6 runs>
        """
        failed = [expect for expect in self.expect if not expect["pass"]]
        if failed:
            first = failed[0]
            raise ExpectationError(
                f"{len(failed)} of {len(self.expect)} expectations are not met; "
                f"the first is {first['metric']} at '{first['point']}': {first['value']}",
                "result.expect lists all of them",
            )
        return self

    def chart(
        self, kind: Literal["rates", "trace", "phase"] = "trace", run: int = 0, *, dark: bool = False
    ) -> dict[str, Any]:
        """Return a chart of the runs as a Plotly document, drawn as in reports.

        The runs are the first 24 points with the first seed. They are simulated again on the first call. A point with two
        to four flows is followed by a run for each flow.

        :param kind: ``"rates"`` for the rates of all runs over time; ``"trace"`` for rate, window, RTT, queue and limit
            of one run over time; ``"phase"`` for its RTT and rate against its data in flight
        :param run: number of the run, from 0, for ``"trace"`` and ``"phase"``
        :param dark: colours for a dark background
        :raises UsageError: there is no such chart or run

        >>> import fullpipe
        >>> result = fullpipe.run({
        ...     "name": "one", "duration": "2s", "path": {"rate": "10mbit", "rtt": "20ms"}, "flow": [{"cc": "cubic"}],
        ... })
        >>> [curve["name"] for curve in result.chart("trace")["data"][:2]]
        ['pacing', 'rate']
        """
        if self._charts is None:
            path, text, seed = self._source
            self._charts = _fullpipe.experiment_charts(path, text, seed=seed)
        return _figure.of_runs(self._charts, kind, run, dark)

    def figure(
        self, kind: Literal["rates", "trace", "phase"] = "trace", run: int = 0, *, dark: bool = False
    ) -> Any:
        """Return a :meth:`chart` as a Plotly figure, which notebooks display.

        :param kind: ``"rates"``, ``"trace"`` or ``"phase"``
        :param run: number of the run, from 0, for ``"trace"`` and ``"phase"``
        :param dark: colours for a dark background
        :raises MissingPackageError: plotly is not installed
        :raises UsageError: there is no such chart or run

        .. code-block:: python

            fullpipe.run("experiments/weak-network.toml").figure("phase", run=3)
        """
        return _figure.figure(self.chart(kind, run, dark=dark))

    def __repr__(self) -> str:
        return f"<fullpipe.Result: {self.document['experiment']}, {len(self.document['runs'])} runs>"


def run(
    source: Source,
    *,
    seed: int | None = None,
    repeat: int | None = None,
    trace: bool = False,
    progress: Progress = False,
) -> Result:
    """Run every point of an experiment with every seed in the simulator, on all cores.

    All results are kept in memory: at most 200 000 flows and 10 million trace rows. :func:`sweep` has no such limit.
    Ctrl-C ends the runs within 0.2 s, and raises ``KeyboardInterrupt``.

    :param source: path of an experiment file, its text (with a line feed), a dict with its keys, or an
        :class:`Experiment`. Rate traces are read from the folder of the experiment file.
    :param seed: first seed; that of the experiment if it is left out
    :param repeat: number of seeds per point, 1 to 10 000; that of the experiment if it is left out
    :param trace: whether to keep the trace
    :param progress: True to print the progress, or a function that is called with the number of finished runs and the
        number of all runs
    :raises InputError: the experiment cannot be read, or is not valid
    :raises UsageError: an argument has the wrong type or is out of range

    >>> import fullpipe
    >>> result = fullpipe.run("experiments/tiny-window.toml", trace=True)
    >>> result.document["experiment"], len(result.expect) > 0
    ('tiny-window', True)
    """
    path, text = of_source(source)
    with callback(progress) as report:
        document, runs, rows = _fullpipe.simulate(
            path, text, seed=seed, repeat=repeat, traced=trace, progress=report
        )
    return Result(json.loads(document), runs, rows, (path, text, seed))
