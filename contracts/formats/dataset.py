"""The dataset of a setting: one Parquet file, `<setting>.parquet`, with a row for each task of each run.

Simulated rows are in a file of their own, `simulated/<setting>.parquet`.

This module defines its columns, metadata, splits and flags. driple-build-dataset writes such files;
driple-train and driple-report read them.

Many rows share a graph: all tasks and repetitions of a workload. Each of them names it in the column `graph`. The
list columns (LISTS) are filled in the first of these rows and null in the others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Dict, Iterable, Mapping, Optional, Tuple

from driple.contracts.errors import BadInput, shown
from driple.contracts.metrics import RESOURCES, TARGETS
from driple.contracts.row_machines import COLUMN as MACHINE_COLUMN
from driple.contracts.run_spec import NetworkCondition
from driple.contracts.strategy import FRAMEWORKS, STRATEGIES
from driple.contracts.zoo import OPTIMISERS

SUFFIX = ".parquet"
SCHEMA = "dataset"
SCHEMA_VERSION = 1

METADATA_PREFIX = "driple."
"""Prefix of every key of the Parquet metadata: `driple.schema`, `driple.schema_version` and the keys below."""
SETTING = "setting"
OP_FREQUENCY = "op_frequency"
"""Frequencies of op types in all graphs of the file; null if it has no graphs of ops."""
SIZE_BATCHES = "size_batches"
"""Batches of `proportional` grouping; null likewise."""

MEASURED = "measured"
SIMULATED = "simulated"
PUBLISHED = "published"
PROVENANCES: Tuple[str, ...] = (MEASURED, SIMULATED, PUBLISHED)

SIMULATED_FOLDER = "simulated"
"""Folder of the datasets of simulated rows, in a folder of datasets: one file never has both kinds."""
_AND = " and "


def dataset_path(folder: Path, setting: str, simulated: bool = False) -> Path:
    """The file of a setting in a folder of datasets."""
    return (folder / SIMULATED_FOLDER if simulated else folder) / f"{setting}{SUFFIX}"


def joined_provenance(kinds: Iterable[str]) -> str:
    """The provenance of something that is based on several: `measured and simulated`."""
    return _AND.join(sorted({one for kind in kinds for one in kind.split(_AND)}))


def check_one_share(shares: Iterable[Optional[float]]) -> None:
    """Raises BadInput if rows of hosts with different shares of their machine's processors are in one file.

    They are of different machines.
    """
    found = sorted(set(shares), key=lambda share: share or 0.0)
    if len(found) > 1:
        texts = ["without" if share is None else f"with {share:g}" for share in found]
        raise BadInput(
            f"rows {' and '.join(texts)} cores_per_host in one dataset: they are never mixed; build each kind into a "
            "folder of its own (driple-build-dataset --output)"
        )


def is_simulated(provenance: Any) -> bool:
    """Whether something of this provenance is based on simulation, wholly or in part."""
    return isinstance(provenance, str) and SIMULATED in provenance.split(_AND)


OPS = "ops"
GROUPS = "groups"

TRAIN = "train"
VAL = "val"
TEST = "test"
SIDES: Tuple[str, ...] = (TRAIN, VAL, TEST)

ARCHITECTURE = "architecture"
RANDOM = "random"
SPLITS: Tuple[str, ...] = (ARCHITECTURE, RANDOM)

NETWORK_COLUMNS: Dict[str, Any] = {f"network_{field.name}": field.default for field in fields(NetworkCondition)}
"""Columns of the network condition that was asked for, with their values without a condition."""
NETWORK_CHOICES: Dict[str, Tuple[str, ...]] = {
    f"network_{field.name}": field.metadata["choices"]
    for field in fields(NetworkCondition)
    if field.metadata["choices"]
}
"""Those of them that have names instead of numbers."""


LATER_COLUMNS = (*NETWORK_COLUMNS, "backend", "topology")
"""Columns that files of earlier releases lack."""


def fill_later_columns(row: Dict[str, Any]) -> None:
    """Adds the columns that a row lacks because its file is older than they are.

    It then ran without that network condition. Of a published row the network is unknown.
    """
    for name in LATER_COLUMNS:
        row.setdefault(name, None if row["provenance"] == PUBLISHED else NETWORK_COLUMNS.get(name))


BACKGROUND_LOAD_FLAG = "foreign_load"
"""Other programs used the processors of the machine during the run."""
LOOPBACK_FLAG = "loopback_network"
MISMATCH_FLAG = "link_mismatch"
"""The measured links of the run were not those of the setting, or not as asked for."""
SHARE_FLAG = "share_mismatch"
"""The hosts did not have the share of processors that was asked for."""
OTHER_NETWORK_FLAGS = (LOOPBACK_FLAG, MISMATCH_FLAG, SHARE_FLAG)
"""Of rows whose tasks did not have the network of the setting or the share that was asked for; they are left out
unless asked for."""
"""The tasks ran on one machine without the network of the setting."""
UNITS_FLAG = "units_as_published"
SYMMETRISED_FLAG = "adjacency_symmetrised"
SELF_LOOPS_FLAG = "self_loops_dropped"
WEIGHTS_FLAG = "edge_weights_dropped"


@dataclass(frozen=True)
class Column:
    """One column of a dataset."""

    name: str
    type: str
    """`text`, `int`, `real`, or a list of one of them."""
    meaning: str

    @property
    def is_list(self) -> bool:
        return self.type.startswith("list of ")

    @property
    def value_type(self) -> str:
        """`text`, `int` or `real`: the type of a cell, or of the elements of a list."""
        return self.type[len("list of ") :] if self.is_list else self.type


def _columns(*lines: str) -> Tuple[Column, ...]:
    return tuple(Column(*(part.strip() for part in line.split("|"))) for line in lines)


TRANSPORT = _columns(
    "backend | text | what carried the tensors; null in rows of earlier releases",
    "topology | text | path of the gradients of an all-reduce; null without one, and in rows of earlier releases",
)
IDENTITY = _columns(
    "setting | text | the setting's text form",
    "model | text | name in the zoo, or `file.py:function`; null in published rows",
    "family | text | model family; of a user's own model its name; null in published rows",
    "dataset | text | what the model reads",
    "batch_size | int | examples a worker takes in a step",
    f"optimiser | text | {', '.join(f'`{name}`' for name in OPTIMISERS)}",
    "update | text | `sync` or `async`",
    "image_size | int | side in pixels; null for a model that reads no images",
    "sequence_length | int | tokens; null for a model that reads no sequences",
    "width | real | multiplier of channels or hidden units",
    f"strategy | text | {' or '.join(f'`{name}`' for name in STRATEGIES)}",
    "sharding | text | how variables go to parameter servers",
    f"framework | text | {' or '.join(f'`{name}`' for name in FRAMEWORKS)}",
    "code_sha256 | text | of a user's own model file",
    *(f"network_{one.name} | {one.metadata['kind']} | {one.metadata['column']}" for one in fields(NetworkCondition)),
    "placement | text | JSON: which tasks shared a machine",
    "steps | int | measured steps asked for; null where a duration was",
    "duration_s | real | measured time asked for; null where steps were",
    "warmup_steps | int | steps before the measured part",
    "sampling_hz | real | samples a second asked for",
    "threads | int | intra-op threads of a task; 0 for the framework's own choice",
    "seed | int | of the run",
    "repetition | int | of the run, from 0",
    "task | text | `ps:0`, `worker:1`, ...; null in published rows",
    "role | text | `ps` or `worker`; null in published rows",
)
LENGTH = _columns(
    "until_pct | real | standard error of the mean step time at which the run ended before `steps`; null without it",
)
SHARE = _columns(
    "cores_per_host | real | fixed share of its machine's processors that each host had; null without one",
)
IDENTITY += TRANSPORT + SHARE + LENGTH

PROVENANCE = _columns(
    "run_id | text | the run's name; of a published row its place in the file",
    "provenance | text | `measured`, `simulated` or `published`",
    "inputs_sha256 | text | of run.json, which holds the checksums of every other file; of the published file",
    "rules_version | int | version of the rules that made the row",
    "attempt | int | which attempt of the run was sealed",
    "started_real_s | real | when the attempt began, seconds since 1970",
    "git_commit | text | of driple when it ran",
    "versions | text | JSON: of everything that took part",
    "host | text | the task's machine, as it calls itself",
    "host_kind | text | `ssh`, `lab`, `local` or `simulated`",
    "host_kernel | text | its kernel",
    "host_cores | int | its processors",
    "host_memory_bytes | int | its memory",
    "device | text | name of the task's GPU; `cpu` where the setting has none; null where it is not known",
    "traffic_source | text | where the network series come from: `nic:eth0`, `flows`, ...",
    "measured_rate_mbit | real | rate of the link as probed",
    "measured_loss_pct | real | loss of the link as probed",
    "network_done_by | text | JSON: what made each part of the network condition",
)

FINGERPRINT = _columns(
    "fingerprint_version | int | version of the benchmark of the host's machine; figures of two cannot be compared",
    "fingerprint_cores | int | processors that a process could use",
    "fingerprint_hash_bytes_per_s | real | SHA-256 on one core",
    "fingerprint_deflate_bytes_per_s | real | zlib on one core",
    "fingerprint_core_speedup | real | zlib on all cores at once, as a multiple of one core",
    "fingerprint_copy_bytes_per_s | real | copy in memory",
    "fingerprint_switch_s | real | round trip to another process through pipes",
    "fingerprint_loopback_bytes_per_s | real | TCP stream from the machine to itself",
    "fingerprint_spread_pct | real | largest spread of the repeats of one of the figures that tell machines apart",
)
"""How fast the host's machine was (contracts/fingerprint.py)."""
MACHINE = _columns(
    f"{MACHINE_COLUMN} | int | machines of this file that differ by over 5 %, from 1; null if no steady fingerprint",
)
"""By contracts/row_machines.py from the fingerprints of all rows of the file."""
ABSENT_IF_NULL = TRANSPORT + SHARE + LENGTH + FINGERPRINT + MACHINE
"""Columns that are absent from a file if no row has a value."""

GRAPH = _columns(
    "graph | text | SHA-256 of the graph: rows of one graph have the same; null if the framework writes none",
    "graph_kind | text | `ops` (ungrouped: group it with pipeline.graph) or `groups` (grouped already)",
    "nodes | int | ops, or groups",
    "edges | int | of the graph",
    "ops_unsized | int | ops whose tensor size rests on a guess: an unknown dimension or no shape",
    "ops_left_out | int | ops of the worker outside the largest connected part",
    "bytes_received | real | tensors that the worker takes from other tasks in a step; null where the graph names none",
    "bytes_sent | real | tensors that other tasks take from the worker in a step; null likewise",
    "bytes_busiest | real | of those received, those of the one task that gives most; null likewise",
)

OP_LISTS = _columns(
    "op_type | list of text | type of each op",
    "op_bytes | list of real | tensor size of each op; one iteration of a loop",
    "op_flops | list of real | floating-point operations of each op; NaN where unknown; one iteration of a loop",
)
GROUP_LISTS = _columns(
    "group_frequency | list of real | node-type frequency of each group, summed",
    "group_bytes | list of real | tensor size of each group, summed",
    "group_size | list of real | ops in each group",
)
EDGE_LISTS = _columns(
    "edge_src | list of int | first end of each edge: a position in the lists above",
    "edge_dst | list of int | second end; between groups an edge has no direction and stands once, src < dst",
)
LISTS = OP_LISTS + GROUP_LISTS + EDGE_LISTS

TARGET = tuple(Column(target.column, "real", f"{target.title}, {target.unit}") for target in TARGETS)

STATISTICS = tuple(
    column
    for resource in RESOURCES
    for column in _columns(
        f"{resource.key}_pattern | text | {resource.title}: `I`, `BIB`, `B` or `?`",
        f"{resource.key}_bursts | int | whole bursts that were counted",
        f"{resource.key}_burst_s_median | real | median burst duration, s",
        f"{resource.key}_burst_s_spread | real | spread of burst durations, s",
        f"{resource.key}_idle_s_median | real | median idle duration, s",
        f"{resource.key}_idle_s_spread | real | spread of idle durations, s",
        f"{resource.key}_burst_{resource.amount_suffix}_median | real | median burst amount, {resource.amount_unit}",
        f"{resource.key}_burst_{resource.amount_suffix}_spread | real | spread of amounts, {resource.amount_unit}",
        f"{resource.key}_idle_{resource.amount_suffix} | real | mean amount between bursts, {resource.amount_unit}",
        f"{resource.key}_period_s | real | of the cycle, s",
        f"{resource.key}_refresh_s | real | refresh period of the source, s",
    )
)

_QUALITY = _columns(
    "step_s | real | mean time of a measured training step; of a server that of its workers; null in published rows",
    "clock_bound_s | real | the host's clock is wrong by at most this, s",
    "missed_ticks_pct | real | ticks that the sampler missed",
    "foreign_cpu_pct | real | processor time of the machine that no task of the run took, percent of one core",
    "flags | list of text | what to be careful with; `net_tx:...` is about one resource",
)

QUALITY = tuple(column for column in _QUALITY if column.name not in {target.name for target in TARGET})
"""Without those that are targets, such as the step time may be."""

SPLIT = _columns(
    "split_architecture | text | `train`, `val` or `test`; no family on two sides; null where the family is unknown",
    "split_random | text | `train`, `val` or `test`; a published row keeps the side of its file",
)

TABLES: Mapping[str, Tuple[Column, ...]] = {
    "Identity": IDENTITY,
    "Provenance": PROVENANCE,
    "Fingerprint": FINGERPRINT + MACHINE,
    "Graph": GRAPH + LISTS,
    "Targets": TARGET,
    "Statistics": STATISTICS,
    "Quality": QUALITY,
    "Splits": SPLIT,
}
LIST_NAMES: Tuple[str, ...] = tuple(column.name for column in LISTS)
ROW_COLUMNS: Tuple[Column, ...] = tuple(
    column for table in TABLES.values() for column in table if column.name not in LIST_NAMES
)
COLUMNS: Tuple[Column, ...] = ROW_COLUMNS + LISTS
"""All columns in the order of the file: the long lists come last."""


def split_column(split: str) -> str:
    """The column that holds a row's side of a split."""
    return f"split_{split}"


def write_metadata(setting: str, shared: Mapping[str, Any]) -> Mapping[str, str]:
    """The Parquet metadata of a dataset; `shared` has other values that hold for the whole file, by key."""
    values = {SETTING: setting, **shared}
    texts = {f"{METADATA_PREFIX}{key}": json.dumps(values[key], sort_keys=True, allow_nan=False) for key in values}
    return {f"{METADATA_PREFIX}schema": SCHEMA, f"{METADATA_PREFIX}schema_version": str(SCHEMA_VERSION), **texts}


def metadata_value(metadata: Mapping[bytes, bytes], key: str) -> Any:
    """A value of the Parquet metadata; None if it is missing. Raises BadInput if it is not JSON."""
    try:
        return json.loads(metadata.get(f"{METADATA_PREFIX}{key}".encode(), b"null"))
    except (ValueError, RecursionError):
        raise BadInput(f"the metadata {METADATA_PREFIX}{key} is not valid JSON; rebuild the dataset") from None


def check_metadata(metadata: Mapping[bytes, bytes], setting: str) -> None:
    """Raises BadInput, without the name of the file, unless metadata is of this schema version and setting."""
    if metadata.get(f"{METADATA_PREFIX}schema".encode()) != SCHEMA.encode():
        raise BadInput("not a dataset of driple; move it away and rebuild the dataset")
    version = metadata.get(f"{METADATA_PREFIX}schema_version".encode(), b"?").decode(errors="replace")
    if version != str(SCHEMA_VERSION):
        raise BadInput(
            f"schema version {shown(version)}, this release reads {SCHEMA_VERSION}; move it away and rebuild the "
            f"dataset, or use the release that wrote it"
        )
    found = metadata_value(metadata, SETTING)
    if found != setting:
        raise BadInput(f"holds {shown(found)} and not {setting}; rename the file, or request that setting")
