"""The wheel: a zip archive with the Python package, whose extension module also contains the command.

pip, pipx and uv install the files of the archive into `site-packages`, `NAME.data/data` into the root of the
environment, and a script `fullpipe` that calls the package. The format is
https://packaging.python.org/en/latest/specifications/binary-distribution-format/. The manifest of the Python
package, pyproject.toml, has the metadata.
"""

import base64
import hashlib
import io
import re
import time
import tomllib
import zipfile

from packages.project import ROOT, Failure, output
from packages.tree import DOCS, UNITS, File

FOLDER = ROOT / "crates/fullpipe-py"
# glibc 2.17 has a second name, which older versions of pip look for.
OLD_NAMES = {17: "manylinux2014"}


def platform(target, glibc):
    """Returns the platform tag: the oldest system that has everything that the extension needs."""
    machine, *_ = target.split("-")
    if target.endswith("-linux-gnu"):
        names = [f"manylinux_2_{max(glibc, 17)}", *filter(None, [OLD_NAMES.get(max(glibc, 17))])]
        return ".".join(f"{name}_{machine}" for name in names)
    if target.endswith("-apple-darwin"):
        said = output("rustc", "--print", "deployment-target", "--target", target)
        major, minor = re.search(r"(\d+)\.(\d+)", said).groups()
        return f"macosx_{major}_{minor}_{machine.replace('aarch64', 'arm64')}"
    raise Failure(f"wheels have no name for the target {target}")


def interpreter(requires):
    """Returns the tags of interpreter and interface: the extension uses only what every CPython since the lowest
    supported version has."""
    lowest = re.fullmatch(r">=(\d+)\.(\d+)", requires)
    if not lowest:
        raise Failure(f"requires-python is not a lowest version: {requires}")
    return f"cp{''.join(lowest.groups())}-abi3"


def metadata(python, project):
    """Returns the file METADATA from the table `project` of pyproject.toml."""
    lines = ["Metadata-Version: 2.4", f"Name: {python['name']}", f"Version: {project.version}",
             f"Summary: {python['description']}", f"Keywords: {','.join(python['keywords'])}",
             f"License-Expression: {python['license']}"]
    lines += [f"License-File: {name}" for name in (*python["license-files"], "third-party.txt")]
    lines += [f"Classifier: {classifier}" for classifier in python["classifiers"]]
    lines += [f"Project-URL: {name}, {address}" for name, address in python["urls"].items()]
    lines += [f"Requires-Python: {python['requires-python']}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in python["dependencies"]]
    for extra, requirements in python["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"]
        lines += [f"Requires-Dist: {requirement} ; extra == '{extra}'" for requirement in requirements]
    lines += ["Description-Content-Type: text/markdown", ""]
    return "\n".join(lines) + "\n" + (FOLDER / python["readme"]).read_text(encoding="utf-8")


def scripts(python):
    """Returns the file entry_points.txt."""
    lines = (f"{name}={function}\n" for name, function in python["scripts"].items())
    return f"[console_scripts]\n{''.join(lines)}"


def sources(package):
    """Returns the files of the Python package, as committed."""
    folder = FOLDER / "python"
    names = output("git", "ls-files", folder / package).splitlines()
    return {str((ROOT / name).relative_to(folder)): File((ROOT / name).read_bytes()) for name in names}


def wheel(files, built, project, glibc):
    """Returns the file name and the content of the wheel. `files` are those of all packages."""
    python = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    package, name = python["name"], f"{python['name']}-{project.version}"
    version, system = interpreter(python["requires-python"]), platform(project.target, glibc)
    info, data = f"{name}.dist-info", f"{name}.data"
    content = sources(package)
    content[f"{package}/_{package}.abi3.so"] = File(built.module.read_bytes(), program=True)
    if built.library:
        # The extension searches its own folder for both files.
        content[f"{package}/{built.guest.name}"] = File(built.guest.read_bytes(), program=True)
        content[f"{package}/{built.library.name}"] = File(built.library.read_bytes())
    for path, file in files.items():
        if not path.startswith((DOCS, UNITS, "bin/", "lib/")):
            content[f"{data}/data/{path}"] = file
    for licence in (*python["license-files"], "third-party.txt"):
        content[f"{info}/licenses/{licence}"] = files[f"{DOCS}/{licence}"]
    content[f"{info}/METADATA"] = File(metadata(python, project).encode())
    content[f"{info}/entry_points.txt"] = File(scripts(python).encode())
    tags = "".join(f"Tag: {version}-{one}\n" for one in system.split("."))
    head = "Wheel-Version: 1.0\nGenerator: scripts/package\nRoot-Is-Purelib: false\n"
    content[f"{info}/WHEEL"] = File((head + tags).encode())
    record = "".join(f"{path},{digest(file.data)},{len(file.data)}\n" for path, file in content.items())
    content[f"{info}/RECORD"] = File(f"{record}{info}/RECORD,,\n".encode())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, file in content.items():
            entry = zipfile.ZipInfo(path, time.gmtime(project.epoch)[:6])
            entry.create_system, entry.external_attr = 3, (0o100000 | file.mode) << 16  # 3: Unix
            archive.writestr(entry, file.data, zipfile.ZIP_DEFLATED, project.gzip)
    return f"{name}-{version}-{system}.whl", buffer.getvalue()


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
