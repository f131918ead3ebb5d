"""Which runs of a plan are already sealed under the output folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from driple.contracts.errors import BadInput
from driple.contracts.manifest import is_sealed
from driple.contracts.rundir import RunPaths


def sealed_runs(output: Path, experiment: str, run_ids: Iterable[str]) -> frozenset[str]:
    """The identities that need not be done again. Looks only into folders that exist, one listing for all."""
    folder = RunPaths(output, experiment, "").root
    try:
        present = {entry.name for entry in folder.iterdir()}
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise BadInput(f"output folder {str(folder)!r}: {error.strerror}") from None
    return frozenset(
        run_id
        for run_id in run_ids
        if run_id in present and is_sealed(RunPaths(output, experiment, run_id).manifest, run_id)
    )
