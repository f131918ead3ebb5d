"""Maps a function over items: in processes of this machine, or on a running Dask or Ray cluster, through joblib.

Results come in any order, each with its item. They do not depend on where they were computed.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from driple.contracts.errors import BadInput, DripleError, shown
from driple.pipeline.datasets.dataset_file import one_line

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)

LOCAL = "local"
DASK = "dask"
RAY = "ray"
AUTO = "auto"
GRAMMAR = "local, dask://host:port, ray://host:port or ray://auto"
CONNECT_S = 10.0
"""Time limit for a cluster to answer, and then to report a worker."""

_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
# Errors that mean that a worker process died. By name, because their libraries may not be installed.
_DIED = {
    "TerminatedWorkerError", "BrokenProcessPool", "KilledWorker", "WorkerCrashedError", "RayActorError",
    "ActorDiedError", "OutOfMemoryError",
}  # fmt: skip
_LOST = {"CancelledError", "FutureCancelledError", "RaySystemError"}


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The engine that the user chose."""

    kind: str = LOCAL
    address: str = ""
    """`host:port` of a cluster, or `auto` for Ray on this machine."""
    jobs: int = 1
    """Processes of the local engine. With 1, this process does the work."""


def parse(text: str, jobs: int | None = None) -> Engine:
    """Reads `--engine` and `--jobs`. Raises BadInput for an unknown engine or address, or jobs for a cluster."""
    kind, _, address = text.partition("://")
    if kind == LOCAL and "://" not in text:
        if jobs is not None and jobs < 1:
            raise BadInput(f"--jobs: expected 1 or more, got {jobs}")
        return Engine(jobs=jobs or len(os.sched_getaffinity(0)))
    if kind not in (DASK, RAY) or not (_address(address) or (kind, address) == (RAY, AUTO)):
        raise BadInput(f"--engine {shown(text)}: expected {GRAMMAR}")
    if jobs is not None:
        raise BadInput("--jobs goes with --engine local: a cluster has its own workers")
    return Engine(kind=kind, address=address)


class Pool:
    """Maps a function on an engine."""

    def __init__(self, parallel: Callable[..., Any], *, at_once: int | None = None) -> None:
        self._parallel = parallel
        self._at_once = at_once

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[T, R | None]]:
        """Each item with its result, in any order; None if the item makes its process die."""
        left = dict(enumerate(items))
        try:
            for position, result in self._results(function, list(left.items())):
                item = left.pop(position)
                yield item, result
        except Exception as error:
            if type(error).__name__ not in _DIED:
                raise _foreseen(error) from error
            log.warning("a worker process died; the remaining %d runs are processed one at a time", len(left))
        for item in left.values():
            yield item, _apart(function, item)

    def _results(self, function: Callable[[T], R], items: list[tuple[int, T]]) -> Iterator[tuple[int, R]]:
        from joblib import delayed

        step = self._at_once or max(1, len(items))
        for start in range(0, len(items), step):
            yield from self._parallel(
                delayed(_numbered)(function, number, item) for number, item in items[start : start + step]
            )


@contextmanager
def connected(engine: Engine) -> Iterator[Pool]:
    """Connects to an engine until the end. Raises DripleError if it does not answer or has no workers."""
    opener = {LOCAL: _local, DASK: _dask, RAY: _ray}[engine.kind]
    with opener(engine) as pool:
        yield pool


@contextmanager
def _local(engine: Engine) -> Iterator[Pool]:
    joblib = _library("joblib", "pipeline")
    try:
        yield Pool(joblib.Parallel(n_jobs=engine.jobs, return_as="generator_unordered"))
    finally:
        if engine.jobs > 1:
            loky = _library("joblib.externals.loky", "pipeline")
            loky.get_reusable_executor().shutdown(wait=True, kill_workers=True)


@contextmanager
def _dask(engine: Engine) -> Iterator[Pool]:
    joblib, distributed = _library("joblib", DASK), _library("distributed", DASK)
    _knock(engine)
    try:
        client = distributed.Client(f"tcp://{engine.address}", timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise DripleError(f"dask://{engine.address} is not a Dask scheduler that answers: {one_line(error)}") from None
    try:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except (OSError, TimeoutError):
            raise DripleError(f"the Dask cluster at {engine.address} has no workers; start some: dask worker") from None
        with joblib.parallel_config(backend="dask", client=client):
            yield Pool(joblib.Parallel(n_jobs=-1, return_as="generator_unordered"))
    finally:
        client.close()


@contextmanager
def _ray(engine: Engine) -> Iterator[Pool]:
    joblib, ray = _library("joblib", RAY), _library("ray", RAY)
    ray_joblib = _library("ray.util.joblib", RAY)

    auto = engine.address == AUTO
    if not auto:
        _knock(engine)
    try:
        ray.init(address=AUTO if auto else f"ray://{engine.address}", logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, TimeoutError, ValueError, RuntimeError, AssertionError) as error:
        remedy = "start one: ray start --head" if auto else "is its client server on (ray start --head)?"
        raise DripleError(f"no Ray cluster at ray://{engine.address}: {one_line(error)}; {remedy}") from None
    try:
        ray_joblib.register_ray()
        workers = int(ray.cluster_resources().get("CPU", 0))
        if not workers:
            raise DripleError(f"the Ray cluster at ray://{engine.address} has no CPUs to work on")
        with joblib.parallel_config(backend="ray"):
            # joblib gets a list, not a stream, from this backend. Portions bound the memory and show progress.
            yield Pool(joblib.Parallel(n_jobs=workers), at_once=max(64, 16 * workers))
    finally:
        ray.shutdown()


def _numbered(function: Callable[[T], R], number: int, item: T) -> tuple[int, R]:
    return number, function(item)


def _apart(function: Callable[[T], R], item: T) -> R | None:
    """The result of one item, computed in a process of its own; None if that dies too."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        try:
            return executor.submit(function, item).result()
        except BrokenProcessPool:
            return None


def _foreseen(error: Exception) -> Exception:
    if isinstance(error, DripleError):
        return error
    if isinstance(error, ImportError):
        where = "here and on every worker of a cluster"
        return DripleError(f"a worker cannot start ({one_line(error)}): pip install 'driple[pipeline]' {where}")
    if isinstance(error, OSError) or type(error).__name__ in _LOST:
        return DripleError(f"the connection to the cluster was lost: {one_line(error)}")
    return error


def _library(name: str, extra: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise BadInput(f"{name} is not installed: pip install 'driple[{extra}]'") from None


def _address(text: str) -> tuple[str, int] | None:
    match = _ADDRESS.fullmatch(text)
    return (match["host"].strip("[]"), int(match["port"])) if match and int(match["port"]) < 65536 else None


def _knock(engine: Engine) -> None:
    """Tries to connect once. The libraries would retry and log for half a minute."""
    found = _address(engine.address)
    assert found is not None
    try:
        socket.create_connection(found, timeout=CONNECT_S).close()
    except OSError as error:
        reason = error.strerror or one_line(error)
        raise DripleError(f"nothing answers at {engine.kind}://{engine.address}: {reason}") from None
