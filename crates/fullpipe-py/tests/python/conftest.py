"""Fixtures of all tests. The tests run in the root of the repository, so that they find examples and experiments."""

import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]

SWEEP = """
name = "sweep"
duration = "500ms"
repeat = 2
[path]
rate = "5mbit"
rtt = ["10ms", "40ms", "70ms"]
loss = ["0%", "1%"]
[[flow]]
cc = ["reno", "cubic"]
"""


@pytest.fixture(autouse=True)
def _in_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command() -> Command:
    """Run the command of this package in a separate process."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-P", "-m", "fullpipe", *map(str, arguments)]
        return subprocess.run(words, capture_output=True, text=True, timeout=120)

    return run
