"""Processor seconds of all servers in a step of every worker.

    cpu_s = workers * (moved bytes * byte_s + tensors * tensor_s + servers * session_s)
          + updates * pushed bytes * tensors of an update * apply_s

The servers update once in a synchronous step, and once for every worker in an asynchronous one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.pipeline.graph.public import TrainingStep
from driple.simulator.fit.op_rates import OF_SESSION, FloatArray, relative_nonnegative
from driple.simulator.host_model import UPDATE_TENSORS

PENALTY = 0.02
"""Of rates, as a share of what they explain; of a session see OF_SESSION."""


@dataclass(frozen=True)
class ServerRates:
    """Seconds per unit of work."""

    byte_s: float
    tensor_s: float
    apply_s: float
    session_s: float
    """Of a server in a step of a worker, whatever it moves."""
    error_pct: float
    points: int


def server_amounts(step: TrainingStep, workload: Workload, setting: Setting) -> FloatArray:
    """Bytes, tensors, updated bytes and sessions."""
    updates = setting.workers if workload.update == "async" else 1
    applied = updates * step.pushed_bytes * UPDATE_TENSORS[workload.optimiser]
    moved, tensors = step.pulled_bytes + step.pushed_bytes, len(step.pulls) + len(step.pushes)
    return np.array([setting.workers * moved, setting.workers * tensors, applied, setting.workers * setting.servers])


def fit_server_rates(work: Sequence[FloatArray], cpu_s: FloatArray) -> ServerRates:
    """The rates of measured processor seconds. Raises BadInput if there are none."""
    if not len(cpu_s) or not (cpu_s > 0).all():
        raise BadInput("no processor seconds of servers to fit rates to: CPU metrics are missing")
    table = np.array(work)
    rates = relative_nonnegative(table, cpu_s, np.array([PENALTY, PENALTY, PENALTY, OF_SESSION]))
    error = 100 * float(np.abs(table @ rates / cpu_s - 1).mean())
    byte_s, tensor_s, apply_s, session_s = map(float, rates)
    return ServerRates(byte_s, tensor_s, apply_s, session_s, error_pct=error, points=len(cpu_s))
