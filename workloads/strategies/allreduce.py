"""All-reduce: every worker has the whole model, and gradients are summed over a ring. No parameter servers.

MultiWorkerMirroredStrategy in a custom loop: one graph function per step, one replica per worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from driple.contracts.errors import RunFailed
from driple.contracts.formats.task_files import LOST_PEER
from driple.contracts.run_spec import JobSpec
from driple.contracts.setting import CPU
from driple.contracts.strategy import GRPC, NCCL, RING
from driple.workloads.runtime.gathering import LINGER_S
from driple.workloads.runtime.task_output import TaskOutput
from driple.workloads.runtime.watchdog import PEER_LOSS_S, Peers, Watchdog, gave_up
from driple.workloads.strategies.allreduce_barrier import ANSWER_S, StartBarrier, silent
from driple.workloads.strategies.base import Task, TrainingStrategy
from driple.workloads.strategies.graph_process import write_graph
from driple.workloads.strategies.ps_worker import Ending, Pace
from driple.workloads.strategies.replica import Replica, reader, step_function

LAST_RESORT_S = 5.0
"""How long after the time limit the process ends without a message, if no thread could write one."""
_RINGS = {GRPC: "RING", NCCL: "NCCL"}
"""TensorFlow's names of its rings, by backend."""
_FORM_RING = "TFE_EnableCollectiveOps"
"""TensorFlow's function that blocks until every worker has connected."""


class AllReduce(TrainingStrategy):
    """Synchronous training without servers."""

    name = "allreduce"
    framework = "tensorflow"

    def run(self, task: Task) -> None:
        _run_worker(task.job, task.index, task.output, task.watchdog, task.graph_file)


def _run_worker(job: JobSpec, index: int, output: TaskOutput, watchdog: Watchdog, graph_file: Path | None) -> None:
    write_graph(job, index, graph_file, watchdog)
    cluster = {"worker": list(job.addresses("worker"))}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
    import tensorflow  # noqa: F401  (before the barrier, so that nobody waits behind it for an import)

    me = f"worker:{index}"
    others = {task.task: task.address for task in job.tasks if task.task != me}
    barrier = StartBarrier(me, job.task(me).address, others)
    begin = time.monotonic()
    watchdog.expect(job.start_timeout_s, lambda: gave_up(job, barrier.missing(), "every worker answers"))
    barrier.wait()
    left = _less_answer_time(begin + job.start_timeout_s - time.monotonic())
    watchdog.expect(left, lambda: _no_ring(job, others))
    with _named_errors(others):
        strategy = _strategy(job, left)
        _train(job, index, strategy, others, output, watchdog)


def _train(
    job: JobSpec, index: int, strategy: Any, others: dict[str, str], output: TaskOutput, watchdog: Watchdog
) -> None:
    import tensorflow as tf

    ending = Ending()

    def lost(task: str) -> None:
        if not ending.near:
            watchdog.leave(1, f"{task} went away before the job was done; its own last words say why", LOST_PEER)

    peers = Peers(others, lost)
    watchdog.expect(_less_answer_time(job.start_timeout_s), lambda: _no_start(job, peers.missing() or silent(others)))
    timed = job.run.measurement.duration_s is not None
    read = reader(job, index)
    with strategy.scope():
        step_op = _step_function(job, index, strategy, timed)
    _barrier(strategy)
    output.ready(tensorflow=tf.__version__, backend=_carrier(job, strategy), topology=RING)
    pace = Pace(job.run.measurement)
    done = 0
    while True:
        over = pace.over(done, time.monotonic())
        if over and not timed:
            break
        watchdog.expect(job.step_timeout_s, f"step {done} took more than {job.step_timeout_s:g} s; it is stuck")
        begin = time.monotonic_ns()
        loss, accuracy, votes = map(float, step_op(tf.constant(float(over)), read()))
        output.step(done, done + 1, begin, time.monotonic_ns(), loss, accuracy)
        done += 1
        if votes > 0:  # the sum of all workers' votes: all see it at the same step
            break
    ending.near = True
    watchdog.expect(job.step_timeout_s, "trained to the end, but the other workers do not answer")
    _barrier(strategy)
    time.sleep(LINGER_S)
    watchdog.leave(0)


@contextlib.contextmanager
def _named_errors(others: dict[str, str]) -> Iterator[None]:
    """Turns TensorFlow's error about a broken ring into a line that names the worker."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        text = " ".join(re.sub(r"\{\{.*?\}\}", "", error.message).split())
        gone = tf.errors.UnavailableError | tf.errors.AbortedError | tf.errors.CancelledError
        if not isinstance(error, gone | tf.errors.DeadlineExceededError) and "Collective ops is aborted" not in text:
            raise
        time.sleep(PEER_LOSS_S)  # the watchdog may find the lost peer first, and exits
        named = {f"worker:{number}" for number in re.findall(r"/job:worker/replica:0/task:(\d+)", text)}
        found = silent(others) or [f"{name} ({others[name]})" for name in sorted(named & set(others))]
        who = f"{', '.join(found)} does not answer" if found else "a worker went away, and it is not known which"
        raise RunFailed(f"the ring of workers broke: {who} (TensorFlow: {text[:200]})") from None


@contextlib.contextmanager
def _gil_released() -> Iterator[None]:
    """Releases the GIL while TensorFlow waits for the other workers, so that the watchdog can end the process.

    TensorFlow's Python binding holds the GIL in this call, for ever if a worker does not come. ctypes releases it. If
    this version of TensorFlow has the function elsewhere, nothing is changed; the last resort remains.
    """
    try:
        from tensorflow.python import pywrap_tfe

        original = getattr(pywrap_tfe, _FORM_RING)
        call = _ctypes_call()
    except (ImportError, OSError, AttributeError):
        yield
        return
    setattr(pywrap_tfe, _FORM_RING, call)
    try:
        yield
    finally:
        setattr(pywrap_tfe, _FORM_RING, original)


def _ctypes_call() -> Callable[[Any, bytes], None]:
    import tensorflow as tf

    folder = Path(tf.sysconfig.get_lib())
    functions = ctypes.CDLL(str(folder / "libtensorflow_cc.so.2"))
    status = ctypes.CDLL(str(folder / "libtensorflow_framework.so.2"))
    enable = functions[_FORM_RING]
    enable.argtypes, enable.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p], None
    status.TF_NewStatus.argtypes, status.TF_NewStatus.restype = [], ctypes.c_void_p
    status.TF_GetCode.argtypes, status.TF_GetCode.restype = [ctypes.c_void_p], ctypes.c_int
    status.TF_Message.argtypes, status.TF_Message.restype = [ctypes.c_void_p], ctypes.c_char_p
    name_of, pointer_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.argtypes, name_of.restype = [ctypes.py_object], ctypes.c_char_p
    pointer_of.argtypes, pointer_of.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p

    def call(context: Any, server: bytes) -> None:
        result = status.TF_NewStatus()
        enable(pointer_of(context, name_of(context)), server, len(server), result)
        code = status.TF_GetCode(result)
        if code:
            text = status.TF_Message(result).decode("utf-8", "replace")
            raise tf.compat.v1.errors.exception_type_from_error_code(code)(None, None, text)

    return call


def _strategy(job: JobSpec, seconds: float) -> Any:
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
        implementation=getattr(tf.distribute.experimental.CommunicationImplementation, _RINGS[job.run.workload.backend])
    )
    faulthandler.dump_traceback_later(seconds + LAST_RESORT_S, exit=True)  # its timer is not a Python thread
    try:
        with _gil_released():
            return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as error:
        raise RunFailed(f"TensorFlow cannot form the ring: {' '.join(str(error).split())[:300]}") from None
    finally:
        faulthandler.cancel_dump_traceback_later()


def _step_function(job: JobSpec, index: int, strategy: Any, timed: bool) -> Any:
    """One step of all workers: sums and applies gradients; returns this worker's loss and accuracy, and the votes."""
    import tensorflow as tf

    replica = Replica(job, index)

    def replica_step(batch: Any) -> Any:
        return replica.step(batch, parts=job.run.setting.workers)  # the strategy sums gradients over workers

    def step(vote: Any, batch: Any) -> Any:
        learned = strategy.run(tf.autograph.experimental.do_not_convert(replica_step), args=(batch,))
        # If a clock decides when to stop, the workers must agree, or one would wait for ever in the next step.
        votes = strategy.reduce(tf.distribute.ReduceOp.SUM, vote, axis=None) if timed else vote
        return (*learned, votes)

    return step_function(job, index, step)


def _carrier(job: JobSpec, strategy: Any) -> str:
    """What carries the gradients: without GPUs TensorFlow takes gRPC, whatever it was asked for."""
    on_gpus = all("GPU" in device for device in strategy.extended.worker_devices)
    return job.run.workload.backend if on_gpus else GRPC


def _barrier(strategy: Any) -> None:
    import tensorflow as tf

    float(tf.function(lambda: strategy.reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0), axis=None))())


def _less_answer_time(seconds: float) -> float:
    """A time limit that leaves time to find out who does not answer."""
    return max(1.0, seconds - ANSWER_S)


def _no_ring(job: JobSpec, others: dict[str, str]) -> str:
    found = silent(others)
    who = f"{', '.join(found)} came and does not answer any more" if found else "but every worker answers"
    return gave_up(job, (), f"the ring of workers did not form; {who}")


def _no_start(job: JobSpec, missing: Sequence[str]) -> str:
    who = f"{', '.join(missing)} does not answer" if missing else "every worker answers"
    return gave_up(job, (), f"the ring stands, but the job did not start; {who}")
