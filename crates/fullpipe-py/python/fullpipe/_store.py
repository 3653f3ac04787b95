"""Data sets in an object store, which is accessed through fsspec."""

import importlib
import os
import tempfile
from typing import Any

from . import _fullpipe
from ._errors import InputError, MissingPackageError, UsageError

#: Tables of a data set in the order in which a part is stored. A part exists when its results exist, so the results
#: are stored last.
TABLES = ("trace", "runs")


def location(out: str | os.PathLike[str]) -> str:
    """Return an absolute path, or the URL of an object store.

    :raises UsageError: the argument is not a path
    """
    if not isinstance(out, str | os.PathLike) or not os.fspath(out):
        shown = "an empty path" if isinstance(out, str) else f"a {type(out).__name__}"
        raise UsageError(f"{shown} is not a folder", 'pass a path, or a URL such as "s3://bucket/name"')
    text = os.fsdecode(os.fspath(out))
    scheme, separator, rest = text.partition("://")
    if separator and scheme != "file":
        return text
    return os.path.abspath(rest if separator else text)


def is_url(place: str) -> bool:
    """Return whether a :func:`location` is in an object store."""
    return "://" in place


def temporary() -> "tempfile.TemporaryDirectory[str]":
    """Return a temporary folder, which is deleted with this value or at the end of a ``with`` statement."""
    try:
        return tempfile.TemporaryDirectory(prefix="fullpipe-")
    except OSError as error:
        raise not_written("a temporary folder", error) from None


def not_written(what: str, error: OSError) -> InputError:
    """Return the error for a temporary file or folder that cannot be written."""
    return InputError(
        f"cannot write {what}: {error.strerror or _line(error)}",
        "free space in the folder for temporary files, or set TMPDIR to another one",
    )


class Store:
    """The files of a data set below a URL. Each file is written by one put, which stores it whole or not at all.

    :raises MissingPackageError: fsspec, or the package for the scheme of the URL, is not installed
    """

    def __init__(self, url: str) -> None:
        try:
            fsspec: Any = importlib.import_module("fsspec")
        except ImportError:
            raise MissingPackageError(f"{url} needs fsspec", "pip install fsspec, or use a folder") from None
        self.url = url.rstrip("/")
        if self.url.endswith(":"):
            raise UsageError(f"{url} names no folder", 'write a URL such as "s3://bucket/name"')
        self._files: Any
        try:
            self._files, self._root = fsspec.core.url_to_fs(self.url)
        except ImportError as error:
            raise MissingPackageError(f"{url}: {_line(error)}", "install the package that this message names") from None
        except ValueError as error:
            raise UsageError(f"{url}: {_line(error)}", "pass a folder, or a URL that fsspec knows") from None

    def get(self, name: str) -> bytes | None:
        """Return the content of a file; None if the file does not exist."""
        try:
            content: bytes = self._files.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._failed("read", name, error) from None
        return content

    def put(self, name: str, content: bytes) -> None:
        """Write a file."""
        try:
            self._files.pipe_file(f"{self._root}/{name}", content)
        except Exception as error:
            raise self._failed("write", name, error) from None

    def names(self, folder: str) -> set[str]:
        """Return the names of the files in a folder."""
        try:
            self._files.invalidate_cache()
            listed = self._files.ls(f"{self._root}/{folder}", detail=False)
        except FileNotFoundError:
            return set()
        except Exception as error:
            raise self._failed("list", folder, error) from None
        return {path.rsplit("/", 1)[-1] for path in listed}

    def has(self, number: int, traced: bool) -> bool:
        """Return whether a part exists, with its trace if the data set has one."""
        name = part_name(number)
        tables = TABLES if traced else ("runs",)
        try:
            return all(self._files.exists(f"{self._root}/{table}/{name}") for table in tables)
        except Exception as error:
            raise self._failed("look for", name, error) from None

    def missing(self, parts: int, traced: bool) -> list[int]:
        """Return the numbers of the parts that do not exist."""
        existing = self.names("runs")
        if traced:
            existing &= self.names("trace")
        return [number for number in range(parts) if part_name(number) not in existing]

    def prepare(self, planned: _fullpipe.Dataset) -> None:
        """Write the manifest and the inputs; if a manifest exists, compare it instead."""
        with temporary() as folder:
            existing = self.get("manifest.json")
            if existing is not None:
                _write(folder, "manifest.json", existing)
                with self._named(folder):
                    planned.prepare(folder)
                return
            planned.prepare(folder)
            # The data set exists when its manifest exists, so the manifest is written last.
            for name in [*(f"inputs/{name}" for name in _list(folder, "inputs")), "manifest.json"]:
                self.put(name, _read(folder, name))

    def fetch_manifest(self, folder: str) -> None:
        """Copy the manifest and the inputs to a folder."""
        manifest = self.get("manifest.json")
        if manifest is None:
            raise InputError(f"{self.url} contains no data set", "sweep() creates one")
        for name in self.names("inputs"):
            _write(folder, f"inputs/{name}", self.get(f"inputs/{name}") or b"")
        _write(folder, "manifest.json", manifest)

    def open(self, folder: str) -> _fullpipe.Dataset:
        """Open the data set, with a copy of the manifest and of the inputs in a folder."""
        self.fetch_manifest(folder)
        with self._named(folder):
            return _fullpipe.Dataset.open(folder)

    def fetch_parts(self, folder: str) -> None:
        """Copy to a folder all table files that it does not contain yet."""
        for table in TABLES:
            for name in sorted(self.names(table) - set(_list(folder, table))):
                _write(folder, f"{table}/{name}", self.get(f"{table}/{name}") or b"")

    def put_part(self, folder: str, number: int) -> None:
        """Move a part from a folder to the store."""
        name = part_name(number)
        for table in TABLES:
            path = os.path.join(folder, table, name)
            if os.path.exists(path):
                self.put(f"{table}/{name}", _read(folder, f"{table}/{name}"))
                os.unlink(path)

    def _failed(self, verb: str, name: str, error: Exception) -> InputError:
        # Clients of object stores raise exceptions of their own, for example if the network or a credential is missing.
        hint = "check the address, the credentials and the connection; the same call continues"
        return InputError(f"cannot {verb} {self.url}/{name}: {_line(error)}", hint)

    def _named(self, folder: str) -> "_Named":
        return _Named(folder, self.url)


class _Named:
    """Lets errors name the URL instead of the temporary folder."""

    def __init__(self, folder: str, url: str) -> None:
        self.folder, self.url = folder, url

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InputError):
            raise InputError(error.message.replace(self.folder, self.url), error.hint) from None


def part_name(number: int) -> str:
    """Return the name of the file of a part."""
    return f"part-{number:05}.parquet"


def _line(error: Exception) -> str:
    return str(error).split("\n", 1)[0] or type(error).__name__


def _list(folder: str, table: str) -> list[str]:
    path = os.path.join(folder, table)
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


def _read(folder: str, name: str) -> bytes:
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def _write(folder: str, name: str, content: bytes) -> None:
    path = os.path.join(folder, name)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
    except OSError as error:
        raise not_written(path, error) from None
