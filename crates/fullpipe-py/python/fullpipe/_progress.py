"""Progress of long operations, as a line on standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from ._errors import UsageError

Progress: TypeAlias = bool | Callable[[int, int], object]


@contextmanager
def callback(progress: Progress) -> Iterator[Callable[[int, int], object] | None]:
    """Provide the function that reports progress, and end its line."""
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool):
        raise UsageError(
            f"progress is a {type(progress).__name__}, but True, False or a function is expected",
            "pass a function that takes the number of finished runs and the number of all runs",
        )
    elif progress and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        line = _Line()
        try:
            yield line
        finally:
            line.end()
    else:
        yield None


class _Line:
    """Prints the number of finished runs, their rate, and the time left."""

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None
        self.width = 0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        # Parts that existed before are counted immediately, so they do not show the rate.
        since, before = self.first = self.first or (now, done)
        text = f"{done} of {total} runs"
        if done > before and now > since:
            rate = (done - before) / (now - since)
            text += f", {rate:.3g} runs/s, {(total - done) / rate:.0f} s left"
        sys.stderr.write("\r" + text.ljust(self.width))
        sys.stderr.flush()
        self.width = len(text)

    def end(self) -> None:
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()
