"""Starts the supervisor in its own namespaces, and reports why it cannot."""

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


class LabUnavailableError(RunFailed):
    """This machine cannot have a lab: a program is missing, or namespaces are forbidden."""


def caller() -> dict[str, object]:
    """The login on the hosts: the user who creates the lab."""
    try:
        account = pwd.getpwuid(os.getuid())
    except KeyError:
        raise LabUnavailableError(
            f"no lab: user {os.getuid()} has no account, and sshd logs in none without one"
        ) from None
    # A service account has a shell that shows everybody the door.
    shell = account.pw_shell if not account.pw_shell.endswith(("nologin", "false")) else "/bin/sh"
    login = {"user": account.pw_name, "uid": account.pw_uid, "gid": os.getgid(), "shell": shell or "/bin/sh"}
    return {**login, "path": os.environ.get("PATH", os.defpath)}


def launch(plan: LabPlan, folder: Path) -> subprocess.Popen[bytes]:
    """Starts a lab and returns when its hosts are up. After a LabUnavailableError nothing is left of it."""
    absent = tools.missing()
    if absent is not None:
        raise LabUnavailableError(f"no lab: {absent}")
    with folders.made(folder) as lock:
        files = LabFiles(folder)
        files.plan.write_text(json.dumps(asdict(plan)))
        process = _start(plan, files, lock)
    try:
        trouble = _wait(process, START_LIMIT_S + _SECONDS_PER_HOST * plan.hosts)
        if trouble is None:
            return process
        raise LabUnavailableError(f"no lab: {trouble or _reason(files)}")
    except BaseException:
        _close(process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)  # it ends by itself, because the lifeline is closed
        process.kill()
        process.wait()
        folders.clear(folder, patience_s=5)
        raise


def _start(plan: LabPlan, files: LabFiles, lock: int) -> subprocess.Popen[bytes]:
    namespaces = ["-Ur"] if plan.uid else []
    argv = [tools.tool("unshare"), *namespaces, "-n", "-m", "-p", "-f", "--mount-proc", "--kill-child"]
    argv += [sys.executable, "-m", "driple.orchestrator.lab.supervisor", str(files.folder), str(lock)]
    inherited = [lock]
    with suppress(OSError):  # before Linux 5.3 the pipe is the only lifeline
        if not plan.detached:
            inherited.append(os.pidfd_open(os.getpid()))
    # The pipe closes when the Lab is deleted. The process descriptor also reports the death of the owner if one of
    # its children has inherited the pipe.
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
                start_new_session=True,  # Ctrl-C goes to the owner, which removes the lab
            )
    finally:
        for descriptor in inherited[1:]:
            os.close(descriptor)


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> str | None:
    """None once the lab is up; else the message of the supervisor, which may be empty."""
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
    said = tools.one_line(files.log.read_bytes()) if files.log.exists() else ""
    if "unshare" in said:
        return f"namespaces are forbidden here ({said}); run as root, or see docs/guides/lab.md"
    return said or "the supervisor ended without a message"
