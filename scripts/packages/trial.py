"""Installs the packages that were made into empty folders, and runs what was installed."""

import gzip
import os
import shutil
import subprocess
import sys
import tarfile

from packages.project import Failure, output
from packages.tree import BASH, FISH, LIBRARY, MAN, UNITS, ZSH

EXAMPLE = ("diagnose", "--example", "--brief")
# Simulates a thousandth of what the example needs.
QUICK = ("whatif", "--link", "10mbit", "--rtt", "20ms")


def expect(condition, what):
    if not condition:
        raise Failure(f"after installation: {what}")


def try_tarball(package, project, folder):
    with tarfile.open(package) as tar:
        tar.extractall(folder, filter="data")
    root = folder / f"fullpipe-{project.version}-{project.target}"
    expect(root.is_dir(), f"the archive has no folder {root.name}")
    expect(f"fullpipe {project.version}" in output(root / "bin/fullpipe", "--version"), "another version")
    complete(root / BASH, root / ZSH, root / FISH)
    print(f"tarball  unpacked, {output(root / 'bin/fullpipe', '--version')}")


def try_wheel(package, files, folder, command):
    """pip installs the wheel into a new environment, without network access; `command` shows a ladder."""
    output(sys.executable, "-m", "venv", folder)
    pip = (folder / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    output(*pip, "--no-index", "--no-deps", package)
    program = folder / "bin/fullpipe"
    expect(program.read_bytes() == files["bin/fullpipe"].data, "the wheel's program differs")
    report = output(program, *command)
    expect("\nLadder:" in report, f"{' '.join(command)} shows no ladder: {report}")
    expect((folder / MAN / "fullpipe.1").is_file(), "the wheel has no manual page")
    if LIBRARY in files:
        try_guest(program, folder)
    print(f"wheel    installed by pip, fullpipe {' '.join(command)}: {report.splitlines()[0]}")


EXPERIMENT = """
name = "guest"
duration = "200ms"
path = { rate = "1mbit", rtt = "20ms" }
[[flow]]
cc = "cubic"
"""


def try_guest(program, folder):
    """Runs a guest, for which the installed program has to find the installed library."""
    if not shutil.which("linux.uml"):
        print("guest    no linux.uml here: the library is not tried")
        return
    file = folder / "guest.toml"
    file.write_text(EXPERIMENT)
    environment = {name: value for name, value in os.environ.items() if name != "FULLPIPE_UML_LIBRARY"}
    said = subprocess.run([program, "run", file, "--world", "uml"], capture_output=True, text=True, env=environment)
    if said.returncode == 4:
        print("guest    not permitted here: the library is not tried")
        return
    expect(said.returncode == 0, f"a guest fails: {said.stderr}")
    print("guest    fullpipe run --world uml")


def try_deb(package, files, folder):
    """Unpacks the package. The program is that of the wheel, so no ladder is simulated again."""
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


def lint(package):
    """Runs lintian where it is installed. Only an error fails the script."""
    if not shutil.which("lintian"):
        print("deb      no lintian here: the policy is not checked")
        return
    said = subprocess.run(["lintian", "--fail-on", "error", package], capture_output=True, text=True)
    print("".join(f"lintian  {line}\n" for line in said.stdout.splitlines()), end="")
    expect(said.returncode == 0, f"lintian reports errors{said.stderr}")
    print("deb      lintian reports no errors")
