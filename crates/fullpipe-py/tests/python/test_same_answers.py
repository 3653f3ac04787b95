"""The package and the command give the same documents, and the same errors."""

import json
import pathlib
import shutil

import fullpipe
import pytest

from conftest import ROOT, Command

EXAMPLES = sorted(
    path.relative_to(ROOT)
    for folder in ("iperf3", "cross-border", "ss")
    for path in (ROOT / "examples" / folder).iterdir()
    if path.name != "README.md" and not path.name.startswith("sysctl")
)
#: Inputs whose diagnosis takes at most a fraction of a second: refused inputs, and inputs without a ladder.
QUICK = ("udp", "refused", "window", "reverse", "server", "unlimited", "made-3.0", "made-stream-failed")


def same(command: Command, path: pathlib.Path, **options: str) -> bool:
    """Compare a document or an error; returns whether it is a document."""
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    done = command("diagnose", path, *words, "--json")
    try:
        document = fullpipe.diagnose(path, **options)
    except fullpipe.Error as error:
        assert done.returncode == error.exit_code
        assert done.stderr.splitlines() == [f"error: {error}", f"hint: {error.hint}"]
        return False
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == document
    return True


def is_quick(path: pathlib.Path) -> bool:
    return path.name.startswith(QUICK)


def test_quick_examples_have_the_same_diagnosis(command: Command) -> None:
    documents = [same(command, path) for path in EXAMPLES if is_quick(path)]
    assert 4 < sum(documents) < len(documents)


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in EXAMPLES if not is_quick(path)], ids=str)
def test_all_examples_have_the_same_diagnosis(command: Command, path: pathlib.Path) -> None:
    same(command, path, link="1gbit")


def test_options_reach_the_diagnosis(command: Command) -> None:
    path = pathlib.Path("examples/iperf3/udp-loss.txt")
    options = {"link": "500mbit", "rtt": "20ms", "kernel": "6.1", "control": "940mbit", "offered": "450mbit"}
    assert same(command, path, **options)


def test_text_bytes_and_documents_are_measurements() -> None:
    path = ROOT / "examples/iperf3/udp.json"
    expected = fullpipe.diagnose(path)
    text = path.read_text()
    for source in (str(path), text, path.read_bytes(), json.loads(text)):
        assert fullpipe.diagnose(source) == expected


def test_ladders_are_the_same(command: Command) -> None:
    done = command(
        "whatif", "--link", "10mbit", "--rtt", "50ms", "--loss", "0.1%", "--buffers", "128KiB", "--json"
    )
    assert json.loads(done.stdout) == fullpipe.whatif(
        link="10mbit", rtt="50ms", loss="0.1%", buffers="128KiB"
    )
    text = command("whatif", "--link", "10mbit", "--rtt", "50ms")
    assert text.stdout == str(fullpipe.whatif(link="10mbit", rtt="50ms"))


def test_runs_have_the_same_digests(command: Command) -> None:
    done = command("run", "experiments/tiny-window.toml", "--json")
    assert done.returncode == 0, done.stderr
    result = fullpipe.run("experiments/tiny-window.toml")

    def without_times(document: dict[str, object]) -> dict[str, object]:
        runs = document["runs"]
        assert isinstance(runs, list)
        return {**document, "runs": [{**run, "wall_s": None} for run in runs]}

    assert without_times(json.loads(done.stdout)) == without_times(result.document)
    digests = [int(run["digest"], 16) for run in result.document["runs"]]
    assert result.runs.column("digest") == digests
    assert result.check() is result


def test_the_command_keeps_its_exit_codes(command: Command) -> None:
    assert command().stdout.startswith("fullpipe")
    assert command("--version").stdout.split()[1] == fullpipe.__version__
    assert "Usage: fullpipe run" in command("run", "--help").stdout
    done = command("whatifo")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "hint: try: fullpipe whatif")
    done = command(
        "accelerate", "--listen", "192.0.2.1:1", "--upstream", "127.0.0.1:2", "--client-address", "hidden"
    )
    assert done.returncode == 1 and "requires the program" in done.stderr


@pytest.mark.skipif(not shutil.which("linux.uml"), reason="there is no User-Mode Linux kernel")
def test_a_guest_runs_with_the_init_of_the_package(command: Command, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "guest.toml"
    file.write_text(
        "name = 'guest'\nduration = '200ms'\npath = { rate = '1mbit', rtt = '20ms' }\n"
        "[[flow]]\ncc = 'cubic'\n[[expect]]\nmetric = 'goodput_bps'\nmin = '300kbit'\nmax = '1mbit'\n"
    )
    done = command("run", file, "--world", "uml", "--check", "--json")
    if done.returncode == 4:
        pytest.skip(f"guests are not permitted here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert str(json.loads(done.stdout)["kernel"]).startswith("Linux "), done.stdout
