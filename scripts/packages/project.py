"""Facts about the project, read from Cargo's manifests and from git, so that nothing is configured twice."""

import dataclasses
import functools
import json
import pathlib
import subprocess
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMMAND = "fullpipe-cli"  # the crate with the command
PYTHON = "fullpipe-py"  # the crate with the extension module, and with the init of guests for the wheel
LIBRARY = "fullpipe-uml"  # the crate with the library that gives a kernel virtual time
# The features of the command that the packages turn on, and a clone's `cargo build` does not.
FEATURES = f"{COMMAND}/copy,{COMMAND}/tables"
# Targets for which there are User-Mode Linux kernels.
GUEST_TARGETS = ("x86_64-unknown-linux-gnu",)


class Failure(Exception):
    """A problem that ends the script with one line."""


def output(*command, cwd=ROOT, env=None):
    """Returns the standard output of a program that must succeed."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def host():
    """Returns the target triple of this machine."""
    lines = output("rustc", "-vV").splitlines()
    return next(line.removeprefix("host: ") for line in lines if line.startswith("host: "))


@dataclasses.dataclass(frozen=True)
class Crate:
    """A crate that is linked into the program or into the extension module."""

    name: str
    version: str
    license: str
    folder: pathlib.Path
    checksum: str | None  # SHA-256 of the archive in the registry
    dependencies: tuple[str, ...]  # names and versions, as in `key`

    @property
    def key(self):
        return f"{self.name}@{self.version}"


@dataclasses.dataclass(frozen=True)
class Built:
    """What the packages are made of. `library` and `guest` are None for a target without guests."""

    program: pathlib.Path
    module: pathlib.Path  # the extension module of the Python package, which also contains the command
    library: pathlib.Path | None = None  # provides virtual time for a kernel
    guest: pathlib.Path | None = None  # the init of the guests that an interpreter starts

    @property
    def files(self):
        return [file for file in (self.program, self.module, self.library, self.guest) if file]


class Project:
    """Version, source and dependencies of the program for one target."""

    def __init__(self, target, quick=False):
        self.target = target
        # Compression levels. The fastest levels take a tenth of the time and produce files that are a fifth
        # larger.
        self.gzip, self.xz = (1, 0) if quick else (9, 6)
        metadata = json.loads(output(
            "cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target))
        self._packages = {package["id"]: package for package in metadata["packages"]}
        self._nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        command = next(p for p in metadata["packages"] if p["name"] == COMMAND)
        self.version = command["version"]
        self.license = command["license"]
        self.repository = command["repository"]
        self.rust_version = command["rust_version"]
        self.commit, self.date, epoch = output(
            "git", "log", "-1", "--abbrev=10", "--format=%h %cs %ct").split()
        self.epoch = int(epoch)  # time of the commit: the time of every file in the packages

    @functools.cached_property
    def crates(self):
        """Returns the crates that the packages contain: the command, then the others by name."""
        lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
        checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
        keys = {identity: f"{p['name']}@{p['version']}" for identity, p in self._packages.items()}
        linked = self._linked()
        crates = []
        for identity, package in self._packages.items():
            if keys[identity] not in linked:
                continue
            below = (keys[d["pkg"]] for d in self._nodes[identity]["deps"]
                     if any(kind["kind"] is None for kind in d["dep_kinds"]))
            name, version = package["name"], package["version"]
            crates.append(Crate(
                name, version, (package["license"] or "NOASSERTION").replace("/", " OR "),
                pathlib.Path(package["manifest_path"]).parent, checksums.get((name, version)),
                tuple(sorted(linked.intersection(below)))))
        return sorted(crates, key=lambda crate: (crate.name != COMMAND, crate.name, crate.version))

    def _linked(self):
        """Returns the keys of the crates in the packages. cargo metadata also lists crates that only tests or
        other members of the workspace use."""
        lines = output(
            "cargo", "tree", "--locked", "--package", COMMAND, "--package", PYTHON, "--features", FEATURES, "--target",
            self.target, "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}").splitlines()
        return {"@".join(line.replace(" v", " ").split()[:2]) for line in lines if line}
