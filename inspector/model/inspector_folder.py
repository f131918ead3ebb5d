"""Writes and reads the folder of an inspector; contracts/formats/inspector.py has the format."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, shown
from driple.contracts.formats import inspector as layout
from driple.contracts.json_values import from_plain, read_json_file, to_plain
from driple.contracts.metrics import TARGET_OF_COLUMN
from driple.contracts.run_dir import replacing
from driple.inspector.base_model.stacked_regressor import BaseModel
from driple.inspector.data.tensors import Preparation
from driple.inspector.model.inspector_model import InspectorModel
from driple.inspector.model.json_arrays import join, split
from driple.inspector.model.model_config import ONCE, InspectorConfig
from driple.inspector.network.graph_network import Network

BASE = "base"
"""Prefix of the arrays of base models; those of networks begin with the number of the network."""
_UNCHANGED = (
    *("setting", "role", "split", "seed", "provenance", "dataset_sha256", "transferred_from", "training", "versions"),
)
"""Fields of an inspector that are stored as they are."""
_NUMBERS = re.compile(r"\[\n\s*(-?\d[^\[\]{}\"]*?)\n\s*\]")
"""A list of numbers over several lines; raw line ends are never inside a JSON string."""


def save(folder: Path, inspector: InspectorModel) -> None:
    """Writes an inspector. A reader, also after a kill, sees the previous one or this one, whole."""
    import torch
    from safetensors.torch import save as to_bytes

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"{number}.{name}": tensor.detach().cpu().contiguous().clone()
        for number, network in enumerate(inspector.networks)
        for name, tensor in network.state_dict().items()
    }
    plains, arrays = split(to_plain(inspector.plains), BASE)
    content = to_bytes(tensors | {name: torch.from_numpy(array) for name, array in arrays.items()})
    digest = hashlib.sha256(content).hexdigest()
    weights = layout.weights_name(digest)
    with replacing(folder / weights, "wb") as stream:
        stream.write(content)
    for name in layout.REPORTS:  # they describe the previous inspector
        with suppress(FileNotFoundError):
            (folder / name).unlink()
    text = json.dumps(_plain(inspector, plains, weights, digest), indent=1, allow_nan=False)
    with replacing(folder / layout.FILE) as stream:
        stream.write(_NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n")
    for left in [*folder.glob(layout.WEIGHTS_PATTERN), *folder.glob(".*.partial")]:
        if left.name != weights:
            with suppress(FileNotFoundError):
                left.unlink()


def load(folder: Path, device: str = "cpu") -> InspectorModel:
    """Reads an inspector.

    Raises:
        BadInput: there is none, it is of another version, or its parts do not fit together; one line.
    """
    path = folder / layout.FILE
    if not path.is_file():
        raise BadInput(f"{folder}: no inspector (no {layout.FILE}); driple-train makes one")
    return read_json_file(path, lambda value: _decode(folder, layout.check_values(value), device))


def _plain(inspector: InspectorModel, plains: Any, weights: str, digest: str) -> dict[str, Any]:
    values = {
        "schema": layout.SCHEMA,
        "schema_version": layout.SCHEMA_VERSION,
        "config": to_plain(inspector.config),
        **inspector.preparation.to_plain(),
        "targets": list(inspector.columns),
        "plains": plains,
        "weights": weights,
        "weights_sha256": digest,
        "networks": len(inspector.networks),
        "layer_split": inspector.networks[0].split,
    }
    values |= {name: to_plain(getattr(inspector, name)) for name in ("calibration", *_UNCHANGED)}
    return {name: values[name] for name in layout.KEYS}


def _decode(folder: Path, value: Mapping[str, Any], device: str) -> InspectorModel:
    for column in value["targets"]:
        if column not in TARGET_OF_COLUMN:
            raise BadInput(f"targets: this release has no target {shown(column)}; train it again")
    config = _config(value["config"])
    preparation = Preparation.from_plain(value["features"], value["scalers"])
    if list(preparation.targets.columns) != value["targets"]:
        raise BadInput("targets: not those of its scalers; train it again")
    tensors = _tensors(folder, value)
    networks: list[Any] = []
    for number in range(value["networks"]):
        network = new_network(config, preparation, value["layer_split"])
        own = {key.partition(".")[2]: tensor for key, tensor in tensors.items() if key.partition(".")[0] == str(number)}
        fill(network, own, f"its weights {value['weights']}")
        networks.append(network.to(device).eval())
    arrays = {name: tensor.numpy() for name, tensor in tensors.items() if name.startswith(f"{BASE}.")}
    calibration = value["calibration"]
    return InspectorModel(
        config=config,
        preparation=preparation,
        networks=tuple(networks),
        plains=_base_models(join(value["plains"], BASE, arrays), len(networks), config, preparation),
        calibration=None if calibration is None else tuple(map(float, calibration)),
        **{name: value[name] for name in _UNCHANGED},
    )


def _config(value: Any) -> InspectorConfig:
    # Inspectors of earlier releases counted loops once, and do not say so.
    known = {"loops": ONCE, **value} if isinstance(value, dict) else value
    return from_plain(InspectorConfig, known, "config")


def _base_models(
    value: Any, networks: int, config: InspectorConfig, preparation: Preparation
) -> tuple[BaseModel, ...] | None:
    if value is None and not config.network.plain:
        return None
    if not config.network.plain or not isinstance(value, list) or len(value) != networks:
        raise BadInput("plains: expected a base model for each network that adds to one")
    found = tuple(from_plain(BaseModel, one, f"plains[{place}]") for place, one in enumerate(value))
    for place, one in enumerate(found):
        lines = [line.weights for line in one.ridges if line is not None]
        if {len(each) for each in (*lines, *one.kernel.points)} - {len(preparation.facts)}:
            raise BadInput(f"plains[{place}]: expected weights for {len(preparation.facts)} features; train it again")
        if len(one.means) != len(preparation.targets.columns):
            raise BadInput(f"plains[{place}]: expected {len(preparation.targets.columns)} targets; train it again")
    return found


def _tensors(folder: Path, value: Mapping[str, Any]) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    name = str(value["weights"])
    if Path(name).name != name:
        raise BadInput(f"weights: expected the name of a file beside, got {shown(name)}")
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise BadInput(f"its weights {name}: {error.strerror}; train it again") from None
    if hashlib.sha256(content).hexdigest() != value["weights_sha256"]:
        raise BadInput(f"its weights {name} are damaged (checksum); train it again")
    try:
        tensors: dict[str, Any] = from_bytes(content)
    except SafetensorError:
        raise BadInput(f"its weights {name} cannot be read; train it again") from None
    for key, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise BadInput(f"its weights {name}: {key} has values that are not finite; train it again")
    return tensors


def new_network(config: InspectorConfig, preparation: Preparation, split: float | None = None) -> Any:
    """A network for these inputs and targets, with initial weights."""
    outputs = len(preparation.targets.columns)
    facts = len(preparation.facts) + (outputs if config.network.plain else 0)
    return Network(config.network, len(preparation.featuriser.names), facts, outputs, split=split)


def fill(network: Any, state: Mapping[str, Any], what: str) -> None:
    """Loads weights into a network; raises BadInput if one is missing, unknown or of another shape."""
    wanted = network.state_dict()
    for name in sorted(wanted.keys() | state.keys()):
        if name not in state or name not in wanted:
            raise BadInput(f"{what} do not fit its config: {name} is {'missing' if name in wanted else 'not known'}")
        if state[name].shape != wanted[name].shape:
            raise BadInput(
                f"{what} do not fit its config: {name} has shape {tuple(state[name].shape)}, "
                f"not {tuple(wanted[name].shape)}"
            )
    network.load_state_dict(state)


def versions() -> dict[str, str]:
    """Versions of the packages that a training uses."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("driple", "torch", "numpy", "dgl"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
