"""Runs of machines that differ: rows say which machine they come from, and no inspector learns from both unasked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.fingerprint import Fingerprint
from driple.contracts.manifest import Manifest
from driple.inspector.data.dataset_rows import read_examples
from driple.pipeline.cli import main
from driple.pipeline.datasets.build import build_dataset
from driple.pipeline.datasets.dataset_file import read

pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("joblib")

RUN = "cpu-p1w2-1g-lenet-b8-s32-momentum-sync-c365236547d4"
SETTING = "cpu-p1w2-1g"
SLOW = Fingerprint(
    cores=2,
    hash_bytes_per_s=1e9,
    deflate_bytes_per_s=2e7,
    core_speedup=1.9,
    copy_bytes_per_s=1e10,
    switch_s=4e-5,
    loopback_bytes_per_s=3e9,
    spread_pct={"copy_bytes_per_s": 2.0, "switch_s": 90.0},
)
NOISY = replace(SLOW, copy_bytes_per_s=1.04e10)
FAST = replace(SLOW, hash_bytes_per_s=1.2e9)


def copies(checkout: Path, folder: Path, fingerprints: Sequence[Fingerprint | None]) -> Path:
    """The committed run as often as it is repeated, each time on a machine with another fingerprint."""
    source = checkout / "tests/data/runs" / RUN
    found = Manifest.read(source / "run.json")
    for repetition, fingerprint in enumerate(fingerprints):
        spec = replace(found.run, repetition=repetition)
        target = folder / spec.id
        shutil.copytree(source, target)
        job = json.loads((target / "job.json").read_text())
        job["run"]["repetition"] = repetition
        (target / "job.json").write_text(json.dumps(job))
        replace(
            found,
            run=spec,
            run_id=spec.id,
            hosts={name: replace(host, fingerprint=fingerprint) for name, host in found.hosts.items()},
            started_real_s=1e9 + repetition,
            checksums={name: value for name, value in found.checksums.items() if name != "job.json"},
        ).write(target / "run.json")
    return folder


def machines(folder: Path) -> dict[int, set[int | None]]:
    """Numbers of the machines by repetition."""
    found: dict[int, set[int | None]] = {}
    for row in read(folder / f"{SETTING}.parquet", SETTING).rows:
        found.setdefault(row["repetition"], set()).add(row["machine"])
    return found


def test_rows_have_the_number_of_their_machine_however_they_were_built(checkout: Path, tmp_path: Path) -> None:
    traces = copies(checkout, tmp_path / "traces", [SLOW, FAST, NOISY])
    result = build_dataset(traces, output=tmp_path / "out", jobs=1)
    assert machines(tmp_path / "out") == {0: {1}, 1: {2}, 2: {1}}
    (report,) = result.settings
    assert report.machines == 2
    assert report.machines_note.startswith("2 and 1 runs of 2 machines that differ by 20 % (fingerprints)")
    for run in sorted(traces.iterdir(), reverse=True):  # one by one, the last one first
        build_dataset(run, output=tmp_path / "grown", jobs=1)
    (name,) = (path.name for path in (tmp_path / "out").glob("*.parquet"))
    assert (tmp_path / "grown" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_the_command_says_it(checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces = copies(checkout, tmp_path / "traces", [SLOW, FAST])
    assert main([str(traces), "--output", str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert "1 and 1 runs of 2 machines that differ by 20 %" in capsys.readouterr().out


def test_no_inspector_learns_from_both_unless_asked(checkout: Path, tmp_path: Path) -> None:
    build_dataset(copies(checkout, tmp_path / "traces", [SLOW, FAST]), output=tmp_path, jobs=1)
    with pytest.raises(BadInput, match=r"parquet: 1 and 1 runs of 2 machines .* data.mix_machines=true") as caught:
        read_examples(tmp_path, SETTING)
    assert "\n" not in str(caught.value)
    (item,) = read_examples(tmp_path, SETTING, mix_machines=True).items
    assert len(item.run_ids) == 2


def test_one_machine_is_no_fault_and_old_files_keep_their_columns(checkout: Path, tmp_path: Path) -> None:
    build_dataset(copies(checkout, tmp_path / "one", [SLOW, NOISY]), output=tmp_path / "out", jobs=1)
    assert len(read_examples(tmp_path / "out", SETTING).items) == 1
    result = build_dataset(copies(checkout, tmp_path / "none", [None]), output=tmp_path / "old", jobs=1)
    assert "machine" not in pq.read_schema(tmp_path / "old" / f"{SETTING}.parquet").names
    assert (result.settings[0].machines, result.settings[0].machines_note) == (0, "")


def test_rows_without_a_fingerprint_are_reported_and_not_refused(checkout: Path, tmp_path: Path) -> None:
    result = build_dataset(copies(checkout, tmp_path / "traces", [SLOW, None]), output=tmp_path, jobs=1)
    assert result.settings[0].machines_note.startswith("3 rows without a steady fingerprint")
    assert machines(tmp_path) == {0: {1}, 1: {None}}
    assert len(read_examples(tmp_path, SETTING).items) == 1
