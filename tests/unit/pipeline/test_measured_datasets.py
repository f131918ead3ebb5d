"""The measured datasets of the repository are what their card says, and good enough to learn from."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driple.contracts.formats.dataset import NETWORK_COLUMNS, OP_FREQUENCY, SIZE_BATCHES, metadata_value
from driple.pipeline.datasets.dataset_file import read, to_bytes
from driple.pipeline.datasets.run_rows import RULES_VERSION

DATASETS = Path(__file__).resolve().parents[3] / "datasets"
NAMES = ("workloads", "models", "runs", "rows", "flagged")
ROW = re.compile(r"^\| `(?P<setting>[^`]+)` \|" + "".join(rf" (?P<{name}>\d+) \|" for name in NAMES))
CARD = {
    found["setting"]: found for line in (DATASETS / "README.md").read_text().splitlines() if (found := ROW.match(line))
}
COLUMNS = ["model", "role", "run_id", "repetition", "provenance", "flags", "rules_version"]


def test_the_card_names_every_dataset() -> None:
    assert set(CARD) == {path.stem for path in DATASETS.glob("*.parquet")}


@pytest.mark.parametrize("setting", CARD)
def test_the_card_counts_right(setting: str) -> None:
    rows = pq.read_table(DATASETS / f"{setting}.parquet", columns=COLUMNS).to_pylist()
    counted = {
        "workloads": len({row["run_id"] for row in rows if row["repetition"] == 0}),
        "models": len({row["model"] for row in rows}),
        "runs": len({row["run_id"] for row in rows}),
        "rows": len(rows),
    }
    assert {name: int(CARD[setting][name]) for name in counted} == counted


@pytest.mark.parametrize("setting", CARD)
def test_rows_are_measured_on_a_machine_that_did_nothing_else(setting: str) -> None:
    rows = pq.read_table(DATASETS / f"{setting}.parquet", columns=COLUMNS).to_pylist()
    assert {row["provenance"] for row in rows} == {"measured"}
    assert {row["rules_version"] for row in rows} == {RULES_VERSION}
    flagged = {row["run_id"] for row in rows if "foreign_load" in (row["flags"] or ())}
    assert len(flagged) == int(CARD[setting]["flagged"])
    assert len(flagged) < 0.05 * int(CARD[setting]["runs"])


@pytest.mark.parametrize("setting", CARD)
def test_a_shipped_file_read_and_written_again_is_the_same(setting: str) -> None:
    path = DATASETS / f"{setting}.parquet"
    before = pq.read_table(path)
    shared = {key: metadata_value(before.schema.metadata, key) for key in (OP_FREQUENCY, SIZE_BATCHES)}
    after = pq.read_table(pa.BufferReader(to_bytes(read(path, setting), shared)))
    # A dataset may be older than a network condition.
    newer = [name for name in NETWORK_COLUMNS if name not in before.column_names]
    assert all(after[name].to_pylist() == [NETWORK_COLUMNS[name]] * len(after) for name in newer)
    after = after.drop_columns(newer)
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after.drop_columns("op_flops").equals(before.drop_columns("op_flops"))  # NaN is not equal to NaN
