"""Format of a file of training steps, `datasets/steps/*.parquet`: a row per workload and number of servers.

The optimiser and the update mode do not change the step of a worker, so they are not part of the key. An unknown size
is 0, and with one server there is no sharding.
"""

from __future__ import annotations

from typing import Dict

SCHEMA = "training_steps"
SCHEMA_VERSION = 1
METADATA: Dict[str, str] = {"driple.schema": SCHEMA, "driple.schema_version": str(SCHEMA_VERSION)}
KEY_COLUMNS: Dict[str, str] = {
    "model": "string",
    "dataset": "string",
    "batch_size": "int32",
    "width": "float64",
    "image_size": "int32",
    "sequence_length": "int32",
    "sharding": "string",
    "servers": "int32",
}
# Lists per op, per op and column of its window, per tensor from and to a server.
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
}
