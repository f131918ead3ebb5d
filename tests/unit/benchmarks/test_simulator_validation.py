"""The validation page of the simulator: drawn from its tables of errors, and up to date."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import simulator_validation as validation

PAGE = Path(__file__).resolve().parents[3] / "docs" / "benchmarks" / "simulator.md"
CONTENT = json.loads(validation.GPU.read_text())


def test_errors_of_points_that_can_be_computed_by_hand() -> None:
    rows = [{"p": 1.1, "m": 1.0}, {"p": 1.8, "m": 2.0}, {"p": 8.0, "m": 4.0}]
    found = validation.error(rows, "p", "m")
    assert found == pytest.approx((3, 40.0, 10.0, 100 / 3))


def test_batch_sizes_are_in_order() -> None:
    rows = [{"batch_size": size, "p": 1.0, "m": 1.0} for size in (512, 12, 64)]
    drawn = validation.by(rows, validation.BATCH, validation.batch_range, "p", "m")
    assert [drawn.index(name) for _, name in validation.BATCHES] == sorted(
        drawn.index(name) for _, name in validation.BATCHES
    )


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("single_gpu", validation.single_gpu),
        ("parameter_servers", validation.servers),
        ("multi_gpu", validation.all_reduce),
    ],
)
def test_the_page_shows_the_tables_of_errors(name: str, draw: object) -> None:
    assert callable(draw)
    assert draw(CONTENT[name]) in PAGE.read_text()


@pytest.mark.parametrize(
    ("part", "predicted", "measured", "most"),
    [
        ("single_gpu", "without_model", "step_s", 12.0),
        ("single_gpu", "without_gpu", "step_s", 13.0),
        ("single_gpu", "without_source", "step_s", 13.0),
        ("parameter_servers", "fitted", "steps_per_s", 8.0),
        ("multi_gpu", "without_model", "step_s", 8.0),
    ],
)
def test_errors_are_within_the_goals(part: str, predicted: str, measured: str, most: float) -> None:
    assert validation.error(validation.rows_of(CONTENT[part]), predicted, measured).mape <= most


def test_the_page_shows_the_errors_on_measured_rows() -> None:
    figures = json.loads(validation.ROWS.read_text())
    assert validation.measured_rows(figures) in PAGE.read_text()
    assert set(figures) == {"cpu-p1w1-1g", "cpu-p1w2-1g", "cpu-p2w2-1g"}
