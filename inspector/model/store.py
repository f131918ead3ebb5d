"""Finds inspectors. Reads only the head of each and loads none, so that a wrong name fails at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from driple.contracts.errors import BadInput, nearest
from driple.contracts.formats.inspector import FILE, folder_name
from driple.contracts.installed_data import installed_data

HERE = Path("inspectors")


class StoredInspector(NamedTuple):
    """The folder of an inspector, with its setting and role."""

    folder: Path
    setting: str
    role: str


def is_inspector(folder: Path) -> bool:
    """Whether a folder is that of an inspector."""
    return (folder / FILE).is_file()


def stored_inspectors(inspectors: Path) -> tuple[StoredInspector, ...]:
    """The inspectors in a folder of them, or the one whose folder it is."""
    found = []
    for path in (inspectors / FILE, *sorted(inspectors.glob(f"*/{FILE}"))):
        try:
            value = json.loads(path.read_bytes())
            found.append(StoredInspector(path.parent, str(value["setting"]), str(value["role"])))
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            continue  # none, or a damaged one, which `load` reports if it is asked for by name
    return tuple(found)


def provenance_in(folder: Path) -> str | None:
    """The provenance of the inspector in a folder; None if there is none."""
    try:
        return str(json.loads((folder / FILE).read_bytes())["provenance"])
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


def find(inspectors: str | Path | None, setting: str, role: str) -> Path:
    """The folder of the inspector of a setting and role.

    Args:
        inspectors: where to look; None for `./inspectors` and then the inspectors installed with driple.
        setting: its setting.
        role: its role.

    Raises:
        BadInput: there is none; the message lists the others and the command to train one.
    """
    installed = installed_data(HERE.name) if inspectors is None else None
    folders = [HERE if inspectors is None else Path(inspectors), *([] if installed is None else [installed])]
    there: list[StoredInspector] = []
    for folder in folders:
        usual = folder / folder_name(setting, role)
        if is_inspector(usual):
            return usual
        there += stored_inspectors(folder)
        for one in there:
            if (one.setting, one.role) == (setting, role):
                return one.folder
    raise BadInput(
        f"no inspector of {setting} for role {role} in {' or '.join(map(str, dict.fromkeys(folders)))} "
        f"({_known(there, setting, role, folders)}); to train one: driple-train --setting {setting}"
        f"{'' if role == 'worker' else f' --role {role}'}"
    )


def _known(there: Sequence[StoredInspector], setting: str, role: str, folders: Iterable[Path]) -> str:
    names = list(dict.fromkeys(one.setting for one in there if one.role == role))
    others = list(dict.fromkeys(f"{one.setting} for {one.role}" for one in there if one.role != role))
    if not names and not others:
        return "it has none" if any(folder.is_dir() for folder in folders) else "there is no such folder"
    guess = nearest(setting, names, cutoff=0.8)
    hint = f"; did you mean {guess}?" if guess else ""
    return f"it has {', '.join([*names, *others])}{hint}"
