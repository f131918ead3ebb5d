"""Parameter servers: workers read variables from servers and send them gradients. See ps_server.py and ps_worker.py."""

from __future__ import annotations

from driple.contracts.strategy import SERVER
from driple.workloads.graphs import graph_build
from driple.workloads.strategies.base import Task, TrainingStrategy
from driple.workloads.strategies.ps_server import serve
from driple.workloads.strategies.ps_worker import train


class ParameterServers(TrainingStrategy):
    """Between-graph replication with TensorFlow 1 graphs."""

    name = "ps"
    framework = "tensorflow"

    def run(self, task: Task) -> None:
        graph_build.use_tf1()
        if task.role == SERVER:
            serve(task.job, task.index, task.output, task.watchdog)
        else:
            train(task.job, task.index, task.output, task.watchdog, task.graph_file)
