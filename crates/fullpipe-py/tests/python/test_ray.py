"""Sweeps on Ray: a cluster on this machine whose workers, nodes and drivers are killed.

These tests take minutes, most of which Ray takes to start, so they are not part of CI. The guide says how to run them.
"""

import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import fullpipe
import pytest

pytestmark = pytest.mark.slow

SWEEP = """
name = "sweep"
duration = "10s"
repeat = 60
[path]
rate = "40mbit"
rtt = { from = "5ms", to = "105ms", steps = 11 }
loss = ["0%", "0.01%", "1%"]
[[flow]]
cc = ["reno", "cubic", "bbr1"]
"""
#: With an optimised extension, a part takes about two seconds, and the whole sweep a minute of CPU time.
PARTS = {"part_packets": 5_000_000, "progress": False}
#: Numbers of finished and of all runs, as the driver prints them at the end.
TOTAL = "5940 5940"

#: Prints the duration of a sweep, the CPU time that this process uses for it, and the peak memory of this process in
#: MiB. The duration includes connecting to a running cluster, and disconnecting.
MEASURED = """
import resource, sys, time, fullpipe
sweep, folder, on, address = sys.argv[1:]
begin, used = time.monotonic(), time.process_time()
fullpipe.sweep(sweep, out=folder, repeat=120, on=on, address=address or None, progress=False)
print("result:", time.monotonic() - begin, time.process_time() - used,
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""

ON_RAY = """
import sys, fullpipe, fullpipe._sweep as sweeps
sweep, folder, address, version = sys.argv[1:]
if version:
    sweeps._fullpipe.version = lambda: version
reached = []
try:
    fullpipe.sweep(sweep, out=folder, on="ray", address=address, part_packets=5_000_000,
                   progress=lambda *at: reached.append(at))
    print("result:", len(reached), *reached[-1])
except fullpipe.InputError as error:
    print("result:", error)
    print("result:", error.hint)
"""


def files(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("local") / "sweep"
    fullpipe.sweep(SWEEP, out=folder, **PARTS)
    return files(folder)


@pytest.fixture(autouse=True)
def _normal_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers run at the priority of the tests: Ray gives them niceness 15, at which other load starves them."""
    monkeypatch.setenv("RAY_worker_niceness", "0")


@pytest.fixture
def cluster() -> Iterator[Any]:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'fullpipe[ray]'")
    from ray.cluster_utils import Cluster

    # The head has no CPU for tasks, so that both other nodes can be killed.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    cluster.workers = [cluster.add_node(num_cpus=1) for _ in range(2)]
    yield cluster
    cluster.shutdown()


@pytest.fixture
def machine() -> Iterator[Any]:
    """One node with two workers, as `sweep` starts it without an address."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'fullpipe[ray]'")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    yield cluster
    cluster.shutdown()


def begin(folder: pathlib.Path, cluster: Any, version: str = "") -> subprocess.Popen[str]:
    words = [sys.executable, "-P", "-c", ON_RAY, SWEEP, str(folder), cluster.address, version]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(driver: subprocess.Popen[str]) -> list[str]:
    output, error = driver.communicate(timeout=600)
    assert driver.returncode == 0, error
    # Ray prints messages about killed workers and nodes to standard output as well.
    marked = (line.partition("result: ") for line in output.splitlines())
    return [result for _, marker, result in marked if marker]


def made(folder: pathlib.Path) -> int:
    return len(list(folder.glob("runs/part-*.parquet")))


def wait_for(folder: pathlib.Path, count: int) -> None:
    for _ in range(1200):
        if made(folder) >= count:
            return
        time.sleep(0.1)
    raise AssertionError(f"{made(folder)} of {count} parts after two minutes")


def busy_workers(cluster: Any) -> list[int]:
    """Return the processes of this cluster that make a part."""
    raylets = {str(node.all_processes["raylet"][0].process.pid) for node in cluster.workers}
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            is_busy = (process / "cmdline").read_bytes().startswith(b"ray::make_part")
            parent = (process / "stat").read_text().rsplit(") ", 1)[1].split()[1]
        except OSError:
            continue
        if is_busy and parent in raylets:
            found.append(int(process.name))
    return found


def test_ray_makes_the_same_parts(cluster: Any, local: dict[str, bytes], tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "ray"
    assert end(begin(folder, cluster))[0].endswith(TOTAL)
    assert files(folder) == local
    # After a restart, the driver does not make existing parts again.
    missing = folder / "runs/part-00001.parquet"
    missing.unlink()
    assert end(begin(folder, cluster)) == [f"1 {TOTAL}"]
    assert files(folder) == local
    missing.unlink()
    refused, hint = end(begin(folder, cluster, "0.0.1"))
    assert "this worker has" in refused and "install fullpipe 0.0.1" in hint
    assert not missing.exists()


@pytest.mark.parametrize("address", ["127.0.0.1:{port}", "ray://127.0.0.1:{port}", "127.0.0.1:99999", "nonsense"])
def test_an_unreachable_cluster_is_refused(address: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'fullpipe[ray]'")
    # Nothing listens at a port that is bound without `listen`.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = address.format(port=bound.getsockname()[1])
        begin = time.monotonic()
        with pytest.raises(fullpipe.NetworkError, match="cannot reach Ray at") as raised:
            fullpipe.sweep(SWEEP, out=tmp_path, on="ray", address=address, progress=False)
    assert raised.value.hint and "\n" not in str(raised.value)
    assert time.monotonic() - begin < 60


def test_killed_workers_cost_only_their_parts(
    cluster: Any, local: dict[str, bytes], tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "ray"
    driver, killed, next_kill = begin(folder, cluster), 0, time.monotonic() + 5
    wait_for(folder, 1)
    finished = 0
    while driver.poll() is None:
        # On a busy machine, a part takes longer than the interval. Without a finished part between two kills, a part
        # would use up its restarts.
        if time.monotonic() >= next_kill and made(folder) > finished and (busy := busy_workers(cluster)):
            os.kill(busy[killed % len(busy)], signal.SIGKILL)
            killed, next_kill, finished = killed + 1, time.monotonic() + 5, made(folder)
        time.sleep(0.05)
    # Each part is finished once; a part that a killed worker had begun is restarted.
    assert end(driver) == [f"{len(local) - 1} {TOTAL}"]
    assert killed >= 3
    assert files(folder) == local


def test_a_killed_raylet_costs_only_its_parts(
    cluster: Any, local: dict[str, bytes], tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "ray"
    driver = begin(folder, cluster)
    wait_for(folder, 3)
    os.kill(cluster.workers[0].all_processes["raylet"][0].process.pid, signal.SIGKILL)
    assert end(driver) == [f"{len(local) - 1} {TOTAL}"]
    assert files(folder) == local


def test_a_driver_that_is_killed_twenty_times_continues(
    cluster: Any, local: dict[str, bytes], tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "ray"
    for turn in range(20):
        driver = begin(folder, cluster)
        # Each driver lives until it has made some parts, or slightly longer.
        wait_for(folder, min(2 * (turn + 1), len(local) - 3))
        time.sleep(0.03 * turn)
        existing = {path: path.stat().st_mtime_ns for path in folder.glob("runs/part-*.parquet")}
        driver.kill()
        driver.communicate()
        # No existing part is made again.
        assert all(path.stat().st_mtime_ns == at for path, at in existing.items())
    left = len(local) - 1 - made(folder)
    assert end(begin(folder, cluster))[0].endswith(TOTAL)
    assert left >= 1 and files(folder) == local


def test_ray_takes_about_as_long_as_threads(machine: Any, tmp_path: pathlib.Path) -> None:
    """Threads and Ray take turns, so that other load disturbs both. The start of the cluster is not measured."""
    ratios, memory = [], 0.0
    for turn in range(3):
        took: dict[str, float] = {}
        for on in ("local", "ray") if turn % 2 else ("ray", "local"):
            address = machine.address if on == "ray" else ""
            words = [sys.executable, "-P", "-c", MEASURED, SWEEP, str(tmp_path / f"{on}{turn}"), on, address]
            driver = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            seconds, used, peak = map(float, end(driver)[0].split())
            load = os.getloadavg()[0]
            print(f"{on}: {seconds:.1f} s, driver {used:.1f} s of CPU, {peak:.0f} MiB, load average {load:.1f}")
            took[on] = seconds
            memory = max(memory, peak if on == "ray" else 0)
        ratios.append(took["ray"] / took["local"])
        assert files(tmp_path / f"ray{turn}") == files(tmp_path / f"local{turn}")
    print("Ray / threads:", ", ".join(f"{ratio:.2f}" for ratio in ratios))
    assert memory < 300
    assert statistics.median(ratios) <= 1.15
