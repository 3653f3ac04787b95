"""Ladders as Markdown and HTML, for notebooks."""

import html as _html
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_HEADINGS = ("steady rate", "limit", "after")


def markdown(headline: str, ladder: Iterable[Mapping[str, Any]]) -> str:
    """Return a headline and a ladder as Markdown."""
    lines = [f"**{_plain(headline)}**", "", "| " + " | ".join(_HEADINGS) + " |", "|---:|---|---|"]
    lines += ["| " + " | ".join(_plain(cell) for cell in row) + " |" for row in _rows(ladder)]
    return "\n".join(lines) + "\n"


def html(headline: str, ladder: Iterable[Mapping[str, Any]]) -> str:
    """Return a headline and a ladder as HTML. All text of the input is escaped."""
    heading = "".join(f"<th>{name}</th>" for name in _HEADINGS)
    rows = (
        "<tr>" + "".join(f"<td>{_html.escape(cell)}</td>" for cell in row) + "</tr>" for row in _rows(ladder)
    )
    return (
        f"<p><b>{_html.escape(headline)}</b></p>"
        f"<table><thead><tr>{heading}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _rows(ladder: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for rung in ladder:
        bps = rung["bps"] if rung["steady_bps"] is None else rung["steady_bps"]
        rate = "" if bps is None else _rate(bps)
        yield rate, f"{rung['limit']}: {rung['what']} ({rung['source']})", rung["remedy"] or ""


def _rate(bps: float) -> str:
    for unit, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bps >= size:
            return f"{bps / size:.3g} {unit}"
    return f"{bps:.0f} bit/s"


def _plain(text: str) -> str:
    """Return a text in which Markdown has no meaning."""
    return "".join("\\" + char if char in "\\`*_{}[]<>#|~" else char for char in text)
