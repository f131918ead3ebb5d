"""All-reduce: every worker keeps the whole model, and gradients go round a ring. No parameter servers.

MultiWorkerMirroredStrategy in a custom loop: one graph function per step, one replica per worker.
"""

from __future__ import annotations

import faulthandler
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from driple.contracts.errors import RunFailed
from driple.contracts.runspec import JobSpec
from driple.contracts.setting import CPU
from driple.workloads.meeting import Meeting
from driple.workloads.outbox import Outbox
from driple.workloads.train import Ending, Pace
from driple.workloads.watch import Peers, Watch

LINGER_S = 1.0
"""How long a worker stays after its last step: the others may still be fetching their share of it."""


def train_allreduce(job: JobSpec, index: int, outbox: Outbox, watch: Watch, graph_file: Path | None = None) -> None:
    """Runs worker `index` to its end."""
    if graph_file is not None:
        _leave_graph(job, index, graph_file)
    cluster = {"worker": list(job.addresses("worker"))}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
    import tensorflow as tf

    me = f"worker:{index}"
    others = {task.task: task.address for task in job.tasks if task.task != me}
    meeting = Meeting(me, job.task(me).address, others)
    watch.expect(job.start_timeout_s, lambda: _nobody(job, meeting))
    meeting.hold()
    # If one is lost just now, TensorFlow waits for it with all Python threads held. This timer is none of Python's.
    faulthandler.dump_traceback_later(job.start_timeout_s, exit=True)
    strategy = _strategy(job)
    faulthandler.cancel_dump_traceback_later()
    watch.expect(
        job.start_timeout_s,
        f"gave up after {job.start_timeout_s:g} s: the ring stands, but the job did not start",
    )
    ending = Ending()

    def lost(task: str) -> None:
        if not ending.near:
            watch.leave(1, f"{task} went away before the job was done; its own last words say why")

    Peers(others, lost)
    timed = job.run.measurement.duration_s is not None
    read = _reader(job, index)
    with strategy.scope():
        step_op = _step_function(job, index, strategy, timed)
    _barrier(strategy)
    outbox.ready(tensorflow=tf.__version__)
    pace = Pace(job.run.measurement)
    done = 0
    while True:
        over = pace.over(done, time.monotonic())
        if over and not timed:
            break
        watch.expect(job.step_timeout_s, f"step {done} took more than {job.step_timeout_s:g} s; it is stuck")
        begin = time.monotonic_ns()
        loss, votes = step_op(tf.constant(float(over)), read())
        loss, votes = float(loss), float(votes)
        outbox.step(done, done + 1, begin, time.monotonic_ns(), loss)
        done += 1
        if votes > 0:  # the sum of all workers' votes: all see it at the same step
            break
    ending.near = True
    watch.expect(job.step_timeout_s, "trained to the end, but the other workers do not answer")
    _barrier(strategy)
    time.sleep(LINGER_S)
    watch.leave(0)


def _strategy(job: JobSpec) -> Any:
    import tensorflow as tf

    threads = job.run.measurement.threads
    if threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    gpus = tf.config.list_physical_devices("GPU")
    if job.run.setting.device != CPU and not gpus:
        raise RunFailed(f"{job.run.setting} is a GPU setting, and TensorFlow finds no GPU on this host")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as error:
        raise RunFailed(f"TensorFlow cannot form the ring: {' '.join(str(error).split())[:300]}") from None


def _reader(job: JobSpec, index: int) -> Callable[[], Any]:
    """Gives a batch of the user's files at each call; nothing for synthetic input, which a step makes for itself.

    The readers are written for TF1 graphs, so they run in one, beside the ring.
    """
    import tensorflow.compat.v1 as v1

    from driple.workloads import inputs

    data_dir = job.task(f"worker:{index}").data_dir
    if data_dir is None:
        return dict
    with v1.Graph().as_default() as graph:
        batch = inputs.batch_tensors(job.run.workload, seed=job.run.seed, worker=index, data_dir=data_dir)
    session = v1.Session(graph=graph, config=v1.ConfigProto(device_count={"GPU": 0}))
    return lambda: {name: v1.convert_to_tensor(array) for name, array in session.run(batch).items()}


def _step_function(job: JobSpec, index: int, strategy: Any, timed: bool) -> Any:
    """One step of all workers: gradients summed and applied; gives this worker's loss, and the votes to stop."""
    import tensorflow as tf

    from driple.workloads import inputs, optimisers
    from driple.workloads.models import registry

    run = job.run
    tf.random.set_seed(run.seed * 1009)  # each worker sets its own weights: they must be the same
    network = registry.network(run.workload, code_path=job.code_path)
    optimiser = optimisers.make_v2(run.workload.optimiser, registry.dataset_of(run.workload).kind)
    optimiser.build(network.model.trainable_variables)

    def replica_step(batch: Any) -> Any:
        batch = batch or inputs.batch_tensors(run.workload, seed=run.seed, worker=index, data_dir=None)
        with tf.GradientTape() as tape:
            loss = network.loss(network(batch), batch)
            share = loss / run.setting.workers  # the strategy sums gradients over workers
        variables = network.model.trainable_variables
        pairs = zip(tape.gradient(share, variables), variables, strict=True)
        optimiser.apply_gradients([pair for pair in pairs if pair[0] is not None])
        return loss

    def step(vote: Any, batch: Any) -> Any:
        loss = strategy.run(tf.autograph.experimental.do_not_convert(replica_step), args=(batch,))
        # Where only a clock says when to stop, the workers must agree, or one would wait for ever in the next step.
        votes = strategy.reduce(tf.distribute.ReduceOp.SUM, vote, axis=None) if timed else vote
        return loss, votes

    # AutoGraph has nothing to rewrite here, and trips over plain Python that it meets on the way. Traced at once: that
    # is half a minute of work for the deepest models, and no part of the first step.
    function = tf.function(step, autograph=False)
    specs = {}
    if job.task(f"worker:{index}").data_dir is not None:
        for name, (shape, kind) in registry.input_shapes(run.workload).items():
            specs[name] = tf.TensorSpec((run.workload.batch_size, *shape), kind)
    function.get_concrete_function(tf.TensorSpec((), tf.float32), specs)
    return function


def _barrier(strategy: Any) -> None:
    import tensorflow as tf

    float(tf.function(lambda: strategy.reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0), axis=None))())


def _leave_graph(job: JobSpec, index: int, graph_file: Path) -> None:
    """Leaves the worker's graph from a process of its own: this one must not be turned into a TF1 one."""
    import subprocess
    import sys
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(job.to_json(), file)
        file.flush()
        command = [sys.executable, "-m", "driple.workloads.cli", "graph", "--job", file.name]
        result = subprocess.run([*command, "--task", f"worker:{index}", "--out", str(graph_file)], check=False)
    if result.returncode:
        raise RunFailed(f"the graph could not be written to {graph_file}")


def _nobody(job: JobSpec, meeting: Meeting) -> str:
    return f"gave up after {job.start_timeout_s:g} s: {', '.join(meeting.missing())} never answered"
