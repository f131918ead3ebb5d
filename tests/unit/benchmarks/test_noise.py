"""The noise page: distances that can be computed by hand, and a page that is what the datasets give."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import inspector_work as work
import noise
import pytest

from driple.contracts.fingerprint import Fingerprint
from driple.contracts.metrics import COLUMNS

SLOW = Fingerprint(
    cores=2,
    hash_bytes_per_s=1e9,
    deflate_bytes_per_s=2e7,
    core_speedup=1.9,
    copy_bytes_per_s=1e10,
    switch_s=4e-5,
    loopback_bytes_per_s=3e9,
)
FAST = replace(SLOW, hash_bytes_per_s=1.5e9)


def dataset(folder: Path, runs: Sequence[tuple[Fingerprint | None, float]], update: str = "sync") -> Path:
    """A workload that ran several times, each on a machine and with factors of all targets and the step time."""
    found = work.zoo(families=("vgg",), batches=(8,), depths=(1,))
    rows = []
    for number, (machine, factor) in enumerate(runs):
        own: dict[str, Any] = {"run_id": f"run{number}", "repetition": number, "started_real_s": 86400.0 * number}
        own |= {"update": update}
        if machine is not None:
            own |= {f"fingerprint_{name}": value for name, value in vars(machine).items() if name != "spread_pct"}
            own["fingerprint_spread_pct"] = 0.0
        for row in found.rows:
            scaled = {name: factor * row[name] for name in COLUMNS if row.get(name) is not None}
            rows.append({**row, **own, **scaled, "step_s": 2.0 * factor})
    found.rows[:] = rows
    work.write(found, folder)
    return folder


def test_the_noise_is_the_distance_from_the_mean_of_the_others(tmp_path: Path) -> None:
    rows = noise.rows_of([dataset(tmp_path, [(SLOW, 1.0), (SLOW, 1.0), (SLOW, 1.1)])])
    (found,) = noise.within(rows).values()
    expected = 100 * (0.05 + 0.05 + 0.1 / 1.1) / 3
    assert (found["workloads"], found["runs"]) == (1, 3)
    for name in ("all", "network, sync", "CPU, sync", "step time, sync"):
        assert found[name] == pytest.approx(expected)
    assert "async" not in found
    assert noise.across(rows) == {}


def test_asynchronous_jobs_stand_apart(tmp_path: Path) -> None:
    rows = noise.rows_of([dataset(tmp_path, [(SLOW, 1.0), (SLOW, 1.0), (SLOW, 1.1)], "async")])
    (found,) = noise.within(rows).values()
    assert found["all"] == found["async"] > 0
    assert not {"network, sync", "CPU, sync", "step time, sync"} & found.keys()


def test_two_runs_are_no_repetition_and_two_machines_are(tmp_path: Path) -> None:
    rows = noise.rows_of([dataset(tmp_path, [(SLOW, 1.0), (SLOW, 1.0), (FAST, 0.5), (FAST, 0.5)])])
    assert noise.within(rows) == {}
    (found,) = noise.across(rows).values()
    assert found["all"] == pytest.approx(100 * (0.5 + 1.0) / 2)
    assert found["said"] == "2 and 2 runs of 2 machines that differ by 50 % (fingerprints)"
    first, second = noise.machines(rows)
    assert (first["machine"], first["runs"], first["days"]) == (1, 2, ["1970-01-01", "1970-01-02"])
    assert second["fingerprint_hash_bytes_per_s"] == 1.5e9


def test_machines_are_compared_over_folders_and_unknown_ones_are_not(tmp_path: Path) -> None:
    here, there = dataset(tmp_path / "here", [(SLOW, 1.0)]), dataset(tmp_path / "there", [(FAST, 2.0)])
    before = dataset(tmp_path / "before", [(None, 9.0)] * 3)
    rows = noise.rows_of([here, there, before])
    (found,) = noise.across(rows).values()
    assert found["all"] == pytest.approx(100 * (0.5 + 1.0) / 2)
    (alone,) = noise.within(rows).values()
    assert (alone["runs"], alone["all"]) == (3, pytest.approx(0.0, abs=1e-9))
    assert [one["machine"] for one in noise.machines(rows)] == [1, 2, None]


def test_the_figures_of_isolation_are_those_of_its_page(checkout: Path) -> None:
    page = (checkout / noise.ISOLATION).read_text()
    found = noise.isolation(page)
    assert found
    for setting, rows in found.items():
        assert f"## {setting}\n" in page
        for name, cells in rows.items():
            assert f"| {name} | {cells['workloads']} | {cells['runs']} | {cells['all targets']} |" in page
    assert noise.isolation("# Isolated hosts\n\n## Goals\n\n| a |\n|---|\n") == {}


def test_the_page_says_what_there_is_not(tmp_path: Path) -> None:
    found = {"folders": ["`d`"], "runs": 1, "machines": [], "within": {}, "across": {}, "isolation": {}}
    text = noise.page(found)
    assert "No workload was measured on two machines that have fingerprints." in text
    assert "That page has no setting with both." in text


def test_the_page_of_the_repository_is_that_of_its_datasets(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(sys, "argv", ["noise.py", "--write", str(tmp_path / "noise.md")])
    assert noise.main() == 0
    kept = (checkout / "docs/benchmarks/noise.md").read_text()
    said = "run: python benchmarks/noise.py --write docs/benchmarks/noise.md"
    assert (tmp_path / "noise.md").read_text() == kept, said
