from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import JobSpec, Measurement, NetworkCondition, RunSpec, TaskSpec, Workload
from driple.contracts.setting import Setting

SPEC = RunSpec(
    setting=Setting.parse("cpu-p1w2-1g"),
    workload=Workload("resnet20", "cifar10", 32, image_size=32),
    measurement=Measurement(steps=20),
    together=(("ps:0", "worker:0"), ("worker:1",)),
    network=NetworkCondition(loss_pct=0.5),
)
JOB = JobSpec(
    run=SPEC,
    tasks=(
        TaskSpec("ps:0", "h1", "192.0.2.1:2222"),
        TaskSpec("worker:0", "h1", "192.0.2.1:2223", gpu=0),
        TaskSpec("worker:1", "h2", "192.0.2.2:2223", data_dir="/data"),
    ),
)


@pytest.mark.parametrize("spec", [SPEC, JOB], ids=["run", "job"])
def test_json_round_trip(spec: RunSpec | JobSpec) -> None:
    assert type(spec).from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_identity_is_a_golden_value() -> None:
    # Users' sealed runs are found by it: a change here makes them all look undone. Raise IDENTITY_VERSION knowingly.
    assert SPEC.id == "cpu-p1w2-1g-resnet20-b32-s32-momentum-sync-1fedeecde2f5"


@pytest.mark.parametrize(
    "change",
    [
        {"setting": Setting.parse("cpu-p1w2-100m")},
        {"workload": replace(SPEC.workload, width=0.5)},
        {"workload": replace(SPEC.workload, code_sha256="0" * 64)},
        {"measurement": Measurement(steps=21)},
        {"together": (("ps:0",), ("worker:0", "worker:1"))},
        {"network": NetworkCondition()},
        {"seed": 2},
        {"repetition": 1},
        {"cores_per_host": 0.45},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_is_asked_otherwise_is_another_run(change: dict[str, object]) -> None:
    assert replace(SPEC, **change).id != SPEC.id  # type: ignore[arg-type]


def test_id_is_a_safe_folder_name_whatever_the_model_is_called() -> None:
    spec = replace(SPEC, workload=replace(SPEC.workload, model="../my models/é;rm -rf.py:build" * 9))
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,94}", spec.id)
    assert ".." not in spec.id


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("workload", "batch_size"), "big", "workload.batch_size: expected int, got 'big'"),
        (("workload", "batch_size"), True, "workload.batch_size: expected int, got True"),
        (("workload", "update"), "foo", "workload: unknown update 'foo' (known: sync, async)"),
        (("workload", "width"), 10**400, "workload.width: expected a finite number, got 1000"),
        (("workload", "width"), float("nan"), "workload.width: expected a finite number, got nan"),
        (("workload", "colour"), 1, "workload: unknown key 'colour'"),
        (("setting",), "v100", "setting: 'v100' is not a setting"),
        (("measurement", "duration_s"), 3.0, "measurement: exactly one of steps and duration_s"),
        (("together",), [["ps:0"]], "together: expected each task of cpu-p1w2-1g exactly once"),
        (("together",), [["ps:0", "ps:0", "worker:1"]], "together: expected each task"),
        (("together",), [["ps:0", "worker:0", "worker:1", "ps:0"]], "together: expected each task"),
        (("network",), [], "network: expected dict, got []"),
    ],
)
def test_broken_json_names_the_place(path: tuple[str, ...], value: object, message: str) -> None:
    plain = SPEC.to_json()
    target = plain
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(BadInput, match=f"^{re.escape(message)}"):
        RunSpec.from_json(plain)


def test_missing_key_is_named() -> None:
    plain = SPEC.to_json()
    del plain["workload"]["model"]
    with pytest.raises(BadInput, match="workload: key 'model' is missing"):
        RunSpec.from_json(plain)


def test_job_knows_its_tasks() -> None:
    assert JOB.addresses("worker") == ("192.0.2.1:2223", "192.0.2.2:2223")
    assert JOB.task("worker:1").data_dir == "/data"
    with pytest.raises(BadInput, match="no task 'worker:2' in this job"):
        JOB.task("worker:2")
    with pytest.raises(BadInput, match="expected ps:0, worker:0, worker:1 in this order"):
        replace(JOB, tasks=JOB.tasks[::-1])
