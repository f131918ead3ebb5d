"""Runs one task of a job, from the first check to its exit code. Used by the task command and by the fork server."""

from __future__ import annotations

import socket
import time
import traceback
from pathlib import Path
from typing import NoReturn

from driple.contracts.errors import BadInput, DripleError
from driple.contracts.formats.task_files import BAD_INPUT, ERROR, OUT_OF_MEMORY
from driple.contracts.run_spec import JobSpec
from driple.contracts.strategy import WORKER
from driple.workloads.frameworks.registry import framework_of
from driple.workloads.runtime.job import read_job
from driple.workloads.runtime.task_output import TaskOutput
from driple.workloads.runtime.watchdog import PEER_LOSS_S, Watchdog, port_taken
from driple.workloads.strategies.base import Task
from driple.workloads.strategies.registry import strategy_of


def run_job_file(
    path: Path, task: str, out: Path, *, graph_file: Path | None = None, watch_stdin: bool = False
) -> NoReturn:
    """Reads a job and runs one of its tasks. A bad job raises BadInput and is recorded in finished.json."""
    output = TaskOutput(out, task)
    try:
        job = read_job(path)
        job.task(task)
    except DripleError as error:
        output.finished(error.exit_code, "; ".join(error.lines()), BAD_INPUT)
        raise
    finally:
        output.close()
    run_task(job, task, out, graph_file=graph_file, watch_stdin=watch_stdin)


def run_task(
    job: JobSpec, task: str, out: Path, *, graph_file: Path | None = None, watch_stdin: bool = False
) -> NoReturn:
    """Runs a task of a checked job and ends the process with its exit code; if `watch_stdin`, when stdin closes."""
    spec = job.task(task)
    role, _, number = task.partition(":")
    framework = framework_of(job.run.workload.framework)
    framework.prepare_environment(spec.gpu if role == WORKER else None)
    output = TaskOutput(out, task)
    output.share_path = job.share_path if role == WORKER else None  # servers must answer until then
    watchdog = Watchdog(output)
    if watch_stdin:
        watchdog.end_with_stdin()
    try:
        check_port(spec.address)
        watchdog.expect(
            job.start_timeout_s, f"gave up after {job.start_timeout_s:g} s: still loading {framework.title}"
        )
        try:
            strategy_of(job.run.workload).run(Task(job, role, int(number), output, watchdog, graph_file))
        except Exception as error:
            if spec.data_dir is not None and framework.is_broken_image(error):
                _name_broken_image(spec.data_dir, job.step_timeout_s, watchdog)
            raise
    except DripleError as error:
        watchdog.leave(error.exit_code, "; ".join(error.lines()), BAD_INPUT if isinstance(error, BadInput) else ERROR)
    except Exception as error:
        if not framework.is_expected(error):
            traceback.print_exc()
            watchdog.leave(1, f"unexpected {framework.explain(error)}; the traceback is above")
        if not framework.is_out_of_memory(error):
            time.sleep(PEER_LOSS_S)
        watchdog.leave(1, framework.explain(error, job), OUT_OF_MEMORY if framework.is_out_of_memory(error) else ERROR)
    watchdog.leave(0)


def check_port(address: str) -> None:
    """Fails at once if the task's port is taken. The framework would report it only after seconds of loading."""
    port = int(address.rpartition(":")[2])
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # as TensorFlow's server does, whatever the cluster spec says
        except OSError as error:
            raise port_taken(port, error) from None


def _name_broken_image(data_dir: str, seconds: float, watchdog: Watchdog) -> None:
    """Raises BadInput with the name of the image that cannot be decoded: the framework does not name it."""
    from driple.workloads.data.input_files import check_jpegs

    watchdog.expect(seconds, f"an image in {data_dir} cannot be decoded, and it took too long to find out which")
    check_jpegs(data_dir)
