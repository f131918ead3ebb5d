"""What is compared: driple-sample, tools of others, and loops as people write them, each a process of its own."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

QUIET, BUSY = "quiet", "busy"
NIC = "lo"
SLEEPER = "a loop that only sleeps"
SCRIPT = Path(__file__).with_name("sampler.py")


def beat(hz: float, read: Callable[[], object]) -> None:
    """Reads, sleeps, reads again, as most people write it, until SIGTERM; then says how it kept time."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    times: list[float] = []
    read()
    print("ready", flush=True)
    while not stopped.is_set():
        times.append(time.monotonic())
        read()
        time.sleep(max(0.0, times[-1] + 1 / hz - time.monotonic()))
    report(hz, times)


def report(hz: float, times: list[float]) -> None:
    late = sorted(max(0.0, b - a - 1 / hz) * 1000 for a, b in zip(times, times[1:], strict=False)) or [0.0]
    seconds = times[-1] - times[0] if len(times) > 1 else 1.0
    rate = (len(times) - 1) / seconds
    found = {"rate_hz": rate, "missed_pct": max(0.0, 100 * (1 - rate / hz))}
    print(json.dumps({**found, "late_p50_ms": late[len(late) // 2], "late_p99_ms": late[int(0.99 * len(late))]}))


def psutil_loop(hz: float, pid: int) -> None:
    """A row of everything that driple-sample has but flows: those are left out, as they would cost this loop most."""
    import csv

    import psutil

    pynvml: Any = import_module("pynvml")  # untyped, or not there: the same to a type checker
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    task = psutil.Process(pid)
    stream = tempfile.TemporaryFile("w")  # noqa: SIM115
    writer = csv.writer(stream)

    def read() -> None:
        util = pynvml.nvmlDeviceGetUtilizationRates(handle)
        nic = psutil.net_io_counters(pernic=True)[NIC]
        tree = [task, *task.children(recursive=True)]
        cpu = [process.cpu_times() for process in tree]
        row = [time.time(), util.gpu, util.memory, pynvml.nvmlDeviceGetMemoryInfo(handle).used]
        row += [pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM), pynvml.nvmlDeviceGetPowerUsage(handle)]
        row += [pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)]
        row += [nic.bytes_sent, nic.bytes_recv, nic.packets_sent, nic.packets_recv]
        row += [sum(times.user + times.system for times in cpu), sum(process.memory_info().rss for process in tree)]
        row += [psutil.cpu_percent(), psutil.virtual_memory().used]
        writer.writerow(row)

    beat(hz, read)


def sleeper(hz: float, _pid: int) -> None:
    """Reads nothing: what it costs this machine to wake a Python process so often."""
    beat(hz, lambda: None)


def nvitop_collector(hz: float, pid: int) -> None:
    nvitop: Any = import_module("nvitop")
    times: list[float] = []
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def collected(_metrics: dict[str, float]) -> bool:
        times.append(time.monotonic())
        return not stopped.is_set()

    thread = nvitop.ResourceMetricCollector(root_pids={pid}, interval=1 / hz).daemonize(collected, interval=1 / hz)
    print("ready", flush=True)
    while not stopped.wait(0.2):
        pass
    thread.join(5)
    report(hz, times)


def gpustat_query(hz: float, _pid: int) -> None:
    gpustat: Any = import_module("gpustat")
    beat(hz, lambda: gpustat.new_query().jsonify())


def gpustat_command(hz: float, _pid: int) -> None:
    line = [sys.executable, "-m", "gpustat", "--json"]
    beat(hz, lambda: subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))


LOOPS: dict[str, Callable[[float, int], None]] = {
    "sleep": sleeper,
    "psutil": psutil_loop,
    "nvitop": nvitop_collector,
    "gpustat": gpustat_query,
    "gpustat-command": gpustat_command,
}


@dataclass
class Contestant:
    """One row of the table, in each of the two conditions."""

    name: str
    hz: float
    line: list[str]
    lacks: str = ""
    """Why it cannot run here."""
    speaks: bool = True
    """It says `ready`, and how it kept time; a tool of others only prints lines."""
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {QUIET: [], BUSY: []})


def contestants(pid: int, folder: Path) -> list[Contestant]:
    def ours(hz: int, *options: str) -> list[str]:
        what = ["--nic", NIC, "--gpu", "0", "--pid", str(pid), "--flows", "5"]
        out = str(folder / "trace.parquet")
        command = [sys.executable, "-m", "driple.agents.cli", "--hz", str(hz), *what, *options]
        return [*command, "--watch-stdin", "--json", "--out", out]

    def loop(name: str, hz: int) -> list[str]:
        return [sys.executable, str(SCRIPT), "--loop", name, "--hz", str(hz), "--pid", str(pid)]

    def without(module: str) -> str:
        return "" if find_spec(module) else f"not installed: pip install {module}"

    def tool(shown: str, hz: float, *options: str) -> Contestant:
        name = shown.split()[0]
        lacks = "" if shutil.which(name) else "not on this machine"
        return Contestant(shown, hz, [name, *options], lacks, speaks=False)

    query = "--query-gpu=utilization.gpu,utilization.memory,memory.used,clocks.sm,power.draw,temperature.gpu"
    return [
        Contestant("driple-sample", 100, ours(100)),
        Contestant("driple-sample --normal-priority", 100, ours(100, "--normal-priority")),
        Contestant("psutil + pynvml loop", 100, loop("psutil", 100), without("psutil")),
        Contestant(SLEEPER, 100, loop("sleep", 100)),
        Contestant("driple-sample", 1000, ours(1000)),
        Contestant("driple-sample --normal-priority", 1000, ours(1000, "--normal-priority")),
        Contestant("psutil + pynvml loop", 1000, loop("psutil", 1000), without("psutil")),
        Contestant(SLEEPER, 1000, loop("sleep", 1000)),
        Contestant("nvitop ResourceMetricCollector", 100, loop("nvitop", 100), without("nvitop")),
        Contestant("gpustat.new_query() loop", 100, loop("gpustat", 100), without("gpustat")),
        Contestant("gpustat --json, a process each", 100, loop("gpustat-command", 100), without("gpustat")),
        tool("nvidia-smi -lms 10", 100, query, "--format=csv", "-lms", "10"),
        tool("sar -u -r -n DEV 1", 1, "-u", "-r", "-n", "DEV", "1"),
        tool("vmstat 1", 1, "-n", "1"),
    ]
