"""What the slides of the Driple paper say, next to the simulator: one row per fact, right or wrong.

simulator_paper_page.py writes the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.contracts.zoo import DATASETS, MODELS, SEQUENCE, ordinary_size
from driple.simulator.job_metrics import job_metrics, patterns
from driple.simulator.sampling import GAUGE, SAMPLES
from driple.simulator.simulation import Simulation, simulate_workload

V100 = "v100-p1w2-pcie"
Rows = Sequence[dict[str, float]]
"""Targets of workers by column."""


class Fact(NamedTuple):
    """A statement of the slides, and what the simulator says."""

    what: str
    slides: str
    simulated: str
    agrees: str


def workload(model: str, batch_size: int, update: str = "sync") -> Workload:
    """A model of the zoo in its ordinary size."""
    known = MODELS[model]
    dataset = DATASETS[known.datasets[0]]
    size = ordinary_size(known, dataset)
    sizes: dict[str, Any] = {"sequence_length" if dataset.kind == SEQUENCE else "image_size": size}
    optimiser = "adam" if dataset.kind == SEQUENCE else "momentum"
    return Workload(model, dataset.name, batch_size, optimiser=optimiser, update=update, **sizes)


def simulation(model: str, batch_size: int, setting: str = V100, update: str = "sync") -> Simulation:
    return simulate_workload(workload(model, batch_size, update), Setting.parse(setting))


def worker(found: Simulation, method: str = SAMPLES) -> dict[str, float]:
    values = job_metrics(found.job, "worker:0", found.parameters.device.kind, method=method)
    return {name: np.nan if value is None else value for name, value in values.items()}


def within(found: float, said: float, share: float = 0.2) -> str:
    return "yes" if abs(found / said - 1) <= share else "no"


def facts() -> list[Fact]:
    """Every fact, in the order of the slides."""
    return [*workload_facts(), *pattern_facts(), *setting_facts()]


def workload_facts() -> list[Fact]:
    one = worker(simulation("nmt_medium", 32, update="async"))
    two, three = simulation("densenet40_k12", 512), simulation("inception3", 128, update="async")
    gauge, memory = worker(two, GAUGE), worker(three, GAUGE)
    amount, mega = "net_rx_burst_bytes_per_s", 1e6
    return [
        Fact(
            "workload 1, RX level in a burst", "374 MB/s", f"{one[amount] / mega:.0f} MB/s", within(one[amount], 374e6)
        ),
        Fact("workload 1, RX burst", "0.33 s", f"{one['net_rx_burst_s']:.2f} s", within(one["net_rx_burst_s"], 0.33)),
        Fact("workload 1, RX idle", "0.70 s", f"{one['net_rx_idle_s']:.2f} s", within(one["net_rx_idle_s"], 0.70)),
        Fact(
            "workload 2, GPU burst (gauge)",
            "98.8 %, 0.19 s",
            f"{gauge['gpu_burst_pct']:.1f} %, {gauge['gpu_burst_s']:.2f} s",
            within(gauge["gpu_burst_s"], 0.19),
        ),
        Fact(
            "workload 2, GPU idle (gauge)",
            "84.6 %, 0.21 s",
            f"{gauge['gpu_idle_pct']:.1f} %, {gauge['gpu_idle_s']:.2f} s",
            within(gauge["gpu_idle_s"], 0.21),
        ),
        Fact("workload 2, cycle", "0.40 s", f"{gauge['step_s']:.2f} s", within(gauge["step_s"], 0.40)),
        Fact(
            "workload 3, GPU memory burst (gauge)",
            "54.4 %, 0.64 s",
            f"{memory['gpu_mem_burst_pct']:.1f} %, {memory['gpu_mem_burst_s']:.2f} s",
            within(memory["gpu_mem_burst_pct"], 54.4),
        ),
        Fact(
            "workload 3, GPU memory idle (gauge)",
            "16.8 %, 0.28 s",
            f"{memory['gpu_mem_idle_pct']:.1f} %, {memory['gpu_mem_idle_s']:.2f} s",
            within(memory["gpu_mem_idle_pct"], 16.8),
        ),
        Fact("workload 3, cycle", "0.92 s", f"{memory['step_s']:.2f} s", within(memory["step_s"], 0.92)),
    ]


SMALL = ("resnet20", "resnet56", "resnet110", "densenet40_k12", "densenet100_k12")
LARGE = ("alexnet", "vgg16", "googlenet", "inception3", "resnet50", "resnet152", "mobilenet", "nasnet", "densenet121")
SEQUENCES = ("nmt_small", "nmt_medium", "nmt_big", "transformer", "transformer_big", "gpt2_small")


def population() -> list[tuple[str, int]]:
    """Workloads of statements about all of them: model and batch size."""
    small = [(model, batch) for model in SMALL for batch in (32, 128, 512)]
    return small + [(model, batch) for model in (*LARGE, *SEQUENCES) for batch in (16, 64)]


def pattern_facts() -> list[Fact]:
    found = [simulation(*one) for one in population()]
    shares = {}
    for method in (SAMPLES, GAUGE):
        seen = [patterns(one.job, "worker:0", one.parameters.device.kind, method=method) for one in found]
        for key in ("gpu", "gpu_mem", "net_tx", "net_rx"):
            count = Counter(each.get(key, "?") for each in seen)
            shares[key, method] = "/".join(f"{100 * count[kind] / len(seen):.0f}" for kind in ("BIB", "I", "B"))
    facts = []
    for key, name, slides in (("gpu", "GPU", "92.0/7.8/0.2"), ("gpu_mem", "GPU memory", "91/9/0")):
        text = f"{shares[key, SAMPLES]}; gauge {shares[key, GAUGE]}"
        facts.append(Fact(f"{name}: share of BIB/I/B in percent", slides, text, "in part"))
    for key, name in (("net_tx", "TX"), ("net_rx", "RX")):
        all_bursts = shares[key, SAMPLES] == "100/0/0"
        facts.append(Fact(f"{name}: share of BIB/I/B in percent", "100/0/0", shares[key, SAMPLES], _yes(all_bursts)))
    shorter = tx_shorter_pct([worker(one) for one in found])
    facts.append(Fact("TX burst shorter than idle by", "88 %", f"{shorter:.0f} % (median)", within(shorter, 88.0)))
    return facts


def tx_shorter_pct(rows: Sequence[dict[str, float]]) -> float:
    """By how much a TX burst is shorter than the idle time after it: the median of the workloads."""
    ratios = [row["net_tx_burst_s"] / row["net_tx_idle_s"] for row in rows if row["net_tx_idle_s"] > 0]
    return 100 * (1 - float(np.nanmedian(ratios)))


def setting_facts() -> list[Fact]:
    """Changes of the setting: medians over the population, and in how many workloads the slides' statement holds."""
    base = [worker(simulation(*one)) for one in population()]
    ti = [worker(simulation(*one, "2080ti-p1w2-pcie")) for one in population()]
    two = [worker(simulation(*one, "v100-p2w2-pcie")) for one in population()]
    small, large = ([worker(simulation(model, batch)) for model in SMALL] for batch in (32, 512))
    gpu, rx = "gpu", "net_rx"
    grows = [many["step_s"] / few["step_s"] for few, many in zip(small, large, strict=True)]
    return [
        _longer("2080Ti instead of V100: GPU burst longer", "yes", base, ti, f"{gpu}_burst_s"),
        _shorter("2080Ti instead of V100: GPU idle shorter", "yes", base, ti, f"{gpu}_idle_s"),
        _longer("2 servers instead of 1: GPU burst longer", "yes", base, two, f"{gpu}_burst_s"),
        _shorter("2 servers instead of 1: GPU idle shorter", "yes", base, two, f"{gpu}_idle_s"),
        _longer("2 servers instead of 1: RX burst longer", "yes", base, two, f"{rx}_burst_s"),
        _shorter("2 servers instead of 1: RX idle shorter", "yes", base, two, f"{rx}_idle_s"),
        _same("2 servers instead of 1: step takes about the same time", base, two, "step_s"),
        Fact(
            "batch size x 16: time of a step grows less",
            "yes",
            f"x {min(grows):.1f} to x {max(grows):.1f}",
            _yes(max(grows) < 16),
        ),
    ]


def _ratios(base: Rows, other: Rows, name: str) -> list[float]:
    pairs = zip(base, other, strict=True)
    return [new[name] / old[name] for old, new in pairs if old[name] > 0 and new[name] > 0]


def _longer(what: str, slides: str, base: Rows, other: Rows, name: str) -> Fact:
    ratios = _ratios(base, other, name)
    return _change(what, slides, ratios, [ratio > 1 for ratio in ratios])


def _shorter(what: str, slides: str, base: Rows, other: Rows, name: str) -> Fact:
    ratios = _ratios(base, other, name)
    return _change(what, slides, ratios, [ratio < 1 for ratio in ratios])


def _same(what: str, base: Rows, other: Rows, name: str) -> Fact:
    ratios = _ratios(base, other, name)
    return _change(what, "yes", ratios, [abs(ratio - 1) <= 0.1 for ratio in ratios])


def _change(what: str, slides: str, ratios: list[float], holds: list[bool]) -> Fact:
    """Agrees if the statement holds for most workloads."""
    text = f"median x {np.median(ratios):.2f}; holds for {sum(holds)} of {len(holds)} workloads"
    return Fact(what, slides, text, _yes(2 * sum(holds) > len(holds)))


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def table(rows: Sequence[Fact]) -> str:
    lines = [f"| {one.what} | {one.slides} | {one.simulated} | {one.agrees} |" for one in rows]
    return "\n".join(["| fact | slides | simulated | agrees |", "|---|---|---|---|", *lines])
