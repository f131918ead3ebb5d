"""What loss does to a ring, what packet capture does to a step, and how true delays are, in docs/benchmarks.

Jobs of PyTorch workers run in the lab, each with its own link of 1 Gbit/s. The cells of a round run one after the
other, in the opposite order in every second round. The figure of a run is the median step of its workers after the
warm-up. Parts can be measured one at a time; `--results` keeps their figures for the page.

    python benchmarks/traffic_runs.py --results runs.json --write docs/benchmarks/traffic-runs.md
    python benchmarks/traffic_runs.py --results runs.json --part capture --rounds 5
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow.parquet as pq

import driple
from driple.contracts.run_spec import NetworkCondition
from driple.orchestrator.lab.lab_client import Lab

LOSS_PCT = 2
WARM_UP = 5
DELAYS_MS = (1.0, 2.0, 5.0, 10.0, 20.0)
PINGS = 15
Cells: TypeAlias = dict[str, dict[str, Any]]
LOSS_CELLS: Cells = {
    "no loss, cubic": {"network": {"congestion": "cubic"}},
    "no loss, bbr": {"network": {"congestion": "bbr"}},
    f"{LOSS_PCT} % loss, cubic": {"network": {"loss": f"{LOSS_PCT}%", "congestion": "cubic"}},
    f"{LOSS_PCT} % loss, bbr": {"network": {"loss": f"{LOSS_PCT}%", "congestion": "bbr"}},
}
LEAST_LOSS_PCT = 0.001
"""The least loss of the lab. With any loss, packets have the size of the wire."""
CAPTURE_WORKERS = 2
"""A processor for each host: more hosts than processors would share those that the captures use."""
PLAIN, CAPTURED = "not captured", "captured"
CAPTURE_CELLS: Cells = {
    PLAIN: {"network": {"loss": f"{LEAST_LOSS_PCT}%", "congestion": "cubic"}},
    CAPTURED: {"network": {"loss": f"{LEAST_LOSS_PCT}%", "congestion": "cubic"}, "capture": "headers"},
}
GOALS = {"cubic": "at least 5", "bbr": "at most 2"}
ECHO = """
import socket
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.bind(("", 7004))
print("ready", flush=True)
while True: line.sendto(*line.recvfrom(2048))
"""
PING = """
import socket, statistics, sys, time
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.settimeout(5)
found = []
for _ in range(int(sys.argv[2])):
    begin = time.perf_counter()
    line.sendto(bytes(64), (sys.argv[1], 7004))
    line.recv(2048)
    found.append(1000 * (time.perf_counter() - begin))
    time.sleep(0.05)
print(statistics.median(found))
"""


def main() -> int:
    """Measures, and prints or writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=tuple(PARTS), action="append", help="only this one; may be repeated")
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="figures of other parts, and of these")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    keep: Path | None = arguments.results
    results: dict[str, Any] = json.loads(keep.read_text()) if keep is not None and keep.exists() else {}
    for name in arguments.part or PARTS:
        measure, _ = PARTS[name]
        what = f"`{arguments.model}`, batch size {arguments.batch_size}"
        results[name] = {"job": what, "date": str(datetime.date.today()), "found": measure(arguments)}
        if keep is not None:
            keep.write_text(json.dumps(results, indent=1))
    page = text(results)
    if arguments.write:
        arguments.write.write_text(page)
    print(page)
    return 0


def step_times(arguments: argparse.Namespace, cells: Cells, workers: int) -> dict[str, list[float]]:
    """Median step in seconds of every run, by cell."""
    found: dict[str, list[float]] = {name: [] for name in cells}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            order = list(cells.items())[:: -1 if number % 2 else 1]
            for name, own in order:
                experiment = {
                    "name": f"round{number}-{list(cells).index(name)}",
                    "setting": f"cpu-p0w{workers}-1g",
                    "threads": 1,
                    "steps": arguments.steps,
                    "warmup_steps": WARM_UP,
                    "workloads": [
                        {
                            "model": arguments.model,
                            "batch_size": arguments.batch_size,
                            "strategy": "allreduce",
                            "framework": "torch",
                        }
                    ],
                    **own,
                }
                (run,) = driple.run(experiment, output=folder).runs
                assert run.status == "sealed" and run.directory is not None, run.failure
                found[name].append(median_step(run.directory))
                print(f"round {number + 1}, {name}: {1000 * found[name][-1]:.1f} ms", file=sys.stderr)
    return found


def median_step(run: Path) -> float:
    """Of all workers, in seconds."""
    steps = [pq.read_table(path).to_pydict() for path in sorted(run.glob("steps/worker-*.parquet"))]
    begins = [np.sort(np.array(one["start_mono_ns"]))[WARM_UP:] for one in steps]
    return float(np.median(np.concatenate([np.diff(one) for one in begins]))) / 1e9


def round_trips(arguments: argparse.Namespace) -> dict[str, float]:
    """Median round trip in ms by delay of each way in ms."""
    name, run = "traffic-runs", [sys.executable, "-m", "driple.orchestrator.cli_lab", "exec", "--name", "traffic-runs"]
    found = {}
    with Lab.start(hosts=2, name=name) as lab:
        echo = subprocess.Popen([*run, "lab2", "--", sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
        assert echo.stdout is not None
        echo.stdout.readline()
        for delay_ms in DELAYS_MS:
            lab.shape(NetworkCondition(delay_ms=delay_ms), 1000)
            words = [*run, "lab1", "--", sys.executable, "-c", PING, lab.data_address("lab2"), str(PINGS)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=True)
            found[f"{delay_ms:g}"] = float(done.stdout)
        echo.kill()
        echo.wait()
    return found


def loss_text(part: dict[str, Any]) -> str:
    """The part of the page on loss."""
    steps = part["found"]
    middle: Callable[[str], float] = lambda name: statistics.median(steps[name])  # noqa: E731
    slower = [
        f"| {kind} | {middle(f'{LOSS_PCT} % loss, {kind}') / middle(f'no loss, {kind}'):.1f} | {goal} |"
        for kind, goal in GOALS.items()
    ]
    return f"""## A ring under loss

Four PyTorch workers train {part["job"]}, over links of 1 Gbit/s (gloo, ring). Median step of a run, with
{len(next(iter(steps.values())))} runs of each cell in turn ({part["date"]}):

| cell | step in ms | runs |
|---|---|---|
{_rows(steps)}

| congestion control | step at {LOSS_PCT} % loss, times the step without | goal |
|---|---|---|
{chr(10).join(slower)}
"""


def capture_text(part: dict[str, Any]) -> str:
    """The part of the page on capture."""
    steps = part["found"]
    cost = 100 * (statistics.median(steps[CAPTURED]) / statistics.median(steps[PLAIN]) - 1)
    pairs = sorted(100 * (captured / plain - 1) for plain, captured in zip(steps[PLAIN], steps[CAPTURED], strict=True))
    return f"""## Packet capture

{CAPTURE_WORKERS} PyTorch workers, one for each processor, train {part["job"]}, with `capture: headers` and without,
{len(pairs)} runs of each in turn ({part["date"]}). A loss of {LEAST_LOSS_PCT:g} % in both, the least that the lab
makes, gives all packets the size of the wire.

| cell | step in ms | runs |
|---|---|---|
{_rows(steps)}

A captured step takes {cost:+.1f} % compared with one that is not captured (pairs of neighbouring runs:
{pairs[0]:+.1f} to {pairs[-1]:+.1f} %, median {statistics.median(pairs):+.1f} %).
The goal is within 3 %: {_verdict(cost <= 3)}.
"""


def delay_text(part: dict[str, Any]) -> str:
    """The part of the page on delay."""
    beyond = {delay: trip - 2 * float(delay) for delay, trip in part["found"].items()}
    rows = [f"| {delay} | {part['found'][delay]:.2f} | {more:+.2f} |" for delay, more in beyond.items()]
    return f"""## Delay

Median of {PINGS} round trips of a datagram between two hosts of the lab ({part["date"]}):

| delay of each way in ms | round trip in ms | beyond twice the delay |
|---|---|---|
{chr(10).join(rows)}

The goal is within 0.7 ms of twice the delay: {_verdict(max(map(abs, beyond.values())) <= 0.7)}.
"""


def _rows(steps: dict[str, list[float]]) -> str:
    return "\n".join(
        f"| {name} | {1000 * statistics.median(own):.1f} | {1000 * min(own):.1f} to {1000 * max(own):.1f} |"
        for name, own in steps.items()
    )


def _verdict(reached: bool) -> str:
    return "reached" if reached else "NOT reached"


PARTS: dict[str, tuple[Callable[[argparse.Namespace], Any], Callable[[dict[str, Any]], str]]] = {
    "loss": (lambda arguments: step_times(arguments, LOSS_CELLS, 4), loss_text),
    "capture": (lambda arguments: step_times(arguments, CAPTURE_CELLS, CAPTURE_WORKERS), capture_text),
    "delay": (round_trips, delay_text),
}


def text(results: dict[str, Any]) -> str:
    """The page."""
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    head = f"""# Loss, capture and delay on real jobs

{machine}. Reproduce with
`python benchmarks/traffic_runs.py --write docs/benchmarks/traffic-runs.md`.
"""
    return "\n".join([head, *(write(results[name]) for name, (_, write) in PARTS.items() if name in results)])


if __name__ == "__main__":
    sys.exit(main())
