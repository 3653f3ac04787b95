"""What a program needs from the system, and what no package may contain."""

import os
import re
from pathlib import Path

from packages.project import ROOT, Failure, output

# In bytes. The sizes are those of the published packages, and of the command with the features of a clone's build.
LIMITS = {"program": 13_500_000, "program, default features": 9_000_000, "library": 430_000, "guest": 1_250_000,
          "wheel": 9_000_000, "deb": 4_725_000}
# The check warns before a package reaches its limit, so that the limit is known before the next dependency is
# added.
ROOM = 0.05

# Libraries that every Linux system with glibc has (PEP 599), as far as Rust links them.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1",
          "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def glibc(program):
    """Returns the minor version of the oldest glibc that has every symbol that the program imports."""
    versions = re.findall(r"GLIBC_2\.(\d+)", output("objdump", "-T", program))
    if not versions:
        raise Failure(f"objdump -T {program} shows no symbol of glibc")
    return max(map(int, versions))


def libraries(program):
    """Returns the shared libraries that the program loads."""
    found = set(re.findall(r"NEEDED\s+(\S+)", output("objdump", "-p", program)))
    if found - SYSTEM:
        raise Failure(f"{program} needs {', '.join(sorted(found - SYSTEM))}, which not every system has")
    return found


def builder_paths():
    """Returns the folders of the builder, which must not appear in a package."""
    home = Path.home()
    cargo = Path(os.environ.get("CARGO_HOME", home / ".cargo"))
    rustup = Path(os.environ.get("RUSTUP_HOME", home / ".rustup"))
    folders = {path for folder in (ROOT, home, cargo, rustup) for path in (folder, folder.resolve())}
    return sorted(f"{folder}/" for folder in folders - {Path("/")})


def refuse_builder_paths(files):
    """Fails if a file contains a folder of the builder. `files` maps names to contents."""
    for name, data in files.items():
        for path in builder_paths():
            count = data.count(path.encode())
            if count:
                raise Failure(f"{name} contains {path} {count} times")


def check_sizes(sizes):
    """Prints the sizes, and fails if one exceeds its limit. `sizes` maps the keys of LIMITS to bytes."""
    above = []
    for name, size in sizes.items():
        limit = LIMITS[name]
        left = 1 - size / limit
        note = "ABOVE THE LIMIT" if left < 0 else f"{left:.1%} left" + (": less than 5 %" if left < ROOM else "")
        print(f"{name:25} {size / 1e6:6.2f} MB of at most {limit / 1e6:.1f} MB, {note}")
        if left < 0:
            above.append(name)
    if above:
        raise Failure(f"too large: {', '.join(above)}")
