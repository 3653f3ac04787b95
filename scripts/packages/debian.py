"""The .deb. dpkg-deb archives the files; contrib/debian has the maintainer scripts and the copyright file."""

import email.utils
import hashlib
import lzma
import os
import shutil

from packages.project import ROOT, output
from packages.tree import DOCS, MAN, ZSH, File, compressed

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
# Debian's policy requires an address. The authors receive no mail, and no host has a name below `invalid`
# (RFC 2606). Users report problems on the homepage.
MAINTAINER = "The fullpipe authors <no-mail@fullpipe.invalid>"
PROGRAMS = ("prerm", "postrm")


def installed(files, project):
    """Returns `files` at their places in a Debian system."""
    moved = {ZSH: "share/zsh/vendor-completions/_fullpipe"}
    documents = {
        f"{DOCS}/CHANGELOG.md": f"{DOCS}/changelog.gz",
        f"{DOCS}/third-party.txt": f"{DOCS}/third-party.txt.gz",
        f"{DOCS}/LICENSE-APACHE": None,  # the copyright file refers to Debian's copy
        f"{DOCS}/LICENSE-MIT": None,
    }
    result = {}
    for path, file in files.items():
        if path in documents or path.startswith(MAN):
            path = documents.get(path, f"{path}.gz")
            file = File(compressed(file.data))
        if path is not None:
            result[f"usr/{moved.get(path, path)}"] = file
    result[f"usr/{DOCS}/copyright"] = File((ROOT / "contrib/debian/copyright").read_bytes())
    result[f"usr/{DOCS}/changelog.Debian.gz"] = File(compressed(changelog(project).encode()))
    return result


def changelog(project):
    date = email.utils.formatdate(project.epoch)
    return (f"fullpipe ({project.version}-1) unstable; urgency=medium\n\n  * Version {project.version}; changelog.gz "
            f"lists the changes.\n\n -- {MAINTAINER}  {date}\n")


def control(files, project, libraries, glibc):
    kibibytes = sum(-(-len(file.data) // 1024) for file in files.values())
    depends = [f"libc6 (>= 2.{glibc})"]
    if "libgcc_s.so.1" in libraries:
        depends.append("libgcc-s1 (>= 3.0) | libgcc1 (>= 1:3.0)")
    return f"""Package: fullpipe
Version: {project.version}-1
Architecture: {MACHINES[project.target.split('-')[0]]}
Maintainer: {MAINTAINER}
Installed-Size: {kibibytes}
Depends: {', '.join(depends)}
Suggests: iperf3, user-mode-linux
Section: net
Priority: optional
Homepage: {project.repository}
Description: find what limits a TCP transfer, and what would limit it next
 fullpipe reads a measurement of a TCP transfer, names the limit that holds the
 transfer back, and simulates what would limit it next if that limit were
 lifted. It plans the change, applies it on trial, and reverts it unless it is
 confirmed.
 .
 The measurement is an iperf3 log, a capture, the output of ss, a running
 program, or a transfer to an iperf3 server.
"""


def deb(files, project, libraries, glibc, out):
    """Writes the package to the folder `out`, and returns its path."""
    content = installed(files, project)
    root = out / ".deb"
    shutil.rmtree(root, ignore_errors=True)
    sums = "".join(f"{hashlib.md5(file.data).hexdigest()}  {path}\n" for path, file in content.items())
    content["DEBIAN/control"] = File(control(content, project, libraries, glibc).encode())
    content["DEBIAN/md5sums"] = File(sums.encode())
    for name in PROGRAMS:
        content[f"DEBIAN/{name}"] = File((ROOT / "contrib/debian" / name).read_bytes(), program=True)
    for path, file in content.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(file.data)
        (root / path).chmod(file.mode)
    for path in (root, *root.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (project.epoch, project.epoch))
    package = out / f"fullpipe_{project.version}-1_{MACHINES[project.target.split('-')[0]]}.deb"
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(project.epoch)}
    output("dpkg-deb", "--root-owner-group", "-Znone", "--build", root, package, env=environment)
    shutil.rmtree(root)
    package.write_bytes(compress(package.read_bytes(), project))
    return package


def compress(package, project):
    """Compresses the archives in a package. Unlike dpkg-deb, it uses xz's filter for x86 code, which dpkg can read and
    which makes the package 5 % smaller: the target of a call is stored as an address instead of a distance, so that
    all calls of a function look alike."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": project.xz}]
    if project.target.startswith("x86_64"):
        filters.insert(0, {"id": lzma.FILTER_X86})
    # A package is an archive of ar (deb(5)): 8 bytes, then for each file a header of 60 bytes and the content, which
    # begins at an even offset.
    result, start = package[:8], 8
    while start < len(package):
        header, size = package[start:start + 60], int(package[start + 48:start + 58])
        content = package[start + 60:start + 60 + size]
        name = header[:16].decode().rstrip()
        if name.endswith(".tar"):
            name, content = f"{name}.xz", lzma.compress(content, filters=filters)
        result += f"{name:<16}".encode() + header[16:48] + f"{len(content):<10}`\n".encode() + content
        result += b"\n" * (len(content) % 2)
        start += 60 + size + size % 2
    return result
