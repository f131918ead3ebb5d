"""RunPaths: the only place that knows the file names of a run directory, and how a file is put there.

<output>/<experiment>/<run-id>/
    run.json                 the Manifest
    job.json                 the JobSpec that every task read
    trace/<task>.parquet     samples; the task's TCP flows beside them, in trace/<task>.flows.parquet
    steps/<task>.parquet     training steps
    graph/<role>.parquet     the graph that ran
    logs/<task>.log          what the task said
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Iterator, Union

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a disk says that does not take what is written to it."""


class RunPaths:
    """Every path inside one run directory. Makes no folders and touches no disk."""

    def __init__(self, output: Union[str, Path], experiment: str, run_id: str) -> None:
        self.root = Path(output) / experiment / run_id

    @property
    def manifest(self) -> Path:
        return self.root / "run.json"

    @property
    def job(self) -> Path:
        return self.root / "job.json"

    def trace(self, task: str) -> Path:
        return self.root / "trace" / f"{file_name(task)}.parquet"

    def flows(self, task: str) -> Path:
        return self.root / "trace" / f"{file_name(task)}.flows.parquet"

    def steps(self, task: str) -> Path:
        return self.root / "steps" / f"{file_name(task)}.parquet"

    def graph(self, role: str) -> Path:
        return self.root / "graph" / f"{role}.parquet"

    def log(self, task: str) -> Path:
        return self.root / "logs" / f"{file_name(task)}.log"


def file_name(task: str) -> str:
    """`worker:0` as a file name that no shell, Windows share or scp takes for something else."""
    return task.replace(":", "-")


@contextmanager
def replacing(path: Union[str, Path], mode: str = "w") -> Iterator[IO[Any]]:
    """Opens a file beside `path` and moves it into place at the end: a reader sees the old file or the whole new one.

    On an error the old file stays and the new one is removed. An error of the disk says the file's name.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.urandom(16).hex()}.partial")
    try:
        with open(beside, mode.replace("w", "x"), encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, target)
    except BaseException as error:  # also KeyboardInterrupt: nothing half-written may stay
        with suppress(OSError):  # what is said first counts: where nothing can be written, nothing can be removed
            beside.unlink()
        if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename in (None, str(beside)):
            error.filename = str(target)
        raise
