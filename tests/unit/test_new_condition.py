"""A new field of NetworkCondition: old runs, datasets and inspectors stay usable (docs/guides/extending.md, 13)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from driple.contracts.formats import dataset as dataset_format
from driple.contracts.run_spec import NetworkCondition, condition_key
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import job_of
from driple.orchestrator.lab.shaping import Shape, sending_lines
from driple.orchestrator.netem import netem_words
from driple.pipeline.datasets import dataset_file

SETTING = "cpu-p1w1-1g"

# Loads run_spec.py with one more field, before anything else imports it.
NEW_FIELD = """
import importlib.util, sys
spec = importlib.util.find_spec("driple.contracts.run_spec")
source = open(spec.origin).read()
last = next(line for line in source.splitlines() if line.startswith("    loss_pct: float"))
new = '    echo_ms: float = _condition(0.0, "{:g}ms echo", "time of an echo")'
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
exec(compile(source.replace(last, last + "\\n" + new), spec.origin, "exec"), module.__dict__)
"""


def with_echo(checkout: Path, code: str) -> list[str]:
    """Lines that the code prints where NetworkCondition has a field `echo_ms`."""
    words = [sys.executable, "-c", NEW_FIELD + code]
    done = subprocess.run(words, cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_new_condition_renames_no_run_and_no_job(checkout: Path) -> None:
    found = with_echo(
        checkout,
        """
from pathlib import Path
from driple.contracts.json_values import read_json_file
from driple.contracts.run_spec import JobSpec
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import job_of
for folder in sorted(Path("tests/data/runs").iterdir()):
    if (folder / "job.json").is_file():
        run = read_json_file(folder / "job.json", JobSpec.from_json).run
        print(run.id == folder.name, run.network.echo_ms)
item = read_examples(Path("datasets"), "cpu-p1w1-1g").items[0]
print(item.workload["network_echo_ms"], job_of(item))
item.workload["network_echo_ms"] = 2.0
print(job_of(item))
""",
    )
    *runs, same, other = found
    assert len(runs) >= 3 and set(runs) == {"True 0.0"}
    item = read_examples(checkout / "datasets", SETTING).items[0]
    assert same == f"0.0 {job_of(item)}"
    assert other != job_of(item)


def test_the_key_of_a_job_is_a_golden_value(checkout: Path) -> None:
    """Inspectors store such keys (`apart`): a change here makes them forget which jobs they were trained on."""
    assert job_of(read_examples(checkout / "datasets", SETTING).items[0]) == "9ff956dfb73e"


def test_a_new_condition_is_a_key_a_label_a_column_and_a_feature(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(
        "setting: cpu-p1w2-1g\nsteps: 2\nworkloads: [{model: lenet}]\nnetwork: {delay: 5ms, echo: [0, 2ms]}\n"
    )
    found = with_echo(
        checkout,
        f"""
from pathlib import Path
from driple.contracts.formats.dataset import COLUMNS, NETWORK_COLUMNS
from driple.inspector.data.workload_features import DECLARED_FEATURES
from driple.orchestrator.config.experiment import KEYS, load_experiment
print([one.label for one in load_experiment(Path({str(tmp_path / "sweep.yaml")!r})).networks])
print("{{rate, delay, loss, echo" in KEYS["network"])
print([(one.type, one.meaning) for one in COLUMNS if one.name == "network_echo_ms"], len(NETWORK_COLUMNS))
print("log_network_echo_ms" in DECLARED_FEATURES)
""",
    )
    assert found == [
        "['5ms', '5ms 2ms echo']",
        "True",
        f"[('real', 'time of an echo')] {len(fields(NetworkCondition)) + 1}",
        "True",
    ]


@pytest.mark.parametrize(
    "command",
    [
        "from driple.inspector.cli_predict import main; "
        "sys.exit(main(['resnet20', '--setting', 'cpu-p1w1-1g', '--batch-size', '32', '--measured', 'datasets']))",
        "from driple.pipeline.cli_report import main; sys.exit(main(['datasets', '--output', OUT]))",
        "from driple.pipeline.cli_report import main; sys.exit(main(['inspectors/cpu-p1w1-1g', '--output', OUT]))",
    ],
    ids=["predict", "report-dataset", "report-inspector"],
)
def test_what_is_shipped_is_used_as_before(command: str, checkout: Path, tmp_path: Path) -> None:
    before = subprocess.run(
        [sys.executable, "-c", f"import sys\nOUT = {str(tmp_path / 'before.html')!r}\n{command}"],
        cwd=checkout,
        capture_output=True,
        text=True,
    )
    assert before.returncode == 0, before.stderr
    after = with_echo(checkout, f"OUT = {str(tmp_path / 'after.html')!r}\n{command}")
    numbers = [line for line in before.stdout.splitlines() if str(tmp_path) not in line]
    assert [line for line in after if str(tmp_path) not in line] == numbers


def without(checkout: Path, folder: Path, column: str) -> Path:
    """A dataset as a release without that condition wrote it."""
    table = pq.read_table(checkout / "datasets" / f"{SETTING}.parquet")
    there = [name for name in (column,) if name in table.column_names]
    path = folder / f"{SETTING}.parquet"
    pq.write_table(table.drop_columns(there), path)
    return path


@pytest.mark.parametrize(("column", "value"), dataset_format.NETWORK_COLUMNS.items())
def test_a_dataset_without_a_condition_has_its_default(
    column: str, value: float | None, checkout: Path, tmp_path: Path
) -> None:
    path = without(checkout, tmp_path, column)
    whole = read_examples(checkout / "datasets", SETTING)
    found = read_examples(path, SETTING)
    assert {item.workload[column] for item in found.items} == {value}
    assert [item.workload for item in found.items] == [item.workload for item in whole.items]
    # The builder keeps such rows: it must not write null beside the value of new rows.
    rows = dataset_file.read(path, SETTING).rows
    assert {row[column] for row in rows} == {value}


def test_the_network_of_a_published_row_stays_unknown() -> None:
    row = {"provenance": dataset_format.PUBLISHED, "network_loss_pct": 1.0}
    dataset_format.fill_later_columns(row)
    assert row["network_delay_ms"] is None and row["network_loss_pct"] == 1.0


ELSEWHERE = {"rate_mbit", "congestion"}  # tbf and routes make them


@pytest.mark.parametrize("name", [one.name for one in fields(NetworkCondition) if one.name not in ELSEWHERE])
def test_every_condition_is_applied(name: str) -> None:
    """One without words for netem would be recorded and never made."""
    value: dict[str, Any] = {name: 1.0}
    assert netem_words(NetworkCondition(**value))
    assert " netem " in sending_lines(Shape(**value), netem=True)[1]
    assert list(NetworkCondition(**value).parts) == [condition_key(name)]


def test_labels_are_as_they_were() -> None:
    assert NetworkCondition().label == ""
    assert NetworkCondition(rate_mbit=100, delay_ms=2.5, loss_pct=0.1).label == "100mbit 2.5ms 0.1%"
