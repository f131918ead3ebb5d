"""A lock on a folder, which the kernel releases however its holder ends."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from driple.contracts.errors import BadInput


@contextmanager
def only_one(folder: Path, program: str) -> Iterator[None]:
    """Creates and locks the folder; `program` is for the message. Raises BadInput if it is locked or not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # O_NONBLOCK, because opening a pipe of that name would block.
        fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise BadInput(f"output folder {str(folder)!r}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            who = os.read(fd, 100).decode("ascii", "replace").strip() or "unknown"
            raise BadInput(f"another {program} (process {who}) is at work in {folder}") from None
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(fd)
