"""Data sets in object stores, and on Ray."""

import pathlib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fullpipe
import pytest
from fullpipe._sweep import make_part

from conftest import SWEEP

PARTS = {"part_packets": 1_000, "progress": False}


def parts(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("runs/*")}


@pytest.fixture
def url() -> Iterator[str]:
    fsspec = pytest.importorskip("fsspec")
    name = f"memory://{uuid.uuid4()}"
    yield name
    fsspec.filesystem("memory").rm(name, recursive=True)


def test_an_object_store_gets_the_same_parts(url: str, tmp_path: pathlib.Path) -> None:
    import fsspec

    files = fsspec.filesystem("memory")
    local = fullpipe.sweep(SWEEP, out=f"file://{tmp_path}/local", trace="100ms", **PARTS)
    assert local.folder == tmp_path / "local"
    with ThreadPoolExecutor(2) as executor:
        stored = fullpipe.sweep(SWEEP, out=url, on=executor, trace="100ms", **PARTS)
    assert (stored.location, stored.missing(), stored.check()) == (url, [], [])
    for path in local.folder.rglob("*.*"):
        assert files.cat_file(f"{url}/{path.relative_to(local.folder)}") == path.read_bytes()
    assert stored.table().to_pydict() == local.table().to_pydict()
    trace = stored.trace()
    assert trace is not None and trace.num_rows == 24 * 5
    assert str(stored.folder) in stored.origin(3).command

    # What exists is not made again, and what is missing or damaged is found.
    files.pipe_file(f"{url}/runs/part-00000.parquet", b"PAR1")
    files.rm(f"{url}/runs/part-00001.parquet")
    reached: list[tuple[int, int]] = []
    again = fullpipe.sweep(
        SWEEP, out=url, trace="100ms", part_packets=1_000, progress=lambda *at: reached.append(at)
    )
    assert reached == [(24, 24)]
    assert again.missing() == []
    assert again.check() == [("damaged", "runs/part-00000.parquet")]
    with pytest.raises(fullpipe.InputError, match=f"{url} contains another data set"):
        fullpipe.sweep(SWEEP, out=url, seed=7, **PARTS)


@pytest.mark.parametrize(
    "place, kind, names",
    [
        ("memory://nothing", fullpipe.InputError, "no data set"),
        ("nothing://here", fullpipe.UsageError, "nothing"),
    ],
)
def test_an_unusable_url_is_refused(place: str, kind: type[fullpipe.Error], names: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(kind, match=names) as raised:
        fullpipe.Dataset(place)
    assert raised.value.hint and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "package, call",
    [
        ("fsspec", lambda folder: fullpipe.Dataset("s3://bucket/name")),
        ("ray", lambda folder: fullpipe.sweep(SWEEP, out=folder, on="ray")),
    ],
)
def test_a_missing_package_is_named(
    package: str, call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(fullpipe.MissingPackageError) as raised:
        call(tmp_path)
    assert f"pip install {package}" in raised.value.hint or f"[{package}]" in raised.value.hint


def test_a_worker_of_another_version_is_refused(tmp_path: pathlib.Path) -> None:
    fullpipe.sweep(SWEEP, out=tmp_path, **PARTS)
    (tmp_path / "runs/part-00000.parquet").unlink()
    with pytest.raises(fullpipe.InputError, match="this worker has"):
        make_part(str(tmp_path), 0, "0.0.1")
    assert not (tmp_path / "runs/part-00000.parquet").exists()
    with pytest.raises(fullpipe.UsageError, match="address belongs to Ray"):
        fullpipe.Dataset(tmp_path).make(address="localhost:1")


ON_RAY = """
import sys, fullpipe, fullpipe._sweep as sweeps
sweep, folder, version = sys.argv[1:]
import ray
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
if version:
    sweeps._fullpipe.version = lambda: version
try:
    made = fullpipe.sweep(sweep, out=folder, on="ray", part_packets=1_000, progress=lambda *at: print(*at))
except fullpipe.InputError as error:
    print(error, error.hint, sep="\\n")
"""


# Half a minute, most of which Ray takes to start; the guide says how to run it.
@pytest.mark.slow
def test_ray_makes_the_same_parts(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'fullpipe[ray]'")

    def on_ray(folder: str, version: str = "") -> list[str]:
        words = [sys.executable, "-P", "-c", ON_RAY, SWEEP, folder, version]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    local = fullpipe.sweep(SWEEP, out=tmp_path / "local", **PARTS)
    assert on_ray(str(tmp_path / "ray"))[-1] == "24 24"
    assert parts(tmp_path / "ray") == parts(local.folder)
    # The driver is started again: what exists is not made a second time.
    missing = tmp_path / "ray/runs/part-00001.parquet"
    missing.unlink()
    assert on_ray(str(tmp_path / "ray")) == ["24 24"]
    assert parts(tmp_path / "ray") == parts(local.folder)
    missing.unlink()
    refused, hint = on_ray(str(tmp_path / "ray"), "0.0.1")
    assert "this worker has" in refused and "install fullpipe 0.0.1" in hint
    assert not missing.exists()
