"""Writes docs/benchmarks/simulator-paper.md: what the slides of the Driple paper say, next to simulated values.

python benchmarks/simulator_paper_page.py
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from simulator_paper import V100, Rows, facts, population, simulation, table, tx_shorter_pct, worker, workload

from driple.contracts.setting import Setting
from driple.simulator.job_metrics import job_metrics
from driple.simulator.parameter_files import Parameters, parameters
from driple.simulator.sampling import GAUGE
from driple.simulator.simulation import simulate_workload

PAGE = Path(__file__).resolve().parents[1] / "docs/benchmarks/simulator-paper.md"
COMPUTE = ("flop_cost", "byte_cost", "launch_s", "dispatch_s")
MEMORY = ("memory_cost",)


class Change(NamedTuple):
    """A change of one cause, to see what it does to traffic."""

    what: str
    setting: str = V100
    update: str = "sync"
    hz: float = 1000.0
    compute: float = 1.0
    host: tuple[tuple[str, float], ...] = ()


_NO_HOST = ("worker_s_per_byte", "rpc_s", "server_send_s_per_byte", "server_receive_s_per_byte", "apply_s_per_byte")
CHANGES = (
    Change("as in the parameter files: a channel of 0.4 GB/s"),
    Change("channel of 0.9 GB/s", host=(("worker_s_per_byte", 1 / 0.9e9),)),
    Change("channel of 2.6 GB/s", host=(("worker_s_per_byte", 1 / 2.6e9),)),
    Change("channel of 10 GB/s", host=(("worker_s_per_byte", 1 / 10e9),)),
    Change("no cost of channel and server: PCIe alone", host=tuple((name, 0.0) for name in _NO_HOST)),
    Change("asynchronous", update="async"),
    Change("barrier of 0.1 s instead of 2 ms", host=(("barrier_s", 0.1),)),
    Change("computing takes 1.55 times as long", compute=1.55),
    Change("both: 1.55 times, and 2.6 GB/s", compute=1.55, host=(("worker_s_per_byte", 1 / 2.6e9),)),
    Change("sampled at 100 Hz", hz=100.0),
    Change("2 servers", setting="v100-p2w2-pcie"),
    Change("5 servers and 5 workers on 5 machines, 1 Gbit/s", setting="v100-p5w5-1g"),
    Change("5 servers and 10 workers on 5 machines, 1 Gbit/s", setting="v100-p5w10-1g"),
)


def rows_after(change: Change) -> Rows:
    """The first worker of every workload of the population."""
    setting = Setting.parse(change.setting)
    files = parameters(setting)
    files = replace(scaled(files, COMPUTE, change.compute), host=replace(files.host, **dict(change.host)))
    rows = []
    for model, batch in population():
        found = simulate_workload(workload(model, batch, change.update), setting, files=files)
        values = job_metrics(found.job, "worker:0", files.device.kind, hz=change.hz)
        rows.append({name: np.nan if value is None else value for name, value in values.items()})
    return rows


def scaled(files: Parameters, groups: tuple[str, ...], factor: float) -> Parameters:
    """The files with some groups of parameters of the device multiplied."""
    device = files.device
    changed = {
        name: replace(one, value=one.value * factor) if name.partition(".")[0] in groups else one
        for name, one in device.parameters.items()
    }
    return replace(files, device=replace(device, parameters=changed))


def traffic_table() -> str:
    lines = ["| change | TX burst shorter than idle by (median) |", "|---|---:|"]
    for change in CHANGES:
        lines.append(f"| {change.what} | {tx_shorter_pct(rows_after(change)):.0f} % |")
    return "\n".join(lines)


def memory_table() -> str:
    """Workload 3 with other costs of memory."""
    setting = Setting.parse(V100)
    lines = [
        "| `memory_cost` | level in a burst | level in idle time |",
        "|---|---:|---:|",
        "| slides | 54.4 % | 16.8 % |",
    ]
    for factor in (1.0, 1.5, 2.0, 2.5, 3.0):
        files = scaled(parameters(setting), MEMORY, factor)
        found = worker(simulate_workload(workload("inception3", 128, "async"), setting, files=files), GAUGE)
        lines.append(f"| x {factor:g} | {found['gpu_mem_burst_pct']:.1f} % | {found['gpu_mem_idle_pct']:.1f} % |")
    return "\n".join(lines)


def one_burst() -> str:
    """What the slides' own workload 1 says of the statement on TX bursts."""
    found = worker(simulation("nmt_medium", 32, update="async"))
    said = 100 * (1 - 0.33 / 0.70)
    simulated = 100 * (1 - found["net_rx_burst_s"] / found["net_rx_idle_s"])
    return f"{said:.0f} % in the slides, {simulated:.0f} % simulated"


TEXT = """# The simulator and the paper's slides

`python benchmarks/simulator_paper_page.py` writes this page. All values are simulated; the paper's measurements are
those of its slides. Workload 1 is taken to be `nmt_medium` (batch size 32, `async`), workload 2 `densenet40_k12` (512,
`sync`) and workload 3 `inception3` (128, `async`), all on `{setting}`. The slides do not say which of them ran on which
setting. A duration or level agrees if it is within 20 %.

{facts}

"gauge" is NVML's utilisation rate over 1/6 s, which the paper's sampler probably read. Without this word the value is
that of NVML's buffered samples. Statements about all workloads are medians over {count} of them.

## TX bursts 88 % shorter than idle time

The simulator does not reproduce this on `{setting}`. The table changes one cause at a time.

{traffic}

- **The rate of the channel is the largest cause on one machine.** The 0.4 GB/s are the slides' own: 374 MB/s in the RX
  burst of workload 1. A worker sends as many bytes as it receives, so at equal rates its TX burst lasts as long as its
  RX burst. RX bursts of workload 1 are shorter than idle time by {one_burst}.
  For 88 %, TX would have to be 3 times as fast as RX. From 2.6 GB/s on, the cost of tensors and bytes at the server is
  the limit, and the rate of the channel has no further effect.
- **The setting matters as much.** On 1 Gbit/s with 5 machines, the links of the servers limit a step. A worker
  then waits for its variables most of the time, and its own TX bursts are short. The slides do not say over which
  settings the 88 % hold.
- Longer computing and a longer barrier add idle time, and asynchronous updates remove it. These effects are smaller.
- Slow sampling makes short bursts look longer, so it is not the cause.

## GPU memory utilisation

NVML defines it as the share of time in which device memory was read or written. The simulator takes the bytes of an op,
times `memory_cost`, divided by the bandwidth, and at most the time of the op. That is a share of bandwidth: a
kernel that reads memory now and then during its whole run has a higher utilisation than this. For workload 3:

{memory}

No factor gives both levels exactly, and one workload cannot tell the factor. No public measurement of memory
utilisation with its workload was found, so `memory_cost` is not fitted to any. **Simulated GPU memory levels are
probably too low by a factor of about two.** Burst and idle times of GPU memory hardly depend on it.

## Periods

Simulated cycles of all three workloads are shorter than those of the slides. Computing that takes 1.55 times as long
explains most of it, and also the speed of single workers that CM-DARE published. The cause is unknown: real input, the
cost of a worker's host, or older software. It is not a parameter of the simulator, because measurements of single GPUs
without servers do not show it.
"""


def main() -> None:
    """Writes the page."""
    page = TEXT.format(
        setting=V100,
        count=len(population()),
        facts=table(facts()),
        traffic=traffic_table(),
        one_burst=one_burst(),
        memory=memory_table(),
    )
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
