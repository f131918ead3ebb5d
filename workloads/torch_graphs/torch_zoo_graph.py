"""The training graph of a torch model of the zoo. Neither weights nor activations take memory."""

from __future__ import annotations

import json

import torch

from driple.contracts.json_values import to_plain
from driple.contracts.run_spec import JobSpec
from driple.workloads.graphs.graph_writer import Graph, write
from driple.workloads.graphs.step_builder import StepKind
from driple.workloads.strategies.base import Task
from driple.workloads.torch_graphs.torch_graph import creation_order, graph_of
from driple.workloads.torch_graphs.torch_recorder import record
from driple.workloads.torch_jobs.torch_inputs import empty_batch
from driple.workloads.torch_jobs.training import loss_of
from driple.workloads.torch_models import torch_zoo


def write_graph(task: Task) -> None:
    """Writes the graph of a worker before it trains, if its graph is wanted."""
    if task.graph_file is not None:
        limit = task.job.start_timeout_s
        task.watchdog.expect(limit, f"gave up after {limit:g} s: still writing {task.graph_file}")
        write(of_job(task.job, f"{task.role}:{task.index}"), task.graph_file)


def of_job(job: JobSpec, task: str) -> Graph:
    """The graph of a worker."""
    workload = job.run.workload
    with torch.device("meta"):
        model = torch_zoo.network(workload).train()
        batch = empty_batch(workload)
        step = record(model, batch, lambda: loss_of(model(batch), batch)[0])
    kind = StepKind(job.run.setting, workload.strategy, workload.optimiser, workload.sharding, task)
    facts = json.dumps(to_plain(workload), sort_keys=True)
    return graph_of(step, creation_order(model), kind, workload.model, facts)
