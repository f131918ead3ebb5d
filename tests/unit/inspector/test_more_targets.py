"""The table of targets may grow: inspectors keep their own columns, datasets give nulls for columns they lack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import inspector_work
import numpy as np
import pyarrow.parquet as pq
import training_work

from driple.contracts.metrics import COLUMNS
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.model.inspector_folder import save

WORK = Path(__file__).parent / "work"


def test_a_fifth_resource_and_a_target_without_a_resource(tmp_path: Path) -> None:
    examples = training_work.rows(tmp_path / "old/datasets")
    save(tmp_path / "old/inspectors" / examples.setting, training_work.trained(examples).inspector)
    paths = os.pathsep.join([str(WORK), *([os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else [])])
    command = [sys.executable, str(WORK / "more_targets.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr


def test_a_column_that_a_dataset_lacks_is_null(tmp_path: Path) -> None:
    path = inspector_work.write(inspector_work.zoo(), tmp_path)
    pq.write_table(pq.read_table(path).drop_columns(["net_rx_idle_s"]), path)
    targets = read_examples(tmp_path, inspector_work.SETTING).targets()
    place = COLUMNS.index("net_rx_idle_s")
    assert np.isnan(targets[:, place]).all()
    assert not np.isnan(targets[:, place - 1]).any()
