"""The command ``fullpipe``: ``python -m fullpipe``, and the program that the wheel installs."""

import signal
import sys

from . import _fullpipe


def main() -> int:
    """Run the command with the arguments of this process, and return its exit code."""
    # Python's handler only sets a flag, and would delay Ctrl-C until the command has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # -P: a folder called fullpipe in the working directory must not be imported instead.
    return _fullpipe.command(sys.argv[1:], sys.executable, ["-P", "-m", "fullpipe"])


if __name__ == "__main__":
    sys.exit(main())
