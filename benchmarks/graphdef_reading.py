"""How long it takes to read a GraphDef without TensorFlow, and how much memory.

    python benchmarks/graphdef_reading.py [--against CHECKOUT] [--rounds 7] [--json]

TensorFlow writes the training graphs of two models, with shapes and without, as .pb and .pbtxt. Then each is read in a
process of its own, by this checkout and by another one in turn, if one is named. Medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
MODELS = ("resnet50", "gpt2_small")

MAKE = """
import sys
from pathlib import Path
import tensorflow.compat.v1 as v1
from google.protobuf import text_format
from driple.contracts.setting import Setting
from driple.workloads.graphs import graph_build
from driple.workloads.runtime.job import job_without_hosts, workload_of
graph_build.use_tf1()
for model in sys.argv[2:]:
    job = job_without_hosts(Setting.parse("cpu-p2w2-1g"), workload_of(model, None, 32))
    graph = graph_build.build(job, 0).graph
    for name, shapes in (("shapes", True), ("bare", False)):
        definition = graph.as_graph_def(add_shapes=shapes)
        path = Path(sys.argv[1]) / f"{model}-{name}.pb"
        path.write_bytes(definition.SerializeToString())
        path.with_suffix(".pbtxt").write_text(text_format.MessageToString(definition))
"""

READ = """
import resource, sys, time
begin = time.perf_counter()
from driple.pipeline.graph import graphdef
imported = time.perf_counter()
from pathlib import Path
path = Path(sys.argv[1])
content = path.read_bytes()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin_reading = time.perf_counter()
raw = graphdef.read(content, text=path.suffix == ".pbtxt", batch_size=None)
read = time.perf_counter() - begin_reading
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(len(raw.ops), imported - begin, read, grown / 1024)
"""


def one(checkout: Path, path: Path) -> tuple[float, float, float]:
    environment = {**os.environ, "PYTHONPATH": str(checkout / "typings")}
    command = [sys.executable, "-c", READ, str(path)]
    said = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return float(said[1]) * 1e3, float(said[2]) * 1e3, float(said[3])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout to compare with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--graphs", type=Path, help="folder with the GraphDef files; made if they are not there")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    checkouts = [HERE, *([arguments.against.resolve()] if arguments.against else [])]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.graphs or Path(scratch)
        if not list(folder.glob("*.pb")):
            subprocess.run([sys.executable, "-c", MAKE, str(folder), *MODELS], check=True, stderr=subprocess.DEVNULL)
        for path in sorted(folder.glob("*.pb*")):
            figures: dict[Path, list[tuple[float, float, float]]] = {checkout: [] for checkout in checkouts}
            for _ in range(arguments.rounds):
                for checkout in checkouts:
                    figures[checkout].append(one(checkout, path))
            for checkout in checkouts:
                medians = [statistics.median(column) for column in zip(*figures[checkout], strict=True)]
                names = ("import_ms", "read_ms", "memory_mb")
                rows.append(
                    {
                        "file": path.name,
                        "mb": round(path.stat().st_size / 1e6, 2),
                        "checkout": "this" if checkout == HERE else "other",
                        **{name: round(median, 1) for name, median in zip(names, medians, strict=True)},
                    }
                )
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
