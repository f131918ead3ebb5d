"""One task of a job from the first check to its exit code: what the command and the warm host both run."""

from __future__ import annotations

import os
import re
import time
import traceback
from pathlib import Path
from typing import NoReturn

from driple.contracts.errors import BadInput, DripleError
from driple.contracts.formats.task_files import BAD_INPUT, ERROR, OUT_OF_MEMORY
from driple.contracts.run_spec import JobSpec, TaskSpec
from driple.workloads.runtime.job import read_job
from driple.workloads.runtime.task_output import Outbox
from driple.workloads.runtime.watchdog import Watch

BETTER_WORDS_S = 1.5
"""How long an error of TensorFlow's waits for the watch to name the peer that caused it."""


def run_job_file(
    path: Path, task: str, out: Path, *, graph_file: Path | None = None, watch_stdin: bool = False
) -> NoReturn:
    """Reads a job and runs one of its tasks; see `run_task`.

    Raises:
        BadInput: the job or the task is not one; `finished.json` says so too, in place of what an earlier attempt left.
    """
    outbox = Outbox(out, task)
    try:
        job = read_job(path)
        job.task(task)
    except DripleError as error:
        outbox.finished(error.exit_code, "; ".join(error.lines()), BAD_INPUT)
        raise
    finally:
        outbox.close()
    run_task(job, task, out, graph_file=graph_file, watch_stdin=watch_stdin)


def run_task(
    job: JobSpec, task: str, out: Path, *, graph_file: Path | None = None, watch_stdin: bool = False
) -> NoReturn:
    """Runs a task and ends the process with its exit code.

    Args:
        job: checked.
        task: `ps:0`, `worker:1`, ...
        out: its folder; see outbox.py.
        graph_file: where a worker leaves the graph that ran.
        watch_stdin: the task ends when stdin closes.
    """
    spec = job.task(task)
    role, _, number = task.partition(":")
    prepare_environment(spec.gpu if role == "worker" else None)
    outbox = Outbox(out, task)
    watch = Watch(outbox)
    if watch_stdin:
        watch.end_with_stdin()
    try:
        from driple.workloads.strategies.ps_server import check_port

        check_port(spec.address)
        watch.expect(job.start_timeout_s, f"gave up after {job.start_timeout_s:g} s: still loading TensorFlow")
        try:
            _run(job, role, int(number), outbox, watch, graph_file)
        except Exception as error:
            _name_broken_image(error, spec, job.step_timeout_s, watch)
            raise
    except DripleError as error:
        watch.leave(error.exit_code, "; ".join(error.lines()), BAD_INPUT if isinstance(error, BadInput) else ERROR)
    except Exception as error:
        if not _foreseen(error):
            traceback.print_exc()
            watch.leave(1, f"unexpected {explain(error)}; the traceback is above")
        if not _out_of_memory(error):
            time.sleep(BETTER_WORDS_S)
        watch.leave(1, explain(error, job), OUT_OF_MEMORY if _out_of_memory(error) else ERROR)
    watch.leave(0)


def _run(job: JobSpec, role: str, index: int, outbox: Outbox, watch: Watch, graph_file: Path | None) -> None:
    if job.run.workload.strategy == "allreduce":
        from driple.workloads.strategies.allreduce import train_allreduce

        train_allreduce(job, index, outbox, watch, graph_file)
        return
    from driple.workloads.graphs import graph_build
    from driple.workloads.strategies.ps_server import serve
    from driple.workloads.strategies.ps_worker import train

    graph_build.use_tf1()
    if role == "ps":
        serve(job, index, outbox, watch)
    else:
        train(job, index, outbox, watch, graph_file)


def prepare_environment(gpu: int | None) -> None:
    """What TensorFlow reads when it starts. In a warm host's child it has been imported, and not started."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1" if gpu is None else str(gpu)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only: every closed session is a warning to it
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy"):
        # gRPC would send the tasks' traffic through the user's web proxy.
        os.environ.pop(name, None)
        os.environ.pop(name.upper(), None)


def explain(error: Exception, job: JobSpec | None = None) -> str:
    """An error of TensorFlow's in one line, cause first."""
    lines = [line.strip() for line in str(getattr(error, "message", error)).splitlines() if any(map(str.isalpha, line))]
    # What comes from another device stands under a heading, and of several the line that says OOM is worth most.
    telling = [line for line in lines if not re.match(r"From /job:|\d+ root error", line)] or lines
    text = next((line for line in lines if "OOM" in line), telling[0] if telling else "no more is known")
    if _out_of_memory(error):
        what = f"batch {job.run.workload.batch_size} of {job.run.workload.model}" if job else "this batch"
        return f"out of memory: {what} does not fit; use a smaller batch or size ({text[:200]})"
    return f"{type(error).__name__}: {text[:300]}"


def _name_broken_image(error: Exception, spec: TaskSpec, seconds: float, watch: Watch) -> None:
    """Raises BadInput with the file's name if an image could not be decoded: TensorFlow does not say which."""
    if spec.data_dir is None or "DecodeJpeg" not in str(error):
        return
    from driple.workloads.data.input_files import check_jpegs

    watch.expect(seconds, f"an image in {spec.data_dir} cannot be decoded, and it took too long to find out which")
    check_jpegs(spec.data_dir)


def _foreseen(error: Exception) -> bool:
    import tensorflow as tf

    if isinstance(error, tf.errors.InvalidArgumentError | tf.errors.InternalError):
        return False  # a graph that cannot run is a fault of ours, or of the user's model: show where
    return isinstance(error, tf.errors.OpError | MemoryError)


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError"
