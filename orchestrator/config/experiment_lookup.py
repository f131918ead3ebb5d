"""Finds an experiment file by path, or by the name of an experiment in ./experiments or in the installed package."""

from __future__ import annotations

import os
from pathlib import Path

from driple.contracts.errors import UnknownName
from driple.contracts.installed_data import installed_data

FOLDER = "experiments"
NOT_EXPERIMENTS = ("workloads",)  # files beside the experiments: lists of workloads that they share


def find_experiment(name: str | os.PathLike[str]) -> Path:
    """The file of an experiment. Raises UnknownName if there is no such file, and no known experiment has that name."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or len(path.parts) != 1 or os.path.isfile(path):  # noqa: PTH113 a long name
        return path  # the reader reports a file that is missing
    known = known_experiments()
    if known and str(name) not in known:
        raise UnknownName("experiment", str(name), tuple(known))
    return known.get(str(name), path)


def known_experiments() -> dict[str, Path]:
    """The experiments that have a name. Those of the current folder come first."""
    folders = (installed_data(FOLDER), Path(FOLDER))
    files = [file for folder in folders if folder is not None for file in folder.glob("*.yaml")]
    found = {file.stem: file for file in files if file.stem not in NOT_EXPERIMENTS}
    return dict(sorted(found.items()))
