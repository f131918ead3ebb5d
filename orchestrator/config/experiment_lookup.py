"""Finds an experiment file by path, or by the name of an experiment in ./experiments or in the installed package."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import resources
from pathlib import Path

from driple.contracts.errors import UnknownName

PACKAGE = "driple.experiments"
NOT_EXPERIMENTS = ("workloads",)
"""Files beside the experiments: lists of workloads that they share."""


def find_experiment(name: str | os.PathLike[str]) -> Path:
    """The file of an experiment.

    Raises:
        UnknownName: there is no such file, and no known experiment has that name.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or len(path.parts) != 1 or os.path.isfile(path):  # noqa: PTH113 a long name
        return path  # the reader reports a file that is missing
    known = known_experiments()
    if known and str(name) not in known:
        raise UnknownName("experiment", str(name), tuple(known))
    return known.get(str(name), path)


def known_experiments() -> dict[str, Path]:
    """The experiments that have a name. Those of the current folder come first."""
    files = list(Path("experiments").glob("*.yaml"))
    with suppress(ModuleNotFoundError):  # an installation without the experiment files
        files += [Path(str(file)) for file in resources.files(PACKAGE).iterdir() if file.name.endswith(".yaml")]
    found = {file.stem: file for file in reversed(files) if file.stem not in NOT_EXPERIMENTS}
    return dict(sorted(found.items()))
