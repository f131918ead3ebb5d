"""All-reduce by Horovod. What it needs beyond the framework is loaded only where a task runs."""

from __future__ import annotations

import time
from typing import Any

from driple.contracts.errors import RunFailed
from driple.contracts.setting import CPU
from driple.contracts.strategy import HOROVOD
from driple.workloads.runtime.horovod_world import HorovodWorld
from driple.workloads.strategies.base import Task, TrainingStrategy
from driple.workloads.strategies.graph_process import write_graph
from driple.workloads.strategies.ps_worker import Pace
from driple.workloads.strategies.replica import Replica, reader, step_function


class HorovodTorch(TrainingStrategy):
    """Synchronous training without servers in PyTorch."""

    name = "allreduce"
    framework = "torch"
    library = HOROVOD

    def run(self, task: Task) -> None:
        from driple.workloads.torch_jobs import horovod_job

        horovod_job.run(task)


class HorovodTensorFlow(TrainingStrategy):
    """The same in TensorFlow 2."""

    name = "allreduce"
    framework = "tensorflow"
    library = HOROVOD

    def run(self, task: Task) -> None:
        write_graph(task.job, task.index, task.graph_file, task.watchdog)
        import horovod.tensorflow as hvd
        import tensorflow as tf

        run = task.job.run
        timed = run.measurement.duration_s is not None
        _use_device(run.setting.device, run.measurement.threads)
        world = HorovodWorld(task, hvd, lambda: hvd.allreduce(tf.constant(0.0), name="meet"))
        replica, read = Replica(task.job, task.index), reader(task.job, task.index)

        def step(vote: Any, batch: Any) -> Any:
            learned = replica.step(batch, tape_of=hvd.DistributedGradientTape)
            # If a clock decides when to stop, the workers must agree, or one would wait for ever in the next step.
            return (*learned, hvd.allreduce(vote, op=hvd.Sum, name="votes") if timed else vote)

        function = step_function(task.job, task.index, step)
        world.begin()
        task.output.ready(tensorflow=tf.__version__, **world.versions)
        _steps(task, function, read, timed)
        world.end()


def _steps(task: Task, function: Any, read: Any, timed: bool) -> None:
    import tensorflow as tf

    job, pace, done = task.job, Pace(task.job.run.measurement), 0
    while timed or not pace.over(done, time.monotonic()):
        task.watchdog.expect(job.step_timeout_s, f"step {done} took more than {job.step_timeout_s:g} s; it is stuck")
        vote = float(timed and pace.over(done, time.monotonic()))
        begin = time.monotonic_ns()
        loss, accuracy, votes = map(float, function(tf.constant(vote), read()))
        task.output.step(done, done + 1, begin, time.monotonic_ns(), loss, accuracy)
        done += 1
        if votes > 0:
            return


def _use_device(device: str, threads: int) -> None:
    import tensorflow as tf

    if threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    gpus = tf.config.list_physical_devices("GPU")
    if device != CPU and not gpus:
        raise RunFailed(f"{device} is a GPU setting, and TensorFlow finds no GPU on this host")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
