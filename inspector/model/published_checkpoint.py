"""The checkpoint that the authors of Driple published, as initial weights for networks of the preset `paper`.

Its outputs are shares of the largest value in the authors' training data, which they did not save.
"""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from driple.contracts.errors import BadInput, shown
from driple.contracts.metrics import PUBLISHED_COLUMNS, PUBLISHED_INDEX
from driple.inspector.model.model_config import PRESETS
from driple.inspector.network.graph_network import Network

FEATURES = 3
CONFIG = PRESETS["paper"].network

_OF_CELL = {f"{kind}_{side}_l0": f"{kind}_{side}" for kind in ("weight", "bias") for side in ("ih", "hh")}
_PARTS = {
    "conv_layers.0": ("layers.0", {"W": "weight", "b": "bias"}),
    "conv_layers.1": ("layers.1", {"W": "weight", "b": "bias"}),
    "gru.gru": ("cell.cell", _OF_CELL),
    "graph_read_out.set2set.lstm": ("readout.lstm", _OF_CELL),
    **{
        f"graph_read_out.mlp.fully_connected.{i}.linear": (f"mlp.{i}", {"weight": "weight", "bias": "bias"})
        for i in range(CONFIG.mlp_layers)
    },
}
OUR_NAME = {
    f"{theirs}.{their_leaf}": f"{ours}.{our_leaf}"
    for theirs, (ours, leaves) in _PARTS.items()
    for their_leaf, our_leaf in leaves.items()
}
# The message of torch's restricted reader names what it does not call.
_FOREIGN = re.compile(r"GLOBAL ([\w.]*\w)")
# Place of our features (frequency, bytes, ops) in theirs (bytes, ops, frequency).
_THEIR_FEATURE = (2, 0, 1)


def to_network_state(path: Path) -> dict[str, Tensor]:
    """Weights for `Network(PRESETS["paper"].network, 3, 0)` with features and targets in our order.

    Their recurrent cell receives the features, padded with zeros, where it later receives the state. So the first
    channels of every state change places with the features.

    Raises:
        BadInput: as `read_weights`.
    """
    hidden = CONFIG.hidden
    channels = torch.tensor([*_THEIR_FEATURE, *range(FEATURES, hidden)])
    order = {
        FEATURES: channels[:FEATURES],
        hidden: channels,
        **{parts * hidden: torch.cat([channels + part * hidden for part in range(parts)]) for parts in (2, 3, 4)},
    }
    moved = {}
    for name, weight in read_weights(path).items():
        after = weight
        within_mlp = name.startswith("mlp.")
        for axis, size in enumerate(weight.shape):
            if not within_mlp or (name == "mlp.0.weight" and axis == 1):
                after = after.index_select(axis, order[size])
        if name.startswith(f"mlp.{CONFIG.mlp_layers - 1}."):
            after = after[list(PUBLISHED_INDEX)]
        moved[name] = after.contiguous()
    return moved


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights of the file under our names, in the authors' order of features and targets.

    Raises:
        BadInput: the file cannot be read, wants to run code, or is another checkpoint; one line.
    """
    state = _load(path)
    if not (isinstance(state, dict) and state and all(isinstance(item, Tensor) for item in state.values())):
        raise BadInput(f"{path}: not a published checkpoint: expected weights by name, got {type(state).__name__}")
    missing = [name for name in OUR_NAME if name not in state]
    other = [str(name) for name in state if name not in OUR_NAME]
    if missing:
        hint = f"; it has {shown(other[0])} instead" if other else ""
        raise BadInput(f"{path}: not a published checkpoint: weight {missing[0]!r} is missing{hint}")
    if other:
        raise BadInput(
            f"{path}: not a published checkpoint: weight {shown(other[0])} is not one of its {len(OUR_NAME)}"
        )
    with torch.device("meta"):  # shapes alone; draws no random numbers
        expected = Network(CONFIG, FEATURES, 0, len(PUBLISHED_COLUMNS)).state_dict()
    weights = {}
    for theirs, ours in OUR_NAME.items():
        weight = state[theirs]
        if weight.is_nested or weight.layout is not torch.strided or weight.is_meta:
            raise BadInput(f"{path}: weight {theirs!r} is not a plain table of numbers")
        if weight.shape != expected[ours].shape:
            wanted, got = tuple(expected[ours].shape), tuple(weight.shape)
            raise BadInput(f"{path}: a checkpoint of another shape: {theirs!r} is {got}, expected {wanted}")
        if not weight.is_floating_point() or not bool(weight.isfinite().all()):
            raise BadInput(f"{path}: weight {theirs!r} holds something else than finite numbers")
        weights[ours] = weight.detach().to(torch.float32).contiguous()
    return weights


def _load(path: Path) -> Any:
    if not path.is_file():
        raise BadInput(f"{path}: {'a folder, not a checkpoint' if path.is_dir() else 'no such file'}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch on its own old formats
            return torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except pickle.UnpicklingError as error:
        wants = _FOREIGN.search(str(error))
        if wants:
            raise BadInput(
                f"{path}: refused: it asks to run {shown(wants[1])}, and a checkpoint has weights alone"
            ) from None
        raise BadInput(f"{path}: not a file that torch.save wrote, or one cut short") from None
    except Exception as error:  # torch raises many kinds for a broken pickle or zip
        raise BadInput(f"{path}: not a file that torch.save wrote, or one cut short ({type(error).__name__})") from None
