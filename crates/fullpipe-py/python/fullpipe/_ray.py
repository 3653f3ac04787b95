"""Ray as an executor: one task per part, on all machines of a cluster."""

import importlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from ._errors import Error, InputError, MissingPackageError, NetworkError

#: Number of times that a part may be restarted after its worker has died. Ray counts separately how often it kills a
#: worker because memory runs out.
_RETRIES = 20
#: Time in seconds within which a cluster must accept a connection. Ray itself tries for many minutes.
_CONNECT_S = 10


class RayExecutor:
    """The part of the ``concurrent.futures.Executor`` interface that a data set needs."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        #: Number of tasks that are submitted at a time, so that a free worker always finds the next task.
        self.pending = max(8, 2 * int(ray.cluster_resources().get("CPU", 1)))

    def submit(self, function: Callable[..., None], /, *arguments: object) -> "Future[None]":
        """Submit a task, which takes one CPU."""
        remote = self._ray.remote(num_cpus=1, max_retries=_RETRIES)(function)
        future: Future[None] = remote.remote(*arguments).future()
        return future

    def cancel(self, future: "Future[None]") -> None:
        """End a task, and its worker if it has begun."""
        # Ray stores in each future the reference to its result.
        self._ray.cancel(future.object_ref, force=True)  # type: ignore[attr-defined]

    def failure(self, error: Exception) -> Error | None:
        """Convert the error of a task into an error of fullpipe; return None for an error that is not Ray's."""
        exceptions = self._ray.exceptions
        if isinstance(error, exceptions.RayTaskError):
            cause = error.cause
            if isinstance(cause, Error):
                return cause
            line = str(cause).strip().split("\n")[-1]
            hint = "install the same version of fullpipe on all nodes (pip, an image, or a runtime_env of Ray)"
            return InputError(f"a task of Ray failed: {line}", hint)
        if isinstance(error, exceptions.RayError):
            line = str(error).strip().split("\n")[0]
            return InputError(f"Ray abandoned a task: {line}", "see Ray's logs; the same call continues")
        return None


@contextmanager
def connected(address: str | None) -> Iterator[RayExecutor]:
    """Provide an executor of the cluster to which this process is connected, or of the cluster at an address.

    :raises MissingPackageError: Ray is not installed
    :raises NetworkError: there is no cluster at the address
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise MissingPackageError('on="ray" needs Ray', "pip install 'fullpipe[ray]'") from None
    connects = not ray.is_initialized()
    if connects:
        import logging

        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
        if address is None and "RAY_ADDRESS" not in os.environ:
            options["include_dashboard"] = False
        try:
            _check_reachable(address or os.environ.get("RAY_ADDRESS", ""))
            ray.init(address=address, **options)
        except (ImportError, OSError, OverflowError, RuntimeError, ValueError) as error:
            line = str(error).strip().split("\n")[0]
            hint = "start it with `ray start --head`, or leave address out to use this machine"
            raise NetworkError(f"cannot reach Ray at {address or 'this machine'}: {line}", hint) from None
    try:
        yield RayExecutor(ray)
    finally:
        if connects:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise an error unless something listens at the address of a cluster. Names such as ``auto`` are left to Ray."""
    import socket

    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
