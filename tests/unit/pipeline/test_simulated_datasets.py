"""The simulated datasets of the repository: those of the paper's settings, apart from the measured ones."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from driple.contracts.formats.dataset import SIDES, SPLITS, split_column
from driple.contracts.metrics import COLUMNS
from driple.contracts.setting import PUBLISHED
from driple.pipeline.datasets.run_rows import RULES_VERSION

FOLDER = Path(__file__).resolve().parents[3] / "datasets/simulated"
SETTINGS = sorted({str(one.setting) for one in PUBLISHED})
MOST_BYTES = 12e6
WORKLOADS = 127


def test_every_setting_of_the_paper_has_one() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.parquet")) == SETTINGS
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES


@pytest.mark.parametrize("setting", SETTINGS)
def test_rows_are_simulated_and_good_enough_to_learn_from(setting: str) -> None:
    splits = [split_column(name) for name in SPLITS]
    names = ["provenance", "host_kind", "run_id", "role", "versions", "rules_version", *splits, *COLUMNS]
    rows = pq.read_table(FOLDER / f"{setting}.parquet", columns=names).to_pylist()
    assert {(row["provenance"], row["host_kind"]) for row in rows} == {("simulated", "simulated")}
    assert {row["rules_version"] for row in rows} == {RULES_VERSION}
    assert len({row["run_id"] for row in rows}) == WORKLOADS
    assert len({row["versions"] for row in rows}) == 1  # of one simulator and one set of parameter files
    for split in splits:
        assert {row[split] for row in rows} == set(SIDES)
    workers = [row for row in rows if row["role"] == "worker"]
    for column in COLUMNS:
        known = sum(row[column] is not None for row in workers)
        assert known > 0.5 * len(workers), column
