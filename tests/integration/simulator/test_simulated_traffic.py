"""driple-traffic on real simulated runs, whose tasks are on several hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import driple
from driple.pipeline.cli_traffic import main

pytestmark = pytest.mark.integration

EXPERIMENT: dict[str, Any] = {
    "name": "sim",
    "setting": "v100-p1w2-10g",
    "hosts": "simulated",
    "steps": 20,
    "sampling_hz": 1000,
    "workloads": [{"model": ["lenet"], "batch_size": 32}],
}


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    (run,) = driple.run(EXPERIMENT, output=tmp_path / "traces").runs
    assert run.status == "sealed"
    return tmp_path / "traces"


def test_interfaces_are_enough(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / name) for name in ("csv", "figures", "x.json")]
    options = ["--csv", files[0], "--figures", files[1], "--perfetto", files[2]]
    assert main([str(traces), "--json", *options]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["provenance"], job["source"], job["pairs"], job["flows"]) == ("simulated", "counters", [], [])
    assert set(job["bytes_sent"]) == {"ps:0", "worker:0", "worker:1"} and min(job["bytes_sent"].values()) > 0
    assert any("interface counters alone" in note and "worker:1" in note for note in job["notes"])
    assert main([str(traces)]) == 0
    out = capsys.readouterr().out
    assert "SIMULATED" in out.splitlines()[0] and "interface counters alone" in out and "between tasks" not in out
