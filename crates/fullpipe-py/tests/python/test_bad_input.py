"""Every unusable argument is an exception with one line and a hint."""

import json
import math
import pathlib
import pickle
from collections.abc import Callable

import fullpipe
import pytest

from conftest import SWEEP

ONE = {"name": "one", "duration": "1s", "path": {"rate": "10mbit", "rtt": "20ms"}, "flow": [{"cc": "cubic"}]}


def experiment(**changes: object) -> dict[str, object]:
    return {**ONE, **changes}


@pytest.mark.parametrize(
    "call, kind",
    [
        (lambda: fullpipe.diagnose("no/such/file"), fullpipe.InputError),
        (lambda: fullpipe.diagnose("neither a log\nnor a trace\n"), fullpipe.InputError),
        (lambda: fullpipe.diagnose(b"\xff\x00\n" * 100), fullpipe.InputError),
        (lambda: fullpipe.diagnose({}), fullpipe.InputError),
        (lambda: fullpipe.diagnose({"end": math.nan}), fullpipe.UsageError),
        (lambda: fullpipe.diagnose({"end": object()}), fullpipe.UsageError),
        (lambda: fullpipe.diagnose(3), fullpipe.UsageError),  # type: ignore[arg-type]
        (lambda: fullpipe.diagnose("examples", link=1e9), fullpipe.UsageError),  # type: ignore[arg-type]
        (lambda: fullpipe.diagnose("examples", link="1 parsec"), fullpipe.UsageError),
        (lambda: fullpipe.diagnose("examples", sysctl=3), fullpipe.UsageError),  # type: ignore[arg-type]
        (lambda: fullpipe.diagnose("examples/iperf3/udp.txt", sysctl={"a": 1}), fullpipe.InputError),
        (lambda: fullpipe.diagnose("examples/iperf3/udp.txt", memory="1GiB"), fullpipe.UsageError),
        (lambda: fullpipe.diagnose("examples/iperf3/udp.txt", kernel="new"), fullpipe.UsageError),
        (lambda: fullpipe.whatif(link="10mbit", rtt="50ms", cc="cubik"), fullpipe.UsageError),
        (lambda: fullpipe.whatif(link="10mbit", rtt="50ms", loss="90%"), fullpipe.InputError),
        (lambda: fullpipe.whatif(link="10mbit", rtt="1h"), fullpipe.Error),
        (
            lambda: fullpipe.whatif(link="9mbit", rtt="9ms", buffers="1MiB", sndbuf="1MiB"),
            fullpipe.UsageError,
        ),
        (lambda: fullpipe.run("no/such/file"), fullpipe.InputError),
        (lambda: fullpipe.run(7), fullpipe.UsageError),  # type: ignore[arg-type]
        (lambda: fullpipe.run("name = \n"), fullpipe.InputError),
        (lambda: fullpipe.run(experiment(duration=5)), fullpipe.InputError),
        (lambda: fullpipe.run(experiment(duration=math.nan)), fullpipe.UsageError),
        (lambda: fullpipe.run(experiment(duration={1, 2})), fullpipe.UsageError),
        (lambda: fullpipe.run(experiment(flows=[])), fullpipe.InputError),
        (lambda: fullpipe.run(ONE, repeat=0), fullpipe.UsageError),
        (lambda: fullpipe.run(ONE, repeat=10_001), fullpipe.UsageError),
        (lambda: fullpipe.run(experiment(duration="24h"), repeat=9_999, trace=True), fullpipe.InputError),
        (
            lambda: fullpipe.Experiment(name="x", duration="1s", path={"rate": math.inf}, flow=[]),
            fullpipe.UsageError,
        ),
        (lambda: fullpipe.Dataset("no/such/folder"), fullpipe.InputError),
    ],
)
def test_it_is_refused_with_a_hint(call: Callable[[], object], kind: type[fullpipe.Error]) -> None:
    with pytest.raises(kind) as raised:
        call()
    error = raised.value
    assert str(error) and "\n" not in str(error) + error.hint
    assert error.hint
    assert error.__notes__ == [f"hint: {error.hint}"]


@pytest.mark.parametrize(
    "points",
    [
        {"rtt_ms": [1, 2], "loss": ["0%"]},
        {"rttt": [1]},
        {"rtt_ms": [math.nan]},
        {"rtt_ms": [None]},
        {"rtt_ms": []},
        [{"rtt_ms": 1}, {"loss": "1%"}],
        [],
        7,
        "no/such/points.csv",
        {"rtt_ms": range(1, 200_000)},
    ],
    ids=lambda points: str(points)[:40],
)
def test_points_are_refused_with_a_hint(points: object, tmp_path: pathlib.Path) -> None:
    with pytest.raises(fullpipe.Error) as raised:
        fullpipe.sweep(SWEEP, out=tmp_path / "out", points=points, progress=False)
    assert raised.value.hint and "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_failed_expectation_is_an_error() -> None:
    expect = [{"metric": "goodput_bps", "min": 1e12}]
    result = fullpipe.run(experiment(expect=expect))
    with pytest.raises(fullpipe.ExpectationError, match="1 of 1") as raised:
        result.check()
    assert raised.value.exit_code == 5


def test_errors_and_documents_can_be_pickled() -> None:
    error = fullpipe.InputError("what", "do")
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), copied.message, copied.hint) == (fullpipe.InputError, "what", "do")
    diagnosis = fullpipe.diagnose("examples/iperf3/udp.txt")
    assert pickle.loads(pickle.dumps(diagnosis)) == diagnosis


def test_notebooks_get_escaped_text() -> None:
    text = pathlib.Path("examples/iperf3/udp.json").read_text()
    diagnosis = fullpipe.diagnose(json.loads(text))
    diagnosis["ladder"] = [
        {"bps": 2e9, "steady_bps": None, "limit": "cap", "what": "<b>|*", "source": "given", "remedy": None}
    ]
    assert "<td>2 Gbit/s</td><td>cap: &lt;b&gt;|* (given)</td><td></td>" in diagnosis._repr_html_()
    assert r"| 2 Gbit/s | cap: \<b\>\|\* (given) |  |" in diagnosis._repr_markdown_()
