"""The TensorFlow server of a task, and the main loop of a parameter server."""

from __future__ import annotations

import threading
import time
from typing import Any

from driple.contracts.errors import RunFailed
from driple.contracts.formats.task_files import LOST_PEER
from driple.contracts.run_spec import JobSpec
from driple.contracts.setting import CPU
from driple.workloads.graphs.graph_build import GLOBAL_STEP
from driple.workloads.runtime import cluster
from driple.workloads.runtime.task_output import TaskOutput
from driple.workloads.runtime.watchdog import Peers, Watchdog, gave_up
from driple.workloads.strategies import ps_barrier

LAST_WORD_S = 1.0
"""How long after the end of its connection a worker's `done` may arrive."""
FAREWELL_S = 10.0
"""How long a server waits for finished workers to disconnect, so that each gets its last answer."""
STALL_MARGIN_S = 2.0
"""Time that server 0 adds to the limit of a step, so that the stuck worker reports first: it knows more."""


def start_server(job: JobSpec, role: str, index: int) -> Any:
    """Starts the TensorFlow server of a task."""
    import tensorflow.compat.v1 as v1

    config = v1.ConfigProto(intra_op_parallelism_threads=job.run.measurement.threads, allow_soft_placement=True)
    config.gpu_options.allow_growth = True  # tasks may share a device
    if role == "worker" and job.run.setting.device != CPU and not v1.config.list_physical_devices("GPU"):
        # Soft placement would silently train on the CPU.
        raise RunFailed(f"{job.run.setting} is a GPU setting, and TensorFlow finds no GPU on this host")
    try:
        return v1.train.Server(v1.train.ClusterSpec(cluster.cluster_of(job)), role, index, config=config)
    except v1.errors.OpError as error:
        address = job.addresses(role)[index]
        raise RunFailed(f"TensorFlow cannot listen at {address} ({error.message}); is the port in use?") from None


def serve(job: JobSpec, index: int, output: TaskOutput, watchdog: Watchdog) -> None:
    """Runs parameter server `index` until every worker has reported that it is done.

    SIGTERM ends it too. No handler is set, since a Python handler would wait for a TensorFlow call to return.
    """
    import tensorflow.compat.v1 as v1

    server = start_server(job, "ps", index)
    output.ready(tensorflow=v1.__version__)
    workers = job.run.setting.workers
    done: set[int] = set()
    gone = threading.Semaphore(0)

    def lost(task: str) -> None:
        if task.startswith("worker:"):
            gone.release()
        time.sleep(LAST_WORD_S)
        role, _, number = task.partition(":")
        if len(done) < workers and not (role == "worker" and int(number) in done):
            watchdog.leave(1, f"{task} went away before it was done; its own last words say why", LOST_PEER)

    watched = [task for task in job.tasks if task.task.startswith("worker:") or (task.task == "ps:0" and index > 0)]
    peers = Peers({task.task: task.address for task in watched}, lost, job.step_timeout_s)
    if index == 0:
        threading.Thread(
            target=_watch_progress, args=(job, server, watchdog, peers), name="progress", daemon=True
        ).start()
    else:
        watchdog.expect(job.start_timeout_s, lambda: _never_came(job, peers))
        threading.Thread(target=_relax_when_complete, args=(watchdog, peers), name="complete", daemon=True).start()
    with v1.Graph().as_default():
        next_done = ps_barrier.hear_done(index)
        with _own_session(server, index) as session:
            while len(done) < workers:
                done.add(int(session.run(next_done)))
            deadline = time.monotonic() + FAREWELL_S
            for _ in range(workers):
                gone.acquire(timeout=max(0.0, deadline - time.monotonic()))
            watchdog.leave(0)


def _own_session(server: Any, index: int) -> Any:
    """A session that is limited to this server, so that it does not wait for the others."""
    import tensorflow.compat.v1 as v1

    return v1.Session(server.target, config=v1.ConfigProto(device_filters=[f"/job:ps/task:{index}"]))


def _never_came(job: JobSpec, peers: Peers) -> str:
    return gave_up(job, peers.missing(), "all tasks answer, but the job did not start")


def _relax_when_complete(watchdog: Watchdog, peers: Peers) -> None:
    while peers.missing():
        time.sleep(0.5)
    watchdog.relax()


def _watch_progress(job: JobSpec, server: Any, watchdog: Watchdog, peers: Peers) -> None:
    """On server 0, which holds the global step: ends the job when the step does not advance.

    This finds a job in which all workers have stopped. A single frozen worker is found by the greetings of its peers.
    """
    import tensorflow.compat.v1 as v1

    limit = job.step_timeout_s + STALL_MARGIN_S
    watchdog.expect(job.start_timeout_s, lambda: _never_came(job, peers))
    with v1.Graph().as_default():
        with v1.device(cluster.server_device(0)):
            # The same name on the same device is the same variable: the global step of the job.
            step = v1.Variable(0, dtype=v1.int64, name=GLOBAL_STEP, use_resource=False, trainable=False)
            value, known = step.read_value(), v1.is_variable_initialized(step)
        with _own_session(server, 0) as session:
            last = 0
            started = False
            while True:
                time.sleep(min(1.0, limit / 4))
                now = int(session.run(value)) if session.run(known) else 0
                if not started and not peers.missing():
                    started = True
                    watchdog.expect(
                        job.start_timeout_s + limit, "all tasks answer, but no step was ever done; it is stuck"
                    )
                if now != last:
                    last = now
                    watchdog.expect(limit, f"no step was done for {limit:g} s after step {last}: it is stuck")
