"""The state of a training, to resume it: one safetensors file with the plain values in its metadata.

Two files could be of two moments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput
from driple.contracts.formats.inspector import STATE_KEY, STATE_SCHEMA, STATE_VERSION
from driple.contracts.run_dir import replacing
from driple.inspector.training.train_config import flat

_PLAIN = ("fingerprint", "history", "best_epoch", "best_error", "seconds")
_TENSORS = ("network", "best", "optimiser")


@dataclass(frozen=True, eq=False)
class TrainingState:
    """A training after a whole epoch."""

    fingerprint: Mapping[str, Any]
    """Dataset and choices of the training; a state with another fingerprint is not resumed."""
    history: list[dict[str, float]]
    """A row for each epoch; row 0 is before the first step."""
    best_epoch: int
    best_error: float
    seconds: float
    """Spent so far, over all parts of an interrupted training."""
    network: Mapping[str, Any] = field(repr=False)
    best: Mapping[str, Any] = field(repr=False)
    optimiser: Mapping[str, Any] = field(repr=False)
    """Tensors by `<number of the parameter>.<name>`."""


def write_state(path: Path, state: TrainingState) -> None:
    """Writes the state."""
    from safetensors.torch import save

    tensors = {
        f"{part}.{name}": tensor.detach().cpu().contiguous().clone()
        for part in _TENSORS
        for name, tensor in getattr(state, part).items()
    }
    plain = {"schema": STATE_SCHEMA, "schema_version": STATE_VERSION}
    plain |= {name: getattr(state, name) for name in _PLAIN}
    content = save(tensors, metadata={STATE_KEY: json.dumps(plain, allow_nan=False)})
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, "wb") as stream:
        stream.write(content)


def read_state(path: Path, fingerprint: Mapping[str, Any]) -> TrainingState | None:
    """The state, or None if the training ended before its first state was written.

    Raises:
        BadInput: it cannot be read, or is of another training.
    """
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return None
    try:
        with safe_open(str(path), framework="pt") as stream:
            plain = json.loads((stream.metadata() or {})[STATE_KEY])
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 - no mapping
        if (plain["schema"], plain["schema_version"]) != (STATE_SCHEMA, STATE_VERSION):
            raise BadInput(f"{path}: of another version of driple; train without --resume")
        _same(path, plain["fingerprint"], fingerprint)
        parts: dict[str, Any] = {
            part: {name.partition(".")[2]: value for name, value in tensors.items() if name.startswith(f"{part}.")}
            for part in _TENSORS
        }
        return TrainingState(**{name: plain[name] for name in _PLAIN}, **parts)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        raise BadInput(f"{path}: no training to go on with (damaged?); train without --resume") from None


def _same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    was, now = flat(found), flat(json.loads(json.dumps(wanted)))
    for name in sorted(was.keys() | now.keys()):
        if was.get(name) != now.get(name):
            raise BadInput(
                f"--resume: the training in {path.parent.parent} had {name} = {was.get(name)!r}, not {now.get(name)!r}"
                "; give the same options, or train without --resume"
            )
