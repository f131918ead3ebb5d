from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from driple.contracts.manifest import SEALED, Manifest
from driple.contracts.run_dir import RunPaths
from driple.contracts.run_spec import RunSpec
from driple.orchestrator.cli import main
from driple.orchestrator.config.experiment import load_experiment
from driple.orchestrator.planning.plan import plan

DRIPLE_RUN = f"{shlex.quote(sys.executable)} -m driple.orchestrator.cli"


def experiment(checkout: Path, name: str) -> str:
    return shlex.quote(str(checkout / "experiments" / f"{name}.yaml"))


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60)


def test_dry_run_prints_a_table_with_counts_and_hosts(
    checkout: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([str(checkout / "experiments/p2w2.yaml"), "--dry-run", "--output", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "p2w2: 10 runs (1 setting x 10 workloads x 1 network condition x 1 repetition), 0 done, 10 to do" in out
    assert "cpu-p2w2-1g  worker:1  lab4" in out
    assert list(tmp_path.iterdir()) == []


def test_json_says_what_is_done(checkout: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = checkout / "experiments/p2w2.yaml"
    run = plan(load_experiment(path))[3]
    paths = RunPaths(tmp_path, "p2w2", run.id)
    paths.root.mkdir(parents=True)
    Manifest(run=run.spec, run_id=run.id, status=SEALED).write(paths.manifest)
    assert main([str(path), "--dry-run", "--json", "--output", str(tmp_path)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["counts"] == {"runs": 10, "done": 1, "to_do": 9}
    assert [entry["id"] for entry in shown["runs"] if entry["done"]] == [run.id]
    assert all({"id", "setting", "workload", "tasks", "done"} <= set(entry) for entry in shown["runs"])
    assert main([str(path), "--dry-run", "--output", str(tmp_path)]) == 0
    rows = capsys.readouterr().out.splitlines()[1:11]
    assert [row.split()[-2] for row in rows] == ["no"] * 3 + ["yes"] + ["no"] * 6
    assert shown["runs"][0]["tasks"][0] == {"task": "ps:0", "host": "lab1", "gpu": None}
    assert RunSpec.from_json(run.spec.to_json()).to_json()["workload"] == shown["runs"][3]["workload"]


def test_output_that_is_a_file(checkout: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "traces").touch()
    assert main([str(checkout / "experiments/p2w2.yaml"), "--dry-run", "--output", str(tmp_path / "traces")]) == 2
    assert "Not a directory" in capsys.readouterr().err


def test_list_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-models"]) == 0
    assert "48 models" in capsys.readouterr().out
    assert main(["--list-models", "--json"]) == 0
    models = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["models"]}
    assert models["inception3"] == {"name": "inception3", "family": "inception", "datasets": {"imagenet": 299}}
    assert models["alexnet"]["datasets"] == {"imagenet": 224, "cifar10": 32}


@pytest.mark.parametrize("argv", [[], ["x.yaml", "--list-models"], ["--frobnicate"], ["a", "b"]])
def test_wrong_arguments(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("option", ["--parallel=0", "--webhook=foo", "--wait-for-hosts=5"])
def test_a_dry_run_checks_the_options_of_a_run(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["p2w2", "--dry-run", option]) == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1
    assert said.err.startswith(f"{option.partition('=')[0]}: expected ")


def test_a_reader_that_stops_early_is_no_error(checkout: Path) -> None:
    result = shell(f"{DRIPLE_RUN} {experiment(checkout, 'v100-p1w2-pcie')} --dry-run --json | head -c 9")
    assert (result.returncode, result.stdout, result.stderr) == (0, '{"experim', "")


def test_a_reader_of_faults_that_stops_early_still_sees_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(f"workloads: [{{model: [{', '.join(f'x{n}' for n in range(900))}]}}]")
    result = shell(f"{DRIPLE_RUN} {shlex.quote(str(path))} 2>&1 | head -c 5; exit ${{PIPESTATUS[0]}}")
    assert (result.returncode, result.stderr) == (2, "")


def test_a_reader_that_has_gone_before_the_summary_does_not_make_a_failed_sweep_good(tmp_path: Path) -> None:
    """On a port of this machine where nobody answers."""
    (tmp_path / "hosts.yaml").write_text("hosts: {a: {address: 127.0.0.1, port: 9}, b: {address: 127.0.0.2, port: 9}}")
    path = tmp_path / "x.yaml"
    path.write_text("setting: cpu-p1w1-1g\nsteps: 1\nhosts: hosts.yaml\nworkloads: [{model: ncf}]")
    run = f"{DRIPLE_RUN} {shlex.quote(str(path))} --output {shlex.quote(str(tmp_path))} --wait-for-hosts 1s"
    result = shell(f"{run} > >(exec true)")
    assert result.returncode == 1, result.stderr
    assert "Broken" not in result.stderr


@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [(">&-", 0, ""), (">/dev/full", 1, "cannot write the output: No space left on device\n")],
)
def test_output_that_cannot_be_written(redirection: str, code: int, message: str, checkout: Path) -> None:
    result = shell(f"{DRIPLE_RUN} {experiment(checkout, 'p2w2')} --dry-run {redirection}")
    assert (result.returncode, result.stderr) == (code, message)


def test_letters_that_a_terminal_lacks_do_not_stop_it(tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text("hosts: {hé: , hö: }")
    (tmp_path / "x.yaml").write_text("setting: cpu-p1w1-1g\nsteps: 1\nhosts: hosts.yaml\nworkloads: [{model: ncf}]")
    result = shell(f"PYTHONIOENCODING=ascii {DRIPLE_RUN} {shlex.quote(str(tmp_path / 'x.yaml'))} --dry-run")
    assert (result.returncode, result.stderr) == (0, "")
    assert "h\\xe9" in result.stdout
