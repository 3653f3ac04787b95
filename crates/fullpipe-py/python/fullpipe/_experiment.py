"""Experiments from Python values."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Union

from . import _fullpipe
from ._errors import UsageError

Source: TypeAlias = Union[str, os.PathLike[str], Mapping[str, object], "Experiment"]


class Experiment:
    """An experiment: a path, hosts and flows, with lists of values for a sweep.

    The arguments are the keys of an `experiment file
    <https://github.com/fullpipe/fullpipe/blob/main/docs/reference/experiment-file.md>`_. Rates, times and sizes are
    strings with units; a list of values, or a range ``{"from": "10mbit", "to": "100mbit", "steps": 4}``, is a sweep.

    :param name: name of the experiment
    :param duration: duration of each run, such as ``"20s"``
    :param path: the path that all flows share
    :param flow: a flow, or a list of flows
    :param host: settings of both hosts
    :param description: what the experiment shows
    :param repeat: number of seeds per point, 1 to 10 000
    :param seed: first seed
    :param sample: interval of the trace, such as ``{"every": "10ms"}``
    :param point: points that lists cannot express
    :param profile: settings of senders, by name
    :param expect: expected results
    :raises UsageError: an experiment file cannot express a value, such as NaN

    >>> import fullpipe
    >>> experiment = fullpipe.Experiment(
    ...     name="rtt",
    ...     duration="2s",
    ...     path={"rate": "10mbit", "rtt": ["20ms", "80ms"]},
    ...     flow={"cc": ["cubic", "bbr1"]},
    ... )
    >>> fullpipe.run(experiment).runs.num_rows
    4
    """

    def __init__(
        self,
        *,
        name: str,
        duration: object,
        path: Mapping[str, object],
        flow: Mapping[str, object] | Sequence[Mapping[str, object]],
        host: Mapping[str, object] | None = None,
        description: str | None = None,
        repeat: int | None = None,
        seed: int | None = None,
        sample: Mapping[str, object] | None = None,
        point: Sequence[Mapping[str, object]] | None = None,
        profile: Mapping[str, object] | None = None,
        expect: Sequence[Mapping[str, object]] | None = None,
    ) -> None:
        self._text = _toml(
            {
                "name": name,
                "description": description,
                "duration": duration,
                "repeat": repeat,
                "seed": seed,
                "path": path,
                "host": host,
                "flow": [flow] if isinstance(flow, Mapping) else flow,
                "sample": None if sample is None else [sample],
                "point": point,
                "profile": profile,
                "expect": expect,
            }
        )

    def to_toml(self) -> str:
        """Return the text of an experiment file, for ``fullpipe run``.

        >>> import fullpipe
        >>> experiment = fullpipe.Experiment(
        ...     name="one", duration="1s", path={"rate": "10mbit", "rtt": "20ms"}, flow={"cc": "cubic"}
        ... )
        >>> 'rtt = "20ms"' in experiment.to_toml()
        True
        """
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Experiment) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"<fullpipe.Experiment:\n{self._text}>"


def of_source(source: object) -> tuple[str | None, str | None]:
    """Return the path of an experiment, or its text."""
    match source:
        case Experiment():
            return None, source.to_toml()
        case str() if "\n" in source:
            return None, source
        case str() | os.PathLike():
            path = os.fsdecode(os.fspath(source))
            try:
                os.fsencode(path)
            except UnicodeEncodeError:
                raise UsageError("the name of the file is not valid Unicode", "pass the text of the file") from None
            return path, None
        case Mapping():
            return None, _toml(source)
    raise UsageError(
        f"a {type(source).__name__} is not an experiment",
        "pass the path or the text of an experiment file, a dict, or an Experiment",
    )


def _toml(document: Mapping[Any, object]) -> str:
    try:
        text = json.dumps(_given(document), allow_nan=False, default=_plain)
    except (RecursionError, TypeError, ValueError) as error:
        raise UsageError(
            f"the experiment has a value that TOML cannot express: {error}",
            'use strings with units such as "340mbit", whole numbers, lists and dicts',
        ) from None
    return _fullpipe.toml_of_json(text)


def _given(value: object) -> object:
    """Return a value without the keys that are None, which TOML cannot express."""
    match value:
        case Mapping():
            return {str(key): _given(item) for key, item in value.items() if item is not None}
        case list() | tuple():
            return [_given(item) for item in value]
    return value


def _plain(value: object) -> object:
    """Return paths as strings, and NumPy scalars and arrays as Python values."""
    if isinstance(value, os.PathLike):
        return os.fsdecode(os.fspath(value))
    to_list = getattr(value, "tolist", None)
    if callable(to_list):
        return to_list()
    raise TypeError(f"{type(value).__name__} is not a string, number, list or dict")
