"""A worker of a parameter-server job: waits for the others, trains, records each step, reports that it is done."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from driple.contracts.formats.task_files import LOST_PEER
from driple.contracts.run_spec import LEAST_STEPS, JobSpec, Measurement
from driple.workloads.frameworks.registry import framework_of
from driple.workloads.graphs import graph_build
from driple.workloads.runtime.task_output import TaskOutput
from driple.workloads.runtime.watchdog import Peers, Watchdog, gave_up
from driple.workloads.strategies import ps_barrier
from driple.workloads.strategies.ps_server import start_server


class RunningMean:
    """Mean and standard error of values that come one by one, at the same cost for each."""

    def __init__(self) -> None:
        self.count = 0
        self._mean = 0.0
        self._squares = 0.0  # sum of squared distances from the mean

    def add(self, value: float) -> None:
        self.count += 1
        before = value - self._mean
        self._mean += before / self.count
        self._squares += before * (value - self._mean)

    @property
    def relative_error(self) -> float:
        """Standard error of the mean as a share of it; infinite before the second value."""
        if self.count < 2 or self._mean <= 0:
            return math.inf
        return math.sqrt(self._squares / (self.count - 1) / self.count) / self._mean


class Pace:
    """Decides when a worker stops: after a number of steps, a time after warm-up, or once step times are known."""

    def __init__(self, measurement: Measurement) -> None:
        self._measurement = measurement
        self._warm_at: float | None = None
        self._times = RunningMean()
        self._last: float | None = None

    def over(self, done: int, now: float) -> bool:
        """Whether `done` steps (warm-up included) are enough at time `now`, in seconds of any steady clock."""
        measurement = self._measurement
        if measurement.steps is not None:
            return done >= measurement.warmup_steps + measurement.steps or self._known(done, now)
        if done < measurement.warmup_steps:
            return False
        if self._warm_at is None:
            self._warm_at = now
        assert measurement.duration_s is not None
        return now - self._warm_at >= measurement.duration_s

    def _known(self, done: int, now: float) -> bool:
        """Whether the mean time of a measured step is known as well as was asked for."""
        measurement = self._measurement
        if measurement.until_pct is None or done < measurement.warmup_steps:
            return False
        if self._last is not None:
            self._times.add(now - self._last)
        self._last = now
        return self._times.count >= LEAST_STEPS and 100 * self._times.relative_error <= measurement.until_pct


@dataclass
class Ending:
    """Flag for threads: the job is ending, so a lost peer is not an error any more."""

    near: bool = False


def train(job: JobSpec, index: int, output: TaskOutput, watchdog: Watchdog, graph_file: Path | None = None) -> None:
    """Runs worker `index` to its end; writes its graph to `graph_file` if there is one."""
    import tensorflow.compat.v1 as v1

    ending = Ending()

    def lost(task: str) -> None:
        if not ending.near:
            watchdog.leave(1, f"{task} went away before the job was done; its own last words say why", LOST_PEER)

    peers = Peers(
        {task.task: task.address for task in job.tasks if task.task.startswith("ps:")}, lost, job.step_timeout_s
    )
    watchdog.expect(job.start_timeout_s, lambda: _no_start(job, peers))
    server = start_server(job, "worker", index)
    built = graph_build.build(job, index)
    if graph_file is not None:
        from driple.workloads.graphs import graph_writer, tensorflow_graph

        graph_writer.write(tensorflow_graph.of_worker(built, job, f"worker:{index}"), graph_file)
    # In sync mode one worker decides for all when the end is open, or workers would wait for ever for one that stopped.
    measurement = job.run.measurement
    open_end = measurement.duration_s is not None or measurement.until_pct is not None
    agreed = open_end and built.chief_op is not None
    if not agreed and measurement.until_pct is not None:
        # How workers meet in an asynchronous job is another story in each run: with fewer steps the noise doubled.
        job = replace(job, run=replace(job.run, measurement=replace(measurement, until_pct=None)))
    with built.graph.as_default():
        start = ps_barrier.start_barrier(job.run.setting.workers)
        done_op = ps_barrier.say_done(index, job.run.setting.servers)
        stop = ps_barrier.agreed_stop(built.train_op) if agreed else None
    config = v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"], allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    session = v1.Session(server.target, graph=built.graph, config=config)
    _meet(session, index, built, start, stop)
    output.ready(tensorflow=v1.__version__, backend=job.run.workload.backend)
    if built.chief_op is not None and index == 0:
        threading.Thread(
            target=_drive, args=(session, built.chief_op, ending, watchdog), name="chief", daemon=True
        ).start()
    _steps(session, job, index, built, stop, output, watchdog)
    ending.near = True
    watchdog.expect(job.step_timeout_s, "trained to the end, but the parameter servers do not answer")
    with contextlib.suppress(v1.errors.OpError):  # the work is done, so lost servers do not matter
        session.run(done_op)
    watchdog.leave(0)


def _meet(session: Any, index: int, built: graph_build.WorkerGraph, start: ps_barrier.Start, stop: Any) -> None:
    if index == 0:
        session.run([built.init_op, stop.init] if stop is not None else built.init_op)
        session.run(start.let_in)
    session.run(start.enter)
    session.run(start.arrive)
    if index == 0:
        session.run(start.let_go)
    session.run(start.go)


def _steps(
    session: Any,
    job: JobSpec,
    index: int,
    built: graph_build.WorkerGraph,
    stop: Any,
    output: TaskOutput,
    watchdog: Watchdog,
) -> None:
    fetches = [built.train_op, built.loss, built.accuracy, built.global_step, *([stop.at] if stop is not None else [])]
    # A callable avoids the setup of session.run at every step: 1 ms of a step that may take 10 ms.
    step_op = session.make_callable(fetches)
    pace = Pace(job.run.measurement)
    done = 0
    stop_at = 0
    while True:
        over = pace.over(done, time.monotonic())
        if stop is not None:
            if over and index == 0 and not stop_at:
                # The others may be one step ahead of worker 0, never two.
                stop_at = done + 1
                session.run(stop.choose, {stop.number: stop_at})
            over = bool(stop_at) and done >= stop_at
        if over:
            return
        watchdog.expect(job.step_timeout_s, f"step {done} took more than {job.step_timeout_s:g} s; it is stuck")
        begin = time.monotonic_ns()
        _, loss, accuracy, global_step, *chosen = step_op()
        end = time.monotonic_ns()
        output.step(done, int(global_step), begin, end, float(loss), float(accuracy))
        done += 1
        if chosen:
            stop_at = int(chosen[0])


def _drive(session: Any, chief_op: Any, ending: Ending, watchdog: Watchdog) -> None:
    import tensorflow as tf

    apply_once = session.make_callable(chief_op)
    while True:
        try:
            apply_once()
        except tf.errors.OpError as error:
            if ending.near:
                return
            time.sleep(1.0)  # if a lost peer is the cause, the watchdog has the better message
            watchdog.leave(1, f"the gradients could not be applied: {framework_of('tensorflow').explain(error)}")


def _no_start(job: JobSpec, peers: Peers) -> str:
    otherwise = "every parameter server answers, but the job did not start; another worker has not come, or some other"
    return gave_up(job, peers.missing(), f"{otherwise} program has a task's port")
