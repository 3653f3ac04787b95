"""The package: what it imports, how long that takes, and whether its types are those of the extension."""

import json
import os
import pathlib
import subprocess
import sys

import fullpipe
import pytest

PACKAGE = pathlib.Path(fullpipe.__file__).parent


def test_the_import_is_quick_and_needs_no_other_package() -> None:
    code = """
import json, sys, time
before = set(sys.modules)
start = time.process_time()
import fullpipe
took = time.process_time() - start
print(json.dumps([took, sorted({name.split(".")[0] for name in set(sys.modules) - before})]))
"""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    # As after an installation, the sources are compiled once.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    words = [sys.executable, "-S", "-P", "-c", code]
    tries = [json.loads(subprocess.check_output(words, env=environment)) for _ in range(3)]
    foreign = set(tries[0][1]) - sys.stdlib_module_names - {"fullpipe"}
    assert not foreign
    assert min(took for took, _ in tries) < 0.15


def test_public_names_are_documented() -> None:
    for name in fullpipe.__all__:
        if name != "__version__":
            assert getattr(fullpipe, name).__doc__, name


def test_types_are_complete(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mypy")
    environment = {**os.environ, "MYPYPATH": str(PACKAGE.parent), "MYPY_CACHE_DIR": str(tmp_path)}
    # The guest library is in the folder of the extension and has its suffix, but it is not a Python module.
    others = tmp_path / "others"
    others.write_text("fullpipe\\.libfullpipe_uml\n")
    stubtest = ["mypy.stubtest", "--allowlist", str(others), "--ignore-unused-allowlist", "fullpipe"]
    for words in (["mypy", "--strict", "-p", "fullpipe"], stubtest):
        done = subprocess.run(
            [sys.executable, "-m", *words], env=environment, cwd=tmp_path, capture_output=True
        )
        assert done.returncode == 0, done.stdout.decode()
