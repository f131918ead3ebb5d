"""A build of many runs: memory of all its processes, and what a second worker is worth.

    python benchmarks/build.py [--runs 1000] [--rounds 3] [--traces DIR] [--json]
        [--write docs/benchmarks/build-speed.md]

Real runs (those of the tests, or DIR) are copied as other repetitions of themselves, each with its own graph: the
hardest case for memory and for caches. Time is that of the work on traces, with the workers started and warm,
one and two of them in turn; memory is that of the whole command and all its processes. Run it on a quiet machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pages import machine, parser_of, publish

from driple.contracts.json_values import to_plain
from driple.contracts.manifest import Manifest
from driple.contracts.run_spec import JobSpec
from driple.pipeline.datasets.engine import Engine, connected
from driple.pipeline.datasets.run_rows import Request, RunRows, inputs_sha256, work

CHECKOUT = Path(__file__).resolve().parents[1]
WARM_UP = 4
MOST_MB = 1000
LEAST_RATIO = 1.7


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timed-runs", type=int, default=200, help="of these, in each round")
    parser.add_argument("--traces", type=Path, default=CHECKOUT / "tests/data/runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = copies(arguments.traces, folder / "traces", arguments.runs)
        some = runs[: arguments.timed_runs]
        rounds = [{jobs: timed(some, jobs) for jobs in (1, 2)} for _ in range(arguments.rounds)]
        found = {
            "runs": len(runs),
            "timed_runs": len(some),
            "trace_mb": sum(p.stat().st_size for p in (folder / "traces").rglob("*") if p.is_file()) / 1e6,
            "rounds": rounds,
            "ratio": statistics.median(one[1]["seconds"] / one[2]["seconds"] for one in rounds),
            "builds": {jobs: command(folder / "traces", folder / f"out{jobs}", jobs) for jobs in (1, 2)},
            "unchanged": command(folder / "traces", folder / "out2", 2),
        }
        sizes = {path.read_bytes() for jobs in (1, 2) for path in (folder / f"out{jobs}").glob("*.parquet")}
        found["datasets_mb"] = sum(map(len, sizes)) / 1e6
        found["same_bytes"] = len(sizes) == len(list((folder / "out1").glob("*.parquet")))
    publish(found, markdown(found), arguments)
    return 0


def copies(source: Path, target: Path, count: int) -> list[Path]:
    """`count` runs: those below `source` again and again, sealed as other repetitions with graphs of their own."""
    originals = sorted(path.parent for path in source.rglob("run.json"))
    if not originals:
        sys.exit(f"{source}: no runs to copy")
    made = []
    for number in range(count):
        original = originals[number % len(originals)]
        manifest = Manifest.read(original / "run.json")
        spec = replace(manifest.run, repetition=number)
        run = target / "copies" / spec.id
        shutil.copytree(original, run, copy_function=os.link)
        job = JobSpec.from_json(json.loads((original / "job.json").read_text()))
        anew(run / "job.json", json.dumps(to_plain(replace(job, run=spec))).encode())
        anew(run / "graph/worker.parquet", graph(original / "graph/worker.parquet", number))
        sums = {
            name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in ("job.json", "graph/worker.parquet")
        }
        (run / "run.json").unlink()
        replace(manifest, run=spec, run_id=spec.id, checksums={**manifest.checksums, **sums}).write(run / "run.json")
        made.append(run)
    return made


def anew(path: Path, content: bytes) -> None:
    path.unlink()  # it was a link to the original
    path.write_bytes(content)


def graph(path: Path, number: int) -> bytes:
    """The graph with the sizes of all its tensors changed a little."""
    table = pq.read_table(path)
    column = table.schema.get_field_index("nodes")
    lists = table.column(column).combine_chunks()
    nodes = lists.values
    names = [nodes.type.field(index).name for index in range(nodes.type.num_fields)]
    fields = {name: nodes.field(name) for name in names}
    fields["output_bytes"] = pc.add(fields["output_bytes"], pa.scalar(4 * number, pa.int64()))
    changed = pa.StructArray.from_arrays([fields[name] for name in names], fields=list(nodes.type))
    table = table.set_column(column, table.schema.field(column), pa.ListArray.from_arrays(lists.offsets, changed))
    stream = pa.BufferOutputStream()
    pq.write_table(table, stream, compression="zstd")
    return bytes(stream.getvalue())


def timed(runs: list[Path], jobs: int) -> dict[str, float]:
    """From the first run to the last, by workers that are up and have their libraries loaded."""
    requests = [Request(str(run), inputs_sha256(run / "run.json")) for run in runs]
    with connected(Engine(jobs=jobs)) as pool:
        list(pool.map(work, requests[: WARM_UP * jobs]))
        began, cpu = time.monotonic(), cpu_seconds()
        outcomes = [outcome for _, outcome in pool.map(work, requests)]
        seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu
    assert all(isinstance(outcome, RunRows) for outcome in outcomes)
    return {"seconds": seconds, "cpu_seconds": cpu}


def cpu_seconds() -> float:
    """Of this process and of those it started that are still there."""
    me = psutil.Process()
    return sum(sum(one.cpu_times()[:2]) for one in (me, *me.children(recursive=True)))


def command(traces: Path, output: Path, jobs: int) -> dict[str, Any]:
    """The whole command, as a user calls it: its time, and the most memory of it and all its processes."""
    words = [sys.executable, "-m", "driple.pipeline.cli", str(traces), "--output", str(output), "--jobs", str(jobs)]
    began = time.monotonic()
    process = psutil.Popen([*words, "--json"], stdout=subprocess.PIPE, text=True)
    most = 0
    ended = threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.05):
            resident = 0
            try:
                for one in (process, *process.children(recursive=True)):
                    resident += one.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            most = max(most, resident)

    watcher = threading.Thread(target=watch)
    watcher.start()
    text, _ = process.communicate()
    ended.set()
    watcher.join()
    report = json.loads(text)
    assert process.returncode == 0
    assert not report["set_aside"]
    rows = sum(setting["rows"] for setting in report["settings"].values())
    graphs = sum(setting["graphs"] for setting in report["settings"].values())
    return {
        "jobs": jobs,
        "seconds": time.monotonic() - began,
        "most_mb": most / 1e6,
        "rows": rows,
        "graphs": graphs,
        "computed": report["computed"],
    }


def markdown(found: dict[str, Any]) -> str:
    rounds = "\n".join(
        f"| {number} | {one[1]['seconds']:.1f} | {one[2]['seconds']:.1f} | {one[1]['seconds'] / one[2]['seconds']:.2f} "
        f"| {one[1]['cpu_seconds']:.1f} | {one[2]['cpu_seconds']:.1f} |"
        for number, one in enumerate(found["rounds"], start=1)
    )
    builds = "\n".join(
        f"| {name} | {one['seconds']:.1f} | {one['most_mb']:.0f} | {one['computed']} |"
        for name, one in (
            ("one process", found["builds"][1]),
            ("two processes", found["builds"][2]),
            ("again, nothing changed", found["unchanged"]),
        )
    )
    most = max(one["most_mb"] for one in (*found["builds"].values(), found["unchanged"]))
    any_build = found["builds"][1]
    each_ms = 1000 * min(one[1]["cpu_seconds"] for one in found["rounds"]) / found["timed_runs"]
    return f"""# Speed and memory of a build

`python benchmarks/build.py --runs {found["runs"]} --timed-runs {found["timed_runs"]} --rounds {len(found["rounds"])}`,
{date.today()}, {machine(f"pyarrow {pa.__version__}")}.
{found["runs"]} copies of real runs ({found["trace_mb"]:.0f} MB), each with its own graph: {any_build["rows"]} rows and
{any_build["graphs"]} graphs, {found["datasets_mb"]:.1f} MB of datasets.

- Peak memory of the command and all its processes: {most:.0f} MB, {verdict(most < MOST_MB)} (less than {MOST_MB}).
- Two workers against one, processing of traces: {found["ratio"]:.2f}x in the median of {len(found["rounds"])} rounds, {
        verdict(found["ratio"] >= LEAST_RATIO)
    } (at least {LEAST_RATIO}).
- One and two processes wrote the same bytes: {"yes" if found["same_bytes"] else "NO"}.

## Processing of traces

{found["timed_runs"]} runs, workers started and warm, {each_ms:.0f} ms of CPU time each.
CPU seconds show how quiet the machine was.

| round | one worker, s | two workers, s | ratio | one, CPU s | two, CPU s |
|---|---|---|---|---|---|
{rounds}

## The complete command

Memory is resident memory summed over processes; shared memory counts for each.

| build of {found["runs"]} runs | seconds | peak MB | runs processed |
|---|---|---|---|
{builds}
"""


def verdict(reached: bool) -> str:
    return "reached" if reached else "NOT reached"


if __name__ == "__main__":
    sys.exit(main())
