"""How long a job takes to train its first step, from cold processes and on a warm host, for each framework.

    python benchmarks/start_times.py [--rounds 7] [--model resnet20] [--json] [--write docs/benchmarks/start-times.md]

The job of TensorFlow has 2 parameter servers and 2 workers; that of PyTorch 2 workers and an all-reduce by gloo. A cold
start is a `task` command for each task; a warm one is the same tasks, forked by a host that has the framework loaded.
Each round has one of both, in turn; medians and the spread of all rounds are shown. Time counts from the moment the
first task is asked for, to the beginning and to the end of worker 0's first step, on one machine and one clock. Run it
on a quiet machine.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import date
from importlib import metadata
from pathlib import Path

from pages import machine, parser_of, publish

from driple.contracts.run_dir import file_name
from driple.contracts.run_spec import JobSpec, Measurement, RunSpec, TaskSpec
from driple.contracts.setting import Setting
from driple.contracts.strategy import FRAMEWORKS, default_strategy
from driple.workloads.runtime.job import workload_of

COMMAND = [sys.executable, "-m", "driple.workloads.cli"]
SETTINGS = {"tensorflow": Setting.parse("cpu-p2w2-1g"), "torch": Setting.parse("cpu-p0w2-1g")}
LIMIT_S = 120.0


def write_job(folder: Path, model: str, framework: str) -> Path:
    setting = SETTINGS[framework]
    workload = workload_of(model, None, 32, strategy=default_strategy(setting.servers), framework=framework)
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in setting.tasks]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    job = JobSpec(
        run=RunSpec(setting, workload, Measurement(steps=3, warmup_steps=0, threads=1), (setting.tasks,)),
        tasks=tuple(TaskSpec(task, "here", each) for task, each in zip(setting.tasks, addresses, strict=True)),
    )
    path = folder / "job.json"
    path.write_text(json.dumps(job.to_json()))
    return path


def first_step(folder: Path, began_ns: int) -> dict[str, float]:
    step = json.loads((folder / file_name("worker:0") / "steps.jsonl").read_text().splitlines()[0])
    return {"begins_s": (step["start_mono_ns"] - began_ns) / 1e9, "done_s": (step["end_mono_ns"] - began_ns) / 1e9}


def cold(folder: Path, model: str, framework: str) -> dict[str, float]:
    job = write_job(folder, model, framework)
    began = time.monotonic_ns()
    processes = []
    for task in SETTINGS[framework].tasks:
        command = [*COMMAND, "task", "--job", str(job), "--task", task, "--out", str(folder / file_name(task))]
        quiet = subprocess.DEVNULL
        processes.append(subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet))
    assert [process.wait(LIMIT_S) for process in processes] == [0] * len(processes)
    return first_step(folder, began)


class Warm:
    def __init__(self, framework: str) -> None:
        self.framework = framework
        command = [*COMMAND, "warm", "--framework", framework]
        began = time.monotonic()
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=quiet, text=True, bufsize=1)
        assert self.process.stdout is not None
        assert "ready" in json.loads(self.process.stdout.readline())
        self.loaded_s = time.monotonic() - began

    def run(self, folder: Path, model: str) -> dict[str, float]:
        assert self.process.stdin is not None and self.process.stdout is not None
        job = write_job(folder, model, self.framework)
        began = time.monotonic_ns()
        for task in SETTINGS[self.framework].tasks:
            order = {"job": str(job), "task": task, "out": str(folder / file_name(task))}
            self.process.stdin.write(json.dumps({"run": order}) + "\n")
        codes: list[int] = []
        while len(codes) < len(SETTINGS[self.framework].tasks):
            said = json.loads(self.process.stdout.readline())
            codes += [said["ended"]["exit_code"]] if "ended" in said else []
        assert codes == [0] * len(codes), codes
        return first_step(folder, began)


def measure(rounds: int, model: str, framework: str) -> dict[str, list[dict[str, float]]]:
    results: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    host = Warm(framework)
    try:
        for number in range(rounds):
            for kind in ("cold", "warm") if number % 2 else ("warm", "cold"):
                with tempfile.TemporaryDirectory() as folder:
                    result = cold(Path(folder), model, framework) if kind == "cold" else host.run(Path(folder), model)
                results[kind].append(result)
                print(
                    f"round {number + 1}/{rounds} {framework} {kind}: first step begins at {result['begins_s']:.1f} s",
                    file=sys.stderr,
                )
    finally:
        assert host.process.stdin is not None
        host.process.stdin.close()
        host.process.wait(LIMIT_S)
    return results


def table(results: dict[str, dict[str, list[dict[str, float]]]], model: str) -> str:
    lines = [
        "| framework | start | first step begins, median (range) | first step done, median | relative to cold |",
        "|---|---|---|---|---|",
    ]
    for framework, kinds in results.items():
        medians = {kind: statistics.median(each["begins_s"] for each in rows) for kind, rows in kinds.items()}
        for kind, rows in kinds.items():
            begins = [each["begins_s"] for each in rows]
            done = statistics.median(each["done_s"] for each in rows)
            spread = f"{medians[kind]:.1f} s ({min(begins):.1f} - {max(begins):.1f})"
            relative = f"{medians[kind] / medians['cold']:.2f}"
            lines.append(f"| {framework}, {SETTINGS[framework]} | {kind} | {spread} | {done:.1f} s | {relative} |")
    rounds = len(next(iter(results.values()))["cold"])
    versions = (f"{FRAMEWORKS[name].title} {metadata.version(name)}" for name in results)
    where = machine(", ".join(versions))
    return (
        "# Start times\n\n"
        f"{model} at batch 32, all tasks on one machine: {where}, {rounds} rounds, {date.today()}.\n"
        "Reproduce with `python benchmarks/start_times.py --write docs/benchmarks/start-times.md`; its docstring\n"
        "describes the method.\n\n" + "\n".join(lines) + "\n"
    )


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--framework", choices=tuple(SETTINGS), help="only this one; all if left out")
    arguments = parser.parse_args()
    chosen = [arguments.framework] if arguments.framework else list(SETTINGS)
    results = {name: measure(arguments.rounds, arguments.model, name) for name in chosen}
    publish(results, table(results, arguments.model), arguments)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
