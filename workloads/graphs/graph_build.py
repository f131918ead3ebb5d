"""Builds the training graph of a worker. Training and graph extraction both use this function.

The graph is that of TensorFlow 1: ref variables on the parameter servers, forward, backward, apply. Ref variables are
needed because a resource variable is read again from its server at every time step of an RNN.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from driple.contracts.run_spec import JobSpec
from driple.workloads.runtime import cluster
from driple.workloads.strategies.sync_update import sync_update

GLOBAL_STEP = "global_step"


@dataclass(frozen=True)
class WorkerGraph:
    """The graph of a worker, and the handles into it."""

    graph: Any
    loss: Any
    accuracy: Any
    """NaN where the model returns its loss. Not part of the training graph: nothing that trains depends on it."""
    train_op: Any
    """One step of this worker. In sync mode it returns when the update of all workers has been applied."""
    global_step: Any
    """The global step after this step. In async mode two workers may read the same value."""
    init_op: Any
    """Run once, by worker 0. None if the graph is only extracted."""
    chief_op: Any
    """In sync mode, run repeatedly by worker 0 in a thread: aggregate, apply, let the workers go on."""

    @property
    def targets(self) -> list[str]:
        """The ops whose ancestors are the training graph.

        In sync mode `train_op` only sends gradients and waits; the Apply ops are ancestors of `chief_op`. Worker 0 runs
        them, but they are part of every worker's graph.
        """
        return [op.name for op in (self.train_op, self.chief_op) if op is not None]


def use_tf1() -> None:
    """Switches this process to TF1 graphs, for good. Loop bodies then stay in the graph, not in functions."""
    import tensorflow.compat.v1 as v1

    v1.logging.set_verbosity(v1.logging.ERROR)  # it logs a deprecation for every TF1 function
    v1.disable_v2_behavior()


def build(job: JobSpec, index: int, to_run: bool = True) -> WorkerGraph:
    """The graph of worker `index`. Needs no server and no GPU; call `use_tf1` first.

    Without `to_run` the initial values of the weights are left out: a third of all ops, but not of the training graph.
    """
    import tensorflow.compat.v1 as v1

    from driple.workloads.data import inputs
    from driple.workloads.models import registry
    from driple.workloads.runtime import optimisers

    run = job.run
    graph = v1.Graph()
    with graph.as_default(), _variables(to_run), v1.device(cluster.device_setter(job, index)):
        # Worker 0 initialises the weights, so seeds may differ between workers; so do dropout masks.
        v1.set_random_seed(run.seed * 1009 + index)
        global_step = v1.train.create_global_step()  # the first variable, so on server 0 with any sharding
        batch = inputs.batch_tensors(run.workload, seed=run.seed, worker=index, data_dir=_data_dir(job, index))
        built = registry.build(run.workload, batch, code_path=job.code_path)
        optimiser = optimisers.make(run.workload.optimiser, registry.dataset_of(run.workload).kind)
        synchronous = run.workload.update == "sync" and run.setting.servers > 0
        gradients = [pair for pair in optimiser.compute_gradients(built.loss, built.trainable) if pair[0] is not None]
        if synchronous:
            step = sync_update(
                optimiser,
                gradients,
                global_step,
                worker=index,
                workers=run.setting.workers,
                device=cluster.server_device(0),
            )
            applied, chief_op = step.worker_op, step.chief_op
        else:
            applied, chief_op = optimiser.apply_gradients(gradients, global_step=global_step), None
        # Grouped, not control inputs of the apply ops: that would be an edge from each to each.
        train_op = v1.group(applied, *built.updates, name="train")
        if synchronous:
            after = applied
        else:
            with v1.control_dependencies([train_op]):
                after = global_step.read_value()
        accuracy = registry.accuracy_of(registry.dataset_of(run.workload), built.logits, batch)
        return WorkerGraph(
            graph=graph,
            loss=built.loss,
            accuracy=v1.constant(math.nan) if accuracy is None else accuracy,
            train_op=train_op,
            global_step=after,
            init_op=v1.global_variables_initializer() if to_run else None,
            chief_op=chief_op,
        )


def _variables(to_run: bool) -> AbstractContextManager[None]:
    import tensorflow.compat.v1 as v1

    @functools.cache  # shared by equal variables: each op costs 0.3 ms
    def nothing(dtype: Any, shape: tuple[int, ...]) -> Any:
        with v1.name_scope(""), v1.init_scope():
            return v1.placeholder(dtype, shape, name="never_run")

    def ref_variable(make: Callable[..., Any], **options: Any) -> Any:
        if "use_resource" not in options and options.get("trainable") is not False:
            # TF2's tf.Variable makes resource variables only, which do not work with the optimiser's ref slots.
            # TF1's Variable calls this function again.
            return v1.Variable(**options, use_resource=False)
        shape, dtype = options.get("shape"), options.get("dtype")
        if not to_run and callable(options.get("initial_value")) and shape is not None and dtype is not None:
            sizes = tuple(v1.TensorShape(shape).as_list())
            options["initial_value"] = functools.partial(nothing, v1.as_dtype(dtype), sizes)
        return make(**{**options, "use_resource": False})

    scope: AbstractContextManager[None] = v1.variable_creator_scope(ref_variable)
    return scope


def _data_dir(job: JobSpec, index: int) -> str | None:
    return job.task(f"worker:{index}").data_dir
