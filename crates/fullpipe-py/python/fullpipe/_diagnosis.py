"""Diagnoses of measured transfers, and ladders of given paths."""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

from . import _figure, _fullpipe, _show
from ._errors import MissingPackageError, UsageError

class ArrowTable(Protocol):
    """A table that implements Arrow's PyCapsule interface, such as one of pandas, polars, pyarrow or DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with a stream of batches."""


_Settings: TypeAlias = str | os.PathLike[str] | Mapping[str, object]


class _Document(dict[str, Any]):
    """A document of the command as a dict, with its other output formats. A pickled document is a plain dict."""

    def __init__(self, answer: _fullpipe.Answer) -> None:
        super().__init__(json.loads(answer.json))
        self._answer = answer
        self._charts: _fullpipe.Charts | None = None

    @property
    def headline(self) -> str:
        """The result in one or two sentences."""
        # At this width, the first paragraph is not wrapped.
        return self._answer.brief(10_000).split("\n", 1)[0]

    def text(self, width: int = 80) -> str:
        """Return the report as the command prints it, in lines of at most ``width`` columns (40 or more)."""
        return self._answer.text(width)

    def __str__(self) -> str:
        return self.text()

    def chart(
        self, kind: Literal["ladder", "rates", "trace", "phase"] = "ladder", run: int = 0, *, dark: bool = False
    ) -> dict[str, Any]:
        """Return a chart as a Plotly document (a dict with ``data`` and ``layout``), drawn as in reports.

        :param kind: ``"ladder"`` for the rungs as bars; ``"rates"`` for the rates of all runs over time; ``"trace"``
            for rate, window, RTT, queue and limit of one run over time; ``"phase"`` for its RTT and rate against its
            data in flight. The runs are the measurement, if there is one, and then the simulated rungs, which are
            simulated again on the first call; this takes seconds.
        :param run: number of the run, from 0, for ``"trace"`` and ``"phase"``
        :param dark: colours for a dark background
        :raises UsageError: there is no such chart or run, or the run has no round-trip times

        >>> import fullpipe
        >>> chart = fullpipe.whatif(link="10mbit", rtt="50ms", sndbuf="64KiB").chart("ladder")
        >>> chart["data"][0]["type"], chart["layout"]["xaxis"]["title"]["text"]
        ('bar', 'steady-state rate, Mbit/s')
        """
        if kind == "ladder":
            return _figure.document(self._answer.ladder(dark))
        if kind not in ("rates", "trace", "phase"):
            raise _figure.unknown(kind, ("ladder", "rates", "trace", "phase"))
        self._charts = self._charts or self._answer.charts()
        return _figure.of_runs(self._charts, kind, run, dark)

    def figure(
        self, kind: Literal["ladder", "rates", "trace", "phase"] = "ladder", run: int = 0, *, dark: bool = False
    ) -> Any:
        """Return a :meth:`chart` as a Plotly figure, which notebooks display.

        :param kind: ``"ladder"``, ``"rates"``, ``"trace"`` or ``"phase"``
        :param run: number of the run, from 0, for ``"trace"`` and ``"phase"``
        :param dark: colours for a dark background
        :raises MissingPackageError: plotly is not installed
        :raises UsageError: there is no such chart or run, or the run has no round-trip times

        .. code-block:: python

            fullpipe.diagnose("iperf3.json", link="1gbit").figure("trace")
        """
        return _figure.figure(self.chart(kind, run, dark=dark))

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return dict, (dict(self),)

    def _repr_markdown_(self) -> str:
        return _show.markdown(self.headline, self["ladder"])

    def _repr_html_(self) -> str:
        return _show.html(self.headline, self["ladder"])


class Diagnosis(_Document):
    """A diagnosis: the document of ``fullpipe diagnose --json``.

    ``docs/schema/diagnose.json`` describes its keys. Rates are in bit/s (``_bps``), times in seconds (``_s``) or
    milliseconds (``_ms``), sizes in bytes (``_bytes``). A notebook shows the headline and the ladder.

    >>> import fullpipe
    >>> diagnosis = fullpipe.diagnose("examples/iperf3/udp-loss.txt")
    >>> diagnosis.headline
    '386 Mbit/s, on a link of unknown rate: the path drops part of a UDP stream.'
    >>> diagnosis["input"]["protocol"], diagnosis["input"]["duration_s"]
    ('udp', 3.01)
    """

    def html(self) -> str:
        """Return the report as one page of HTML with charts, which works offline.

        Each simulated rung is simulated once more, which may take seconds.
        """
        return self._answer.page()


class WhatIf(_Document):
    """The ladder of a given path: the document of ``fullpipe whatif --json``.

    ``docs/schema/whatif.json`` describes its keys. Rates are in bit/s (``_bps``), sizes in bytes (``_bytes``).

    >>> import fullpipe
    >>> print(fullpipe.whatif(link="10mbit", rtt="50ms").headline)
    97 % of the link, 9.65 Mbit/s: the link
    """


def diagnose(
    source: str | bytes | os.PathLike[str] | Mapping[str, object] | ArrowTable,
    *,
    link: str | None = None,
    rtt: str | None = None,
    sysctl: _Settings | None = None,
    peer_sysctl: _Settings | None = None,
    kernel: str | None = None,
    control: str | None = None,
    point: str | None = None,
    seed: int | None = None,
    flow: int | None = None,
    run: int | None = None,
    offered: str | None = None,
    memory: str | None = None,
) -> Diagnosis:
    """Name the limit of a measured transfer, and simulate what comes after it.

    :param source: a measurement, in any format that ``fullpipe diagnose`` reads: iperf3 output, ``ss -tmi`` output, a
        capture, or a trace of ``fullpipe run``. ``bytes`` and a string with a line feed are the content; a path and a
        string without a line feed name a file; a dict is the document of ``iperf3 -J``. A data frame or another table
        with ``__arrow_c_stream__`` contains the rows of a trace, with the columns of ``docs/reference/trace.md``.
    :param link: rate of the link, such as ``"1gbit"``
    :param rtt: round-trip time of the idle path, such as ``"210ms"``
    :param sysctl: kernel settings of the host that measured: a file with the output of ``sysctl -a``, ``"local"`` for
        this host, or a dict
    :param peer_sysctl: kernel settings of the other host; those of ``sysctl`` if it is left out
    :param kernel: kernel version of both hosts, such as ``"6.8"``
    :param control: rate that one flow from the same host reaches on a local network, such as ``"940mbit"``
    :param point: label of the point, for a trace with several points
    :param seed: seed of the run, for a trace with several runs
    :param flow: number of the flow or connection, from 1
    :param run: number of the run in the column ``run``, for a table with several runs
    :param offered: load of the application, such as ``"150mbit"``
    :param memory: memory that is available to the application's queue, such as ``"2GiB"``; requires ``offered``
    :raises InputError: the source cannot be read, or contradicts the other arguments
    :raises UsageError: an argument has the wrong type, or is not a value with a unit

    >>> import fullpipe
    >>> diagnosis = fullpipe.diagnose("examples/iperf3/udp-loss.txt")
    >>> diagnosis["input"]["kind"]
    'iperf3_text'
    """
    name, content = _content(source, run)
    return Diagnosis(
        _fullpipe.diagnose(
            name,
            content,
            link=link,
            rtt=rtt,
            sysctl=_file("sysctl", sysctl),
            settings_text=_settings(sysctl),
            peer_sysctl=_file("peer_sysctl", peer_sysctl),
            peer_settings_text=_settings(peer_sysctl),
            kernel=kernel,
            control=control,
            point=point,
            seed=seed,
            flow=flow,
            offered=offered,
            memory=memory,
        )
    )


def whatif(
    *,
    link: str,
    rtt: str,
    loss: str = "0%",
    flows: int | None = None,
    mss: str | None = None,
    queue: str | None = None,
    cap: str | None = None,
    buffers: str | None = None,
    sndbuf: str | None = None,
    rcvbuf: str | None = None,
    kernel: str | None = None,
    cc: str = "cubic",
    offered: str | None = None,
    memory: str | None = None,
) -> WhatIf:
    """Calculate the ladder of a path without a measurement.

    :param link: rate of the link, such as ``"1gbit"``
    :param rtt: round-trip time of the idle path, such as ``"210ms"``
    :param loss: probability of packet loss, such as ``"20ppm"`` or ``"1.5%"``
    :param flows: number of parallel flows, 1 to 1000
    :param mss: payload of a full segment, such as ``"1448B"``
    :param queue: capacity of the queue at the bottleneck, such as ``"1MiB"``; 1 BDP if it is left out
    :param cap: rate limit of each flow below the link rate, such as ``"100mbit"``
    :param buffers: maximum size of both buffers, such as ``"4MiB"``; the kernel's if it is left out
    :param sndbuf: maximum size of the send buffer (``tcp_wmem[2]``)
    :param rcvbuf: maximum size of the receive buffer (``tcp_rmem[2]``)
    :param kernel: kernel version of both hosts, such as ``"6.8"``
    :param cc: congestion control: reno, bic, cubic, vegas, bbr, bbr3 or surge
    :param offered: load of the application, such as ``"150mbit"``
    :param memory: memory that is available to the application's queue, such as ``"2GiB"``; requires ``offered``
    :raises InputError: the values are not plausible for a path
    :raises UsageError: an argument has the wrong type, or is not a value with a unit

    >>> import fullpipe
    >>> answer = fullpipe.whatif(link="10mbit", rtt="50ms", loss="0.1%")
    >>> [rung["limit"] for rung in answer["ladder"]][-1]
    'link'
    """
    if buffers is not None and (sndbuf is not None or rcvbuf is not None):
        raise UsageError("buffers sets both sndbuf and rcvbuf", "remove buffers, or remove sndbuf and rcvbuf")
    return WhatIf(
        _fullpipe.whatif(
            link=link,
            rtt=rtt,
            loss=loss,
            flows=flows,
            mss=mss,
            queue=queue,
            cap=cap,
            sndbuf=buffers if sndbuf is None else sndbuf,
            rcvbuf=buffers if rcvbuf is None else rcvbuf,
            kernel=kernel,
            cc=cc,
            offered=offered,
            memory=memory,
        )
    )


def _content(source: object, run: int | None) -> tuple[str, bytes | None]:
    """Return the name of a measurement, and its content unless the name is a file name."""
    if hasattr(source, "__arrow_c_stream__"):
        try:
            return "the table", _fullpipe.trace_csv(source, run=run)
        except ImportError as error:
            # pandas exports tables with pyarrow.
            raise MissingPackageError(
                f"the table cannot be read: {str(error).splitlines()[0]}", "pip install pyarrow"
            ) from None
    if run is not None:
        raise UsageError("run applies only to a table with several runs", "use point and seed for a file")
    match source:
        case bytes() | bytearray() | memoryview():
            return "the input", bytes(source)
        case str() if "\n" in source:
            try:
                return "the input", source.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                raise UsageError("the text is not valid Unicode", "pass the content of the file as bytes") from None
        case str():
            return source, None
        case os.PathLike():
            return os.fsdecode(os.fspath(source)), None
        case Mapping():
            try:
                return "the input", json.dumps(source, allow_nan=False).encode()
            except (RecursionError, TypeError, ValueError) as error:
                raise UsageError(
                    f"the dict is not a JSON document: {error}", "pass the document of iperf3 -J"
                ) from None
    raise UsageError(
        f"a {type(source).__name__} is not a measurement",
        "pass the path or the content of a log, the dict of an iperf3 JSON document, or a data frame",
    )


def _file(name: str, settings: object) -> str | None:
    match settings:
        case None | Mapping():
            return None
        case str() | os.PathLike():
            return os.fsdecode(os.fspath(settings))
    raise UsageError(
        f"{name} is a {type(settings).__name__}",
        'pass a file with the output of sysctl -a, "local", or a dict',
    )


def _settings(settings: object) -> str | None:
    if not isinstance(settings, Mapping):
        return None
    return "".join(f"{key} = {value}\n" for key, value in settings.items())
