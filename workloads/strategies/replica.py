"""One worker of a synchronous job without servers, in TensorFlow 2: model, input and the step of this worker."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from driple.contracts.run_spec import JobSpec


class Replica:
    """The model of a worker and its step. Equal seeds give equal weights on all workers."""

    def __init__(self, job: JobSpec, index: int) -> None:
        import tf_keras

        from driple.workloads.models import registry
        from driple.workloads.runtime import optimisers

        self._job, self._index = job, index
        run = job.run
        # Each worker initialises its own weights, and they must be equal. TensorFlow's seed alone is not enough:
        # tf_keras layers draw their seeds from a generator of their own.
        tf_keras.utils.set_random_seed(run.seed * 1009 % 2**32)  # the limit of NumPy, which it seeds too
        self._network = registry.network(run.workload, code_path=job.code_path)
        self._optimiser = optimisers.make_v2(run.workload.optimiser, registry.dataset_of(run.workload).kind)
        self._optimiser.build(self._network.model.trainable_variables)

    def step(self, batch: Any, parts: int = 1, tape_of: Callable[[Any], Any] = lambda tape: tape) -> Any:
        """Computes gradients of the loss divided by `parts`, applies them; returns loss and accuracy (or NaN).

        `tape_of` wraps the tape that computes them. An empty batch is a new one of synthetic input.
        """
        import tensorflow as tf

        from driple.workloads.data import inputs

        run = self._job.run
        batch = batch or inputs.batch_tensors(run.workload, seed=run.seed, worker=self._index, data_dir=None)
        with tf.GradientTape() as tape:
            logits = self._network(batch)
            loss = self._network.loss(logits, batch)
            share = loss / parts
        variables = self._network.model.trainable_variables
        pairs = zip(tape_of(tape).gradient(share, variables), variables, strict=True)
        self._optimiser.apply_gradients([pair for pair in pairs if pair[0] is not None])
        accuracy = self._network.accuracy(logits, batch)
        return loss, tf.constant(math.nan) if accuracy is None else accuracy


def step_function(job: JobSpec, index: int, step: Callable[[Any, Any], Any]) -> Any:
    """A function of a vote and a batch as a graph.

    AutoGraph has nothing to rewrite here and fails on some plain Python. Traced now, not in the first step: that takes
    half a minute for the deepest models.
    """
    import tensorflow as tf

    from driple.workloads.models import registry

    function, specs = tf.function(step, autograph=False), {}
    if job.task(f"worker:{index}").data_dir is not None:
        for name, (shape, kind) in registry.input_shapes(job.run.workload).items():
            specs[name] = tf.TensorSpec((job.run.workload.batch_size, *shape), kind)
    function.get_concrete_function(tf.TensorSpec((), tf.float32), specs)
    return function


def reader(job: JobSpec, index: int) -> Callable[[], Any]:
    """Returns a batch of the user's files at each call; an empty one for synthetic input, which the step itself makes.

    The readers are written for TF1 graphs, so they run in a session of their own.
    """
    import tensorflow.compat.v1 as v1

    from driple.workloads.data import inputs

    data_dir = job.task(f"worker:{index}").data_dir
    if data_dir is None:
        return dict
    with v1.Graph().as_default() as graph:
        batch = inputs.batch_tensors(job.run.workload, seed=job.run.seed, worker=index, data_dir=data_dir)
    session = v1.Session(graph=graph, config=v1.ConfigProto(device_count={"GPU": 0}))
    return lambda: {name: v1.convert_to_tensor(array) for name, array in session.run(batch).items()}
