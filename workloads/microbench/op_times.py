"""Times one op: a session runs a chain of its executions, and the difference of two lengths is divided by their number.

Executions follow one another by control edges or by data. So the time of `session.run` cancels, and buffers are those
of a running graph: an output that nothing takes is freed before the next execution. The optimiser of TensorFlow is off,
because it would merge equal ops.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from driple.contracts.formats.calibration import OpTime
from driple.workloads.microbench.op_cases import OpCase

SHORTEST_CHAIN = 4
CHAIN_S = 0.02
"""A chain is as long as fits into this time."""
LEAST_REPEATS = 5
FULL_S = 0.35
QUICK_S = 0.1
LEAST_S = 1e-9
"""A difference of two noisy times may not be positive."""


class Span(NamedTuple):
    """Wall and processor seconds."""

    wall: float
    processor: float


def time_op(case: OpCase, device: str, threads: int, quick: bool) -> OpTime:
    """Runs a case. TensorFlow's errors pass through."""
    import tensorflow as tf
    import tensorflow.compat.v1 as v1

    with v1.Graph().as_default(), v1.device(f"/device:{device.upper()}" if ":" in device else "/device:CPU:0"):
        variables = [_variable(shape) for shape in case.inputs]
        marker = v1.get_variable("marker", initializer=0.0, use_resource=False)
        ends, first = _chain(case, variables, marker, tf.raw_ops)
        with session(threads) as running:
            running.run(v1.global_variables_initializer())
            runs = _Callables(running, ends)
            return _measured(first, runs, case.longest_chain, QUICK_S if quick else FULL_S)


@contextmanager
def session(threads: int) -> Iterator[Any]:
    """A session like that of a worker, without graph optimisation."""
    import tensorflow.compat.v1 as v1

    config = v1.ConfigProto(intra_op_parallelism_threads=threads, allow_soft_placement=True)
    # Ops run in the calling thread, else the processor time of another one is only known after its next switch.
    config.inter_op_parallelism_threads = -1
    config.gpu_options.allow_growth = True
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    with v1.Session(config=config) as made:
        yield made


def timed(run: Callable[[], object]) -> Span:
    """The time of a call."""
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return Span(time.perf_counter() - wall, time.process_time() - processor)


def spread_pct(values: Sequence[float]) -> float:
    """Range of the middle half, in percent of the median."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return round(100 * (ordered[-1 - quarter] - ordered[quarter]) / max(statistics.median(ordered), LEAST_S), 2)


class _Callables(dict[int, Callable[[], object]]):
    """What runs each length of the chain; made when it is needed."""

    def __init__(self, running: Any, ends: Mapping[int, Any]) -> None:
        super().__init__()
        self._running, self._ends = running, ends

    def __missing__(self, length: int) -> Callable[[], object]:
        made: Callable[[], object] = self._running.make_callable(self._ends[length])
        return self.setdefault(length, made)


def _variable(shape: tuple[int, ...]) -> Any:
    import tensorflow.compat.v1 as v1

    value = v1.random_uniform(shape, -1.0, 1.0)
    return v1.Variable(value, use_resource=False, validate_shape=True)


def _chain(case: OpCase, variables: list[Any], marker: Any, raw_ops: Any) -> tuple[dict[int, Any], Any]:
    """What to fetch for each length of the chain, and the first op of it."""
    import tensorflow.compat.v1 as v1

    ends: dict[int, Any] = {}
    first = before = None
    inputs: list[Any] = [_as_op_takes(one) for one in variables]
    for number in range(1, case.longest_chain + 1):
        with v1.control_dependencies([] if before is None else [before]):
            made = case.build(raw_ops, *inputs)
        output = made if hasattr(made, "op") else made[0]
        before = output.op
        first = first or before
        if case.chained:
            inputs[0] = output
        with v1.control_dependencies([before]):
            ends[number] = v1.identity(marker)  # a value that a GPU delivers only after the ops before it
    return ends, first


def _as_op_takes(variable: Any) -> Any:
    """The reference itself: an update writes to it."""
    return variable._ref()


def _measured(op: Any, runs: Mapping[int, Callable[[], object]], longest: int, seconds: float) -> OpTime:
    one = runs[1]
    one()
    alone = min(timed(one).wall for _ in range(3))
    length = int(min(longest, max(SHORTEST_CHAIN, CHAIN_S / alone)))
    many = runs[length]
    many()
    found: list[Span] = []
    until = time.perf_counter() + seconds
    while len(found) < LEAST_REPEATS or time.perf_counter() < until:
        short, long = timed(one), timed(many)
        found.append(Span(*((a - b) / (length - 1) for a, b in zip(long, short, strict=True))))
    walls = [span.wall for span in found]
    return OpTime(
        op=op.type,
        inputs=tuple(tuple(each.shape.as_list()) for each in op.inputs),
        outputs=tuple(tuple(each.shape.as_list()) if each.shape.rank is not None else () for each in op.outputs),
        read_bytes=float(sum(_bytes(each) for each in {id(each): each for each in op.inputs}.values())),
        written_bytes=float(sum(_bytes(each) for each in op.outputs)),
        wall_s=max(statistics.median(walls), LEAST_S),
        processor_s=max(statistics.median(span.processor for span in found), LEAST_S),
        spread_pct=spread_pct(walls),
        repeats=len(found),
    )


def _bytes(tensor: Any) -> int:
    count = tensor.shape.num_elements()
    return 0 if count is None else int(count * tensor.dtype.base_dtype.size)
