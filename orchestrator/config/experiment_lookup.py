"""Finds an experiment file by path, or by the name of an experiment in ./experiments or in the installed package."""

from __future__ import annotations

import os
from collections.abc import Iterator
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
    if str(name) not in known:
        raise UnknownName("experiment", str(name), tuple(known))
    return known[str(name)]


def known_experiments() -> dict[str, Path]:
    """The experiments that have a name, by name. Those of the current folder come first."""
    found: dict[str, Path] = {}
    for folder in _folders():
        for path in sorted(folder.glob("*.yaml")):
            if path.stem not in NOT_EXPERIMENTS:
                found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def _folders() -> Iterator[Path]:
    yield Path("experiments")
    try:
        package = resources.files(PACKAGE)
    except ModuleNotFoundError:  # an installation without the experiment files
        return
    parts = [package] if isinstance(package, Path) else getattr(package, "_paths", [])  # of a namespace package
    yield from (Path(str(part)) for part in parts)
