"""The source of a transfer: the inspector of another setting, by name or folder, or a published checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, BadSetting
from driple.contracts.formats.dataset import is_simulated, joined_provenance
from driple.contracts.formats.inspector import FILE, ROLES, folder_name
from driple.contracts.installed_data import installed_data
from driple.contracts.metrics import COLUMNS, PUBLISHED_COLUMNS
from driple.contracts.setting import CPU, Setting
from driple.inspector.base_model.stacked_regressor import BaseModel, SourceModel
from driple.inspector.data.tensors import Preparation
from driple.inspector.model.inspector_folder import load
from driple.inspector.model.inspector_model import InspectorModel
from driple.inspector.model.model_config import PRESETS, InspectorConfig
from driple.inspector.model.store import HERE, is_inspector

PUBLISHED = "published"
ALLOW = "--set transfer.allow_other_setting=true"


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """A trained network to start from."""

    config: InspectorConfig
    preparation: Preparation | None
    """Its scalers; None for a published checkpoint, which takes raw inputs."""
    states: tuple[Mapping[str, Any], ...] = field(repr=False)
    """Weights of its networks."""
    plains: tuple[BaseModel, ...] | None = field(default=None, repr=False)
    """The base models of its networks."""
    layer_split: float | None
    about: Mapping[str, Any]
    """For inspector.json and reports."""
    folder: Path | None = None
    """Folder of its inspector; None for a published checkpoint."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The targets of its networks."""
        if self.preparation is None:
            return tuple(name for name in COLUMNS if name in PUBLISHED_COLUMNS)
        return self.preparation.targets.columns

    def elsewhere(self, member: int) -> SourceModel | None:
        """The base model of one of its networks; None where it has none."""
        if self.plains is None or self.preparation is None:
            return None
        scales = self.preparation.facts, self.preparation.targets
        return SourceModel(self.plains[member % len(self.plains)], *scales)


def find_source(text: str, output: Path, setting: str, role: str, *, allow_other: bool = False) -> Source:
    """The source that `--transfer-from` names, for a new inspector of this setting and role.

    Args:
        text: a setting whose inspector is in `output`, in `./inspectors` or installed with driple (the first of these
            is used), a folder with an inspector, or a published checkpoint.
        allow_other: allow a source with a different setting, role or device.

    Raises:
        BadInput: there is none, it cannot be read, or its setting, role or device is another.
    """
    path = Path(text)
    if path.name == FILE:
        path = path.parent
    if path.is_file():
        return published_source(path)
    if path.is_dir():
        return _of_folder(path, _said_by(path.resolve().name), setting, role, allow_other)
    try:
        said = str(Setting.parse(text))
    except BadSetting:
        raise BadInput(f"--transfer-from {text}: no such file or folder, and no setting") from None
    places = list(dict.fromkeys(place for place in (output, HERE, installed_data(HERE.name)) if place is not None))
    for place in places:
        folder = place / folder_name(said, role)
        if is_inspector(folder):
            return _of_folder(folder, said, setting, role, allow_other)
    where = " or ".join(str(place / folder_name(said, role)) for place in places)
    raise BadInput(f"--transfer-from {text}: no inspector in {where} ({_there(places)})")


def published_source(path: Path) -> Source:
    """A checkpoint that the authors of Driple published."""
    from driple.inspector.model.published_checkpoint import to_network_state

    return Source(
        config=PRESETS["paper"],
        preparation=None,
        states=(to_network_state(path),),
        layer_split=None,
        about={"from": path.name, "provenance": PUBLISHED},
    )


def _of_folder(folder: Path, said: str | None, setting: str, role: str, allow_other: bool) -> Source:
    found = load(folder)
    if not allow_other:
        _check(folder, found.setting, found.role, said, setting, role)
    return Source(
        config=found.config,
        preparation=found.preparation,
        states=tuple(network.state_dict() for network in found.networks),
        plains=found.plains,
        layer_split=found.networks[0].split,
        folder=folder,
        about={
            "from": found.setting,
            **{name: getattr(found, name) for name in ("role", "split", "provenance", "dataset_sha256")},
            "weights_sha256": _weights_sha256(found),
        },
    )


def check_provenance(source: Source, provenance: str, *, allow_mixed: bool) -> None:
    """Raises BadInput for a source of simulated rows and an inspector of measured ones, or the other way round."""
    own = str(source.about["provenance"])
    if not allow_mixed and is_simulated(own) != is_simulated(provenance):
        raise BadInput(
            f"--transfer-from {source.folder or source.about['from']}: learned from {own} rows, and this dataset has"
            f" {provenance} ones: they are mixed only if you ask for it (--set transfer.allow_simulated=true)"
        )


def provenance_after(examples: str, source: Source | None) -> str:
    """The provenance of an inspector: that of its rows, and of the rows of its source if either was simulated."""
    own = None if source is None else str(source.about["provenance"])
    mixed = own is not None and is_simulated(own) != is_simulated(examples)
    return joined_provenance((examples, own or "")) if mixed else examples


def _weights_sha256(found: InspectorModel) -> str:
    """Detects, when a training is resumed, that its source was trained again."""
    digest = hashlib.sha256()
    for network in found.networks:
        for name, tensor in network.state_dict().items():
            digest.update(name.encode() + tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


def _check(folder: Path, found: str, found_role: str, said: str | None, setting: str, role: str) -> None:
    """A source of another setting is a mistake unless the user named that setting."""
    if said is not None and said != found:
        raise BadInput(f"{folder}: the folder says {said}, its inspector is of {found}; {ALLOW} takes it all the same")
    if said is None and found != setting:
        raise BadInput(f"{folder}: its inspector is of {found}, which the folder's name does not say; {ALLOW} takes it")
    if found_role != role:
        raise BadInput(f"{folder}: an inspector of role {found_role}, not {role}; {ALLOW} takes it all the same")
    if (Setting.parse(found).device == CPU) != (Setting.parse(setting).device == CPU):
        raise BadInput(
            f"{folder}: its inspector is of {found}; between CPUs and GPUs the targets are not the same thing; {ALLOW} "
            "takes it all the same"
        )


def _said_by(name: str) -> str | None:
    for role in ROLES:
        name = name.removesuffix(f"-{role}")
    try:
        return str(Setting.parse(name))
    except BadSetting:
        return None


def _there(places: Sequence[Path]) -> str:
    names = dict.fromkeys(
        name for place in places for name in sorted(one.parent.name for one in place.glob(f"*/{FILE}"))
    )
    return f"there are: {', '.join(names)}" if names else "there are none"
