"""What the slides of the Driple paper say, next to the simulator: one row a fact, right or wrong."""

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


class Fact(NamedTuple):
    """A statement of the slides, and what the simulator says."""

    what: str
    slides: str
    simulated: str
    agrees: str


def simulation(model: str, batch_size: int, setting: str = V100, update: str = "sync") -> Simulation:
    known = MODELS[model]
    dataset = DATASETS[known.datasets[0]]
    size = ordinary_size(known, dataset)
    sizes: dict[str, Any] = {"sequence_length" if dataset.kind == SEQUENCE else "image_size": size}
    optimiser = "adam" if dataset.kind == SEQUENCE else "momentum"
    workload = Workload(model, dataset.name, batch_size, optimiser=optimiser, update=update, **sizes)
    return simulate_workload(workload, Setting.parse(setting))


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


def pattern_facts() -> list[Fact]:
    found = [simulation(model, batch) for model in SMALL for batch in (32, 128, 512)]
    found += [simulation(model, batch) for model in (*LARGE, *SEQUENCES) for batch in (16, 64)]
    shares = {}
    for method in (SAMPLES, GAUGE):
        seen = [patterns(one.job, "worker:0", one.parameters.device.kind, method=method) for one in found]
        for key in ("gpu", "gpu_mem", "net_tx", "net_rx"):
            count = Counter(each.get(key, "?") for each in seen)
            shares[key, method] = "/".join(f"{100 * count[kind] / len(seen):.0f}" for kind in ("BIB", "I", "B"))
    rows = [worker(one) for one in found]
    shorter = 100 * (1 - float(np.nanmedian([row["net_tx_burst_s"] / row["net_tx_idle_s"] for row in rows])))
    return [
        Fact(
            "GPU: share of BIB/I/B in percent",
            "92/8/0",
            f"{shares['gpu', SAMPLES]}; gauge {shares['gpu', GAUGE]}",
            "see text",
        ),
        Fact(
            "GPU memory: share of BIB/I/B",
            "91/9/0",
            f"{shares['gpu_mem', SAMPLES]}; gauge {shares['gpu_mem', GAUGE]}",
            "see text",
        ),
        Fact(
            "TX: share of BIB/I/B",
            "100/0/0",
            shares["net_tx", SAMPLES],
            "yes" if shares["net_tx", SAMPLES] == "100/0/0" else "no",
        ),
        Fact(
            "RX: share of BIB/I/B",
            "100/0/0",
            shares["net_rx", SAMPLES],
            "yes" if shares["net_rx", SAMPLES] == "100/0/0" else "no",
        ),
        Fact("TX burst shorter than idle by", "88 %", f"{shorter:.0f} % (median)", within(shorter, 88.0)),
    ]


def setting_facts() -> list[Fact]:
    base, ti = (worker(simulation("resnet56", 512, setting)) for setting in (V100, "2080ti-p1w2-pcie"))
    two = worker(simulation("resnet56", 512, "v100-p2w2-pcie"))
    small, large = (worker(simulation("resnet56", batch)) for batch in (32, 512))

    def ratio(one: dict[str, float], name: str) -> float:
        return one[name] / base[name]

    longer, shorter = ratio(ti, "gpu_burst_s"), ratio(ti, "gpu_idle_s")
    up, down, step = ratio(two, "net_rx_burst_s"), ratio(two, "net_rx_idle_s"), ratio(two, "step_s")
    grows = large["step_s"] / small["step_s"]
    return [
        Fact(
            "2080Ti instead of V100: GPU burst longer, idle shorter",
            "yes",
            f"x {longer:.2f}, x {shorter:.2f}",
            _yes(longer > 1 and shorter < 1),
        ),
        Fact(
            "1 -> 2 servers: about the same time",
            "yes",
            f"RX burst x {up:.2f}, idle x {down:.2f}, step x {step:.2f}",
            _yes(0.8 < step <= 1.05),
        ),
        Fact("batch x 16: time grows less", "yes", f"x {grows:.1f}", _yes(grows < 16)),
    ]


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def table(rows: Sequence[Fact]) -> str:
    lines = [f"| {one.what} | {one.slides} | {one.simulated} | {one.agrees} |" for one in rows]
    return "\n".join(["| fact | slides | simulated | agrees |", "|---|---|---|---|", *lines])
