"""Format of `graph/<role>.parquet`: a training graph as nodes and edges, readable without TensorFlow.

The file is a table with one row per graph:

    graph = pyarrow.parquet.read_table("g.parquet").to_pylist()[0]
    nodes, edges = pandas.DataFrame(graph["nodes"]), pandas.DataFrame(graph["edges"])

A multiply-add is two FLOPs. FLOPs and bytes are those of one execution of the op: the body of a loop counts once.

Op types are those of TensorFlow, whatever built the graph. So is the order of dimensions: images are [batch, height,
width, channels], kernels of convolutions are [height, width, inputs, outputs].
"""

from __future__ import annotations

from typing import Collection, Dict, Mapping

from driple.contracts.errors import BadInput, shown

SCHEMA = "graph"
SCHEMA_VERSION = 1
SCHEMA_KEY = "driple.schema"
VERSION_KEY = "driple.schema_version"

DATA = "data"
CONTROL = "control"

GRAPH_COLUMNS: Dict[str, str] = {
    "source": "string",  # the model, or the name of the GraphDef file
    "setting": "string",  # null for a user's GraphDef, as are task and workload
    "task": "string",  # the task that runs this graph
    "workload": "string",  # the Workload as JSON
    "tensorflow": "string",  # version of TensorFlow that built the graph; null if something else did
    "nodes": "list<node>",
    "edges": "list<edge>",
}
"""Columns of the table and their Arrow types."""
FRAMEWORK = "framework"
LATER_COLUMNS: Dict[str, str] = {
    FRAMEWORK: "string",  # what built the graph: a name in contracts/graph_makers.py
    "framework_version": "string",
}
"""Columns that files of earlier releases lack. Those were built by TensorFlow."""

NODE_COLUMNS: Dict[str, str] = {
    "name": "string",
    "op": "string",
    "device": "string",
    "shapes": "list<list<int64>>",  # one per output; -1 for an unknown dimension, null for an unknown rank
    "dtypes": "list<string>",  # one per output
    "output_bytes": "int64",  # of all outputs; null if a shape is unknown
    "flops": "int64",  # null if there is no formula for the op
}

EDGE_COLUMNS: Dict[str, str] = {
    "src": "int32",  # position in nodes
    "dst": "int32",
    "kind": "string",  # `data` or `control`
    "output": "int16",  # output of src that the edge carries; null for control
}

_BY_SIZE = {
    1: "bool int4 uint4 int8 uint8 qint8 quint8 float8_e5m2 float8_e4m3fn",
    2: "int16 uint16 qint16 quint16 float16 bfloat16",
    4: "int32 uint32 qint32 float32",
    8: "int64 uint64 float64 complex64",
    16: "complex128",
}
ELEMENT_BYTES: Dict[str, int] = {name: size for size, names in _BY_SIZE.items() for name in names.split()}
"""Bytes of an element by dtype. Strings and handles are not in it: they have no fixed size."""

METADATA: Dict[str, str] = {SCHEMA_KEY: SCHEMA, VERSION_KEY: str(SCHEMA_VERSION)}
"""Metadata of the Parquet schema."""


def check_graph_file(metadata: Mapping[bytes, bytes], columns: Collection[str]) -> None:
    """Raises BadInput if a Parquet file is not a graph, has another schema version, or lacks columns."""
    if metadata.get(SCHEMA_KEY.encode()) != SCHEMA.encode():
        raise BadInput("a Parquet file, but not of a graph")
    version = metadata.get(VERSION_KEY.encode(), b"none").decode("utf-8", "replace")
    if version != str(SCHEMA_VERSION):
        raise BadInput(f"graph schema version {shown(version)}, this release reads {SCHEMA_VERSION}")
    missing = [name for name in GRAPH_COLUMNS if name not in columns]
    if missing:
        raise BadInput(f"a graph file that lacks columns: {', '.join(missing)}")
