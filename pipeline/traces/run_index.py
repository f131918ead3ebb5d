"""Finds the run directories below a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from driple.contracts.data_frame import data_frame
from driple.contracts.errors import BadInput, CorruptRun
from driple.contracts.formats.dataset import MEASURED, SIMULATED
from driple.contracts.json_values import to_plain
from driple.contracts.manifest import SEALED, Manifest, network_as_specified
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting

if TYPE_CHECKING:
    import pandas as pd

MANIFEST = "run.json"
_LEFTOVERS = {"job.json", "trace", "steps"}


@dataclass(frozen=True)
class RunInfo:
    """A run directory, described by its run.json."""

    id: str
    status: str
    """`sealed`, `failed` or `running`."""
    setting: Setting
    workload: Workload
    path: Path
    manifest: Manifest = field(repr=False)


@dataclass(frozen=True)
class Runs:
    """The runs below a folder, in the order of their paths."""

    items: tuple[RunInfo, ...]
    unreadable: tuple[tuple[Path, str], ...]
    """Run directories whose run.json cannot be read, with the reasons."""

    def __iter__(self) -> Iterator[RunInfo]:
        return iter(self.items)

    def __getitem__(self, index: int) -> RunInfo:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def to_frame(self) -> pd.DataFrame:
        """A table with a row for each run."""
        return data_frame(
            {
                "id": run.id,
                "status": run.status,
                "provenance": SIMULATED if run.manifest.is_simulated else MEASURED,
                "setting": str(run.setting),
                **to_plain(run.workload),
                "repetition": run.manifest.run.repetition,
                "attempt": run.manifest.attempt,
                "started_real_s": run.manifest.started_real_s,
                "network_as_specified": network_as_specified(run.manifest),
                "failure": run.manifest.failure,
                "path": str(run.path),
            }
            for run in self.items
        )


def read_sealed(folder: Path) -> Manifest:
    """The manifest of a sealed run. Raises CorruptRun if it cannot be read, or the run is not sealed."""
    manifest = Manifest.read(folder / MANIFEST)
    if manifest.status != SEALED:
        why = f": {manifest.failure}" if manifest.failure else ""
        raise CorruptRun(f"{folder}: the run is marked {manifest.status}{why}")
    return manifest


def runs(folder: str | Path, *, include_unsealed: bool = False) -> Runs:
    """The sealed runs at or below a folder. Only run.json is read; load_run checks the other files.

    Args:
        folder: a folder of traces, or a run directory.
        include_unsealed: also return runs that failed or are still running.

    Raises:
        BadInput: there is no such folder.
    """
    items, unreadable = [], []
    for path, fault in find_runs(Path(folder)):
        try:
            if fault is not None:
                raise CorruptRun(fault)
            found = Manifest.read(path / MANIFEST)
        except CorruptRun as error:
            unreadable.append((path, str(error).replace(f"{path}/", "")))
            continue
        if include_unsealed or found.status == SEALED:
            items.append(RunInfo(found.run_id, found.status, found.run.setting, found.run.workload, path, found))
    return Runs(tuple(items), tuple(unreadable))


def find_runs(root: Path) -> Iterator[tuple[Path, str | None]]:
    """Each run directory at or below `root`, with the reason if it cannot be read. Raises BadInput."""
    if not root.is_dir():
        raise BadInput(f"{root}: {'not a folder' if root.exists() else 'no such folder'}")
    seen: set[tuple[int, int]] = set()

    def walk(folder: Path) -> Iterator[tuple[Path, str | None]]:
        try:
            status = folder.stat()
            entries = sorted(folder.iterdir())
        except OSError as error:
            yield folder, f"cannot be read: {error.strerror}"
            return
        if (status.st_dev, status.st_ino) in seen:  # a link to a parent folder
            return
        seen.add((status.st_dev, status.st_ino))
        names = {entry.name for entry in entries}
        if MANIFEST in names:
            yield folder, None
        elif names & _LEFTOVERS:
            yield folder, f"{MANIFEST}: missing"
        else:
            for entry in entries:
                if not entry.name.startswith(".") and entry.is_dir():
                    yield from walk(entry)

    return walk(root)
