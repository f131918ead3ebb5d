"""Grouping a training graph: ours against networkx's asyn_fluidc, in time and in modularity.

    python benchmarks/grouping.py [--graph g.parquet] [--rounds 30] [--write docs/benchmarks/grouping-speed.md]

Needs networkx, and TensorFlow where no graph is given: the graph is then that of a ResNet-50 worker at batch 32. They
take turns inside one process, each round with a seed of its own; a ratio is that of one round, so what slows the
machine for a while slows both.
"""

from __future__ import annotations

import dataclasses
import importlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pages import machine, parser_of, publish

from driple.pipeline.graph.fluid_communities import communities
from driple.pipeline.graph.public import OpGraph, group, published_frequency, read_graph, undirected

# By name: neither has types, and mypy need not know whether they are there.
igraph: Any = importlib.import_module("igraph")
networkx: Any = importlib.import_module("networkx")

MODEL, SETTING, GROUPS = "resnet50", "cpu-p2w2-1g", 100


@dataclass(frozen=True)
class Round:
    networkx_ms: float
    ours_ms: float
    whole_ms: float
    """All of `group`: communities, their order, features, edges."""
    networkx_modularity: float
    ours_modularity: float


def extracted(folder: Path) -> Path:
    path = folder / f"{MODEL}.parquet"
    command = [sys.executable, "-m", "driple.workloads.cli", "graph", "--model", MODEL, "--setting", SETTING]
    subprocess.run([*command, "--out", str(path)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = work()
    return 1e3 * (time.perf_counter() - begin), result


def measure(graph: OpGraph, rounds: int) -> list[Round]:
    nodes, frequency = len(graph.ops), published_frequency()
    edges = undirected(graph.edges, nodes)
    plain, judge = networkx.Graph(edges.tolist()), igraph.Graph(nodes, edges.tolist())
    results = []
    for seed in range(-1, rounds):  # the first is to warm up
        theirs_ms, theirs = timed(lambda: list(networkx.community.asyn_fluidc(plain, GROUPS, seed=abs(seed))))  # noqa: B023
        ours_ms, ours = timed(lambda: communities(nodes, edges, GROUPS, seed))  # noqa: B023
        whole_ms, _ = timed(lambda: group(graph, f"uniform:{GROUPS}", frequency, seed))  # noqa: B023
        member = {node: number for number, community in enumerate(theirs) for node in community}
        modularity = judge.modularity([member[node] for node in range(nodes)])
        results.append(Round(theirs_ms, ours_ms, whole_ms, modularity, judge.modularity(ours.tolist())))
    return results[1:]


def spread(values: Sequence[float], digits: int) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def mean(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.4f} ± {statistics.stdev(values) / len(values) ** 0.5:.4f}"


def markdown(graph: OpGraph, name: str, rounds: list[Round]) -> str:
    versions = [f"{package} {version(package)}" for package in ("networkx", "igraph", "numpy")]
    better = sum(item.ours_modularity >= item.networkx_modularity for item in rounds)
    rows = (
        ("networkx `asyn_fluidc`", [r.networkx_ms for r in rounds], [r.networkx_modularity for r in rounds]),
        ("`communities`, the same job", [r.ours_ms for r in rounds], [r.ours_modularity for r in rounds]),
        ("`group`, with order, features and edges", [r.whole_ms for r in rounds], [r.ours_modularity for r in rounds]),
    )
    table = "\n".join(
        f"| {what} | {spread(ms, 2)} | {spread([r.networkx_ms / own for r, own in zip(rounds, ms, strict=True)], 1)} "
        f"| {mean(modularity)} |"
        for what, ms, modularity in rows
    )
    return f"""# Speed and quality of grouping

The worker's graph of {name}, {len(graph.ops)} ops and {len(graph.edges)} data edges, in {GROUPS} groups.
{len(rounds)} rounds, each with its own seed, in turn in one process;
{machine(*versions)}; {date.today()}. Medians with quartiles. Reproduce with
`python benchmarks/grouping.py --write docs/benchmarks/grouping-speed.md`.

| | ms | speed relative to networkx, per round | modularity, mean ± standard error |
|---|---|---|---|
{table}

Difference of modularity per round: {mean([r.ours_modularity - r.networkx_modularity for r in rounds])}; ours is
better or equal in {better} of {len(rounds)}. The goal: ten times as fast, at equal or better modularity on average.
"""


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--graph", type=Path, help="instead of ResNet-50's")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        graph = read_graph(arguments.graph or extracted(Path(folder)))
    name = arguments.graph.name if arguments.graph else f"{MODEL} at batch 32 for {SETTING}"
    rounds = measure(graph, arguments.rounds)
    publish([dataclasses.asdict(each) for each in rounds], markdown(graph, name, rounds), arguments)


if __name__ == "__main__":
    main()
