"""Writes and reads the folder of a time model; contracts/formats/step_time.py has the format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput, shown
from driple.contracts.fingerprint import Fingerprint
from driple.contracts.formats import step_time as layout
from driple.contracts.formats.inspector import WEIGHTS_PATTERN, weights_name
from driple.contracts.installed_data import installed_data
from driple.contracts.json_values import from_plain, read_json_file, to_plain
from driple.contracts.run_dir import replacing
from driple.inspector.model.json_arrays import join, split
from driple.inspector.model.store import HERE
from driple.inspector.time.kernel_law import KernelLaw
from driple.inspector.time.pooled_law import PooledLaw, SiteNumbers
from driple.inspector.time.time_model import TimeModel
from driple.inspector.time.time_predictor import TimePredictor
from driple.inspector.time.time_table import Site
from driple.inspector.time.work_amounts import AMOUNTS
from driple.simulator.simulation import MachineSpeed

_PREFIX = "model"


@dataclass(frozen=True)
class _SiteRecord:
    """A site as it is stored."""

    setting: str
    machine: str
    framework: str
    k: float
    n_sync: float
    n_async: float
    o: float
    scale: float
    rows: int
    errors: tuple[float, ...]


@dataclass(frozen=True)
class _Stored:
    """A time predictor as it is stored."""

    rates: dict[str, float]
    contention: float
    speeds: dict[str, tuple[float, ...]]
    kernel: KernelLaw
    sites: tuple[_SiteRecord, ...]
    setting_errors: tuple[float, ...]
    machine_errors: tuple[float, ...]
    anchor: str


@dataclass(frozen=True)
class StoredTimePredictor:
    """A time predictor with what its folder says of it."""

    predictor: TimePredictor
    folder: Path
    fingerprints: Mapping[str, Fingerprint]
    """By label of a machine; not of machines whose rows are older than fingerprints."""
    datasets: Mapping[str, str]
    """SHA-256 of each dataset, by setting."""


def save(folder: Path, predictor: TimePredictor, fingerprints: Mapping[str, Fingerprint], **about: Any) -> None:
    """Writes a predictor. A reader, also after a kill, sees the previous one or this one, whole.

    Args:
        folder: where to.
        predictor: it.
        fingerprints: of its machines, by label.
        about: `datasets` and `versions`.
    """
    from safetensors.numpy import save as to_bytes

    folder.mkdir(parents=True, exist_ok=True)
    plain, arrays = split(to_plain(_stored(predictor)), _PREFIX)
    content = to_bytes({name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())})
    digest = hashlib.sha256(content).hexdigest()
    weights = weights_name(digest)
    with replacing(folder / weights, "wb") as stream:
        stream.write(content)
    values = {
        **{"schema": layout.SCHEMA, "schema_version": layout.SCHEMA_VERSION, **about},
        "machines": {label: to_plain(one) for label, one in fingerprints.items()},
        **{"model": plain, "weights": weights, "weights_sha256": digest},
    }
    with replacing(folder / layout.FILE) as stream:
        stream.write(json.dumps({name: values[name] for name in layout.KEYS}, indent=1, allow_nan=False) + "\n")
    for left in folder.glob(WEIGHTS_PATTERN):
        if left.name != weights:
            with suppress(FileNotFoundError):
                left.unlink()


def find(inspectors: str | Path | None) -> Path | None:
    """The folder of the time model beside the inspectors; None if there is none.

    Args:
        inspectors: the folder of inspectors; None for `./inspectors` and then those installed with driple.
    """
    installed = installed_data(HERE.name) if inspectors is None else None
    for folder in (HERE if inspectors is None else Path(inspectors), installed):
        if folder is not None and (folder / layout.FOLDER / layout.FILE).is_file():
            return folder / layout.FOLDER
    return None


def load(folder: Path) -> StoredTimePredictor:
    """Reads a time predictor. Raises BadInput in one line if there is none, or it is damaged."""
    path = folder / layout.FILE
    if not path.is_file():
        raise BadInput(f"{folder}: no time model (no {layout.FILE}); driple-train-time makes one")
    return read_json_file(path, lambda value: _decode(folder, layout.check_values(value)))


def _decode(folder: Path, value: Mapping[str, Any]) -> StoredTimePredictor:
    stored = from_plain(_Stored, join(value["model"], _PREFIX, _arrays(folder, value)), "model")
    if set(stored.rates) != set(AMOUNTS):
        raise BadInput("model.rates: not the amounts of work of this release; train it again")
    for name, values in stored.speeds.items():
        if len(values) != len(MachineSpeed._fields) or not min(values) > 0:
            raise BadInput(f"model.speeds.{name}: expected two positive numbers; train it again")
    sites = {(one.setting, one.machine, one.framework): one for one in stored.sites}
    if not sites:
        raise BadInput("model.sites: expected one or more; train it again")
    numbers: dict[Site, SiteNumbers] = {
        site: SiteNumbers(one.k, one.n_sync, one.n_async, one.o) for site, one in sites.items()
    }
    model = TimeModel(
        PooledLaw(tuple(stored.rates[name] for name in AMOUNTS), numbers),
        stored.kernel,
        {site: one.scale for site, one in sites.items()},
        {name: MachineSpeed(*values) for name, values in stored.speeds.items()},
        stored.contention,
    )
    predictor = TimePredictor(
        model,
        {site: one.errors for site, one in sites.items()},
        stored.setting_errors,
        stored.machine_errors,
        {site: one.rows for site, one in sites.items()},
        stored.anchor,
    )
    fingerprints = from_plain(dict[str, Fingerprint], value["machines"], "machines")
    return StoredTimePredictor(
        predictor, folder, fingerprints, from_plain(dict[str, str], value["datasets"], "datasets")
    )


def _arrays(folder: Path, value: Mapping[str, Any]) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

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
        found: dict[str, Any] = from_bytes(content)
    except SafetensorError:
        raise BadInput(f"its weights {name} cannot be read; train it again") from None
    if not all(np.isfinite(array).all() for array in found.values()):
        raise BadInput(f"its weights {name} have values that are not finite; train it again")
    return found


def _stored(predictor: TimePredictor) -> _Stored:
    model = predictor.model
    sites = tuple(
        _SiteRecord(
            *site,
            *numbers,
            scale=model.scales[site],
            rows=predictor.rows.get(site, 0),
            errors=tuple(predictor.errors.get(site, ())),
        )
        for site, numbers in model.pooled.numbers.items()
    )
    rates = dict(zip(AMOUNTS, model.pooled.rates, strict=True))
    errors = predictor.setting_errors, predictor.machine_errors
    return _Stored(
        rates,
        model.contention,
        {name: tuple(one) for name, one in model.speeds.items()},
        model.kernel,
        sites,
        *errors,
        anchor=predictor.anchor,
    )
