"""Which of several failures of a run is reported, and with whose log. Agents are played here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from driple.contracts.formats.task_files import ERROR, LOST_PEER, SAMPLER_LOG, STDERR_LOG, Finished
from driple.contracts.manifest import PYTHON
from driple.contracts.protocol import events, requests
from driple.contracts.run_spec import Measurement, RunSpec, Workload
from driple.contracts.setting import Setting
from driple.orchestrator.attempt.failure import AttemptError
from driple.orchestrator.attempt.monitor import Listener
from driple.orchestrator.attempt.task_command import TaskPlace
from driple.orchestrator.attempt.task_state import TaskState
from driple.orchestrator.hosts.agent_client import AgentClient, Event

SPEC = RunSpec(
    setting=Setting.parse("cpu-p1w1-1g"),
    workload=Workload("lenet", "imagenet", 2, image_size=32),
    measurement=Measurement(steps=5),
    together=(("ps:0",), ("worker:0",)),
)


class FakeClient:
    name, lost, facts = "h1", None, SimpleNamespace(work="/w")

    def ask(self, request: requests.Request[Any], *, timeout_s: float) -> Any:
        if isinstance(request, requests.Tail):
            return requests.TailAnswer(lines=(f"the end of {request.path.rpartition('/')[2]}",))
        return SimpleNamespace(disk_free_bytes=10**12)


@pytest.fixture
def listener() -> Listener:
    made = Listener(SPEC, lambda text: None)
    for task in ("ps:0", "worker:0"):
        place = TaskPlace(task, "/w/runs/r.token")
        made.states[task] = TaskState(task, place, cast("AgentClient", FakeClient()), PYTHON, "cmd", None, "flows")
    return made


def put(listener: Listener, value: events.ProcessEvent) -> None:
    listener._inbox.put(Event("h1", value))


def end(listener: Listener, task: str, message: str, kind: str) -> None:
    name = listener.states[task].place.process
    finished = Finished(exit_code=1, message=message, kind=kind)
    progress = events.Progress(name=name, ready=True, steps=3, last=None, finished=finished, alive=True)
    put(listener, progress)
    put(listener, events.Ended(name=name, pid=7, exit_code=1, mono_ns=1))


def failure(listener: Listener) -> AttemptError:
    with pytest.raises(AttemptError) as caught:
        listener.until(lambda: False, 60.0, lambda: "no failure was reported in time")
    return caught.value


def test_the_cause_is_reported_and_not_the_task_that_lost_its_peer(listener: Listener) -> None:
    end(listener, "worker:0", "whatever its words are", LOST_PEER)
    end(listener, "ps:0", "out of disk", ERROR)
    found = failure(listener)
    assert found.origin is not None and found.origin.task == "ps:0"
    assert found.reason == "ps:0 on h1 ended with exit code 1: out of disk"
    assert found.origin.words == (f"the end of {STDERR_LOG}",)


def test_words_of_a_message_decide_nothing(listener: Listener) -> None:
    end(listener, "worker:0", "ps:0 went away before the job was done", ERROR)
    end(listener, "ps:0", "second", ERROR)
    found = failure(listener)
    assert found.origin is not None and found.origin.task == "worker:0"


def test_the_log_of_a_sampler_is_read_where_the_sampler_failed(listener: Listener) -> None:
    put(listener, events.Ended(name=listener.states["worker:0"].place.sampler, pid=7, exit_code=2, mono_ns=1))
    for state in listener.states.values():  # so that nothing more is waited for
        state.over, state.exit_code, state.finished = True, 0, Finished(exit_code=0, message="", kind="ok")
    listener.states["worker:0"].over = False
    found = failure(listener)
    assert found.origin is not None and found.origin.sampler
    assert found.origin.words == (f"the end of {SAMPLER_LOG}",)
    assert found.reason.endswith(f"ended with exit code 2: the end of {SAMPLER_LOG}")
