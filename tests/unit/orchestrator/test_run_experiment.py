"""The function behind driple-run, and how it finds experiments. No run is started here."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from driple.contracts.errors import BadInput, FileFaults, UnknownName
from driple.contracts.manifest import SEALED, Manifest
from driple.contracts.run_dir import RunPaths
from driple.orchestrator.cli import main
from driple.orchestrator.config import experiment_lookup
from driple.orchestrator.config.experiment_lookup import find_experiment, known_experiments
from driple.orchestrator.sweep.run_experiment import WITHOUT_LAB, plan_sweep, run

EXPERIMENT: dict[str, Any] = {
    "name": "small",
    "setting": "cpu-p1w1-1g",
    "steps": 1,
    "workloads": [{"model": "ncf", "batch_size": [1, 2]}],
}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def seal(output: Path, experiment: str, **changes: Any) -> None:
    for planned in plan_sweep(EXPERIMENT, output=output).runs:
        paths = RunPaths(output, experiment, planned.id)
        paths.root.mkdir(parents=True)
        Manifest(run=planned.spec, run_id=planned.id, status=SEALED, **changes).write(paths.manifest)


def state_of_the_process() -> tuple[object, ...]:
    root = logging.getLogger()
    signals = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    return (root.level, list(root.handlers), *signals)


def test_done_runs_are_skipped_with_their_folders(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seal(tmp_path / "out", "small")
    before = state_of_the_process()
    lines: list[str] = []
    result = run(EXPERIMENT, output=tmp_path / "out", progress=lines.append)
    assert (result.sealed, result.failed, result.not_done, len(result.skipped)) == ((), (), (), 2)
    for skipped in result.skipped:
        assert skipped.directory is not None and (skipped.directory / "run.json").is_file()
    assert [line.partition(" ")[2] for line in lines] == ["2 of 2 runs are done already"]
    assert capfd.readouterr() == ("", "") and state_of_the_process() == before
    assert plan_sweep(EXPERIMENT, output=tmp_path / "out", resume=False).done == frozenset()


def test_hosts_that_do_not_answer_are_failures_and_no_exception() -> None:
    Path("hosts.yaml").write_text("hosts: {a: {address: 127.0.0.1, port: 9}, b: {address: 127.0.0.2, port: 9}}")
    before = state_of_the_process()
    result = run({**EXPERIMENT, "hosts": "hosts.yaml"}, host_patience_s=0.1)
    assert [failed.run.spec.workload.batch_size for failed in result.failed] == [1, 2]
    assert all("127.0.0" in str(failed.failure) or "no hosts" in str(failed.failure) for failed in result.failed)
    assert state_of_the_process() == before
    # In a process of its own, since pytest gives the root logger handlers.
    program = (
        "from driple.orchestrator.sweep.run_experiment import run\n"
        f"print(len(run({ {**EXPERIMENT, 'hosts': 'hosts.yaml'} }, host_patience_s=0.1).failed))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_a_sweep_that_is_stopped_at_once_does_nothing(tmp_path: Path) -> None:
    Path("hosts.yaml").write_text("hosts: {a: {address: 127.0.0.1, port: 9}, b: {address: 127.0.0.2, port: 9}}")
    stop = threading.Event()
    stop.set()
    result = run({**EXPERIMENT, "hosts": "hosts.yaml"}, stop=stop)
    assert len(result.not_done) == 2


def test_runs_over_loopback_are_done_again_unless_accepted(tmp_path: Path) -> None:
    seal(tmp_path, "small" + WITHOUT_LAB, network_not_as_asked="no lab: namespaces are forbidden")
    assert len(plan_sweep(EXPERIMENT, output=tmp_path).done) == 0
    assert len(plan_sweep(EXPERIMENT, output=tmp_path, accept_loopback=True).done) == 2
    (tmp_path / ("small" + WITHOUT_LAB)).rename(tmp_path / "small")  # by hand
    assert len(plan_sweep(EXPERIMENT, output=tmp_path).done) == 0


def test_a_mapping_is_checked_as_a_file_is() -> None:
    with pytest.raises(FileFaults) as caught:
        plan_sweep({"setting": "cpu-p1w1-9x", "workloads": [{"model": "resnet2"}], "step": 3})
    text = str(caught.value)
    for part in ("'<mapping>' cannot be a folder name", "unknown key 'step'", "is not a setting", "unknown model"):
        assert part in text
    with pytest.raises(BadInput, match="parallel: expected 1 or more"):
        run(EXPERIMENT, parallel=0)
    assert list(Path().iterdir()) == []


def test_a_name_is_looked_up_in_three_places(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "site-packages" / "experiments"
    installed.mkdir(parents=True)
    for name in ("p2w2", "other", "workloads"):
        (installed / f"{name}.yaml").write_text("")
    monkeypatch.setattr(experiment_lookup, "installed_data", lambda name: installed)
    assert find_experiment("p2w2") == installed / "p2w2.yaml"
    Path("experiments").mkdir()
    Path("experiments/p2w2.yaml").write_text("")
    assert find_experiment("p2w2") == Path("experiments/p2w2.yaml")
    assert list(known_experiments()) == ["other", "p2w2"]
    Path("p2w2").write_text("")
    assert find_experiment("p2w2") == Path("p2w2")
    assert find_experiment("folder/p2w2") == Path("folder/p2w2")
    with pytest.raises(UnknownName, match=r"unknown experiment 'p2w3'; did you mean 'p2w2'\? \(known: other, p2w2\)"):
        find_experiment("p2w3")


def test_an_installation_without_experiments_still_lists_the_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(experiment_lookup, "installed_data", lambda name: None)
    assert known_experiments() == {}
    Path("experiments").mkdir()
    Path("experiments/mine.yaml").write_text("")
    assert main(["--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"mine": "experiments/mine.yaml"}
    assert main(["mime"]) == 2
    assert capsys.readouterr().err == "unknown experiment 'mime'; did you mean 'mine'? (known: mine)\n"
