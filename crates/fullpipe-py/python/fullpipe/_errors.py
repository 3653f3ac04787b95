"""Exceptions of fullpipe: one class for each exit code of the command."""

from typing import ClassVar


class Error(Exception):
    """Base class of all errors of fullpipe.

    The message is one line, and :attr:`hint` says what to do. A traceback shows both.

    >>> import fullpipe
    >>> try:
    ...     fullpipe.whatif(link="10mbps", rtt="50ms")
    ... except fullpipe.Error as error:
    ...     print(type(error).__name__, error.exit_code)
    UsageError 2
    """

    #: Exit code with which the command reports the same error.
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        if hint:
            self.add_note(f"hint: {hint}")

    @property
    def message(self) -> str:
        """The error in one line."""
        return str(self.args[0])

    @property
    def hint(self) -> str:
        """What to do, in one line; may be empty."""
        return str(self.args[1])

    def __str__(self) -> str:
        return self.message


class InputError(Error):
    """The input is not usable, or a run failed (exit code 1)."""


class UsageError(Error, ValueError):
    """An argument is not valid, or arguments contradict each other (exit code 2)."""

    exit_code = 2


class NetworkError(Error):
    """A peer is unreachable, refuses or disconnects (exit code 3)."""

    exit_code = 3


class RightsError(Error):
    """The process lacks a permission (exit code 4)."""

    exit_code = 4


class ExpectationError(Error, AssertionError):
    """An expectation of an experiment is not met (exit code 5)."""

    exit_code = 5


class RevertedError(Error):
    """A change to the host failed, and all changes were reverted (exit code 6)."""

    exit_code = 6


class CommandNotFoundError(Error):
    """The command to run does not exist (exit code 127)."""

    exit_code = 127


class MissingPackageError(Error, ImportError):
    """A function needs a package that is not installed; the hint is the command that installs it."""
