"""Extracts graphs without training: of a model, of the whole zoo, of a job, of a user's GraphDef."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from driple.contracts.errors import BadInput, DripleError, RunFailed, shown
from driple.contracts.graph_makers import TENSORFLOW
from driple.contracts.run_dir import file_name
from driple.contracts.run_spec import JobSpec
from driple.workloads.frameworks.registry import framework_of


@dataclass(frozen=True)
class Extracted:
    """Figures of one extraction."""

    nodes: int
    edges: int
    seconds: float
    """To build and write the graph, after the framework is loaded."""
    cpu_seconds: float
    """CPU time of this process: the better figure on a busy machine."""
    peak_mb: float
    """Peak resident memory of the process."""

    def __str__(self) -> str:
        time_taken = f"{self.seconds:.1f} s ({self.cpu_seconds:.1f} s CPU)"
        return f"{self.nodes} nodes, {self.edges} edges, {time_taken}, {self.peak_mb:.0f} MB resident"


def from_job(job: JobSpec, task: str, out: Path) -> int:
    """Writes the graph of one worker and prints a line."""
    _check(job, task)
    _load(job.run.workload.framework)
    print(f"{out}: {_extract(job, task, out)}")
    return 0


def from_graphdef(path: Path, out: Path) -> int:
    """Converts a user's GraphDef and prints a line."""
    _load(TENSORFLOW)
    from driple.workloads.graphs import graph_writer, tensorflow_graph

    graph = tensorflow_graph.of_graphdef(path)
    graph_writer.write(graph, out)
    print(f"{out}: {len(graph.nodes)} nodes, {len(graph.edges)} edges")
    return 0


def from_jobs(jobs: Mapping[str, JobSpec], task: str, out: Path, processes: int) -> int:
    """Writes `<out>/<name>.parquet` for each job and prints a line. Raises RunFailed at the end if some failed."""
    for job in jobs.values():
        _check(job, task)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{out}: {error.strerror}") from None
    failed = []
    done: dict[str, Extracted] = {}
    for number, (name, result) in enumerate(_each(jobs, task, out, processes), start=1):
        if isinstance(result, Extracted):
            done[name] = result
            print(f"[{number}/{len(jobs)}] {name}: {result}", flush=True)
        else:
            failed.append(name)
            print(f"[{number}/{len(jobs)}] {name}: FAILED: {result}", flush=True)
    if done:
        slowest = max(done, key=lambda name: done[name].seconds)
        largest = max(done, key=lambda name: done[name].peak_mb)
        print(f"{len(done)} graphs; slowest {slowest}: {done[slowest]}; most memory {largest}: {done[largest]}")
    if failed:
        raise RunFailed(f"{len(failed)} of {len(jobs)} graphs could not be extracted: {', '.join(failed)}")
    return 0


def _each(jobs: Mapping[str, JobSpec], task: str, out: Path, processes: int) -> Iterator[tuple[str, Extracted | str]]:
    targets = {name: out / f"{file_name(name)}.parquet" for name in jobs}
    (framework,) = {job.run.workload.framework for job in jobs.values()}
    if processes == 1:
        _load(framework)
        for name, job in jobs.items():
            yield name, _try(job, task, targets[name])
        return
    # Spawned, not forked: TensorFlow does not survive a fork once it is in use.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_load, initargs=(framework,)) as pool:
        futures = {name: pool.submit(_try, job, task, targets[name]) for name, job in jobs.items()}
        for name, future in futures.items():
            try:
                yield name, future.result()
            except BrokenProcessPool:
                yield name, "its process was killed (out of memory?)"


def _try(job: JobSpec, task: str, out: Path) -> Extracted | str:
    try:
        return _extract(job, task, out)
    except DripleError as error:
        return str(error)
    except Exception as error:  # one model of many: continue with the others
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _extract(job: JobSpec, task: str, out: Path) -> Extracted:
    from driple.workloads.graphs import graph_writer

    begin, begin_cpu = time.monotonic(), time.process_time()
    _forget_peak()
    gc.disable()  # nothing is freed meanwhile, and collections cost a tenth of the time
    try:
        graph = framework_of(job.run.workload.framework).graph_of(job, task)
        graph_writer.write(graph, out)
    except ArithmeticError:
        too_large = "bytes or FLOPs of an op do not fit 64 bits; use a smaller batch, size or width"
        raise BadInput(f"{job.run.workload.model}: {too_large}") from None
    gc.enable()
    gc.collect()
    seconds, cpu_seconds = time.monotonic() - begin, time.process_time() - begin_cpu
    return Extracted(len(graph.nodes), len(graph.edges), seconds, cpu_seconds, _peak_mb())


def _check(job: JobSpec, task: str) -> None:
    job.task(task)
    if not task.startswith("worker:"):
        raise BadInput(f"{shown(task)} has no graph: name a worker")


def _load(framework: str) -> None:
    with _quiet():
        framework_of(framework).load_for_graphs()
    gc.freeze()  # collections of the framework's modules cost a tenth of a build


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides what a framework writes to stderr when it loads, such as that there is no GPU."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except BaseException:
            aside.seek(0)
            os.write(kept, aside.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _forget_peak() -> None:
    with contextlib.suppress(OSError):  # without it the peak is that since the start of the process
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM


def _peak_mb() -> float:
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
