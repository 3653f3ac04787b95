"""Installs the packages that were made into empty folders, and runs what was installed."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time

from packages.project import FEATURES, Failure, output
from packages.tree import BASH, FISH, LIBRARY, MAN, UNITS, ZSH

EXAMPLE = ("diagnose", "--example", "--brief")
# Simulates a thousandth of the example's work.
QUICK = ("whatif", "--link", "10mbit", "--rtt", "20ms")


def expect(condition, what):
    if not condition:
        raise Failure(f"after installation: {what}")


def try_tarball(package, project, files, folder, command):
    """Unpacks the archive, whose folder can be moved; `command` shows a ladder."""
    with tarfile.open(package) as tar:
        tar.extractall(folder, filter="data")
    root = folder / f"fullpipe-{project.version}-{project.target}"
    expect(root.is_dir(), f"the archive has no folder {root.name}")
    program = root / "bin/fullpipe"
    expect(f"fullpipe {project.version}" in output(program, "--version"), "another version")
    complete_program(program, project)
    report = output(program, *command)
    expect("\nLadder:" in report, f"{' '.join(command)} shows no ladder: {report}")
    complete(root / BASH, root / ZSH, root / FISH)
    if LIBRARY in files:
        try_guest([program], folder)
    print(f"tarball  unpacked, {output(program, '--version')}, {' '.join(command)}: {report.splitlines()[0]}")


def complete_program(program, project):
    """Checks that `program` has the commands that only the features of the packages contain."""
    document = json.loads(output(program, "--version", "--json"))
    wanted = {feature.partition("/")[2] for feature in FEATURES.split(",")}
    if not project.target.endswith("-linux-gnu"):
        wanted.remove("copy")  # for Linux only
    missing = wanted - set(document["features"])
    expect(not missing, f"the program lacks the features {missing}")


# Prints the duration of the import, and a ladder from Python.
IMPORT = """
import importlib.metadata, time
start = time.perf_counter()
import fullpipe
took = time.perf_counter() - start
requires = [line for line in importlib.metadata.requires("fullpipe") or [] if "extra ==" not in line]
assert not requires, requires
assert fullpipe.__version__ == importlib.metadata.version("fullpipe")
answer = fullpipe.whatif(link="10mbit", rtt="20ms")
assert answer["schema"].startswith("fullpipe.whatif/"), answer
print(took, answer.headline)
"""
SLOWEST_IMPORT = 0.15  # seconds


def try_wheel(package, project, built, folder, command):
    """pip installs the wheel into a new environment, without network access. The package is imported, and the
    program that it contains shows a ladder with `command`."""
    output(sys.executable, "-m", "venv", folder)
    python = folder / "bin/python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    start = time.monotonic()
    # Without --no-deps: the wheel must not require other packages.
    output(*pip, "--no-index", package)
    installed = time.monotonic() - start
    # The first import compiles the sources.
    tries = [output(python, "-c", IMPORT, cwd=folder).split(" ", 1) for _ in range(3)]
    seconds = min(float(took) for took, _ in tries)
    expect(seconds <= SLOWEST_IMPORT, f"the import takes {seconds:.3f} s, and {SLOWEST_IMPORT} s are allowed")
    program = folder / "bin/fullpipe"
    expect(output(program, "--version").split()[1] == project.version, "another version")
    complete_program(program, project)
    start = time.monotonic()
    report = output(program, *command)
    took = time.monotonic() - start
    expect("\nLadder:" in report, f"{' '.join(command)} shows no ladder: {report}")
    expect((folder / MAN / "fullpipe.1").is_file(), "the wheel has no manual page")
    if built.library:
        try_guest([program], folder)
    print(f"wheel    installed by pip in {installed:.1f} s, imported in {seconds * 1e3:.0f} ms, "
          f"{' '.join(command)} in {took:.1f} s: {report.splitlines()[0]}")


EXPERIMENT = """
name = "guest"
duration = "200ms"
path = { rate = "1mbit", rtt = "20ms" }
[[flow]]
cc = "cubic"
"""


def try_guest(command, folder):
    """Runs a guest, for which the installed command has to find the installed library."""
    if not shutil.which("linux.uml"):
        print("guest    no linux.uml here: the library is not tried")
        return
    file = folder / "guest.toml"
    file.write_text(EXPERIMENT)
    environment = {name: value for name, value in os.environ.items() if name != "FULLPIPE_UML_LIBRARY"}
    said = subprocess.run([*command, "run", file, "--world", "uml"], capture_output=True, text=True, env=environment)
    if said.returncode == 4:
        print("guest    not permitted here: the library is not tried")
        return
    expect(said.returncode == 0, f"a guest fails: {said.stderr}")
    print("guest    fullpipe run --world uml")


def try_deb(package, files, folder):
    """Unpacks the package. The program is that of the tarball, so no ladder is simulated again."""
    output("dpkg-deb", "-x", package, folder)
    program = folder / "usr/bin/fullpipe"
    expect(program.read_bytes() == files["bin/fullpipe"].data, "the .deb's program differs")
    output(program, "--version")
    if LIBRARY in files:
        expect((folder / "usr" / LIBRARY).read_bytes() == files[LIBRARY].data, "the .deb's library differs")
    for page in (folder / "usr" / MAN).iterdir():
        expect(gzip.decompress(page.read_bytes()).startswith(b".ie"), f"{page.name} is not a manual page")
    expect(len(list((folder / "usr" / MAN).iterdir())) > 5, "manual pages are missing")
    expect((folder / "usr" / UNITS / "fullpipe-exporter.service").is_file(), "the systemd unit is missing")
    expect(not (folder / "etc").exists(), "a unit is enabled, or a file in /etc exists")
    complete(folder / "usr" / BASH, folder / "usr/share/zsh/vendor-completions/_fullpipe", folder / "usr" / FISH)
    if shutil.which("man"):
        page = folder / "usr" / MAN / "fullpipe-diagnose.1.gz"
        text = output("man", "-l", page, env=os.environ | {"MANPAGER": "cat", "MANWIDTH": "80"})
        expect("fullpipe-diagnose" in text, "man does not show the page")
    print("deb      unpacked: program, manual pages, completions, disabled unit")


def complete(bash, zsh, fish):
    """Loads the completions in the shells that this machine has."""
    shown = output("bash", "-c", f"source '{bash}'; complete -p fullpipe")
    expect("-F _fullpipe" in shown, f"bash does not complete fullpipe: {shown}")
    if shutil.which("zsh"):
        load = f"fpath=('{zsh.parent}' $fpath); autoload -Uz compinit && compinit -D -u; print $_comps[fullpipe]"
        expect(output("zsh", "-fc", load) == "_fullpipe", "zsh does not complete fullpipe")
    if shutil.which("fish"):
        shown = output("fish", "--no-config", "-c", f"source '{fish}'; complete -C 'fullpipe dia'")
        expect("diagnose" in shown, f"fish does not complete fullpipe: {shown}")


# A host with kernel 6.1, whose send buffer is too small for 20 Mbit/s at an RTT of 100 ms.
HOST = {
    "proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
    "proc/sys/net/ipv4/tcp_wmem": "4096\t16384\t262144\n",
    "proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
    "proc/sys/net/ipv4/tcp_congestion_control": "cubic\n",
    "proc/sys/net/ipv4/tcp_available_congestion_control": "reno cubic bbr\n",
    "proc/sys/net/ipv4/tcp_notsent_lowat": "4294967295\n",
    "proc/meminfo": "MemTotal:        4194304 kB\n",
    "var/lib/dpkg/status": "",
    "var/lib/dpkg/info/format": "1\n",
    "var/lib/dpkg/updates/.keep": "",
}


def try_removal(package, root):
    """Lets dpkg install, upgrade, remove and purge the package in a folder that imitates a host, with a change
    of `fullpipe tune` in place. The maintainer scripts get the folder in DPKG_ROOT."""
    for path, text in HOST.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)

    def dpkg(*arguments):
        said = subprocess.run(
            ["dpkg", f"--root={root}", "--force-script-chrootless", "--force-depends", "--log=/dev/null", *arguments],
            capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"})
        expect(said.returncode == 0, f"dpkg {' '.join(map(str, arguments))}: {said.stderr}")
        return said.stdout

    settings, state = root / "proc/sys/net/ipv4/tcp_wmem", root / "var/lib/fullpipe"
    former = settings.read_text()
    dpkg("--install", package)
    fullpipe = (root / "usr/bin/fullpipe", "tune")
    output(*fullpipe, "--link", "20mbit", "--rtt", "100ms", "--root", root, "--apply")
    output(*fullpipe, "confirm", "--root", root)
    applied = settings.read_text()
    expect(applied.split() != former.split(), "fullpipe tune changed nothing")
    dpkg("--install", package)
    expect(settings.read_text() == applied, "an upgrade changed a setting")
    lines = [line for line in dpkg("--remove", "fullpipe").splitlines() if line.startswith("fullpipe ")]
    expect(len(lines) == 1 and "Restored: net.ipv4.tcp_wmem" in lines[0], f"the removal prints {lines}")
    expect(settings.read_text().split() == former.split(), "the removal did not restore a setting")
    expect(not (root / "usr/bin/fullpipe").exists(), "the program was not removed")
    state.mkdir(parents=True, exist_ok=True)
    (state / "0001.json.damaged").write_text("")
    dpkg("--purge", "fullpipe")
    expect(not state.exists(), "the purge left the state")
    print(f"deb      installed, upgraded, removed ({lines[0]}), purged")


# Lines that bash runs in the root, each with the string that its output must contain.
IN_ROOT = (
    ("dpkg --install /root/{package}", "Setting up fullpipe"),
    ("fullpipe --version", "fullpipe {version}"),
    ("MANPAGER=cat MANWIDTH=80 man fullpipe-copy", "fullpipe-copy(1)"),
    ("source /usr/share/bash-completion/bash_completion; _completion_loader fullpipe; "
     "COMP_WORDS=(fullpipe dia) COMP_CWORD=1; _fullpipe fullpipe dia fullpipe; echo ${{COMPREPLY[*]}}", "diagnose"),
    ("zsh -fc 'autoload -Uz compinit && compinit -D -u; print $_comps[fullpipe]'", "_fullpipe"),
    ("fullpipe diagnose --example --brief", "\nLadder:"),
    ("dpkg --remove fullpipe", "fullpipe tune rollback: There are no changes to revert."),
    ("dpkg --purge fullpipe; ls /usr/bin/fullpipe /var/lib/fullpipe 2>&1 || true", "No such file"),
)


def try_root(package, project, root):
    """Installs the package in the fresh Debian system in the folder `root`, with man, bash and zsh, and removes it."""
    shutil.copy(package, root / "root" / package.name)
    seconds = 0.0
    for line, wanted in IN_ROOT:
        line, wanted = (text.format(package=package.name, version=project.version) for text in (line, wanted))
        start = time.monotonic()
        said = subprocess.run(
            ["chroot", root, "/bin/bash", "-c", line], capture_output=True, text=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/root"})
        if line.startswith("fullpipe diagnose"):
            seconds = time.monotonic() - start
        expect(wanted in said.stdout, f"in {root}, {line} prints: {said.stdout}{said.stderr}")
    (root / "root" / package.name).unlink()
    print(f"deb      installed in {root}: manual page, completion in bash and zsh, "
          f"fullpipe diagnose --example in {seconds:.1f} s, removed, purged")


def lint(package):
    """Runs lintian where it is installed. Only an error fails the script."""
    if not shutil.which("lintian"):
        print("deb      no lintian here: the policy is not checked")
        return
    said = subprocess.run(["lintian", "--fail-on", "error", package], capture_output=True, text=True)
    print("".join(f"lintian  {line}\n" for line in said.stdout.splitlines()), end="")
    expect(said.returncode == 0, f"lintian reports errors{said.stderr}")
    print("deb      lintian reports no errors")
