"""Format of the file of training steps of a folder of datasets: a row per workload and number of servers.

driple-build-dataset adds the steps of the runs that it uses. The simulator's fits and the time model read them, and so
need no graphs and no TensorFlow.

The optimiser and the update mode do not change the step of a worker, so they are not part of the key. An unknown size
is 0, and with one server there is no sharding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict

SCHEMA = "training_steps"
SCHEMA_VERSION = 2
METADATA: Dict[str, str] = {"driple.schema": SCHEMA, "driple.schema_version": str(SCHEMA_VERSION)}
STEPS = Path("steps", "lab.parquet")
"""In a folder of datasets."""
KEY_COLUMNS: Dict[str, str] = {
    "model": "string",
    "dataset": "string",
    "batch_size": "int32",
    "width": "float64",
    "image_size": "int32",
    "sequence_length": "int32",
    "sharding": "string",
    "servers": "int32",
    "strategy": "string",
    "framework": "string",
}
# Lists per op, per op and column of its window, per tensor from and to a server, per tensor of an all-reduce.
LIST_COLUMNS: Dict[str, str] = {
    "ops": "string",
    "flops": "int64",
    "read_bytes": "int64",
    "written_bytes": "int64",
    "executions": "int64",
    "windows": "int32",
    "pulls_op": "int64",
    "pulls_server": "int64",
    "pulls_bytes": "int64",
    "pushes_op": "int64",
    "pushes_server": "int64",
    "pushes_bytes": "int64",
    "reduced_op": "int64",
    "reduced_server": "int64",
    "reduced_bytes": "int64",
}
