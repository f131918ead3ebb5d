"""Targets that nobody measured: a small cost model over real graphs, for trying inspectors before there is data.

An op takes as long as its arithmetic at the device's rate for its kind, or as its bytes at the memory's if that is
longer (a roofline), and a little for being started, while the device idles. A step receives the parameters, computes
and sends the gradients; a transfer takes a while to begin, and part of it hides behind the computing. The servers'
links are shared by all workers. With synchronous updates the slowest worker decides. Every figure then gets noise.

Rows say `simulated`, and a file that holds such rows holds no others: inspectors refuse a mixture.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from driple.contracts.formats.dataset import NETWORK_COLUMNS, OPS, SIMULATED, SUFFIX
from driple.contracts.json_values import to_plain
from driple.contracts.metrics import GPU, GPU_MEMORY, NET_RX, NET_TX, Resource
from driple.contracts.run_spec import Workload
from driple.contracts.setting import CPU, PCIE, Setting
from driple.contracts.zoo import MODELS
from driple.pipeline.datasets import dataset_file as files
from driple.pipeline.datasets.dataset_file import Dataset, Graph, Row, graph_key
from driple.pipeline.datasets.run_rows import RULES_VERSION
from driple.pipeline.datasets.splits import architecture_side, random_side
from driple.pipeline.graph.public import OpGraph


@dataclass(frozen=True)
class Device:
    """What a roofline needs to know of a device."""

    flops_per_s: float
    """At its best."""
    bytes_per_s: float
    """Of its memory."""
    op_s: float
    """To start an op."""


# Round figures of the order of the data sheets; the CPU is one core.
DEVICES: dict[str, Device] = {
    CPU: Device(4e10, 8e9, 6e-6),
    "v100": Device(1.4e13, 8e11, 5e-6),
    "2080ti": Device(1.2e13, 5.5e11, 5e-6),
    "titanrtx": Device(1.5e13, 6e11, 5e-6),
}
# Share of the best rate that ops reach, by the beginning of their names; the first that fits.
EFFICIENCY: tuple[tuple[str, float], ...] = (
    ("DepthwiseConv2dNativeBackprop", 0.05),
    ("DepthwiseConv2d", 0.08),
    ("Conv2DBackprop", 0.45),
    ("Conv2D", 0.55),
    ("BatchMatMul", 0.35),
    ("MatMul", 0.7),
    ("", 0.1),
)
PCIE_BYTES_PER_S = 1e10
BEGIN_S = {True: 5e-5, False: 2e-3}
"""How long a transfer takes to begin: inside a machine, and between machines."""
HIDDEN = 0.3
"""Share of a transfer that hides behind computing, where there is that much computing."""
BARRIER = 1.15
"""How much longer the slowest worker of a synchronous step takes."""


@dataclass(frozen=True)
class Cycle:
    """One simulated step of a worker."""

    compute_s: float
    busy_s: float
    """Of the computing, how long the device does something."""
    memory_s: float
    """Of the computing, how long memory is what is waited for."""
    receive_s: float
    send_s: float
    step_s: float


def simulate(graph: OpGraph, setting: Setting, update: str) -> Cycle:
    """The step of a worker, without noise."""
    device = DEVICES.get(setting.device, DEVICES["v100"])
    flops = np.nan_to_num(graph.flops)
    rate = device.flops_per_s * np.array([_efficiency(op) for op in graph.ops])
    arithmetic, moving = flops / rate, _bytes_touched(graph) / device.bytes_per_s
    busy = float(np.maximum(arithmetic, moving).sum())
    compute = busy + device.op_s * len(graph.ops)
    memory = float(np.where(moving > arithmetic, moving, 0.0).sum())
    link = _link_bytes_per_s(setting)
    shared = link * min(1.0, setting.servers / setting.workers) if setting.servers else link
    begin = BEGIN_S[setting.network == PCIE]
    receive, send = (np.nan_to_num(size) / shared + begin for size in (graph.bytes_received, graph.bytes_sent))
    hidden = min(HIDDEN * (receive + send), 0.5 * compute)
    step = compute + receive + send - hidden
    return Cycle(
        compute, busy, memory, receive, send, step * (BARRIER if update == "sync" and setting.workers > 1 else 1.0)
    )


def write_dataset(
    graphs: Mapping[Workload, OpGraph], setting: Setting, folder: Path, *, noise: float = 0.05, seed: int = 0
) -> Path:
    """Writes `<folder>/<setting>.parquet` with rows of every workload's workers and servers; replaces what is there."""
    result = Dataset(str(setting))
    for workload, graph in graphs.items():
        lists: Graph = {
            "op_type": list(graph.ops),
            "op_bytes": graph.bytes,
            "op_flops": graph.flops,
            "edge_src": graph.edges[:, 0].astype(np.int32),
            "edge_dst": graph.edges[:, 1].astype(np.int32),
        }
        key = graph_key(OPS, lists)
        result.graphs[key] = lists
        cycle = simulate(graph, setting, workload.update)
        shared = {**_identity(workload, setting), **_about(graph, key)}
        for task in setting.tasks:
            result.rows.append(
                {**shared, **_task(task, cycle, graph, setting, noise, f"{seed}:{workload.label}:{task}")}
            )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{setting}{SUFFIX}"
    files.put(files.to_bytes(result, files.shared_metadata(result)), path)
    return path


def _identity(workload: Workload, setting: Setting) -> Row:
    model = MODELS.get(workload.model)
    family = model.family if model else workload.model
    return {
        **to_plain(workload),
        "setting": str(setting),
        "family": family,
        **NETWORK_COLUMNS,
        "repetition": 0,
        "run_id": f"simulated-{setting}-{workload.label}",
        "provenance": SIMULATED,
        "rules_version": RULES_VERSION,
        "host_kind": SIMULATED,
        "device": setting.device,
        "split_architecture": architecture_side(family),
        "split_random": random_side(workload),
    }


def _about(graph: OpGraph, key: str) -> Row:
    return {
        "graph": key,
        "graph_kind": OPS,
        "nodes": len(graph.ops),
        "edges": len(graph.edges),
        "ops_unsized": graph.unsized,
        "ops_left_out": graph.left_out,
        "bytes_received": graph.bytes_received,
        "bytes_sent": graph.bytes_sent,
        "bytes_busiest": graph.bytes_busiest,
    }


def _task(task: str, cycle: Cycle, graph: OpGraph, setting: Setting, noise: float, key: str) -> Row:
    """The targets of a task: a worker as the cycle says, a server with its share of what all workers move."""
    random = np.random.default_rng(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big"))

    def noisy(value: float) -> float:
        return float(value * np.exp(random.normal(0.0, noise)))

    role = task.partition(":")[0]
    step = noisy(cycle.step_s)
    row: Row = {"task": task, "role": role, "step_s": step, "flags": []}
    received, sent = (float(np.nan_to_num(size)) for size in (graph.bytes_received, graph.bytes_sent))
    share = setting.workers / setting.servers if role == "ps" else 1.0
    transfers = ((NET_RX, received, cycle.receive_s), (NET_TX, sent, cycle.send_s))
    if role == "ps":  # what workers send, servers receive
        transfers = ((NET_RX, sent, cycle.send_s), (NET_TX, received, cycle.receive_s))
    for resource, size, seconds in transfers:
        busy = noisy(seconds)
        row |= _bib(resource, busy, max(step - busy, 0.0), noisy(size * share / seconds))
    if role == "worker":
        busy = noisy(cycle.compute_s)
        idle = max(step - busy, 0.0)
        row |= _bib(GPU, busy, idle, min(noisy(100.0 * cycle.busy_s / cycle.compute_s), 100.0))
        if setting.device != CPU:  # a processor cannot tell
            row |= _bib(GPU_MEMORY, busy, idle, noisy(max(100.0 * cycle.memory_s / cycle.compute_s, 1.0)))
    return row


def _bib(resource: Resource, burst_s: float, idle_s: float, amount: float) -> Row:
    key = resource.key
    return {
        f"{key}_burst_s": burst_s,
        f"{key}_idle_s": idle_s,
        f"{key}_burst_{resource.amount_suffix}": amount,
        f"{key}_pattern": "BIB",
    }


def _efficiency(op: str) -> float:
    return next(share for beginning, share in EFFICIENCY if op.startswith(beginning))


def _bytes_touched(graph: OpGraph) -> NDArray[np.float64]:
    """Of each op what it writes and what it reads from the ops before it."""
    read = np.zeros(len(graph.ops))
    if graph.edges.size:
        np.add.at(read, graph.edges[:, 1], graph.bytes[graph.edges[:, 0]])
    return read + graph.bytes


def _link_bytes_per_s(setting: Setting) -> float:
    if setting.network == PCIE:
        return PCIE_BYTES_PER_S
    bits = float(setting.network[:-1]) * {"m": 1e6, "g": 1e9}[setting.network[-1]]
    return bits / 8 * 0.94  # headers
