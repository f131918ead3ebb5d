"""RunPaths: the file names of a run directory. `replacing`: writes a file atomically.

<output>/<experiment>/<run-id>/
    run.json                 the Manifest
    job.json                 the JobSpec that every task read
    trace/<task>.parquet     samples; the task's TCP flows beside them, in trace/<task>.flows.parquet
    packets/<host>.parquet   packet headers of the host, with `capture: headers`
    steps/<task>.parquet     training steps
    graph/<role>.parquet     the graph that ran
    logs/<task>.log          output of the task
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Iterator, Optional, Tuple, Union

PACKETS = "packets"  # folder of the packet files
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # errors of a disk that is full or broken


class RunPaths:
    """Every path inside a run directory. Does not access the disk."""

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

    def packets(self, host: str) -> Path:
        return self.root / PACKETS / f"{host}.parquet"

    def steps(self, task: str) -> Path:
        return self.root / "steps" / f"{file_name(task)}.parquet"

    def graph(self, role: str) -> Path:
        return self.root / "graph" / f"{role}.parquet"

    def log(self, task: str) -> Path:
        return self.root / "logs" / f"{file_name(task)}.log"


def file_name(task: str) -> str:
    """`worker:0` as a file name without a colon, which has a meaning in scp and on Windows."""
    return task.replace(":", "-")


@contextmanager
def replacing(path: Union[str, Path], mode: str = "w", *, follow: bool = True) -> Iterator[IO[Any]]:
    """Opens a file beside `path` and moves it into place at the end: a reader sees the old file or the whole new one.

    On an error the old file stays. The error of a full disk names the file. A symbolic link stays, and its target is
    replaced. A device, a pipe and /dev/stdout are written to directly. Raises IsADirectoryError for a folder.
    Without `follow`, a link, a device or a pipe is itself replaced: nothing outside its folder can change.
    """
    encoding = None if "b" in mode else "utf-8"
    name, descriptor = _behind_links(os.path.abspath(path)) if follow else (os.path.abspath(path), None)
    if follow and (descriptor is not None or (os.path.exists(name) and not os.path.isfile(name))):
        if descriptor is None and os.path.isdir(name):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # in order with what was printed before
        with open(name if descriptor is None else os.dup(descriptor), mode, encoding=encoding) as direct:
            yield direct
        return
    target = Path(name)
    beside = target.with_name(f".{target.name}.{os.urandom(16).hex()}.partial")
    try:
        with open(beside, mode.replace("w", "x"), encoding=encoding) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, target)
    except BaseException as error:  # also KeyboardInterrupt: no partial file may stay
        with suppress(OSError):  # the first error counts: a disk that takes no file may not remove one either
            beside.unlink()
        if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename in (None, str(beside)):
            error.filename = str(path)
        raise


def _behind_links(name: str) -> Tuple[str, Optional[int]]:
    """The file that a path names after its symbolic links, or the open descriptor (/dev/stdout, /dev/fd/1)."""
    for _ in range(40):  # as many as the kernel follows
        folder, _, number = name.rpartition("/")
        if folder in ("/dev/fd", "/proc/self/fd") and number.isdigit():
            return name, int(number)
        if not os.path.islink(name):
            break
        name = os.path.join(folder, os.readlink(name))
    if os.path.islink(name):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return name, None
