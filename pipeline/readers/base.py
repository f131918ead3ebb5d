"""The interface of trace readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from driple.contracts.errors import BadInput
from driple.pipeline.readers.text_table import Table, read_table, read_text
from driple.pipeline.traces.series import Series


@dataclass(frozen=True)
class TraceInput:
    """A file or run directory, and the columns that the user named."""

    path: Path
    time: str | None = None
    values: Sequence[str] = ()
    """Columns of rates and levels."""
    counters: Sequence[str] = ()
    """Columns of counters."""

    @property
    def names_columns(self) -> bool:
        return bool(self.time or self.values or self.counters)

    def without_columns(self, what: str) -> Path:
        """The path. Raises BadInput if the user named columns, but the input has none."""
        if self.names_columns:
            raise BadInput(f"{self.path}: --time, --value and --counter are for tables, not for {what}")
        return self.path

    @cached_property
    def start(self) -> bytes:
        """The first bytes of a file; none of a directory. Raises BadInput if it is empty or cannot be read."""
        if self.path.is_dir():
            return b""
        try:
            if self.path.exists() and not self.path.is_file():
                raise BadInput(f"{self.path}: not a regular file")
            with self.path.open("rb") as stream:
                start = stream.read(64)
        except OSError as error:
            raise BadInput(f"{self.path}: {error.strerror}") from None
        if not start.strip():
            raise BadInput(f"{self.path}: empty")
        return start

    @cached_property
    def table(self) -> Table:
        """The content of a text file as a table. Raises BadInput if it is not a table."""
        return read_table(self.path, read_text(self.path))


@dataclass(frozen=True)
class Source:
    """The series of an input."""

    what: str
    """The kind of input, in words."""
    series: tuple[Series, ...]
    steps_s: dict[str, float] = field(default_factory=dict)
    """Training step by name of series, if the input contains it."""
    notes: tuple[str, ...] = ()
    """Notes for people: sampling quality, lines that were left out."""
    provenance: str | None = None
    """`measured` or `simulated`; None where the input does not say."""


@dataclass(frozen=True)
class Reader:
    """A kind of trace."""

    recognises: Callable[[TraceInput], bool]
    """Whether an input is of this kind, by its content and not by its name."""
    read: Callable[[TraceInput], Source]
    """Reads such an input. Raises BadInput with the reason if it cannot."""
