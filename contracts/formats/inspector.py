"""The folder of an inspector: file names, schema versions, keys and validation.

inspectors/<setting>/            for parameter servers: <setting>-ps
    inspector.json               configuration, scalers, target columns, metrics of the training; readable by people
    model-<hash>.safetensors     all arrays: weights of the networks (`<number>.<name>`), base models (`base.<path>`)
    training-rows.json           the training workloads, so that a prediction can report its novelty
    report.json                  errors beside those of the baselines
    report.md, *.csv, *.png      the same as text, tables and pictures; `driple-train --evaluate` makes them again
    events/                      learning curves for TensorBoard
    training/                    states for --resume
    tune.db                      the search of --tune

The JSON file names the file of arrays. A new inspector writes its arrays under a new name first, and replacing
inspector.json makes them count, so a reader never sees half an inspector.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Tuple

from driple.contracts.errors import BadInput, shown
from driple.contracts.formats.dataset import SPLITS
from driple.contracts.strategy import SERVER, WORKER

FILE = "inspector.json"
SCHEMA = "inspector"
SCHEMA_VERSION = 3

ROWS_FILE = "training-rows.json"
ROWS_SCHEMA = "training-rows"
ROWS_VERSION = 1

REPORT_FILE = "report.json"
REPORT_TEXT_FILE = "report.md"
ERRORS_FILE = "errors.csv"
PREDICTIONS_FILE = "predictions.csv"
ERRORS_PICTURE = "errors.png"
PREDICTIONS_PICTURE = "predictions.png"
REPORTS = (REPORT_FILE, REPORT_TEXT_FILE, ERRORS_FILE, PREDICTIONS_FILE, ERRORS_PICTURE, PREDICTIONS_PICTURE)

WEIGHTS_PATTERN = "model-*.safetensors"
EVENTS_FOLDER = "events"
STATES_FOLDER = "training"
TUNE_FILE = "tune.db"

STATE_SCHEMA = "training"
STATE_VERSION = 1
STATE_KEY = "driple"
"""Key of a training state's safetensors metadata: JSON with the schema, the history and what was trained."""

PREDICTIONS_SCHEMA = "predictions"
PREDICTIONS_VERSION = 1

ROLES = (WORKER, SERVER)
MAX_NETWORKS = 10_000

KEYS = (
    *("schema", "schema_version", "setting", "role", "split", "seed", "provenance", "config", "features", "scalers"),
    *("targets", "plains", "weights", "weights_sha256", "networks", "layer_split", "dataset_sha256", "calibration"),
    *("transferred_from", "training", "versions"),
)
"""Keys of inspector.json. `targets` are the columns that the inspector predicts, in its own order."""


def folder_name(setting: str, role: str) -> str:
    """The folder of the inspector of a setting and role."""
    return setting if role == ROLES[0] else f"{setting}-{role}"


def weights_name(sha256: str) -> str:
    """The file of arrays with this checksum."""
    return WEIGHTS_PATTERN.replace("*", sha256[:12])


def state_name(member: int) -> str:
    """The training state of one network."""
    return f"member-{member}.safetensors"


def check_header(value: Any) -> Dict[str, Any]:
    """The content of inspector.json; raises BadInput if it is something else, or of another version."""
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise BadInput("not an inspector of driple")
    if value.get("schema_version") != SCHEMA_VERSION:
        raise BadInput(
            f"schema version {shown(value.get('schema_version'))}, this release reads {SCHEMA_VERSION}: train it again"
        )
    return value


def check_values(value: Any) -> Dict[str, Any]:
    """The content of inspector.json with every key present and of its type.

    Raises:
        BadInput: as `check_header`, or a key is missing or has a value of another type.
    """
    found = check_header(value)
    for name in KEYS:
        if name not in found:
            raise BadInput(f"key {name!r} is missing")
    for name, (fits, expected) in _TYPES.items():
        if not fits(found[name]):
            raise BadInput(f"{name}: expected {expected}, got {shown(found[name])}; train it again")
    factors = found["calibration"]
    if factors is not None and not _positive_numbers(factors, len(found["targets"])):
        raise BadInput(f"calibration: expected null, or {len(found['targets'])} factors of more than 0; train it again")
    return found


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return _whole(value) or isinstance(value, float)


def _positive_numbers(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(_number(one) and one > 0 for one in value)


def _columns(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_text, value)) and len(set(value)) == len(value)


def _training(value: Any) -> bool:
    lists = ("epochs", "best_epochs", "val_nrmse")
    return isinstance(value, dict) and all(isinstance(value.get(name, []), list) for name in lists)


_TYPES: Mapping[str, Tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("setting", "provenance", "dataset_sha256", "weights", "weights_sha256"), (_text, "text")),
    "role": (lambda value: value in ROLES, f"one of {', '.join(ROLES)}"),
    "split": (lambda value: value in SPLITS, f"one of {', '.join(SPLITS)}"),
    "seed": (_whole, "a whole number"),
    "targets": (_columns, "names of target columns"),
    "networks": (lambda value: _whole(value) and 1 <= value <= MAX_NETWORKS, f"1 to {MAX_NETWORKS}"),
    "layer_split": (lambda value: value is None or (_number(value) and 0 < value < 1), "null, or a share of layers"),
    "transferred_from": (lambda value: value is None or isinstance(value, dict), "null, or values of the source"),
    "training": (_training, "values of the training"),
    "versions": (lambda value: isinstance(value, dict), "versions by name"),
}
