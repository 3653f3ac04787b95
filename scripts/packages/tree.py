"""The files of a package, below a prefix such as /usr, and the archive that contains them."""

import dataclasses
import gzip
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path

from packages.project import ROOT, output


@dataclasses.dataclass(frozen=True)
class File:
    """Content of a file, and whether it is a program."""

    data: bytes
    program: bool = False

    @property
    def mode(self):
        return 0o755 if self.program else 0o644


DOCS = "share/doc/fullpipe"
MAN = "share/man/man1"
BASH = "share/bash-completion/completions/fullpipe"
ZSH = "share/zsh/site-functions/_fullpipe"
FISH = "share/fish/vendor_completions.d/fullpipe.fish"
UNITS = "lib/systemd/system"
# The program looks for the library there, from its own folder.
LIBRARY = "lib/fullpipe/libfullpipe_uml.so"


def pages(program):
    """Returns the manual pages and the completions, which `program` prints."""
    files = {}
    with tempfile.TemporaryDirectory() as folder:
        output(program, "man", "--out", folder)
        for page in Path(folder).iterdir():
            files[f"{MAN}/{page.name}"] = File(page.read_bytes())
    for shell, path in (("bash", BASH), ("zsh", ZSH), ("fish", FISH)):
        script = subprocess.run([program, "completions", shell], check=True, capture_output=True).stdout
        files[path] = File(script)
    return files


def tree(built, pages, notices, linux):
    """Returns the files of the tarball by their path, sorted."""
    files = {"bin/fullpipe": File(built.program.read_bytes(), program=True), **pages}
    if built.library:
        files[LIBRARY] = File(built.library.read_bytes())
    for unit in sorted((ROOT / "contrib/systemd").iterdir()) if linux else ():
        files[f"{UNITS}/{unit.name}"] = File(unit.read_bytes())
    for rules in sorted((ROOT / "contrib/prometheus").iterdir()):
        files[f"{DOCS}/prometheus/{rules.name}"] = File(rules.read_bytes())
    for name in output("git", "ls-files", "examples").splitlines():
        if not name.endswith(".rs"):
            files[f"{DOCS}/{name}"] = File((ROOT / name).read_bytes())
    for name in ("CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"):
        files[f"{DOCS}/{name}"] = File((ROOT / name).read_bytes())
    files[f"{DOCS}/third-party.txt"] = File(notices.encode())
    return dict(sorted(files.items()))


def compressed(data, level=9):
    """Returns `data` as a gzip file without name and time."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=level, fileobj=buffer, mtime=0) as stream:
        stream.write(data)
    return buffer.getvalue()


def archive(files, folder, epoch, level):
    """Returns a tar.gz with `files` below `folder`, owned by root, with one time for all."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        def add(name, kind, mode, data=b""):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.mtime, entry.size = kind, mode, epoch, len(data)
            entry.uname = entry.gname = "root"
            tar.addfile(entry, io.BytesIO(data))

        paths = [Path(folder, path) for path in files]
        for parent in sorted({str(parent) for path in paths for parent in path.parents} - {"."}):
            add(parent, tarfile.DIRTYPE, 0o755)
        for path, file in files.items():
            add(f"{folder}/{path}", tarfile.REGTYPE, file.mode, file.data)
    return compressed(buffer.getvalue(), level)
