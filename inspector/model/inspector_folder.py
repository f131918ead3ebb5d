"""An inspector's folder: written so that it is never half there, read strictly.

inspectors/<setting>/            (of parameter servers: <setting>-ps)
    inspector.json               everything but the weights, and the name of the file that has them
    model-<hash>.safetensors     the weights of all its networks
    training-rows.json           which workloads it learned from, so that a prediction can say how near they are
    report.md, report.json       errors beside those of the baselines; errors.csv, predictions.csv, *.png
    events/                      learning curves for TensorBoard
    training/                    states to go on from (--resume)
    tune.db                      the search of --tune

Weights and the rest are two files, and no file system moves two into place at once. So weights get a new name, and
moving inspector.json into place is what makes them count.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, shown
from driple.contracts.json_values import from_plain, read_json_file, to_plain
from driple.contracts.metrics import COLUMNS
from driple.contracts.run_dir import replacing
from driple.inspector.base_model.stacked_regressor import BaseModel
from driple.inspector.data.tensors import Preparation
from driple.inspector.model.inspector_model import InspectorModel
from driple.inspector.model.model_config import ROLES, SPLITS, InspectorConfig
from driple.inspector.network.graph_network import Network

SCHEMA = "inspector"
SCHEMA_VERSION = 2
FILE = "inspector.json"
REPORTS = ("report.md", "report.json", "errors.csv", "predictions.csv", "errors.png", "predictions.png")

MOST_NETWORKS = 10_000

_KEYS = (
    *("schema", "schema_version", "setting", "role", "split", "seed", "provenance", "config", "features", "scalers"),
    *("targets", "plains", "weights", "weights_sha256", "networks", "layer_split", "dataset_sha256", "calibration"),
    *("transferred_from", "training", "versions"),
)


def folder_of(output: Path, setting: str, role: str) -> Path:
    """Where the inspector of a setting and role is."""
    return output / (setting if role == "worker" else f"{setting}-{role}")


def save(folder: Path, inspector: InspectorModel) -> None:
    """Puts an inspector in its folder. A reader, also after a kill, gets the one before or this one, whole."""
    from safetensors.torch import save as to_bytes

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"{number}.{name}": tensor.detach().cpu().contiguous().clone()
        for number, network in enumerate(inspector.networks)
        for name, tensor in network.state_dict().items()
    }
    content = to_bytes(tensors)
    digest = hashlib.sha256(content).hexdigest()
    weights = f"model-{digest[:12]}.safetensors"
    with replacing(folder / weights, "wb") as stream:
        stream.write(content)
    for name in REPORTS:  # of the inspector that goes: better none than those of another
        with suppress(FileNotFoundError):
            (folder / name).unlink()
    with replacing(folder / FILE) as stream:
        json.dump(_plain(inspector, weights, digest), stream, indent=1, allow_nan=False)
        stream.write("\n")
    for left in [*folder.glob("model-*.safetensors"), *folder.glob(".*.partial")]:
        if left.name != weights:
            with suppress(FileNotFoundError):
                left.unlink()


def load(folder: Path, device: str = "cpu") -> InspectorModel:
    """The inspector of a folder.

    Raises:
        BadInput: there is none, it is of another version, or its parts do not fit together; one line.
    """
    path = folder / FILE
    if not path.is_file():
        raise BadInput(f"{folder}: no inspector (no {FILE}); driple-train makes one")
    return read_json_file(path, lambda value: _decode(folder, value, device))


def _plain(inspector: InspectorModel, weights: str, digest: str) -> dict[str, Any]:
    values = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "config": to_plain(inspector.config),
        **inspector.preparation.to_plain(),
        "targets": list(COLUMNS),
        "weights": weights,
        "weights_sha256": digest,
        "networks": len(inspector.networks),
        "layer_split": inspector.networks[0].split,
    }
    values |= {name: to_plain(getattr(inspector, name)) for name in _KEYS if name not in values}
    return {name: values[name] for name in _KEYS}


def _decode(folder: Path, value: Any, device: str) -> InspectorModel:
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise BadInput("not an inspector of driple")
    if value.get("schema_version") != SCHEMA_VERSION:
        raise BadInput(
            f"schema version {shown(value.get('schema_version'))}, this release reads {SCHEMA_VERSION}; train "
            "again, or use the release that made it"
        )
    for name in _KEYS:
        if name not in value:
            raise BadInput(f"key {name!r} is missing")
    for name, (fits, expected) in _FORMS.items():
        if not fits(value[name]):
            raise BadInput(f"{name}: expected {expected}, got {shown(value[name])}; train again")
    if value["targets"] != list(COLUMNS):
        raise BadInput("its targets are not those of this release; train again")
    config = from_plain(InspectorConfig, value["config"], "config")
    preparation = Preparation.from_plain(value["features"], value["scalers"])
    networks = _networks(folder, value, config, preparation, device)
    calibration = value["calibration"]
    return InspectorModel(
        setting=value["setting"],
        role=value["role"],
        split=value["split"],
        seed=value["seed"],
        config=config,
        preparation=preparation,
        networks=networks,
        plains=_plains(value["plains"], len(networks), config, preparation),
        provenance=value["provenance"],
        dataset_sha256=value["dataset_sha256"],
        calibration=None if calibration is None else tuple(float(one) for one in calibration),
        transferred_from=value["transferred_from"],
        training=value["training"],
        versions=value["versions"],
    )


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return _whole(value) or isinstance(value, float)


def _factors(value: Any) -> bool:
    return isinstance(value, list) and len(value) == len(COLUMNS) and all(_number(one) and one > 0 for one in value)


def _facts_of_training(value: Any) -> bool:
    lists = ("epochs", "best_epochs", "val_nrmse")
    return isinstance(value, dict) and all(isinstance(value.get(name, []), list) for name in lists)


_FORMS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("setting", "provenance", "dataset_sha256", "weights", "weights_sha256"), (_text, "text")),
    "role": (lambda value: value in ROLES, f"one of {', '.join(ROLES)}"),
    "split": (lambda value: value in SPLITS, f"one of {', '.join(SPLITS)}"),
    "seed": (_whole, "a whole number"),
    "networks": (lambda value: _whole(value) and 1 <= value <= MOST_NETWORKS, f"1 to {MOST_NETWORKS}"),
    "layer_split": (lambda value: value is None or (_number(value) and 0 < value < 1), "null, or a share of layers"),
    "calibration": (lambda value: value is None or _factors(value), f"null, or {len(COLUMNS)} factors of more than 0"),
    "transferred_from": (lambda value: value is None or isinstance(value, dict), "null, or facts of the source"),
    "training": (_facts_of_training, "facts of the training"),
    "versions": (lambda value: isinstance(value, dict), "versions by name"),
}
"""Of what is not checked by what it is made into: whether it is of the form that is written, and that form in words."""


def _plains(
    value: Any, networks: int, config: InspectorConfig, preparation: Preparation
) -> tuple[BaseModel, ...] | None:
    if value is None and not config.network.plain:
        return None
    if not config.network.plain or not isinstance(value, list) or len(value) != networks:
        raise BadInput("plains: expected a plain model for each network that adds to one")
    found = tuple(from_plain(BaseModel, one, f"plains[{place}]") for place, one in enumerate(value))
    for place, one in enumerate(found):
        lines = [line.weights for line in one.ridges if line is not None]
        if {len(each) for each in (*lines, *one.kernel.points)} - {len(preparation.facts)}:
            raise BadInput(
                f"plains[{place}]: not of the {len(preparation.facts)} facts that its scale knows; train again"
            )
    return found


def _networks(
    folder: Path, value: Mapping[str, Any], config: InspectorConfig, preparation: Preparation, device: str
) -> tuple[Any, ...]:
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    name = str(value["weights"])
    if Path(name).name != name:
        raise BadInput(f"weights: expected the name of a file beside, got {shown(name)}")
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise BadInput(f"its weights {name}: {error.strerror}; train again") from None
    if hashlib.sha256(content).hexdigest() != value["weights_sha256"]:
        raise BadInput(f"its weights {name} are damaged (checksum); train again")
    try:
        tensors = from_bytes(content)
    except SafetensorError:
        raise BadInput(f"its weights {name} cannot be read; train again") from None
    for key, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise BadInput(f"its weights {name}: {key} has values that are no numbers; train again")
    networks = []
    for number in range(value["networks"]):
        network = new_network(config, preparation, split=value["layer_split"])
        own = {key.partition(".")[2]: tensor for key, tensor in tensors.items() if key.partition(".")[0] == str(number)}
        fill(network, own, f"its weights {name}")
        networks.append(network.to(device).eval())
    return tuple(networks)


def new_network(config: InspectorConfig, preparation: Preparation, split: float | None = None) -> Any:
    """A network for these inputs, with first weights."""
    facts = len(preparation.facts) + (len(COLUMNS) if config.network.plain else 0)
    return Network(config.network, len(preparation.featuriser.names), facts, len(COLUMNS), split=split)


def fill(network: Any, state: Mapping[str, Any], what: str) -> None:
    """Puts weights into a network, all of them and nothing else.

    Raises:
        BadInput: they are of a network of another shape.
    """
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
    """Of what took part in a training."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("driple", "torch", "numpy", "dgl"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
