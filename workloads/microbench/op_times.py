"""Times one op: a session runs a chain of its executions, and the difference of two lengths is divided by their number.

Executions follow one another by control edges, so the time of `session.run` cancels. As in a training step, inputs are
not those of the execution before, and outputs are kept until the end: both are rarely in the nearest cache. The
optimiser of TensorFlow is off, because it would merge equal ops.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from driple.contracts.formats.calibration_result import OpTime
from driple.workloads.microbench.op_cases import OpCase

SHORTEST_CHAIN = 4
CHAIN_S = 0.02
"""A chain is as long as fits into this time."""
LEAST_REPEATS = 5
FULL_S = 0.32
QUICK_S = 0.1
ROTATED_BYTES = 32 << 20
MOST_SETS = 12
"""Inputs alternate between as many sets as have these bytes together."""
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
        size = 4 * sum(map(math.prod, case.inputs))
        count = min(MOST_SETS, -(-ROTATED_BYTES // size)) if case.rotated else 1
        sets = [[_variable(shape) for shape in case.inputs] for _ in range(count)]
        marker = v1.get_variable("marker", initializer=0.0, use_resource=False)
        ends, first = _chain(case, sets, marker, tf.raw_ops)
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

    def __init__(self, running: Any, ends: Mapping[int, Callable[[], Any]]) -> None:
        super().__init__()
        self._running, self._ends = running, ends

    def __missing__(self, length: int) -> Callable[[], object]:
        made: Callable[[], object] = self._running.make_callable(self._ends[length]())
        return self.setdefault(length, made)


def _variable(shape: tuple[int, ...]) -> Any:
    import tensorflow.compat.v1 as v1

    value = v1.random_uniform(shape, -1.0, 1.0)
    return v1.Variable(value, use_resource=False, validate_shape=True)


def _chain(
    case: OpCase, sets: Sequence[Sequence[Any]], marker: Any, raw_ops: Any
) -> tuple[dict[int, Callable[[], Any]], Any]:
    """What to fetch for each length of the chain, and the first op of it."""
    import tensorflow.compat.v1 as v1

    ops: list[Any] = []
    # The reference itself, not its value: an update writes to it.
    taken = [[variable._ref() for variable in own] for own in sets]
    if case.prepare is not None:
        taken = [[*own, case.prepare(raw_ops, *own)] for own in taken]
    for number in range(case.longest_chain):
        with v1.control_dependencies(ops[-1:]):
            made = case.build(raw_ops, *taken[number % len(sets)])
        ops.append((made if hasattr(made, "op") else made[0]).op)

    def end(length: int) -> Any:
        """Takes the first output of every execution; its value, which a GPU delivers last, is that of the marker."""
        kept = raw_ops.IdentityN(input=[op.outputs[0] for op in ops[:length]])
        with v1.control_dependencies([kept[0].op]):
            return v1.identity(marker)

    return {length: functools.partial(end, length) for length in range(1, len(ops) + 1)}, ops[0]


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
