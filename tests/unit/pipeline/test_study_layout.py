"""Folders of the published traffic study: their names, whose captures they hold, and the log of training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from capture_files import capture, frame

from driple.pipeline.cli_traffic import main
from driple.pipeline.traffic.find_jobs import find_jobs
from driple.pipeline.traffic.study_figures import write_figures
from driple.pipeline.traffic.study_layout import HISTORY, study_kind
from driple.pipeline.traffic.study_tables import study_tables

NOW = 1_700_000_000
STEPS, STEP_S = 6, 0.1
PACKET_BYTES = 60_000
MODEL_BYTES = 8_950_000  # of mobilenetv2


@pytest.mark.parametrize(
    ("name", "loss_pct", "topology"),
    [
        ("tensorflow-mobilenetv2-adam-128-grpc-0.05", 0.05, "ring"),
        ("kungfu-resnet50-adam-64-kungfu-0-BINARY_TREE_STAR", 0.0, "binary_tree_star"),
        ("tf_sync-resnet50-adam-64-grpc_nccl-normal-ring", 0.0, "ring"),
        ("tf_sync-mobilenetv2-adam-64-grpc_nccl-loss_0.01-ring", 0.01, "ring"),
        ("kungfu_ssgd-densenet201-adam-64-kungfu-normal-CLIQUE", 0.0, "clique"),
        ("kungfu_pairavg-resnet101-adam-64-kungfu-normal-TREE", 0.0, "pair_averaging"),
    ],
)
def test_names_of_folders(name: str, loss_pct: float, topology: str) -> None:
    kind = study_kind(name, 4)
    framework, model, _, batch, backend, *_ = name.split("-")
    assert (kind.framework, kind.model, kind.batch_size, kind.backend) == (framework, model, int(batch), backend)
    assert (kind.loss_pct, kind.topology, kind.workers) == (loss_pct, topology, 4)
    assert kind.gradient_bytes and kind.gradient_bytes > 8e6


@pytest.mark.parametrize("name", ["some-folder", "a-b-c-d-e-f", "a-b-c-64-e-nan", "a-b-c-64-e-inf", "a-b-c-x-e-1"])
def test_other_names(name: str) -> None:
    assert study_kind(name, 4).framework is None


ARP = bytes(12) + b"\x08\x06" + bytes(28)


def job_folder(tmp_path: Path, name: str, mb_each: float, start: float = NOW, more: tuple[bytes, ...] = ()) -> Path:
    """Two workers whose captures have what they sent: in each step `mb_each` of payload, in the first half of it."""
    folder = tmp_path / name
    folder.mkdir(parents=True)
    packets = round(mb_each * 1e6 / PACKET_BYTES)
    for worker in (0, 1):
        data = frame(worker + 1, 2 - worker, PACKET_BYTES)
        begins = [start + (step + i / 2 / packets) * STEP_S for step in range(STEPS + 1) for i in range(packets)]
        frames = [*((begin, data) for begin in begins), *((start + 0.3, other) for other in more)]
        capture(folder / f"worker-{worker}-tcpdump.pcap", frames, snap=100)
    return folder


def history(folder: Path, start: float = NOW) -> None:
    lines = ["Type,ID,Timestamp,Loss,Accuracy"]
    lines += [f"Batch,{i},{start + i * STEP_S - 0.01:.6f},2.3,{i / 100}" for i in range(STEPS + 1)]
    lines += [f"Epoch,0,{start + 1},2.3,0.1", "a warning, of the framework"]
    (folder / HISTORY).write_text("\n".join(lines) + "\n")


def shown(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, Any]:
    assert main([*map(str, argv), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_training_log_gives_steps_and_accuracy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = job_folder(tmp_path, "tf_sync-mobilenetv2-adam-64-grpc-normal-ring", MODEL_BYTES / 1e6)
    history(folder)
    found = shown(capsys, folder)
    (job,) = found["jobs"]
    # The first one ended before the captures began: of the others the first has no beginning.
    assert job["steps"] == STEPS - 1
    assert job["sent_per_step"] == pytest.approx({"10.0.0.1": MODEL_BYTES, "10.0.0.2": MODEL_BYTES}, rel=0.01)
    assert job["relative_to_formula"] == pytest.approx({"10.0.0.1": 1, "10.0.0.2": 1}, rel=0.01)
    learned = found["tables"]["fig8-learning"]
    assert [row["value"] for row in learned] == [i / 100 for i in range(1, STEPS + 1)]
    assert {row["measure"] for row in learned} == {"accuracy"}
    assert learned[-1]["sent_gb"] == pytest.approx(2 * STEPS * MODEL_BYTES / 1e9, rel=0.02)


def test_a_log_of_another_time_is_told_and_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = job_folder(tmp_path, "tf_sync-mobilenetv2-adam-64-grpc-normal-ring", 0.6)
    history(folder, start=NOW + 7200)
    (job,) = shown(capsys, folder)["jobs"]
    assert job["steps"] is None and job["sent_per_step"] == {}
    assert job["notes"] == [f"{HISTORY}: fewer than two of its steps are at the time of the captures"]
    (folder / HISTORY).write_bytes(b"\xff\x00Batch,1,99999999999,nan,x\n")
    assert shown(capsys, folder)["jobs"][0]["notes"] == []


def test_the_regression_of_the_study_from_its_captures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"mobilenetv2": 8.95, "densenet201": 72.45}
    kinds = [("mobilenetv2", 64), ("mobilenetv2", 128), ("mobilenetv2", 512), ("densenet201", 64)]
    for model, batch in kinds:
        # Frames without an address are of no worker.
        history(job_folder(tmp_path, f"tf_sync-{model}-adam-{batch}-grpc-normal-ring", sizes[model], more=(ARP,)))
    # What is sent again after a loss tells nothing about the size of a model.
    history(job_folder(tmp_path, "tf_sync-mobilenetv2-adam-64-grpc-loss_2-ring", 20))
    found = shown(capsys, tmp_path)
    assert len(found["jobs"]) == 5
    rows = {row["coefficient"]: row for row in found["tables"]["regression"]}
    assert {row["rows"] for row in rows.values()} == {4}
    # Of two workers each sends the model once.
    assert rows["model_mb"]["value"] == pytest.approx(1, rel=0.02)
    assert rows["batch_size"]["value"] == pytest.approx(0, abs=0.001)
    (table,) = [one for one in study_tables(find_jobs([tmp_path]).jobs) if one.name == "regression"]
    (path,) = write_figures(tmp_path, [table], "png")
    assert path.read_bytes().startswith(b"\x89PNG")
