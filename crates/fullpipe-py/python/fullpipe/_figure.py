"""Charts as Plotly documents and figures."""

import importlib
import json
from typing import Any

from ._errors import MissingPackageError, UsageError
from ._fullpipe import Charts


def of_runs(charts: Charts, kind: str, run: int, dark: bool) -> dict[str, Any]:
    """Return a chart of some runs."""
    match kind:
        case "rates":
            text = charts.rates(dark)
        case "trace":
            text = charts.time(run, dark)
        case "phase":
            text = charts.phase(run, dark)
        case _:
            raise unknown(kind, ("rates", "trace", "phase"))
    return document(text)


def document(text: str) -> dict[str, Any]:
    """Return a Plotly document as a dict."""
    chart: dict[str, Any] = json.loads(text)
    return chart


def unknown(kind: object, known: tuple[str, ...]) -> UsageError:
    """Return the error for a chart that does not exist."""
    return UsageError(f"there is no chart {kind!r}", f"known: {', '.join(known)}")


def figure(chart: dict[str, Any]) -> Any:
    """Return a Plotly figure, which notebooks display.

    :raises MissingPackageError: plotly is not installed
    """
    try:
        # Plotly has no type annotations.
        objects: Any = importlib.import_module("plotly.graph_objects")
    except ImportError:
        raise MissingPackageError("figure needs plotly", "pip install 'fullpipe[notebook]', or use chart()") from None
    return objects.Figure(chart)
