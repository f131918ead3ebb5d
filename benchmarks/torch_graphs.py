"""Graphs of the zoo in PyTorch next to those of TensorFlow: size, work, bytes, simulated step, time to extract.

    python benchmarks/torch_graphs.py [--json] [--write docs/benchmarks/torch-graphs.md]

Each graph is extracted in a process of its own, forked after the libraries are loaded, as a task of a fork server does.
TensorFlow's graphs are those that are stored with driple. Run it on a quiet machine; only the times depend on it.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from pages import machine, parser_of, publish

from driple.contracts.setting import Setting
from driple.pipeline.graph.public import TrainingStep, read_graph, read_step, stored_graph, stored_step
from driple.simulator.op_kinds import IMAGE_GRADIENT, op_kinds
from driple.simulator.simulation import simulate_workload
from driple.workloads.frameworks.registry import framework_of
from driple.workloads.graphs import graph_writer
from driple.workloads.runtime.forkserver import load_packages
from driple.workloads.runtime.job import job_without_hosts, workload_of
from driple.workloads.torch_graphs import torch_zoo_graph
from driple.workloads.torch_models.torch_zoo import ZOO

BATCH = 32
SETTINGS = ("cpu-p0w2-1g", "v100-p0w4-40g")


def extracted(model: str, out: Path) -> dict[str, float]:
    """Writes the graph in a forked process; seconds and CPU seconds of it."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        workload = workload_of(model, None, BATCH, strategy="allreduce", framework="torch")
        begin, cpu = time.monotonic(), time.process_time()
        graph_writer.write(
            torch_zoo_graph.of_job(job_without_hosts(Setting.parse(SETTINGS[0]), workload), "worker:0"), out
        )
        found = {"seconds": time.monotonic() - begin, "cpu_seconds": time.process_time() - cpu}
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.wait()
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        return dict(json.load(stream))


def _useful_flops(step: TrainingStep) -> float:
    """Without the gradient of the input images, which TensorFlow's graphs have and nothing takes."""
    kinds = op_kinds(step)
    return float(sum(flops for flops, kind in zip(step.flops.tolist(), kinds, strict=True) if kind != IMAGE_GRADIENT))


def row_of(model: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{model}.parquet"
    found: dict[str, Any] = {"model": model, **extracted(model, path)}
    graph, step = read_graph(path), read_step(path)
    torch_workload = workload_of(model, None, BATCH, strategy="allreduce", framework="torch")
    workload = replace(torch_workload, framework="tensorflow", backend="grpc")
    setting = Setting.parse(SETTINGS[0])
    other, other_step = stored_graph(workload, setting), stored_step(workload, setting)
    assert other is not None and other_step is not None
    found |= {"ops": len(graph.ops), "tensorflow_ops": len(other.ops)}
    found |= {"flops_ratio": _useful_flops(step) / _useful_flops(other_step)}
    found |= {"bytes_sent": graph.bytes_sent, "bytes_ratio": graph.bytes_sent / other.bytes_sent}
    for text in SETTINGS:
        setting = Setting.parse(text)
        one = simulate_workload(torch_workload, setting, step=step).job.step_s
        found[f"step_ratio {text}"] = one / simulate_workload(workload, setting).job.step_s
    return found


def measure() -> list[dict[str, Any]]:
    framework = framework_of("torch")
    framework.prepare_environment(gpu=None)
    framework.load()
    load_packages(framework.packages)
    with tempfile.TemporaryDirectory() as folder:
        return [row_of(model, Path(folder)) for model in ZOO]


COLUMNS = {
    "model": "model",
    "ops": "ops",
    "tensorflow_ops": "ops, TensorFlow",
    "flops_ratio": "FLOPs",
    "bytes_ratio": "bytes sent",
    f"step_ratio {SETTINGS[0]}": "step, CPU",
    f"step_ratio {SETTINGS[1]}": "step, V100",
    "seconds": "s to extract",
    "cpu_seconds": "CPU s",
}
DIGITS = {"flops_ratio": 4, "bytes_ratio": 4}


def _cell(row: dict[str, Any], column: str) -> str:
    value = row[column]
    return f"{value:.{DIGITS.get(column, 2)}f}" if isinstance(value, float) else str(value)


def markdown(rows: list[dict[str, Any]]) -> str:
    table = [list(COLUMNS.values()), ["---"] * len(COLUMNS)]
    table += [[_cell(row, column) for column in COLUMNS] for row in rows]
    lines = "\n".join(f"| {' | '.join(cells)} |" for cells in table)
    slowest = max(rows, key=lambda row: float(row["seconds"]))
    return f"""# Graphs of PyTorch

The {len(rows)} models of the zoo that are also in PyTorch, at batch {BATCH} and in their ordinary size.
{machine()}; {date.today()}. Reproduce with
`python benchmarks/torch_graphs.py --write docs/benchmarks/torch-graphs.md`.

Ratios are PyTorch's to TensorFlow's for the same model: FLOPs of a step without the gradient of the input images, bytes
that a worker sends to the others in an all-reduce, and the simulated step time on {SETTINGS[0]} and {SETTINGS[1]}.
Worker 0 extracts the graph before it meets the others. The slowest, {slowest["model"]}, took
{slowest["seconds"]:.1f} s.

Simulated steps are shorter because the graph of PyTorch has the reductions in the backward pass, where its runtime
starts them, and that of TensorFlow has them at the updates. On the GPU there are also fewer ops to launch. The
simulator has the op times of TensorFlow for both: it does not say which of the two has faster kernels.

{lines}
"""


def main() -> None:
    arguments = parser_of(__doc__).parse_args()
    rows = measure()
    publish(rows, markdown(rows), arguments)


if __name__ == "__main__":
    main()
