"""StartUp: what a job takes besides its steps; told by the user, or a law fitted to measured runs.

    start-up = fixed_s + per_op_s * ops of the worker's graph

Building and optimising the graph takes most of it, and that grows with the ops. Both numbers are 0 or more and have the
least relative errors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import MEASURED, START, SUFFIX, dataset_path
from driple.contracts.graph_makers import TENSORFLOW
from driple.contracts.manifest import WARM
from driple.contracts.setting import Setting
from driple.contracts.strategy import FRAMEWORKS, WORKER
from driple.inspector.data.array_types import FloatArray

ENOUGH = 5
"""Runs of a setting from which its own are used instead of those of all settings."""
_START_S, _STARTED_BY = (column.name for column in START)
_FRAMEWORK = "framework"
_NEEDED = ("run_id", "role", "provenance", "nodes", _START_S)


@dataclass(frozen=True)
class StartUp:
    """Seconds that a job takes besides its steps."""

    seconds: float
    source: str
    """Where they come from, for people."""


@dataclass(frozen=True, kw_only=True)
class StartRow:
    """The start-up of a measured run."""

    setting: str
    framework: str
    started_by: str
    """`warm`, `python` or `container`; empty if not known."""
    ops: int
    seconds: float
    """Mean over the workers."""


@dataclass(frozen=True, kw_only=True)
class StartUpLaw:
    """The start-up of jobs of one framework."""

    fixed_s: float
    per_op_s: float
    error_pct: float
    """Mean relative error on the runs behind it."""
    runs: int
    settings: tuple[str, ...]
    framework: str
    warm: bool
    """Whether the tasks of these runs were forked from a process that had the framework loaded."""

    def of(self, ops: int) -> StartUp:
        """The start-up of a job with so many ops."""
        return StartUp(self.fixed_s + self.per_op_s * ops, self.text)

    @property
    def text(self) -> str:
        where = self.settings[0] if len(self.settings) == 1 else f"{len(self.settings)} settings"
        text = f"by {self.fixed_s:.2g} s and {1e3 * self.per_op_s:.2g} ms for each op, "
        text += f"fitted to {self.runs} measured run{'' if self.runs == 1 else 's'} of {where}"
        text += f" (off by {self.error_pct:.0f} %)"
        return text + (f", which had {FRAMEWORKS[self.framework].title} loaded already" if self.warm else "")


def start_up_law(rows: Iterable[StartRow], setting: str, framework: str) -> StartUpLaw | None:
    """The law of a setting, if enough runs of it are known, else of all settings; None without a run.

    Runs that loaded the framework count alone if there are any: an ordinary job does that, too.
    """
    fitting = [row for row in rows if row.framework == framework]
    cold = [row for row in fitting if row.started_by != WARM]
    fitting = cold or fitting
    own = [row for row in fitting if row.setting == setting]
    fitting = own if len(own) >= ENOUGH else fitting
    if not fitting:
        return None
    ops = np.array([row.ops for row in fitting], dtype=np.float64)
    seconds = np.array([row.seconds for row in fitting], dtype=np.float64)
    fixed_s, per_op_s = _fitted(ops, seconds)
    return StartUpLaw(
        fixed_s=fixed_s,
        per_op_s=per_op_s,
        error_pct=100 * float(np.mean(np.abs((fixed_s + per_op_s * ops) / seconds - 1))),
        runs=len(fitting),
        settings=tuple(sorted({row.setting for row in fitting})),
        framework=framework,
        warm=not cold,
    )


def _fitted(ops: FloatArray, seconds: FloatArray) -> tuple[float, float]:
    """Both numbers of the law, 0 or more, with the least squares of relative errors."""
    one, slope = 1 / seconds, ops / seconds
    if np.ptp(ops) > 0:
        found, *_ = np.linalg.lstsq(np.stack([one, slope], axis=1), np.ones_like(seconds), rcond=None)
        if np.all(found >= 0):
            return float(found[0]), float(found[1])
    ends = [(float(one.sum() / (one @ one)), 0.0)]
    if np.any(slope > 0) and np.ptp(ops) > 0:
        ends.append((0.0, float(slope.sum() / (slope @ slope))))
    return min(ends, key=lambda end: float(np.sum((end[0] * one + end[1] * slope - 1) ** 2)))


def read_start_rows(datasets: Path, settings: Sequence[str] | None = None) -> tuple[StartRow, ...]:
    """Every measured run of a folder of datasets whose start-up is known; empty if there is no such folder.

    Args:
        datasets: the folder. Files in it that cannot be read, or are older than start-up times, are passed over: the
            start-up is then not known, which is no reason against a prediction.
        settings: which; default all in the folder.
    """
    paths = datasets.glob(f"*{SUFFIX}") if settings is None else [dataset_path(datasets, one) for one in settings]
    return tuple(row for path in sorted(paths) for row in _rows(path))


def _rows(path: Path) -> list[StartRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        setting = str(Setting.parse(path.stem))
        names = set(pq.read_schema(path).names)
        if not names.issuperset(_NEEDED):
            return []
        wanted = [*_NEEDED, *(name for name in (_FRAMEWORK, _STARTED_BY) if name in names)]
        rows = pq.read_table(path, columns=wanted).to_pylist()
    except (ValueError, OSError, pa.ArrowException, BadInput):
        return []
    runs = defaultdict(list)
    for row in rows:
        known = row[_START_S] and row["nodes"] and row["role"] == WORKER and row["provenance"] == MEASURED
        if known:
            runs[row["run_id"]].append(row)
    return [
        StartRow(
            setting=setting,
            framework=workers[0].get(_FRAMEWORK) or TENSORFLOW,
            started_by=workers[0].get(_STARTED_BY) or "",
            ops=workers[0]["nodes"],
            seconds=float(np.mean([row[_START_S] for row in workers])),
        )
        for workers in runs.values()
    ]
