"""Moves processes into control groups that the creator of the host has made."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Sequence

from driple.contracts.errors import BadInput

PROCESSES = "cgroup.procs"


def join_groups(pid: int, files: Sequence[str]) -> None:
    """Writes a process to the files. Raises BadInput for another kind of file, OSError if the kernel refuses."""
    for file in map(Path, files):
        if file.name != PROCESSES:
            raise BadInput(f"files: expected {PROCESSES} of a control group, got {str(file)!r}")
        # Unbuffered: the error belongs to the write, not to the close.
        with suppress(ProcessLookupError), file.open("wb", buffering=0) as stream:
            stream.write(str(pid).encode())
