"""The wheel: a zip archive with the program as a script, and with its pages as data files.

pip, pipx and uv install `NAME.data/scripts` into `bin`, and `NAME.data/data` into the root of the
environment. The format is https://packaging.python.org/en/latest/specifications/binary-distribution-format/.
"""

import base64
import hashlib
import io
import re
import time
import zipfile

from packages.project import ROOT, Failure, output
from packages.tree import DOCS, UNITS, File

# glibc 2.17 has a second name, which older versions of pip look for.
OLD_NAMES = {17: "manylinux2014"}


def platform(target, glibc):
    """Returns the platform tag: the oldest system that has everything that the program needs."""
    machine, *_ = target.split("-")
    if target.endswith("-linux-gnu"):
        names = [f"manylinux_2_{max(glibc, 17)}", *filter(None, [OLD_NAMES.get(max(glibc, 17))])]
        return ".".join(f"{name}_{machine}" for name in names)
    if target.endswith("-apple-darwin"):
        said = output("rustc", "--print", "deployment-target", "--target", target)
        major, minor = re.search(r"(\d+)\.(\d+)", said).groups()
        return f"macosx_{major}_{minor}_{machine.replace('aarch64', 'arm64')}"
    raise Failure(f"wheels have no name for the target {target}")


def description(project):
    """Returns README.md for the page of the package, where only whole addresses are links."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\((?!https?://|#)", f"]({project.repository}/blob/v{project.version}/", text)


def metadata(project):
    return f"""Metadata-Version: 2.4
Name: fullpipe
Version: {project.version}
Summary: Find what limits a TCP transfer, and what would limit it next
Keywords: tcp,network,diagnosis,iperf3,congestion-control
License-Expression: {project.license}
License-File: LICENSE-APACHE
License-File: LICENSE-MIT
License-File: third-party.txt
Classifier: Environment :: Console
Classifier: Intended Audience :: System Administrators
Classifier: Programming Language :: Rust
Classifier: Topic :: System :: Networking :: Monitoring
Project-URL: Source, {project.repository}
Project-URL: Changelog, {project.repository}/blob/v{project.version}/CHANGELOG.md
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{description(project)}"""


def wheel(files, project, glibc):
    """Returns the file name and the content of the wheel."""
    name, tag = f"fullpipe-{project.version}", f"py3-none-{platform(project.target, glibc)}"
    info, data = f"{name}.dist-info", f"{name}.data"
    tags = "".join(f"Tag: py3-none-{one}\n" for one in tag.removeprefix("py3-none-").split("."))
    head = "Wheel-Version: 1.0\nGenerator: scripts/package\nRoot-Is-Purelib: false\n"
    content = {}
    for path, file in files.items():
        if path.startswith("bin/"):
            content[f"{data}/scripts/{path.removeprefix('bin/')}"] = file
        elif not path.startswith((DOCS, UNITS)):
            content[f"{data}/data/{path}"] = file
    for licence in ("LICENSE-APACHE", "LICENSE-MIT", "third-party.txt"):
        content[f"{info}/licenses/{licence}"] = files[f"{DOCS}/{licence}"]
    content[f"{info}/METADATA"] = File(metadata(project).encode())
    content[f"{info}/WHEEL"] = File((head + tags).encode())
    record = "".join(f"{path},{digest(file.data)},{len(file.data)}\n" for path, file in content.items())
    content[f"{info}/RECORD"] = File(f"{record}{info}/RECORD,,\n".encode())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, file in content.items():
            entry = zipfile.ZipInfo(path, time.gmtime(project.epoch)[:6])
            entry.create_system, entry.external_attr = 3, (0o100000 | file.mode) << 16  # 3: Unix
            archive.writestr(entry, file.data, zipfile.ZIP_DEFLATED, project.gzip)
    return f"{name}-{tag}.whl", buffer.getvalue()


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
