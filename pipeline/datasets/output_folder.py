"""The folder that datasets are written to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from driple.contracts.folder_lock import only_one


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Locks the output folder. Removes what it created if nothing is written."""
    created = [folder for folder in (output, *output.parents) if not folder.exists()]
    with only_one(output, "driple-build-dataset"):
        try:
            yield
        finally:
            if created and not any(path.name != ".lock" for path in output.iterdir()):
                (output / ".lock").unlink(missing_ok=True)
                with suppress(OSError):
                    for folder in created:
                        folder.rmdir()
