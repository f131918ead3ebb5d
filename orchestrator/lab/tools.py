"""The programs that the lab needs, and how they are run: many small actions in one process."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

PACKAGES = {
    "unshare": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ssh": "openssh-client",
    "nft": "nftables",
}
"""Package of each program, as named by Debian and most others."""

NEEDED = ("unshare", "ip", "tc", "sshd", "ssh-keygen")
TIME_LIMIT_S = 20.0


class ToolError(Exception):
    """A program is missing or failed; the text is its own message."""


@dataclass(frozen=True)
class Batch:
    """Lines for one run of a program that reads them from stdin."""

    program: str  # `ip`, `tc` or `nft`
    lines: Sequence[str]


def find(name: str) -> str | None:
    """Where a program is. A plain user's PATH often lacks the sbin folders."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin:/usr/local/sbin")


def tool(name: str) -> str:
    """The program's path; raises ToolError with the package to install."""
    path = find(name)
    if path is None:
        raise ToolError(f"{name} is not installed; install the package {PACKAGES[name]}")
    return path


def missing() -> str | None:
    """A message about required programs that are missing; None if there are none."""
    absent = [name for name in NEEDED if find(name) is None]
    if not absent:
        return None
    packages = sorted({PACKAGES[name] for name in absent})
    return f"{' and '.join(absent)} not installed; install {' and '.join(packages)}"


def start(batch: Batch) -> subprocess.Popen[bytes]:
    """Starts a batch, so that several can run in parallel; `finish` waits for it."""
    argv = [tool(batch.program), *(["-f", "-"] if batch.program == "nft" else ["-batch", "-"])]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/")
    assert process.stdin is not None
    try:
        process.stdin.write("".join(f"{line}\n" for line in batch.lines).encode())
        process.stdin.close()
    except BrokenPipeError:
        pass  # it stopped at an earlier line; `finish` reports why
    process.stdin = None  # communicate() would write to it again
    return process


def finish(process: subprocess.Popen[bytes]) -> None:
    """Waits for a process; raises ToolError with its message."""
    try:
        _, said = process.communicate(timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise ToolError(f"{process.args[0]!r} did not end within {TIME_LIMIT_S:g} s") from None  # type: ignore[index]
    if process.returncode:
        raise ToolError(one_line(said) or f"exit code {process.returncode}")


def run(batch: Batch) -> None:
    """Runs one batch to its end."""
    finish(start(batch))


def call(argv: Sequence[str], prepare: Callable[[], None] | None = None) -> None:
    """Runs a command to its end, in a child that calls `prepare` first; raises ToolError with its message."""
    nothing = subprocess.DEVNULL
    finish(subprocess.Popen(argv, stdin=nothing, stdout=nothing, stderr=subprocess.PIPE, cwd="/", preexec_fn=prepare))


def one_line(said: bytes) -> str:
    """A program's message on one line of limited length."""
    return " ".join(said.decode(errors="replace").split())[-400:]
