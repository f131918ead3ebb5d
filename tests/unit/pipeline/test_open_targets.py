"""A fifth resource and another target are one line each in contracts/metrics.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("joblib")
pytest.importorskip("pyarrow")

SCRIPT = """
import sys, types
from pathlib import Path
import driple.contracts

path, runs, output = map(Path, sys.argv[1:])
text = path.read_text()
for old, new in (
    ("= (GPU, GPU_MEMORY, NET_TX, NET_RX)\\n", "= (GPU, GPU_MEMORY, NET_TX, NET_RX, CPU_TIME)\\n"),
    ("RESOURCES: ", 'CPU_TIME = Resource("cpu", "CPU", "%", "pct", "task_cpu_ns", "task_cpu_ns")\\nRESOURCES: '),
    ("OTHER_TARGETS: Tuple[Target, ...] = (", 'OTHER_TARGETS = (Target("step_s", "s", "step time", DURATION),'),
):
    assert text.count(old) == 1, old
    text = text.replace(old, new)
metrics = sys.modules["driple.contracts.metrics"] = types.ModuleType("driple.contracts.metrics")
exec(compile(text, str(path), "exec"), metrics.__dict__)

from driple.pipeline.datasets.build import build_dataset
from driple.pipeline.reports.registry import report_of

build_dataset(runs, output=output, jobs=1)
report_of(output, lambda *_: None)
"""


def test_every_other_target_has_a_function_that_computes_it() -> None:
    from driple.contracts.metrics import OTHER_TARGETS
    from driple.pipeline.bursts.task_metrics import OTHER_VALUES

    assert {target.column for target in OTHER_TARGETS} <= set(OTHER_VALUES)


def test_the_pipeline_takes_a_fifth_resource_and_a_target_of_its_own(checkout: Path, tmp_path: Path) -> None:
    from driple.pipeline.datasets.dataset_file import read

    arguments = [checkout / "contracts/metrics.py", checkout / "tests/data/runs", tmp_path / "out"]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "out").glob("*.parquet")
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    names = table.column_names
    assert len(set(names)) == len(names)
    assert {"cpu_burst_s", "cpu_idle_s", "cpu_burst_pct", "cpu_pattern", "step_s"} <= set(names)
    for row in table.to_pylist():  # on a host without a GPU both are the processor time
        assert (row["cpu_burst_s"], row["cpu_burst_pct"]) == (row["gpu_burst_s"], row["gpu_burst_pct"])
        assert row["cpu_burst_s"] is not None and row["step_s"] > 0
    # A release that does not know the new columns reads the file all the same.
    assert json.loads(table.schema.metadata[b"driple.setting"]) == read(path, path.stem).setting
