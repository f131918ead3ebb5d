"""The folder of a time model: file names, schema version and keys.

inspectors/step-time/
    step-time.json               rates, numbers of sites, errors of held-out workloads; readable by people
    model-<hash>.safetensors     long lists of numbers of the JSON file

The JSON file names the file of arrays. A new model writes its arrays under a new name first, and replacing the JSON
file makes them count, so a reader never sees half a model.
"""

from __future__ import annotations

from typing import Any, Dict

from driple.contracts.errors import BadInput, shown

FOLDER = "step-time"
FILE = "step-time.json"
SCHEMA = "time-model"
SCHEMA_VERSION = 1
KEYS = ("schema", "schema_version", "datasets", "versions", "machines", "model", "weights", "weights_sha256")


def check_values(value: Any) -> Dict[str, Any]:
    """The content of step-time.json. Raises BadInput if it is something else, or of another version."""
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise BadInput("not a time model of driple")
    if value.get("schema_version") != SCHEMA_VERSION:
        raise BadInput(
            f"schema version {shown(value.get('schema_version'))}, this release reads {SCHEMA_VERSION}: train it again"
        )
    for name in KEYS:
        if name not in value:
            raise BadInput(f"key {name!r} is missing")
    return value
