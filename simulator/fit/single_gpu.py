"""Fit of the GPU model to public step times of one GPU, and how well it predicts what it has not seen.

Step times are those of `op_costs`, so what is fitted is what the simulator uses. The logarithm of predicted over
measured is minimised with a loss that limits outliers, plus the distance of every number from its prior.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.contracts.zoo import DATASETS, MODELS, ordinary_size
from driple.pipeline.graph.public import TrainingStep, stored_step
from driple.simulator.fit.gpu_model import PYTORCH, START, TENSORFLOW, WIDTHS, device_file, named
from driple.simulator.fit.gpus import GPUS
from driple.simulator.fit.op_benchmarks import Prior, table
from driple.simulator.op_costs import op_costs

COLUMNS = ("source", "gpu", "framework", "graph", "model", "batch_per_gpu", "step_s")
EXPECTED_ERROR = 0.1
"""Relative error below which the loss is quadratic."""
MOST_EVALUATIONS = 40
_SETTING = Setting.parse("v100-p1w1-pcie")


@dataclass(frozen=True)
class Measured:
    """The median step time of one model on one GPU."""

    source: str
    gpu: str
    framework: str
    graph: str
    model: str
    """Without the variant of its graph."""
    batch_size: int
    step_s: float

    @property
    def runtime(self) -> str:
        return PYTORCH if PYTORCH in self.framework else TENSORFLOW


def read_measured(path: Path) -> list[Measured]:
    """The rows of calibration_1gpu.csv whose graph is stored and whose GPU is known. Raises BadInput."""
    try:
        found = [
            Measured(
                row["source"],
                row["gpu"],
                row["framework"],
                row["graph"],
                row["model"],
                int(row["batch_per_gpu"]),
                float(row["step_s"]),
            )
            for row in table(path, COLUMNS)
            if row["graph"] in MODELS and row["gpu"] in GPUS
        ]
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from None
    if not found:
        raise BadInput(f"{path}: no row of a known GPU and a stored graph")
    return found


def step_of(graph: str, batch_size: int) -> TrainingStep:
    """The training step of a stored graph."""
    known = MODELS[graph]
    dataset = DATASETS[known.datasets[0]]
    workload = Workload(graph, dataset.name, batch_size, image_size=ordinary_size(known, dataset))
    step = stored_step(workload, _SETTING)
    if step is None:
        raise BadInput(f"{graph}: no stored graph; zoo_graphs/ is not complete")
    return step


class Fit:
    """Measurements with their training steps; fits and predicts subsets of them."""

    def __init__(self, rows: Sequence[Measured], known: Mapping[str, Prior]) -> None:
        self.rows = list(rows)
        self.known = known
        steps = {(row.graph, row.batch_size) for row in rows}
        self._steps = {key: step_of(*key) for key in sorted(steps)}

    def predict(self, logs: NDArray[np.float64], rows: Sequence[Measured]) -> NDArray[np.float64]:
        """Step times with these numbers."""
        numbers = named(logs)
        kinds = {(row.gpu, row.runtime) for row in rows}
        files = {key: device_file(key[0], numbers, self.known, framework=key[1]) for key in kinds}
        return np.array(
            [op_costs(self._steps[row.graph, row.batch_size], files[row.gpu, row.runtime]).wall_s.sum() for row in rows]
        )

    def fit(self, rows: Sequence[Measured] | None = None, begin: NDArray[np.float64] = START) -> NDArray[np.float64]:
        """The logarithms of the numbers for some measurements, by default all; the search begins at `begin`."""
        rows = self.rows if rows is None else list(rows)
        measured = np.log([row.step_s for row in rows])
        keys = [(row.source, row.gpu, row.graph) for row in rows]
        # Several frameworks or batch sizes of one model on one GPU count like one.
        weight = np.array([keys.count(key) for key in keys]) ** -0.5

        def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
            error = weight * (np.log(self.predict(logs, rows)) - measured) / EXPECTED_ERROR
            return np.concatenate([error, (logs - START) / WIDTHS])

        found: NDArray[np.float64] = least_squares(residuals, begin, loss="soft_l1", max_nfev=MOST_EVALUATIONS).x
        return found

    def left_out(self, key: Callable[[Measured], str]) -> NDArray[np.float64]:
        """Every row predicted by a fit without the rows of the same key."""
        found: NDArray[np.float64] = np.zeros(len(self.rows))
        near = self.fit()
        for value in sorted({key(row) for row in self.rows}):
            out = [number for number, row in enumerate(self.rows) if key(row) == value]
            logs = self.fit([row for row in self.rows if key(row) != value], near)
            found[out] = self.predict(logs, [self.rows[number] for number in out])
        return found

    def by_peak(self) -> NDArray[np.float64]:
        """FLOPs over peak, times the median factor of the other models: the simplest prediction."""
        plain = np.array(
            [
                float((step.flops * step.executions).sum()) / GPUS[row.gpu].peak_flops_per_s
                for row in self.rows
                for step in [self._steps[row.graph, row.batch_size]]
            ]
        )
        factor = np.array([row.step_s for row in self.rows]) / plain
        model = np.array([row.model for row in self.rows])
        return np.array([value * np.median(factor[model != own]) for value, own in zip(plain, model, strict=True)])


KEYS: dict[str, Callable[[Measured], str]] = {
    "model": lambda row: row.model,
    "gpu": lambda row: row.gpu,
    "source": lambda row: row.source,
}
"""What is left out."""


def mape(predicted: Sequence[float] | NDArray[np.float64], measured: Sequence[float]) -> float:
    """Mean absolute error in percent."""
    return 100 * float(np.mean(np.abs(np.asarray(predicted) / np.asarray(measured) - 1)))
