"""Which inspectors there are. Reads a line or two of each and loads none, so that a wrong name is told at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from driple.contracts.errors import BadInput, nearest
from driple.contracts.formats.inspector import FILE, folder_name


@dataclass(frozen=True)
class StoredInspector:
    """An inspector's folder, and what it is of."""

    folder: Path
    setting: str
    role: str


def stored_inspectors(inspectors: Path) -> tuple[StoredInspector, ...]:
    """The inspectors in a folder of them, or the one whose folder it is."""
    found = []
    for path in (inspectors / FILE, *sorted(inspectors.glob(f"*/{FILE}"))):
        try:
            value = json.loads(path.read_bytes())
            found.append(StoredInspector(path.parent, str(value["setting"]), str(value["role"])))
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            continue  # none, or a broken one: of that checkpoint.load complains, if it is asked for by name
    return tuple(found)


def find(inspectors: Path, setting: str, role: str) -> Path:
    """The folder of the inspector of a setting and role.

    Raises:
        BadInput: there is none; says which there are, and how to train one.
    """
    usual = inspectors / folder_name(setting, role)
    if (usual / FILE).is_file():
        return usual
    there = stored_inspectors(inspectors)
    for one in there:
        if (one.setting, one.role) == (setting, role):
            return one.folder
    raise BadInput(
        f"no inspector of {setting} for role {role} in {inspectors} ({_known(there, setting, role, inspectors)}); to "
        f"train one: driple-train --setting {setting}{'' if role == 'worker' else f' --role {role}'}"
    )


def _known(there: Sequence[StoredInspector], setting: str, role: str, inspectors: Path) -> str:
    names = [one.setting for one in there if one.role == role]
    others = [f"{one.setting} for {one.role}" for one in there if one.role != role]
    if not names and not others:
        return "it has none" if inspectors.is_dir() else "there is no such folder: see --inspectors"
    guess = nearest(setting, names, cutoff=0.8)
    hint = f"; did you mean {guess}?" if guess else ""
    return f"it has {', '.join([*names, *others])}{hint}"
