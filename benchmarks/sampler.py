"""What sampling costs, and how well it keeps time: driple-sample beside what people use in its place.

    python benchmarks/sampler.py [--quick] [--json] [--write docs/SAMPLER.md] [--step-python PYTHON]

Every contestant runs once a round, in turn, against the scripted GPU of tests/native, first with the machine quiet,
then with training steps on every core; medians and ranges of the rounds are shown. Needs a C compiler. The training
step is TensorFlow's if the interpreter given by --step-python has it. What cannot run on this machine has a row that
says why. Run it on a quiet machine; under 6 minutes, with --quick under 90 seconds.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import platform
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from driple.contracts.rundir import replacing

CHECKOUT = Path(__file__).resolve().parents[1]
STUB = "gpus=1 busy_ms=200 idle_ms=300 sample_us=20000"
QUIET, BUSY = "quiet", "busy"
NIC = "lo"

# ---- training steps, one process per core, counted in a shared page ------------------------------------------------

_WORK_TAIL = """
import mmap, os, struct, sys
page = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 8)
count = 0
while True:
    step()
    count += 1
    page[:8] = struct.pack("q", count)
"""
WORK = {
    "TensorFlow": """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
layers = [tf.Variable(tf.random.normal((256, 256), stddev=0.05)) for _ in range(4)]
images, labels = tf.random.normal((64, 256)), tf.random.normal((64, 256))
@tf.function
def train():
    with tf.GradientTape() as tape:
        out = images
        for layer in layers:
            out = tf.nn.relu(out @ layer)
        loss = tf.reduce_mean((out - labels) ** 2)
    for layer, slope in zip(layers, tape.gradient(loss, layers)):
        layer.assign_sub(0.01 * slope)
    return loss
def step():
    train().numpy()
""",
    "numpy": """
import os
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy
left, right = numpy.random.rand(256, 256), numpy.random.rand(256, 256)
def step():
    left @ right
""",
    "plain Python": """
left = [[float(i * j % 7) for j in range(24)] for i in range(24)]
def step():
    [[sum(a * b for a, b in zip(row, column)) for column in zip(*left)] for row in left]
""",
}


def work_kind(python: str) -> str:
    """The nearest to a TensorFlow step that an interpreter has."""
    for kind, module in (("TensorFlow", "tensorflow"), ("numpy", "numpy")):
        probe = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
        if subprocess.run([python, "-c", probe], check=False).returncode == 0:
            return kind
    return "plain Python"


class Work:
    """Training steps on every core, which can be stopped and continued."""

    def __init__(self, python: str, folder: Path) -> None:
        self.kind = work_kind(python)
        self._pages: list[mmap.mmap] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        for number in range(os.cpu_count() or 1):
            path = folder / f"steps{number}"
            path.write_bytes(bytes(8))
            with path.open("r+b") as stream:
                self._pages.append(mmap.mmap(stream.fileno(), 8))
            line = [python, "-c", WORK[self.kind] + _WORK_TAIL, str(path)]
            self.processes.append(subprocess.Popen(line, stderr=subprocess.DEVNULL))

    def wait(self, limit_s: float = 120) -> None:
        """Until every process has made some steps."""
        deadline = time.monotonic() + limit_s
        while min(self._counts()) < 3:
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                raise SystemExit(f"the {self.kind} steps do not start")
            time.sleep(0.05)

    def _counts(self) -> list[int]:
        return [struct.unpack("q", page[:8])[0] for page in self._pages]

    def steps(self) -> int:
        """Steps so far, on all cores."""
        return sum(self._counts())

    def run(self, on: bool) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


# ---- contestants that are Python loops, run as processes of their own ----------------------------------------------


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
    "psutil": psutil_loop,
    "nvitop": nvitop_collector,
    "gpustat": gpustat_query,
    "gpustat-command": gpustat_command,
}

# ---- running them --------------------------------------------------------------------------------------------------


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
        return [sys.executable, str(Path(__file__)), "--loop", name, "--hz", str(hz), "--pid", str(pid)]

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
        Contestant("driple-sample", 1000, ours(1000)),
        Contestant("driple-sample --normal-priority", 1000, ours(1000, "--normal-priority")),
        Contestant("psutil + pynvml loop", 1000, loop("psutil", 1000), without("psutil")),
        Contestant("nvitop ResourceMetricCollector", 100, loop("nvitop", 100), without("nvitop")),
        Contestant("gpustat.new_query() loop", 100, loop("gpustat", 100), without("gpustat")),
        Contestant("gpustat --json, a process each", 100, loop("gpustat-command", 100), without("gpustat")),
        tool("nvidia-smi -lms 10", 100, query, "--format=csv", "-lms", "10"),
        tool("sar -u -r -n DEV 1", 1, "-u", "-r", "-n", "DEV", "1"),
        tool("vmstat 1", 1, "-n", "1"),
    ]


def cpu_s(pid: int) -> float:
    """CPU time of a process and of its children that have ended."""
    own = time.clock_gettime_ns((~pid << 3) | 2) / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return own + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


@contextmanager
def started(line: list[str], environment: dict[str, str], errors: Path) -> Iterator[subprocess.Popen[str]]:
    with errors.open("w") as stderr:
        pipe = subprocess.PIPE
        process = subprocess.Popen(line, env=environment, stdin=pipe, stdout=pipe, stderr=stderr, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def alone(work: Work, seconds: float) -> float:
    """Steps a second with nothing beside."""
    steps, before = work.steps(), time.monotonic()
    time.sleep(seconds)
    return (work.steps() - steps) / (time.monotonic() - before)


def measure(contestant: Contestant, work: Work, seconds: float, folder: Path) -> dict[str, Any]:
    """One run. Start and end are left out: only a window in the middle counts."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_STUB": STUB}
    errors = folder / "errors"
    with started(contestant.line, environment, errors) as process:
        assert process.stdin is not None and process.stdout is not None
        if contestant.speaks:
            while "ready" not in (line := process.stdout.readline()):
                if not line:
                    return {"failed": (errors.read_text().strip().splitlines() or ["it ended at once"])[-1]}
        time.sleep(0.3)
        try:
            cpu, steps, before = cpu_s(process.pid), work.steps(), time.monotonic()
            time.sleep(seconds)
            cpu, steps = cpu_s(process.pid) - cpu, work.steps() - steps
            wall = time.monotonic() - before
            found = {"cpu_pct": 100 * cpu / wall, "memory_mb": peak_mb(process.pid), "steps_per_s": steps / wall}
        except (OSError, StopIteration):
            return {"failed": (errors.read_text().strip().splitlines() or ["it ended at once"])[-1]}
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    lines = out.strip().splitlines()
    if not contestant.speaks:
        head = 1 if contestant.name.startswith("nvidia") else 3  # lines of the header
        per_read = {"sar": 10}.get(contestant.line[0], 1)
        return {**found, "rate_hz": max(0, len(lines) - head) / per_read / (wall + 0.3)}
    said = json.loads(lines[-1])
    if "loop" in said:
        how = said["loop"]
        said = {
            "rate_hz": how["ticks"] / said["seconds"],
            "missed_pct": how["missed_pct"],
            "late_p50_ms": how["lateness_us"]["median"] / 1000,
            "late_p99_ms": how["lateness_us"]["p99"] / 1000,
            "priority": said["priority"]["policy"],
        }
    return {**found, **said}


def rounds(field_of: list[Contestant], work: Work, folder: Path, options: argparse.Namespace) -> int:
    """Runs everything in turn, as often as fits into the time. Returns how often that was."""
    begun = time.monotonic()
    for number in range(options.rounds):
        round_begun = time.monotonic()
        for condition in (QUIET, BUSY):
            work.run(condition == BUSY)
            time.sleep(0.3)
            # Machines drift within a round, so each run is held against the steps just before and just after it.
            before = alone(work, options.seconds / 3) if condition == BUSY else 0.0
            for contestant in field_of:
                if contestant.lacks:
                    continue
                found = measure(contestant, work, options.seconds, folder)
                if "failed" in found:
                    contestant.lacks = found["failed"]
                    continue
                if condition == BUSY:
                    after = alone(work, options.seconds / 3)
                    found["slowdown_pct"] = 100 * ((before + after) / 2 / max(found["steps_per_s"], 0.01) - 1)
                    before = after
                contestant.runs[condition].append(found)
                if options.verbose:
                    print(condition, contestant.name, contestant.hz, found, file=sys.stderr)
        took = time.monotonic() - round_begun
        if time.monotonic() - begun + took > options.budget:
            return number + 1
    return int(options.rounds)


# ---- the table -----------------------------------------------------------------------------------------------------


def summary(field_of: list[Contestant]) -> list[dict[str, Any]]:
    found = []
    for contestant in field_of:
        row: dict[str, Any] = {"name": contestant.name, "hz": contestant.hz}
        if contestant.lacks:
            found.append({**row, "cannot_run": contestant.lacks})
            continue
        for condition, runs in contestant.runs.items():
            figures = {}
            for key in ("rate_hz", "cpu_pct", "late_p50_ms", "late_p99_ms", "missed_pct", "memory_mb", "slowdown_pct"):
                values = [run[key] for run in runs if run.get(key) is not None]
                if values:
                    figures[key] = {"median": statistics.median(values), "least": min(values), "most": max(values)}
            row[condition] = figures
            row["priority"] = next((run["priority"] for run in runs if "priority" in run), None)
        found.append(row)
    return found


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """What the sampler is to reach, and whether it did."""

    def figure(name: str, hz: int, condition: str, key: str, kind: str = "median") -> float | None:
        row = next((row for row in rows if row["name"] == name and row["hz"] == hz), {})
        found = row.get(condition, {}).get(key, {}).get(kind)
        return None if found is None else float(found)

    def line(what: str, value: float | None, limit: float, unit: str) -> str:
        if value is None:
            return f"- {what}: not measured."
        return f"- {what}: {value:.2f}{unit}, {'reached' if value <= limit else 'NOT reached'} (at most {limit}{unit})."

    def share(hz: int, condition: str) -> float | None:
        own = figure("driple-sample", hz, condition, "cpu_pct")
        other = figure("psutil + pynvml loop", hz, condition, "cpu_pct")
        # At equal rate: a loop that attains half the rate reads half as often.
        rates = [figure(name, hz, condition, "rate_hz") for name in ("driple-sample", "psutil + pynvml loop")]
        if own is None or not other or not rates[0] or not rates[1]:
            return None
        return (own / rates[0]) / (other / rates[1])

    most = figure("driple-sample", 100, BUSY, "missed_pct", "most")
    memory = max(figure("driple-sample", hz, c, "memory_mb", "most") or 0 for hz in (100, 1000) for c in (QUIET, BUSY))
    return [
        line("CPU at 100 Hz, quiet", figure("driple-sample", 100, QUIET, "cpu_pct"), 2, " % of a core"),
        line("CPU at 100 Hz, all cores busy", figure("driple-sample", 100, BUSY, "cpu_pct"), 2, " % of a core"),
        line("ticks missed at 100 Hz, all cores busy, worst round", most, 0, " %"),
        line("CPU at 1000 Hz, quiet", figure("driple-sample", 1000, QUIET, "cpu_pct"), 8, " % of a core"),
        line("CPU at 1000 Hz, all cores busy", figure("driple-sample", 1000, BUSY, "cpu_pct"), 8, " % of a core"),
        line("ticks missed at 1000 Hz, all cores busy", figure("driple-sample", 1000, BUSY, "missed_pct"), 0.5, " %"),
        line("CPU per read against the psutil + pynvml loop, 100 Hz, quiet", share(100, QUIET), 0.33, ""),
        line("CPU per read against the psutil + pynvml loop, 1000 Hz, quiet", share(1000, QUIET), 0.33, ""),
        line("resident memory, worst", memory, 30, " MB"),
    ]


def markdown(found: dict[str, Any]) -> str:
    def cell(figures: dict[str, Any], key: str, digits: int) -> str:
        if key not in figures:
            return "-"
        value = figures[key]
        text = f"{value['median']:.{digits}f}"
        spread = f"{value['least']:.{digits}f} to {value['most']:.{digits}f}"
        return text if value["least"] == value["most"] or key == "memory_mb" else f"{text} ({spread})"

    parts = []
    for condition, title in ((QUIET, "Machine quiet"), (BUSY, "Training steps on every core")):
        lines = []
        for row in found["rows"]:
            if "cannot_run" in row:
                lines.append(f"| {row['name']} | {row['hz']:g} | cannot run: {row['cannot_run']} |||||||")
                continue
            figures = row[condition]
            shown = [cell(figures, key, digits) for key, digits in (("rate_hz", 0), ("cpu_pct", 2))]
            shown += [" / ".join(cell(figures, key, 2) for key in ("late_p50_ms", "late_p99_ms"))]
            shown += [cell(figures, key, digits) for key, digits in (("missed_pct", 2), ("memory_mb", 0))]
            shown += [cell(figures, "slowdown_pct", 1), row["priority"] or "-"]
            lines.append(f"| {row['name']} | {row['hz']:g} | " + " | ".join(shown) + " |")
        head = "| what | asked, Hz | attained, Hz | CPU, % of a core | late p50 / p99, ms | missed, % | memory, MB "
        head += "| slower steps, % | priority |\n|---|---|---|---|---|---|---|---|---|"
        parts.append(f"## {title}\n\n{head}\n" + "\n".join(lines))
    step = found["step"] if found["step"] == "TensorFlow" else f"stand-in for TensorFlow's ({found['step']})"
    verdict = "\n".join(found["verdicts"])
    return f"""# What sampling costs

{found["machine"]}; {found["date"]}. {found["rounds"]} rounds with all contestants in turn, windows of
{found["seconds"]:g} s, median (range). Load average before the run: {found["load"]:.2f}. Remade by
`python benchmarks/sampler.py --write docs/SAMPLER.md`.

All read one task: a GPU (the scripted one of tests/native, with a sample every 20 ms), one network interface, the CPU
time and memory of a process tree, and the host's; driple-sample reads TCP flows besides, five times a second. CPU and
memory are of the whole process, threads and ended children included, without start and end. Late: driple-sample after
its deadline; the others, which sleep between reads, beyond the period. Missed: deadlines without a read. Slower steps:
training steps per second on all cores, against those just before and after with nothing beside; the step is {step}.
gpustat itself waits 0.1 s within each query; nvitop, gpustat, vmstat and sar read less than a task has.

{parts[0]}

{parts[1]}

## What it is to reach

{verdict}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round: whether it works, not how well")
    parser.add_argument("--rounds", type=int, default=5, help="at most (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="window of a run (%(default)s)")
    parser.add_argument("--budget", type=float, default=330.0, help="seconds in all; fewer rounds if needed")
    parser.add_argument("--step-python", default=sys.executable, help="interpreter for the training step")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--verbose", action="store_true", help="every run, as it ends")
    for hidden, kind in (("--loop", str), ("--hz", float), ("--pid", int)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        LOOPS[options.loop](options.hz, options.pid)
        return
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    if shutil.which("cc") is None:
        raise SystemExit("needs a C compiler (cc) for the scripted GPU of tests/native")
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        build = [sys.executable, str(CHECKOUT / "tests" / "native" / "nvml_stub.py"), "--into", str(folder)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        work = Work(options.step_python, folder)
        stack.callback(work.end)
        work.wait()
        field_of = contestants(work.processes[0].pid, folder)
        done = rounds(field_of, work, folder, options)
    rows = summary(field_of)
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    found = {
        "machine": f"{os.cpu_count()} cores, {system}, Python {platform.python_version()}",
        "date": str(date.today()),
        "rounds": done,
        "seconds": options.seconds,
        "load": load,
        "step": work.kind,
        "rows": rows,
        "verdicts": verdicts(rows),
    }
    print(json.dumps(found, indent=1) if options.json else markdown(found))
    if options.write:
        with replacing(options.write) as stream:
            stream.write(markdown(found))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
