"""Charts: the figures of reports as Plotly documents."""

import json
import pathlib
import re

import fullpipe
import pytest

EXPERIMENT = {
    "name": "charts",
    "duration": "3s",
    "path": {"rate": "10mbit", "rtt": ["20ms", "60ms"]},
    "flow": [{"cc": "cubic"}],
}


def test_a_ladder_has_a_bar_for_each_rung() -> None:
    answer = fullpipe.whatif(link="10mbit", rtt="50ms", sndbuf="64KiB")
    chart = answer.chart()
    bars = chart["data"][0]
    rates = [1e6 * rate for rate in bars["x"]]
    assert rates == pytest.approx([rung["steady_bps"] or rung["bps"] for rung in answer["ladder"]], rel=1e-4)
    assert "sndbuf" in chart["layout"]["yaxis"]["ticktext"][0]
    # Every theme replaces the names of colours by values.
    light, dark = json.dumps(chart), json.dumps(answer.chart(dark=True))
    assert '"@' not in light + dark and light != dark
    # The simulated rungs count as runs.
    assert len(answer.chart("rates")["data"]) == sum(rung["source"] == "simulated" for rung in answer["ladder"])


def test_charts_of_a_diagnosis_are_those_of_its_report() -> None:
    diagnosis = fullpipe.diagnose("examples/iperf3/udp.json")
    page = diagnosis.html()
    embedded = re.search(r'id="charts-data">(.*?)</script>', page, re.DOTALL)
    assert embedded
    runs = json.loads(embedded[1])["runs"]

    def curves(figure: dict[str, object]) -> list[tuple[object, object]]:
        data = figure["data"]
        assert isinstance(data, list)
        return [(trace.get("name"), trace["y"]) for trace in data]

    for number, run in enumerate(runs):
        assert curves(diagnosis.chart("trace", number)) == curves(run["time"])
    with pytest.raises(fullpipe.UsageError, match=f"no run {len(runs)}"):
        diagnosis.chart("trace", len(runs))
    with pytest.raises(fullpipe.UsageError, match="no chart 'pie'"):
        diagnosis.chart("pie")  # type: ignore[arg-type]


def test_runs_of_an_experiment_have_charts(tmp_path: pathlib.Path) -> None:
    result = fullpipe.run(EXPERIMENT, seed=3)
    assert [curve["name"] for curve in result.chart("rates")["data"]] == ["rtt=20ms", "rtt=60ms"]
    trace = result.chart("trace", 1)
    end = max(trace["data"][0]["x"])
    assert end == pytest.approx(3, abs=0.1)
    assert trace["layout"]["xaxis"]["range"][1] == pytest.approx(3, abs=0.1)
    phase = result.chart("phase", 1)
    rtts = next(curve for curve in phase["data"] if curve.get("mode") == "markers")
    assert min(rtts["y"]) >= 60


def test_figures_are_of_plotly() -> None:
    objects = pytest.importorskip("plotly.graph_objects")
    result = fullpipe.run(EXPERIMENT)
    answer = fullpipe.whatif(link="10mbit", rtt="50ms", sndbuf="64KiB")
    # Plotly checks every key and value.
    for figure in (
        result.figure("rates"),
        result.figure("trace", 1),
        result.figure("phase"),
        result.figure("phase", dark=True),
        answer.figure(),
        answer.figure("trace"),
    ):
        assert isinstance(figure, objects.Figure)
        assert figure.data and figure.to_json()
    assert figure.data[0].y is not None


def test_a_missing_plotly_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "plotly.graph_objects", None)
    with pytest.raises(fullpipe.MissingPackageError, match="plotly") as raised:
        fullpipe.whatif(link="10mbit", rtt="50ms").figure()
    assert "fullpipe[notebook]" in raised.value.hint
