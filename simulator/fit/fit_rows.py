"""Fits a processor and its host to measured rows: op rates, processor seconds of servers, timing constants, a speed.

device, host = fit_rows(replays_of(read_jobs(Path("datasets"), setting), StepFile(path)), source="...", date="...")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.formats.device import DeviceFile, Parameter
from driple.simulator.fit.cpu_files import device_file, host_file, host_values
from driple.simulator.fit.measured_jobs import MeasuredJob
from driple.simulator.fit.op_rates import fit_rates, work_of
from driple.simulator.fit.replay import Replay
from driple.simulator.fit.server_rates import fit_server_rates, server_amounts
from driple.simulator.fit.step_source import StepFile
from driple.simulator.fit.timing import CONSTANTS, MOST_ROWS, TRIES, error, search
from driple.simulator.host_model import HostModel, host_model
from driple.simulator.op_costs import SPEED

DEVICE, HOST = "cpu", "lab-host"
NOISE = 0.03
"""Spread of computing from step to step. Step times hardly depend on it, so it is not fitted."""
LEAST_ROWS = 12
"""Rows for a fit of all parameters; fewer are enough for a speed."""
SLOWEST, FASTEST, SPEEDS = 0.05, 20.0, 25
"""Range of the speed of a machine, and values that are tried in each of two rounds."""

Say = Callable[[str], None]


def replays_of(jobs: Sequence[MeasuredJob], steps: StepFile) -> list[Replay]:
    """The jobs with their training steps. Raises BadInput if a graph is not stored and cannot be built."""
    return [Replay(job, steps.step(job.workload, job.setting)) for job in jobs]


def fit_rows(
    replays: Sequence[Replay],
    *,
    source: str,
    date: str,
    device_name: str = DEVICE,
    host_name: str = HOST,
    tries: int = TRIES,
    seed: int = 0,
    say: Say = lambda text: None,
) -> tuple[DeviceFile, DeviceFile]:
    """Device and host files that reproduce measured jobs.

    Args:
        replays: jobs of one setting, of as many families as there are.
        source: what was measured, for the files.
        date: of the fit, ISO 8601.
        device_name: of the device file.
        host_name: of the host file.
        tries: sets of timing constants that are tried.
        seed: of the search.
        say: gets lines on the progress.

    Raises:
        BadInput: there are too few rows, or they have no CPU metrics.
    """
    if len(replays) < LEAST_ROWS:
        raise BadInput(
            f"{len(replays)} workloads are too few to fit all parameters: measure {LEAST_ROWS} or more of several"
            f" families, or fit the speed alone (--speed-of)"
        )
    of_workers = [one for one in replays if one.job.worker_cpu_s]
    of_servers = [one for one in replays if one.job.server_cpu_s]
    rates = fit_rates(
        work_of([one.step for one in of_workers]),
        np.array([one.job.worker_cpu_s for one in of_workers]),
        [one.job.family for one in of_workers],
    )
    say(f"op rates: median error {rates.error_pct:.1f} % on families that were held back")
    servers = fit_server_rates(
        [server_amounts(one.step, one.job.workload, one.job.setting) for one in of_servers],
        np.array([one.job.server_cpu_s for one in of_servers]),
    )
    device = device_file(rates, source, date, device_name)
    start = {name: one.start for name, one in CONSTANTS.items()} | host_values(rates, servers)
    zeros = ("rpc_s", "server_send_s_per_byte", "server_receive_s_per_byte", "apply_s_per_byte", "worker_s_per_byte")
    host = HostModel(**start, **dict.fromkeys(zeros, 0.0), noise=NOISE)
    host, _ = search(_some(replays, seed), device, host, tries=tries, seed=seed, say=say)
    error_pct = 100 * error(replays, device, host)
    text = f"{source}: processor seconds and step times; mean error of the logarithm of the step time"
    return device, host_file(host, text, date, len(replays), error_pct, host_name)


def fit_speed(replays: Sequence[Replay], device: DeviceFile, host: DeviceFile, *, source: str, date: str) -> DeviceFile:
    """The device file with the speed of another machine, which has the least error of step times.

    Args:
        replays: a few jobs that were measured on the machine.
        device: of a like machine.
        host: of a like machine.
        source: what was measured, for the file.
        date: of the fit, ISO 8601.

    Raises:
        BadInput: there is no job.
    """
    if not replays:
        raise BadInput("no measured job to fit a speed to")
    model = host_model(host)
    low, high, found = SLOWEST, FASTEST, (np.inf, 1.0)
    for _ in range(2):
        speeds = np.geomspace(low, high, SPEEDS).tolist()
        found = min((error(replays, _with_speed(device, one, source, date, 0, 0.0), model), one) for one in speeds)
        low, high = found[1] * (low / high) ** (1 / (SPEEDS - 1)), found[1] * (high / low) ** (1 / (SPEEDS - 1))
    return _with_speed(device, found[1], source, date, len(replays), 100 * found[0])


def _with_speed(device: DeviceFile, speed: float, source: str, date: str, points: int, error_pct: float) -> DeviceFile:
    value = Parameter(float(f"{speed:.3g}"), "1", source, date, points, round(error_pct, 1))
    return replace(device, parameters={**device.parameters, SPEED: value})


def _some(replays: Sequence[Replay], seed: int) -> list[Replay]:
    """Not more rows than the search replays."""
    order = np.random.default_rng(seed).permutation(len(replays))[:MOST_ROWS]
    return [replays[number] for number in sorted(order.tolist())]
