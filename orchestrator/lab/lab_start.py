"""Starts a keeper in namespaces of its own, and says in words why where it cannot."""

from __future__ import annotations

import json
import os
import pwd
import select
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from driple.contracts.errors import RunFailed
from driple.orchestrator.lab import lab_folder as folders
from driple.orchestrator.lab import tools
from driple.orchestrator.lab.layout import LabFiles, LabPlan

START_LIMIT_S = 30.0
_SECONDS_PER_HOST = 1.0


class LabImpossible(RunFailed):
    """This machine cannot have a lab: a program is missing, or namespaces are forbidden."""


def caller() -> dict[str, object]:
    """Who logs in to the hosts: whoever makes the lab."""
    try:
        account = pwd.getpwuid(os.getuid())
    except KeyError:
        raise LabImpossible(f"no lab: user {os.getuid()} has no account, and sshd logs in none without one") from None
    # A service account has a shell that shows everybody the door.
    shell = account.pw_shell if not account.pw_shell.endswith(("nologin", "false")) else "/bin/sh"
    path = os.environ.get("PATH", os.defpath)
    return {
        "user": account.pw_name,
        "uid": account.pw_uid,
        "gid": os.getgid(),
        "shell": shell or "/bin/sh",
        "path": path,
    }


def launch(plan: LabPlan, folder: Path) -> subprocess.Popen[bytes]:
    """Starts a lab and returns when its hosts are up.

    Raises:
        LabImpossible: with the cause in words; nothing is left.
    """
    absent = tools.missing()
    if absent is not None:
        raise LabImpossible(f"no lab: {absent}")
    with folders.made(folder) as lock:
        files = LabFiles(folder)
        files.plan.write_text(json.dumps(asdict(plan)))
        process = _start(plan, files, lock)
    try:
        trouble = _wait(process, START_LIMIT_S + _SECONDS_PER_HOST * plan.hosts)
        if trouble is None:
            return process
        raise LabImpossible(f"no lab: {trouble or _reason(files)}")
    except BaseException:
        _close(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)  # it ends by itself, since the lifeline is gone
        process.kill()
        process.wait()
        folders.clear(folder, patience_s=5)
        raise


def _start(plan: LabPlan, files: LabFiles, lock: int) -> subprocess.Popen[bytes]:
    argv = [
        tools.tool("unshare"),
        *(["-Ur"] if plan.uid else []),
        "-n",
        "-m",
        "-p",
        "-f",
        "--mount-proc",
        "--kill-child",
    ]
    argv += [sys.executable, "-m", "driple.orchestrator.lab.supervisor", str(files.folder), str(lock)]
    inherited = [lock]
    with suppress(OSError):  # a kernel before 5.3: then the pipe is the only lifeline
        if not plan.detached:
            inherited.append(os.pidfd_open(os.getpid()))
    # Two lifelines: the pipe ends when the Lab is dropped, the descriptor of the process when the owner dies though a
    # child of his has inherited the pipe.
    lifelines = [] if plan.detached else ["0", *map(str, inherited[1:])]
    try:
        with files.log.open("wb") as log:
            return subprocess.Popen(
                argv + lifelines,
                stdin=subprocess.DEVNULL if plan.detached else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                pass_fds=inherited,
                start_new_session=True,  # Ctrl-C is for the owner, who ends the lab in order
            )
    finally:
        for descriptor in inherited[1:]:
            os.close(descriptor)


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> str | None:
    """None once the lab is up; else what the keeper said, which may be nothing."""
    assert process.stdout is not None
    deadline = time.monotonic() + limit_s
    said = b""
    while not said.endswith(b"\n"):
        if not select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return f"not up within {limit_s:g} s"
        part = os.read(process.stdout.fileno(), 65536)
        if not part:
            return ""
        said += part
    process.stdout.close()
    answer = json.loads(said)
    return None if "ready" in answer else str(answer["failed"])


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _reason(files: LabFiles) -> str:
    """Why the keeper did not even start."""
    with suppress(OSError):
        said = tools.one_line(files.log.read_bytes())
        if "unshare" in said:
            return f"namespaces are forbidden here ({said}); root may make them, or see docs/guides/lab.md"
        return said or "the keeper ended without a word"
    return "the keeper ended without a word"
