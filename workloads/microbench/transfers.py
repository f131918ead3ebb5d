"""Times what a worker and a parameter server on this machine do, in two processes that TensorFlow's gRPC joins.

Ref variables, accumulators and barriers are those of training jobs. A difference to an empty step leaves out what a
step costs by itself.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from driple.contracts.errors import RunFailed
from driple.contracts.formats.calibration_result import APPLY, ASYNC_STEP, PULL, PUSH, SYNC_STEP, TransferTime
from driple.workloads.microbench.op_times import LEAST_S, spread_pct
from driple.workloads.strategies.sync_update import NEVER_STALE, sync_update

START_S = 120.0
STUCK_S = 60.0
"""No step takes that long."""
SHAPES = ((8, 1 << 20), (48, 1 << 16), (192, 256))
"""Tensors and floats of each: large, medium and small ones."""
QUICK_SHAPES = ((8, 1 << 20), (192, 256))
REPEATS = 15
QUICK_REPEATS = 5
_SERVER, _WORKER = "/job:ps/task:0", "/job:worker/task:0"


class _Span(NamedTuple):
    wall: float
    worker: float
    server: float


def time_transfers(threads: int, quick: bool) -> tuple[TransferTime, ...]:
    """Starts a server process, and measures. Raises RunFailed if it does not start."""
    import tensorflow.compat.v1 as v1

    cluster = {"ps": [_free_address()], "worker": [_free_address()]}
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(cluster, threads, there), daemon=True, name="calibration-server"
    )
    process.start()
    there.close()
    try:
        if not here.poll(START_S):
            raise RunFailed(f"the calibration's parameter server did not start within {START_S:g} s")
        here.recv()
        server = v1.train.Server(v1.train.ClusterSpec(cluster), "worker", 0, config=_config(threads))
        return _Probe(server.target, here, threads, QUICK_REPEATS if quick else REPEATS).measure(
            QUICK_SHAPES if quick else SHAPES
        )
    except EOFError:
        raise RunFailed("the calibration's parameter server ended") from None
    finally:
        process.kill()
        process.join()


def _serve(cluster: dict[str, list[str]], threads: int, pipe: Any) -> None:
    """The server process: answers every message with its processor time, until its pipe closes."""
    import tensorflow.compat.v1 as v1

    server = v1.train.Server(v1.train.ClusterSpec(cluster), "ps", 0, config=_config(threads))
    pipe.send(server.target)
    while True:
        try:
            pipe.recv()
        except EOFError:  # the measuring process is gone
            os._exit(1)
        pipe.send(time.process_time())


def _config(threads: int) -> Any:
    import tensorflow.compat.v1 as v1

    config = v1.ConfigProto(intra_op_parallelism_threads=threads, device_count={"GPU": 0}, allow_soft_placement=True)
    config.operation_timeout_in_ms = int(1000 * STUCK_S)
    # It would turn a variable that is only waited for into an edge without a tensor.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def _free_address() -> str:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{tried.getsockname()[1]}"


class _Probe:
    """The worker's side."""

    def __init__(self, target: str, server: Any, threads: int, repeats: int) -> None:
        self._target, self._server, self._threads, self._repeats = target, server, threads, repeats

    def measure(self, shapes: tuple[tuple[int, int], ...]) -> tuple[TransferTime, ...]:
        found = [one for tensors, size in shapes for one in self._moves(tensors, size)]
        return (*found, *self._steps())

    def _moves(self, tensors: int, size: int) -> list[TransferTime]:
        import tensorflow.compat.v1 as v1

        # The server keeps variables by their names from one graph to the next.
        with v1.Graph().as_default(), v1.variable_scope(f"of_{tensors}"):
            with v1.device(_SERVER):
                variables = [_zeros(size, f"v{n}") for n in range(tensors)]
                sums = [v1.ConditionalAccumulator(v1.float32, (size,), f"of_{tensors}/a{n}") for n in range(tensors)]
                means = [one.take_grad(1) for one in sums]
            optimiser = v1.train.MomentumOptimizer(1e-3, 0.9)
            applied = optimiser.apply_gradients(list(zip(means, variables, strict=True)))
            with v1.device(_WORKER):
                gradients = [_zeros(size, f"g{n}") for n in range(tensors)]
                pulled = v1.group(*(v1.identity(one) for one in variables))
                nothing = v1.group(v1.identity(_one_of(_SERVER)))
            with v1.device(_SERVER):
                pushed = v1.group(*(one.apply_grad(g, NEVER_STALE) for one, g in zip(sums, gradients, strict=True)))
            with self._session() as running:
                running.run(v1.global_variables_initializer())
                empty, pull, push, apply = map(running.make_callable, (nothing, pulled, pushed, applied))
                for run in (empty, pull, push, apply):
                    run()
                spans: dict[str, list[_Span]] = {PULL: [], PUSH: [], APPLY: []}
                for _ in range(self._repeats):
                    alone = self._timed(empty)
                    for what, run in ((PULL, pull), (PUSH, push), (APPLY, apply)):
                        both = self._timed(run)
                        spans[what].append(_Span(*(max(a - b, LEAST_S) for a, b in zip(both, alone, strict=True))))
        return [_median(what, tensors, 4.0 * tensors * size, found) for what, found in spans.items()]

    def _steps(self) -> list[TransferTime]:
        """A whole step of one small variable: what a step costs beside its bytes and ops."""
        import tensorflow.compat.v1 as v1

        found = []
        for what in (ASYNC_STEP, SYNC_STEP):
            with v1.Graph().as_default(), v1.variable_scope(what.split()[0]), v1.device(_WORKER):
                with v1.device(_SERVER):
                    step = v1.train.create_global_step()
                    variable = _zeros(1, "w")
                optimiser = v1.train.MomentumOptimizer(1e-3, 0.9)
                gradients = [(v1.identity(variable) * 2.0, variable)]
                if what == SYNC_STEP:
                    made = sync_update(optimiser, gradients, step, worker=0, workers=1, device=_SERVER)
                    train_op, chief_op = made.worker_op, made.chief_op
                else:
                    train_op, chief_op = optimiser.apply_gradients(gradients, global_step=step), None
                with self._session() as running:
                    running.run(v1.global_variables_initializer())
                    # One call runs both in a job of one worker; in a job the chief has a thread of its own.
                    run = running.make_callable([train_op] if chief_op is None else [train_op, chief_op])
                    for _ in range(self._repeats):
                        run()
                    spans = [self._timed(run) for _ in range(8 * self._repeats)]
            found.append(_median(what, 1, 4.0, spans))
        return found

    def _session(self) -> Any:
        import tensorflow.compat.v1 as v1

        return v1.Session(self._target, config=_config(self._threads))

    def _timed(self, run: Callable[[], object]) -> _Span:
        server, worker = self._server_s(), time.process_time()
        begin = time.perf_counter()
        run()
        wall = time.perf_counter() - begin
        return _Span(wall, time.process_time() - worker, self._server_s() - server)

    def _server_s(self) -> float:
        self._server.send(None)
        return float(self._server.recv())


def _zeros(size: int, name: str) -> Any:
    import tensorflow.compat.v1 as v1

    return v1.get_variable(name, initializer=v1.zeros((size,)), use_resource=False)


def _one_of(device: str) -> Any:
    import tensorflow.compat.v1 as v1

    with v1.device(device):
        return _zeros(1, "one")


def _median(what: str, tensors: int, size: float, spans: list[_Span]) -> TransferTime:
    wall, worker, server = (statistics.median(values) for values in zip(*spans, strict=True))
    return TransferTime(
        what=what,
        tensors=tensors,
        bytes=size,
        wall_s=wall,
        worker_s=worker,
        server_s=server,
        spread_pct=spread_pct([span.wall for span in spans]),
        repeats=len(spans),
    )
