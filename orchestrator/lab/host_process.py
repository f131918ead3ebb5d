"""Boots a host: forks from the supervisor, enters its namespaces, and executes sshd as its PID 1."""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from driple.orchestrator.lab import linux_calls, mounts, tools
from driple.orchestrator.lab.layout import LabFiles, LabPlan
from driple.orchestrator.lab.sshd import PORT

BOOT_LIMIT_S = 20.0
_LISTENS = f":{PORT:04X} 00000000:0000 0A"


class BootError(Exception):
    """A host did not boot."""


@dataclass(frozen=True)
class Booting:
    """A host that is booting."""

    name: str
    report: int  # pipe on which it reports its PID and any error; closed once sshd has started
    shell: int  # PID of the process that creates the namespaces


def start(plan: LabPlan, files: LabFiles, name: str, network: int) -> Booting:
    """Starts to boot a host."""
    reader, writer = os.pipe()
    shell = os.fork()
    if shell == 0:
        _guarded(plan, files, name, network, writer)
    os.close(writer)
    return Booting(name, reader, shell)


def finish(booting: Booting, files: LabFiles) -> int:
    """Waits until the host's sshd listens; returns the PID of its first process in the supervisor's namespace."""
    deadline = time.monotonic() + BOOT_LIMIT_S
    said = _read_all(booting.report, deadline)
    if time.monotonic() > deadline:
        os.kill(booting.shell, signal.SIGKILL)
    os.waitpid(booting.shell, 0)
    words = dict(line.split(" ", 1) for line in said.splitlines())
    pid = int(words.get("pid", 0))
    if pid and "error" not in words:
        while _LISTENS not in _listeners(pid) and alive(pid) and time.monotonic() < deadline:
            time.sleep(0.003)
        if _LISTENS in _listeners(pid):
            return pid
        log = files.host(booting.name, "sshd.log")
        words["error"] = "sshd does not listen: " + (tools.one_line(log.read_bytes()) if log.exists() else "")
    if pid:
        end(pid)
    raise BootError(f"{booting.name}: {words.get('error', 'its first process ended without a message')}")


def _read_all(descriptor: int, deadline: float) -> str:
    said = b""
    with os.fdopen(descriptor, "rb", buffering=0) as report:
        while select.select([report], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = report.read(4096)
            if not part:
                break
            said += part
    return said.decode(errors="replace")


def _listeners(pid: int) -> str:
    """TCP sockets in the network namespace of a process. A trial connection would cost sshd more."""
    try:
        return Path(f"/proc/{pid}/net/tcp").read_text()
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Whether a host's first process, a child of the supervisor, still runs."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def end(pid: int, limit_s: float = 5.0) -> None:
    """Kills a host's first process, and waits until the kernel has ended all others."""
    deadline = time.monotonic() + limit_s
    if alive(pid):
        os.kill(pid, signal.SIGKILL)
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.002)


def _guarded(plan: LabPlan, files: LabFiles, name: str, network: int, writer: int) -> NoReturn:
    try:
        _become_host(plan, files, name, network, writer)
    except BaseException as error:  # the fork must never return into the supervisor's code
        words = " ".join(f"{error or type(error).__name__}".split())
        os.write(writer, f"error {words}\n".encode())
    finally:
        os._exit(1)


def _become_host(plan: LabPlan, files: LabFiles, name: str, network: int, writer: int) -> None:
    # Otherwise every process of the host would inherit the signals that the supervisor ignores.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    os.umask(0o022)
    offset_s = plan.clock_offsets_s.get(name)
    linux_calls.enter(network, linux_calls.NEW_NET)
    linux_calls.unshare(linux_calls.NEW_MOUNT | linux_calls.NEW_UTS | linux_calls.NEW_IPC | linux_calls.NEW_PID)
    if offset_s is not None:
        _shift_clock(offset_s)
    socket.sethostname(name)
    mounts.mount_host_files(plan, files)
    first = os.fork()
    if first:
        os.write(writer, f"pid {first}\n".encode())
        os._exit(0)
    mounts.mount_processes()
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    if plan.uid != 0:
        linux_calls.switch_user(plan.uid, plan.gid)
    log = str(files.host(name, "sshd.log"))
    program = tools.tool("sshd")
    words = [program, "-D", "-f", str(files.host(name, "sshd_config")), "-E", log]
    os.execve(program, words, {"PATH": plan.path})


def _shift_clock(offset_s: float) -> None:
    try:
        linux_calls.unshare(linux_calls.NEW_TIME)
        whole = math.floor(offset_s)
        rest_ns = round((offset_s - whole) * 1e9)
        text = "".join(f"{clock} {whole} {rest_ns}\n" for clock in ("monotonic", "boottime"))
        Path("/proc/self/timens_offsets").write_text(text)
    except OSError as error:
        raise BootError(f"this kernel cannot shift a clock by {offset_s:g} s ({error.strerror})") from None
