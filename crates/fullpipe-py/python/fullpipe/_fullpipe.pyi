from collections.abc import Callable
from os import PathLike
from typing import Any, Literal, TypeAlias, final

__all__ = [
    "Answer",
    "Charts",
    "Dataset",
    "Table",
    "check_dataset",
    "command",
    "diagnose",
    "experiment_charts",
    "simulate",
    "toml_of_json",
    "trace_csv",
    "version",
    "whatif",
]

_Path: TypeAlias = str | PathLike[str]
_Progress: TypeAlias = Callable[[int, int], object] | None

def command(arguments: list[str], program: _Path, leading: list[str]) -> int: ...
def version() -> str: ...
def toml_of_json(json: str) -> str: ...

@final
class Answer:
    @property
    def json(self) -> str: ...
    def text(self, width: int) -> str: ...
    def brief(self, width: int) -> str: ...
    def page(self) -> str: ...
    def charts(self) -> Charts: ...
    def ladder(self, dark: bool) -> str: ...

@final
class Charts:
    @property
    def labels(self) -> list[str]: ...
    def rates(self, dark: bool) -> str: ...
    def time(self, run: int, dark: bool) -> str: ...
    def phase(self, run: int, dark: bool) -> str: ...

def experiment_charts(path: _Path | None, text: str | None, *, seed: int | None) -> Charts: ...
def trace_csv(table: object, *, run: int | None) -> bytes: ...

def diagnose(
    source: str,
    content: bytes | None,
    *,
    link: str | None,
    rtt: str | None,
    sysctl: str | None,
    settings_text: str | None,
    peer_sysctl: str | None,
    peer_settings_text: str | None,
    kernel: str | None,
    control: str | None,
    point: str | None,
    seed: int | None,
    flow: int | None,
    offered: str | None,
    memory: str | None,
) -> Answer: ...
def whatif(
    *,
    link: str,
    rtt: str,
    loss: str,
    flows: int | None,
    mss: str | None,
    queue: str | None,
    cap: str | None,
    sndbuf: str | None,
    rcvbuf: str | None,
    kernel: str | None,
    cc: str,
    offered: str | None,
    memory: str | None,
) -> Answer: ...
def simulate(
    path: _Path | None,
    text: str | None,
    *,
    seed: int | None,
    repeat: int | None,
    traced: bool,
    progress: _Progress,
) -> tuple[str, Table, Table | None]: ...

@final
class Table:
    @property
    def num_rows(self) -> int: ...
    @property
    def column_names(self) -> list[str]: ...
    @property
    def schema(self) -> dict[str, str]: ...
    def column(self, name: str) -> list[Any]: ...
    def to_pydict(self) -> dict[str, list[Any]]: ...
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Dataset:
    @staticmethod
    def plan(
        path: _Path | None,
        text: str | None,
        *,
        points: _Path | None,
        seed: int | None,
        repeat: int | None,
        trace: str | None,
        part_packets: int | None,
    ) -> Dataset: ...
    @staticmethod
    def open(folder: _Path) -> Dataset: ...
    def manifest(self) -> str: ...
    def prepare(self, folder: _Path) -> None: ...
    def make(
        self, folder: _Path, *, index: int, of: int, threads: int | None, progress: _Progress
    ) -> tuple[int, int, int]: ...
    def missing(self, folder: _Path) -> list[int]: ...
    def table(self, folder: _Path) -> Table: ...
    def trace(self, folder: _Path) -> Table | None: ...
    def ratio(
        self,
        folder: _Path,
        a: list[tuple[str, str | float | bool]],
        b: list[tuple[str, str | float | bool]],
        *,
        column: str,
        seed: int,
    ) -> tuple[float, float, float, int, int]: ...
    def origin(self, row: int) -> tuple[str, list[tuple[str, str]], int, int, int]: ...

def check_dataset(folder: _Path) -> list[tuple[Literal["missing", "damaged", "foreign"], str]]: ...
