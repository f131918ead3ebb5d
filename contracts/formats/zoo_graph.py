"""Format of the stored graphs of the zoo, `zoo_graphs/<model>.parquet`: a row per strategy.

scripts/zoo-graphs writes the files, pipeline/graph/stored_graph.py reads them.
"""

from __future__ import annotations

from typing import Dict

FOLDER = "zoo_graphs"
SCHEMA = "zoo_graph"
SCHEMA_VERSION = 2
METADATA: Dict[str, str] = {"driple.schema": SCHEMA, "driple.schema_version": str(SCHEMA_VERSION)}
# Columns: lists per op, per edge, per tensor that goes to a server, per variable.
COLUMNS: Dict[str, str] = {
    "strategy": "string",
    "ops": "list<string>",
    "place": "list<int16>",
    "sized": "list<bool_>",
    "bytes_base": "list<int64>",
    "bytes_per_example": "list<int64>",
    "flops_base": "list<int64>",
    "flops_per_example": "list<int64>",
    "src": "list<int32>",
    "dst": "list<int32>",
    "output": "list<int16>",
    "sent_op": "list<int32>",
    "sent_output": "list<int16>",
    "sent_base": "list<int64>",
    "sent_per_example": "list<int64>",
    "sent_variable": "list<int32>",
    "read_base": "list<int64>",
    "read_per_example": "list<int64>",
    "windows": "list<int32>",
    "looped": "list<int32>",
    "variable_bytes": "list<int64>",
    "extra_left_out": "int64",
}
