"""The state of a training in one file, so that it can be resumed.

One safetensors file, its plain values in the file's own metadata: two files could be of two moments. Written beside and
moved into place.
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
    """Puts the state in its place."""
    from safetensors.torch import save

    tensors = {
        f"{part}.{name}": tensor.detach().cpu().contiguous().clone()
        for part in ("network", "best", "optimiser")
        for name, tensor in getattr(state, part).items()
    }
    plain = {
        "schema": STATE_SCHEMA,
        "schema_version": STATE_VERSION,
        "fingerprint": state.fingerprint,
        "history": state.history,
        "best_epoch": state.best_epoch,
        "best_error": state.best_error,
        "seconds": state.seconds,
    }
    content = save(tensors, metadata={STATE_KEY: json.dumps(plain, allow_nan=False)})
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, "wb") as stream:
        stream.write(content)


def read_state(path: Path, fingerprint: Mapping[str, Any]) -> TrainingState | None:
    """The state, or None where there is none: the training was ended before its first was written.

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
        parts = {
            part: {name.partition(".")[2]: value for name, value in tensors.items() if name.startswith(f"{part}.")}
            for part in ("network", "best", "optimiser")
        }
        return TrainingState(
            fingerprint=plain["fingerprint"],
            history=plain["history"],
            best_epoch=plain["best_epoch"],
            best_error=plain["best_error"],
            seconds=plain["seconds"],
            **parts,
        )
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        raise BadInput(f"{path}: no training to go on with (damaged?); train without --resume") from None


def _same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    was, now = _flat(found), _flat(json.loads(json.dumps(wanted)))
    for name in sorted(was.keys() | now.keys()):
        if was.get(name) != now.get(name):
            raise BadInput(
                f"--resume: the training in {path.parent.parent} had {name} = {was.get(name)!r}, not {now.get(name)!r}"
                "; give the same options, or train without --resume"
            )


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, item in value.items():
        flat |= _flat(item, f"{prefix}{name}.") if isinstance(item, Mapping) else {f"{prefix}{name}": item}
    return flat
