"""Finds the runs that are done: sealed under the output folder, or with rows in a dataset."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path

from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import BACKGROUND_LOAD_FLAG, OTHER_NETWORK_FLAGS, dataset_path
from driple.contracts.manifest import LOCAL, SIMULATED, is_sealed
from driple.contracts.run_dir import RunPaths
from driple.contracts.setting import Setting

_SPOILING = {BACKGROUND_LOAD_FLAG, *OTHER_NETWORK_FLAGS}


def sealed_runs(output: Path, experiment: str, run_ids: Iterable[str], *, any_network: bool = False) -> frozenset[str]:
    """The identities of sealed runs; with `any_network`, also of those whose network was not as specified."""
    folder = RunPaths(output, experiment, "").root
    try:
        present = {entry.name for entry in folder.iterdir()}
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise BadInput(f"output folder {str(folder)!r}: {error.strerror}") from None
    return frozenset(
        run_id
        for run_id in present.intersection(run_ids)
        if is_sealed(RunPaths(output, experiment, run_id).manifest, run_id, any_network=any_network)
    )


def measured_runs(
    datasets: Path, settings: Iterable[str], run_ids: Iterable[str], *, simulated: bool = False
) -> frozenset[str]:
    """The identities with rows in a dataset, even if their traces were deleted.

    A run is measured again if the machine had other load, or if its network or share was not as it asks. Simulated
    rows do not count for measured runs, nor the other way round.

    Raises:
        BadInput: there is no such folder, or a file is not a dataset.
    """
    if not datasets.is_dir():
        raise BadInput(f"--done {datasets}: {'not a folder' if datasets.exists() else 'no such folder'}")
    there, spoilt = set[str](), set[str]()
    for setting in settings:
        path = dataset_path(datasets, setting, simulated)
        if not path.exists():
            continue
        one_machine = Setting.parse(setting).one_machine
        for run_id, flags, host_kind in _rows(path):
            if (host_kind == SIMULATED) != simulated:
                continue
            bad = not _SPOILING.isdisjoint(flags or ()) or (host_kind == LOCAL and not one_machine)
            (spoilt if bad else there).add(run_id)
    return frozenset(run_ids) & (there - spoilt)


def _rows(path: Path) -> list[tuple[str, list[str] | None, str | None]]:
    parquet = importlib.import_module("pyarrow.parquet")
    try:
        table = parquet.read_table(path, columns=["run_id", "flags", "host_kind"])
    except (OSError, ValueError, KeyError):  # pyarrow's own errors are ValueErrors
        raise BadInput(f"{path}: not a readable dataset") from None
    return list(zip(*(table[name].to_pylist() for name in ("run_id", "flags", "host_kind")), strict=True))
