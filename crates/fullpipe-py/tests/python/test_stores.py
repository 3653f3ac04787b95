"""Data sets in object stores."""

import pathlib
import sys
import tempfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fullpipe
import pytest
from fullpipe._sweep import make_part

from conftest import SWEEP

PARTS = {"part_packets": 1_000, "progress": False}


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

    # Existing parts are not made again, and missing or damaged parts are found.
    files.pipe_file(f"{url}/runs/part-00000.parquet", b"PAR1")
    files.rm(f"{url}/runs/part-00001.parquet")
    reached: list[tuple[int, int]] = []
    again = fullpipe.sweep(
        SWEEP, out=url, trace="100ms", part_packets=1_000, progress=lambda *at: reached.append(at)
    )
    assert reached == [(24, 24)]
    assert again.missing() == []
    assert again.check() == [("damaged", "runs/part-00000.parquet")]
    # A damaged trace is deleted and made again.
    damaged = f"{url}/trace/part-00001.parquet"
    whole = files.cat_file(damaged)
    files.rm(damaged)
    assert again.missing() == [1]
    assert again.make(progress=False).missing() == []
    assert files.cat_file(damaged) == whole
    with pytest.raises(fullpipe.InputError, match=f"{url} contains another data set"):
        fullpipe.sweep(SWEEP, out=url, seed=7, **PARTS)


def test_a_worker_leaves_no_temporary_file(
    url: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = fullpipe.sweep(SWEEP, out=url, **PARTS)
    import fsspec

    for number in (0, 1):
        fsspec.filesystem("memory").rm(f"{url}/runs/part-{number:05}.parquet")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("fullpipe._sweep._opened", {})
    for number in (0, 1):
        make_part(url, number, fullpipe.__version__)
    assert (stored.missing(), list(tmp_path.iterdir())) == ([], [])


@pytest.mark.parametrize(
    "place, kind, names",
    [
        ("memory://nothing", fullpipe.InputError, "no data set"),
        ("nothing://here", fullpipe.UsageError, "nothing"),
        ("memory://", fullpipe.UsageError, "names no folder"),
    ],
)
def test_an_unusable_url_is_refused(place: str, kind: type[fullpipe.Error], names: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(kind, match=names) as raised:
        fullpipe.Dataset(place)
    assert raised.value.hint and "\n" not in str(raised.value)


@pytest.mark.parametrize("operation", ["cat_file", "pipe_file", "ls", "exists"])
def test_a_failing_store_is_one_line(url: str, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients of S3 and of other stores have exceptions of their own."""
    from fsspec.implementations.memory import MemoryFileSystem

    stored = fullpipe.sweep(SWEEP, out=url, **PARTS)
    MemoryFileSystem().rm(f"{url}/runs/part-00000.parquet")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("Could not connect\nto the endpoint")

    monkeypatch.setattr(MemoryFileSystem, operation, fail)
    with pytest.raises(fullpipe.InputError, match=f"cannot .*{url}.*Could not connect") as raised:
        stored.make(progress=False)
    assert raised.value.hint and "\n" not in str(raised.value)
    monkeypatch.undo()


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
    with pytest.raises(fullpipe.UsageError, match="address applies only to Ray"):
        fullpipe.Dataset(tmp_path).make(address="localhost:1")


# The server of moto takes seconds to start, and is not installed in CI.
@pytest.mark.slow
def test_s3_gets_the_same_parts(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        import s3fs

        files = s3fs.S3FileSystem()
        files.mkdir("bucket")
        local = fullpipe.sweep(SWEEP, out=tmp_path, trace="100ms", **PARTS)
        with ThreadPoolExecutor(2) as executor:
            stored = fullpipe.sweep(SWEEP, out="s3://bucket/sweep", on=executor, trace="100ms", **PARTS)
        for path in tmp_path.rglob("*.*"):
            name = path.relative_to(tmp_path)
            assert files.cat_file(f"bucket/sweep/{name}") == path.read_bytes(), name
        assert (stored.missing(), stored.check()) == ([], [])
        files.rm("bucket/sweep/runs/part-00001.parquet")
        assert fullpipe.Dataset("s3://bucket/sweep").missing() == [1]
        again = fullpipe.sweep(SWEEP, out="s3://bucket/sweep", trace="100ms", **PARTS)
        assert again.table().to_pydict() == local.table().to_pydict()
    finally:
        server.stop()
