"""An epoch of the published recipe: ours, with and without native kernels, against the authors' code.

    python benchmarks/inspector_epochs.py --published CHECKOUT [--rounds 9] [--write docs/benchmarks/inspector-speed.md]

CHECKOUT is the authors' repository; without it, our own plain way is what others are compared with. All start from the
same weights, and their answers are compared first. They take turns inside one process; a ratio is that of one round, so
what slows the machine for a while slows all.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch
from inspector_peer import published_network
from published_recipe_kernels import install
from published_recipe_kernels.kernel_library import SWITCH, library
from torch import Tensor
from torch.nn.functional import mse_loss

from driple.contracts.run_dir import replacing
from driple.inspector.data.node_features import NAMES
from driple.inspector.data.workload_features import WORKLOAD_FEATURES
from driple.inspector.model.model_config import PRESETS
from driple.inspector.model.published_checkpoint import OUR_NAME
from driple.inspector.network.batching.dense import DenseGraphs
from driple.inspector.network.graph_network import Network

SIZES, TRAIN, VALIDATE, BATCH, PREDICTIONS = (100, 20), 192, 64, 32, 20
FEATURES, OUTPUTS = 3, 12
PAPER = PRESETS["paper"]
PUBLISHED, PLAIN, NATIVE = "published code", "driple, plain torch", "driple, native kernels"


@dataclass(frozen=True)
class Batch:
    features: Tensor
    adjacency: Tensor
    targets: Tensor
    graphs: DenseGraphs


def batch_of(count: int, nodes: int, source: torch.Generator) -> Batch:
    """Random trees whose edges reach back a little, and as many edges again anywhere: about 2 N in all."""
    adjacency = torch.zeros(count, nodes, nodes)
    for graph in range(count):
        node = torch.arange(1, nodes)
        back = torch.randint(1, 9, (nodes - 1,), generator=source)
        pairs = torch.randint(0, nodes, (2, nodes), generator=source)
        pairs = torch.cat([torch.stack([node, (node - back).clamp(min=0)]), pairs[:, pairs[0] != pairs[1]]], 1)
        adjacency[graph, pairs[0], pairs[1]] = adjacency[graph, pairs[1], pairs[0]] = 1
    features = torch.rand(count, nodes, FEATURES, generator=source)
    targets = torch.rand(count, OUTPUTS, generator=source)
    return Batch(features, adjacency, targets, DenseGraphs(features, adjacency, [nodes] * count))


@dataclass
class Contestant:
    name: str
    network: Any
    seconds: list[float] = field(default_factory=list)
    prediction_ms: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        training = PAPER.training
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay
        )

    def answer(self, batch: Batch) -> Tensor:
        result: Tensor
        if self.name == PUBLISHED:
            result = self.network(batch.features, batch.adjacency)
        else:
            os.environ[SWITCH] = "on" if self.name == NATIVE else "off"
            result = self.network(batch.graphs)
        return result

    def epoch(self, train: Sequence[Batch], val: Sequence[Batch]) -> None:
        self.network.train()
        for batch in train:
            self.optimiser.zero_grad()
            mse_loss(self.answer(batch), batch.targets).backward()
            self.optimiser.step()
        self.network.eval()
        # The published loop validates as it trains, with everything kept for a backward pass that never comes.
        with nullcontext() if self.name == PUBLISHED else torch.no_grad():
            for batch in val:
                mse_loss(self.answer(batch), batch.targets).item()


def contestants(checkout: Path | None) -> list[Contestant]:
    """All with the same first weights."""
    install()
    ours = [Network(PAPER.network, FEATURES, 0, OUTPUTS) for _ in range(2)]
    found = [Contestant(PLAIN, ours[0])]
    if checkout:
        peer = published_network(checkout, FEATURES, PAPER.network.hidden, OUTPUTS)
        ours[0].load_state_dict({OUR_NAME[name]: tensor for name, tensor in peer.state_dict().items()})
        found.insert(0, Contestant(PUBLISHED, peer))
    ours[1].load_state_dict(ours[0].state_dict())
    os.environ[SWITCH] = "on"
    if library() is not None:
        found.append(Contestant(NATIVE, ours[1]))
    return found


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure(nodes: int, checkout: Path | None, rounds: int) -> tuple[list[Contestant], float]:
    """The contestants with their times, and the largest relative difference of their first answers."""
    source = torch.Generator().manual_seed(nodes)
    train, val = ([batch_of(BATCH, nodes, source) for _ in range(n // BATCH)] for n in (TRAIN, VALIDATE))
    single = batch_of(1, nodes, source)
    field_of = contestants(checkout)
    with torch.no_grad():
        answers = [contestant.answer(train[0]) for contestant in field_of]
    apart = max(float(((own - answers[0]).abs() / answers[0].abs()).max()) for own in answers)
    for number in range(-1, rounds):  # the first is to warm up
        for contestant in field_of:
            took = seconds(lambda: contestant.epoch(train, val))  # noqa: B023
            with torch.no_grad():
                one = [seconds(lambda: contestant.answer(single)) for _ in range(PREDICTIONS)]  # noqa: B023
            if number >= 0:
                contestant.seconds.append(took)
                contestant.prediction_ms.append(1e3 * statistics.median(one))
    return field_of, apart


def ours_ms(nodes: int, rounds: int) -> list[float]:
    """Of preset `driple`: of each round the median ms for one graph of so many nodes, with its facts."""
    config, features, facts = PRESETS["driple"].network, len(NAMES["driple"]), len(WORKLOAD_FEATURES) + OUTPUTS
    network = Network(config, features, facts, OUTPUTS).eval()
    single = batch_of(1, nodes, torch.Generator().manual_seed(nodes)).graphs
    graphs = DenseGraphs(torch.rand(1, nodes, features), single.adjacency, [nodes])
    known = torch.rand(1, facts)
    with torch.inference_mode():
        found = [[seconds(lambda: network(graphs, known)) for _ in range(PREDICTIONS)] for _ in range(rounds + 1)]
    return [1e3 * statistics.median(each) for each in found[1:]]


def spread(values: Sequence[float], digits: int) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def table(field_of: Sequence[Contestant]) -> str:
    reference = field_of[0]
    return "\n".join(
        f"| {own.name} | {spread(own.seconds, 3)} "
        f"| {spread([a / b for a, b in zip(reference.seconds, own.seconds, strict=True)], 2)} "
        f"| {spread(own.prediction_ms, 2)} |"
        for own in field_of
    )


def markdown(results: dict[int, tuple[list[Contestant], float]], ours: dict[int, list[float]], rounds: int) -> str:
    cores = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release().split('-')[0]}"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    tables = "\n\n".join(
        f"""## N = {nodes}

| | seconds per epoch | times as fast as {field_of[0].name}, per round | ms for one graph, warm |
|---|---|---|---|
{table(field_of)}

The first answers differ by at most {apart:.0e}, relative. The network of preset `driple` takes
{spread(ours[nodes], 2)} ms for one graph of this size, warm."""
        for nodes, (field_of, apart) in results.items()
    )
    return f"""# Speed of the published recipe

One epoch of the preset `paper`: {TRAIN} graphs in batches of {BATCH}, forward, backward and Adam, then {VALIDATE}
graphs forward; hidden {PAPER.network.hidden}, N/2 times GCN and GRU, set2set with N steps, three linear layers.
{rounds} rounds with all candidates in turn in one process, {torch.get_num_threads()} threads; {cores};
{versions}; {date.today()}. Medians with quartiles. Reproduce with
`python benchmarks/inspector_epochs.py --published CHECKOUT --write docs/benchmarks/inspector-speed.md`.

{tables}

The native kernels are C++ and belong to this benchmark (`benchmarks/published_recipe_kernels`). They are compiled on
first use if there is a compiler, and cached in `~/.cache/driple`. Otherwise, or with `{SWITCH}=off`, plain torch
computes the same. The published GCN layer exists only as bytecode of an old Python. A layer with the same formula,
which normalises the adjacency in every call in the cheapest way, replaces
it.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", type=Path, metavar="CHECKOUT", help="the authors' repository")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    results = {nodes: measure(nodes, arguments.published, arguments.rounds) for nodes in SIZES}
    ours = {nodes: ours_ms(nodes, arguments.rounds) for nodes in SIZES}
    text = markdown(results, ours, arguments.rounds)
    print(text)
    if arguments.write:
        with replacing(arguments.write) as stream:
            stream.write(text)


if __name__ == "__main__":
    main()
