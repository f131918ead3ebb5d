"""Writes docs/benchmarks/simulator-paper.md: what the slides of the Driple paper say, next to simulated values.

python benchmarks/simulator_paper_page.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
from simulator_paper import V100, Rows, facts, population, simulation, table, tx_shorter_pct, worker, workload

from driple.contracts.formats.device import DeviceFile
from driple.contracts.setting import Setting
from driple.pipeline.graph.public import TrainingStep
from driple.simulator.job_metrics import job_metrics
from driple.simulator.op_costs import BANDWIDTH, MEMORY_COST, OpCosts, op_costs
from driple.simulator.parameter_files import Parameters, parameters
from driple.simulator.sampling import GAUGE
from driple.simulator.simulation import simulate_workload

PAGE = Path(__file__).resolve().parents[1] / "docs/benchmarks/simulator-paper.md"
COMPUTE = ("flop_cost", "byte_cost", "launch_s", "dispatch_s")


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
    """Workload 3 with three definitions of the time in which an op accesses memory."""
    setting = Setting.parse(V100)
    lines = ["| memory is accessed | burst | idle |", "|---|---:|---:|", "| slides | 54.4 %, 0.64 s | 16.8 %, 0.28 s |"]
    for what, of_ops in DEFINITIONS.items():
        with mock.patch("driple.simulator.simulate.op_costs", of_ops):
            found = worker(simulate_workload(workload("inception3", 128, "async"), setting), GAUGE)
        cells = (
            f"{found[f'gpu_mem_{part}_pct']:.1f} %, {found[f'gpu_mem_{part}_s']:.2f} s" for part in ("burst", "idle")
        )
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _at_bandwidth(step: TrainingStep, device: DeviceFile) -> OpCosts:
    found = op_costs(step, device)
    moved = step.executions * step.on_device * (step.read_bytes + step.written_bytes)
    share = device.value(f"{MEMORY_COST}.default") / device.value(BANDWIDTH)
    return found._replace(memory_s=np.minimum(found.busy_s, moved * share))


def _while_it_runs(step: TrainingStep, device: DeviceFile) -> OpCosts:
    found = op_costs(step, device)
    return found._replace(memory_s=found.busy_s)


DEFINITIONS: dict[str, Callable[[TrainingStep, DeviceFile], OpCosts]] = {
    "while an op moves its bytes (the simulator)": op_costs,
    "for bytes / bandwidth": _at_bandwidth,
    "while an op runs": _while_it_runs,
}


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

NVML defines it as the share of time in which device memory was read or written. The simulator takes, of the time of an
op, the part that grows with its bytes: `bytes * byte_cost / bandwidth`, at least `memory_cost` for a byte and at most
the time of the op. No parameter of it is fitted to the slides or to any utilisation: `byte_cost` is that of the
benchmarks of single ops and of the public step times. It is large where a kernel moves its bytes slowly or several
times, as the transforms of Winograd's convolutions do. For workload 3 (gauge):

{memory}

The share of the bandwidth, which an earlier version took, gives half of the slides' levels. A kernel that counts from
its start to its end, because it touches memory at all, gives nearly GPU utilisation: far above the slides. The first
row is near both levels, but not near the durations: of twelve pieces of its step that take equal times, the first one
and the last three access memory for 67 to 81 % of the time and the others for 23 to 43 %. In 31 workloads with steps
above 0.2 s, bursts and steps go together as often as with the share of the bandwidth. One workload is no validation:
no public measurement of memory utilisation was found.

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
