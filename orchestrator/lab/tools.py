"""The programs that the lab stands on, and how they are run: many small actions in one process."""

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
"""Program to the package that has it, by the names of Debian and most others."""

NEEDED = ("unshare", "ip", "tc", "sshd", "ssh-keygen")
TIME_LIMIT_S = 20.0


class ToolError(Exception):
    """A program is missing or refused what it was told; the text is its own."""


@dataclass(frozen=True)
class Batch:
    """Lines for one run of a program that reads them from stdin."""

    program: str
    """`ip`, `tc` or `nft`."""
    lines: Sequence[str]

    @property
    def argv(self) -> list[str]:
        """The command."""
        return [tool(self.program), *(["-f", "-"] if self.program == "nft" else ["-batch", "-"])]

    @property
    def text(self) -> bytes:
        """What it reads."""
        return "".join(line + "\n" for line in self.lines).encode()


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
    """One sentence on the needed programs that are not there; None if all are."""
    absent = [name for name in NEEDED if find(name) is None]
    if not absent:
        return None
    packages = sorted({PACKAGES[name] for name in absent})
    return f"{' and '.join(absent)} not installed; install {' and '.join(packages)}"


def start(batch: Batch) -> subprocess.Popen[bytes]:
    """Starts a batch, so that several can run side by side; `finish` ends it."""
    process = subprocess.Popen(
        batch.argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/"
    )
    assert process.stdin is not None
    try:
        process.stdin.write(batch.text)
        process.stdin.close()
    except BrokenPipeError:
        pass  # it has stopped at an earlier line, and `finish` says why
    process.stdin = None  # communicate() would write to it again
    return process


def finish(process: subprocess.Popen[bytes]) -> None:
    """Waits for what `start` began; raises ToolError with the program's own words."""
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
    """Runs a command to its end, in a child that did `prepare` before; raises ToolError with its words."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIME_LIMIT_S, cwd="/", preexec_fn=prepare
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{argv[0]} did not end within {TIME_LIMIT_S:g} s") from None
    if done.returncode:
        raise ToolError(one_line(done.stderr) or f"{argv[0]}: exit code {done.returncode}")


def one_line(said: bytes) -> str:
    """A program's complaint on one line, and never long."""
    return " ".join(said.decode(errors="replace").split())[-400:]
