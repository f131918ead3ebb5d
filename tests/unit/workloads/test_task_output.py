"""What a task leaves can be followed while it runs and read when it is over."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.formats.trace import STEP_COLUMNS
from driple.workloads.runtime.task_output import TaskOutput


@pytest.fixture
def open_output() -> Iterator[Callable[[Path, str], TaskOutput]]:
    """Makes outboxes, and closes them: a task never has to."""
    opened: list[TaskOutput] = []

    def make(folder: Path, task: str) -> TaskOutput:
        opened.append(TaskOutput(folder, task))
        return opened[-1]

    yield make
    for output in opened:
        output.close()


def test_a_step_can_be_read_as_soon_as_it_is_written(
    tmp_path: Path, open_output: Callable[[Path, str], TaskOutput]
) -> None:
    output = open_output(tmp_path / "deep" / "out", "worker:0")
    output.step(0, 1, 10, 20, 2.5)
    output.step(1, 2, 20, 30, math.nan)
    lines = [json.loads(line) for line in (tmp_path / "deep" / "out" / "steps.jsonl").read_text().splitlines()]
    assert [tuple(line) for line in lines] == [tuple(column.name for column in STEP_COLUMNS)] * 2
    assert [line["loss"] for line in lines] == [2.5, None]


def test_markers_say_who_and_how(tmp_path: Path, open_output: Callable[[Path, str], TaskOutput]) -> None:
    output = open_output(tmp_path, "worker:0")
    output.step(0, 1, 10, 20, 2.5)
    output.ready(tensorflow="2")
    output.finished(1, "lost")
    ready, finished = (json.loads((tmp_path / name).read_text()) for name in ("ready.json", "finished.json"))
    assert ready["task"] == "worker:0" and ready["tensorflow"] == "2" and ready["mono_ns"] <= finished["mono_ns"]
    assert (finished["exit_code"], finished["message"], finished["steps"]) == (1, "lost", 1)


def test_a_worker_that_is_ready_waits_for_its_share(
    tmp_path: Path, open_output: Callable[[Path, str], TaskOutput]
) -> None:
    output = open_output(tmp_path, "worker:0")
    share = tmp_path / "share"
    output.share_path = str(share)
    thread = threading.Thread(target=output.ready, kwargs={"tensorflow": "2"})
    thread.start()
    while not (tmp_path / "ready.json").exists():  # it says so first, or nobody would give it the share
        assert thread.is_alive()
    thread.join(0.1)
    assert thread.is_alive()
    share.touch()
    thread.join(10)
    assert not thread.is_alive()


def test_an_earlier_attempt_is_not_taken_for_this_one(
    tmp_path: Path, open_output: Callable[[Path, str], TaskOutput]
) -> None:
    open_output(tmp_path, "ps:0").finished(0, "")
    open_output(tmp_path, "ps:0")
    assert not (tmp_path / "finished.json").exists()


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="Not a directory|File exists"):
        TaskOutput(tmp_path / "file" / "out", "ps:0")
