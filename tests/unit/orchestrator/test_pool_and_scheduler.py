"""What becomes of hosts that do not answer, and of runs that wanted them. The hosts here answer as they are told."""

from __future__ import annotations

import json
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from driple.contracts.errors import BadInput, HostError, HostLost, HostRefused, RunFailed
from driple.contracts.fingerprint import Fingerprint
from driple.contracts.json_values import to_plain
from driple.contracts.manifest import FAILED, Manifest
from driple.contracts.protocol.events import Ready
from driple.contracts.protocol.message import encode
from driple.contracts.protocol.requests import Beat, Done, HeardAnswer, ListenAnswer, SendAnswer, TakeFingerprintAnswer
from driple.orchestrator.attempt.data_network import Shaper
from driple.orchestrator.config.experiment import Experiment, load_experiment
from driple.orchestrator.config.inventory import HostSpec
from driple.orchestrator.hosts import host_pool as host_pools
from driple.orchestrator.hosts.agent_file import BOOTSTRAP, AgentFile
from driple.orchestrator.hosts.base import Finished
from driple.orchestrator.hosts.host_pool import HostPool
from driple.orchestrator.hosts.registry import Cluster
from driple.orchestrator.planning.plan import PlannedRun, plan
from driple.orchestrator.sweep.provenance import Provenance
from driple.orchestrator.sweep.scheduler import TICK_S, RunResult, Sweep, SweepOptions, only_sweep

AGENT = AgentFile(b"agent", "0" * 64)
ABOUT: dict[str, Any] = {
    **{"work": "/w", "mono_ns": 0, "real_ns": 0, "ended_left": (), "hostname": "h", "kernel": "6", "boot_id": "b"},
    **{"cores": 2, "memory_bytes": 10**9, "python": "3.8.1", "executable": "/bin/python3", "ssh_address": None},
    **{"pid": 1, "uid": 0, "gid": 0, "disk_free_bytes": 10**9},
}
FACTS = Ready(**ABOUT)
SPEEDS = to_plain(Fingerprint(2, 1.8e9, 2.8e7, 1.9, 1.2e10, 4e-5, 3e9))
ANSWERS = {
    "take_fingerprint": TakeFingerprintAnswer(fingerprint=SPEEDS),
    "listen": ListenAnswer(tcp_port=1, udp_port=1, token="t"),
    "send": SendAnswer(bytes=1, seconds=0.1, packets=1),
    "heard": HeardAnswer(tcp_bytes=1, tcp_seconds=0.1, udp_packets=1),
}


class Wire:
    """A channel whose other end answers every request with `answer`."""

    def __init__(self, answer: Callable[[dict[str, object]], object]) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._answer = answer
        self._lines.put("Welcome to this host, said the login shell")
        self._lines.put(FACTS.to_line())
        self.last_words = ""
        self.exit_code: int | None = None

    def send(self, line: str) -> None:
        asked = json.loads(line)
        answer = self._answer(asked)
        if isinstance(answer, Exception):
            raise answer
        usual = ANSWERS.get(asked["do"], Done())
        self._lines.put(encode({"id": asked["id"], **(answer if isinstance(answer, dict) else {"ok": usual})}))

    def write(self, content: bytes) -> None:
        assert content == BOOTSTRAP

    def receive(self, timeout_s: float | None) -> str | None:
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None

    def close(self) -> None:
        self._lines.put(None)


class FakeHost:
    def __init__(self, name: str, trouble: dict[str, HostError | None], answer: Callable[..., object]) -> None:
        self.name = name
        self._trouble = trouble
        self._answer = answer
        self.put_there: list[str] = []

    def open(self) -> None:
        if (error := self._trouble.get(self.name)) is not None:
            raise error

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> Finished:
        return Finished(0, f"{argv[-1]}\n".encode(), b"")

    def start(self, argv: Sequence[str]) -> Wire:
        return Wire(self._answer)

    def put(self, content: bytes, path: str, *, mode: int = 0o644, timeout_s: float = 60.0) -> None:
        self.put_there.append(path)

    def get(self, path: str, target: Path, *, timeout_s: float = 600.0) -> None:
        raise AssertionError("a host that only answers was asked for a file")

    def close(self) -> None: ...


class Quiet:
    def __init__(self) -> None:
        self.failures: list[tuple[RunFailed, float | None]] = []
        self.started_on: list[tuple[str, ...]] = []
        self.on_failure: Callable[[], None] = lambda: None

    def begin(self, total: int, done: int) -> None: ...
    def started(self, run: PlannedRun, hosts: Sequence[str], attempt: int) -> None:
        self.started_on.append(tuple(hosts))

    def progress(self, run: PlannedRun, text: str) -> None: ...
    def attempt_failed(self, run: PlannedRun, error: RunFailed, again_in_s: float | None) -> None:
        self.failures.append((error, again_in_s))
        self.on_failure()

    def ended(self, result: RunResult) -> None: ...
    def tick(self) -> None: ...


class World:
    """Three hosts, an experiment of two runs of two hosts each, and problems by host."""

    def __init__(self, folder: Path, answer: Callable[[dict[str, object]], object] = lambda asked: None) -> None:
        (folder / "hosts.yaml").write_text("hosts: {h1: , h2: , h3: }\n")
        (folder / "e.yaml").write_text(
            "setting: cpu-p1w1-1g\nhosts: hosts.yaml\nplacement: {spread: 2}\nsteps: 1\nretries: 2\nretry_wait: 10ms\n"
            "workloads: [{model: lenet, image_size: 32, batch_size: [1, 2]}]\n"
        )
        self.experiment: Experiment = load_experiment(folder / "e.yaml")
        self.problems: dict[str, HostError | None] = {}
        specs = {spec.name: spec for spec in self.experiment.inventory.hosts}

        def connect(spec: HostSpec) -> FakeHost:
            return FakeHost(spec.name, self.problems, answer)

        self.pool = HostPool(specs, connect, AGENT, "tests")
        self.cluster = Cluster("ssh", specs, connect, Shaper(), None)
        self.output = folder / "traces"
        self.seen = Quiet()

    def sweep(self, **chosen: Any) -> list[RunResult]:
        options = SweepOptions(output=self.output, **{"host_patience_s": 600.0, **chosen})
        runs = plan(self.experiment)
        made = Sweep(
            self.experiment, runs, self.cluster, self.pool, options, self.seen, Provenance({"agent": "0"}, None)
        )
        with only_sweep(self.output, self.experiment.name):
            return made.go()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(host_pools, "ASIDE_S", 0.05)
    return World(tmp_path)


def test_a_client_opens_through_the_noise_of_a_login_shell(world: World) -> None:
    clients = world.pool.clients(["h1", "h2"])
    assert sorted(clients) == ["h1", "h2"] and clients["h1"].facts.work == "/w"
    assert world.pool.clients(["h1"])["h1"] is clients["h1"]
    world.pool.close()
    with pytest.raises(HostLost, match="closed"):
        clients["h1"].ask(Beat())


def test_a_machine_is_measured_once_for_all_its_hosts(tmp_path: Path) -> None:
    asked: list[object] = []

    def answer(request: dict[str, object]) -> object:
        asked.append(request["do"])
        return {"ok": {"fingerprint": SPEEDS}} if request["do"] == "take_fingerprint" else None

    world = World(tmp_path, answer)
    for names in (["h1", "h2"], ["h3"], ["h1"]):  # three hosts with one boot id
        for client in world.pool.clients(names).values():
            assert client.fingerprint is not None and client.fingerprint.copy_bytes_per_s == 1.2e10
    assert asked.count("take_fingerprint") == 1
    world.pool.close()


@pytest.mark.parametrize(
    ("spreads", "kept", "times"),
    [((20.0, 3.0), 3.0, 2), ((30.0, 20.0, 25.0), 20.0, 3), ((4.0,), 4.0, 1)],
)
def test_a_fingerprint_of_a_busy_second_is_taken_again(
    spreads: tuple[float, ...], kept: float, times: int, tmp_path: Path
) -> None:
    taken: list[float] = []

    def answer(request: dict[str, object]) -> object:
        if request["do"] != "take_fingerprint":
            return None
        taken.append(spreads[len(taken)])
        return {"ok": {"fingerprint": {**SPEEDS, "spread_pct": {"core_speedup": taken[-1], "switch_s": 90.0}}}}

    world = World(tmp_path, answer)
    (client,) = world.pool.clients(["h1"]).values()
    assert client.fingerprint is not None and client.fingerprint.compared_spread_pct == kept
    assert len(taken) == times
    world.pool.close()


@pytest.mark.parametrize("answer", [{"error": "no loopback"}, {"ok": {"fingerprint": {"cores": 2}}}])
def test_a_machine_without_a_fingerprint_is_usable(
    answer: dict[str, object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, lambda asked: answer if asked["do"] == "take_fingerprint" else None)
    clients = world.pool.clients(["h1", "h2"])
    assert [client.fingerprint for client in clients.values()] == [None, None]
    assert caplog.text.count("no fingerprint of its machine") == 1
    world.pool.close()


def test_a_host_that_is_lost_is_set_aside_and_tried_again(world: World) -> None:
    world.problems["h1"] = HostLost("h1: no route")
    with pytest.raises(HostLost, match="no route"):
        world.pool.clients(["h1", "h2"])
    assert [spec.name for spec in world.pool.free()] == ["h2", "h3"]
    assert len(world.pool.usable_later(600)) == 3 and len(world.pool.usable_later(0)) == 2
    assert "h1: lost for" in world.pool.problems()[0]
    world.problems["h1"] = None
    assert "h1" in world.pool.clients(["h1"])
    assert world.pool.problems() == []


def test_a_host_that_refuses_is_not_tried_again(world: World) -> None:
    world.problems["h1"] = HostRefused("h1: wrong key")
    with pytest.raises(HostRefused):
        world.pool.clients(["h1"])
    assert [spec.name for spec in world.pool.usable_later(600)] == ["h2", "h3"]
    assert world.pool.problems() == ["h1: wrong key"]


def test_when_no_host_is_left_runs_fail_with_the_reason(world: World) -> None:
    world.problems |= {name: HostRefused(f"{name}: wrong key") for name in ("h1", "h2", "h3")}
    results = world.sweep()
    assert [result.status for result in results] == ["failed", "failed"]
    assert "wrong key" in str(results[1].failure)


def test_runs_wait_for_hosts_no_longer_than_asked(world: World) -> None:
    world.problems |= {name: HostLost(f"{name}: no route") for name in ("h1", "h2", "h3")}
    results = world.sweep(host_patience_s=0.3)
    assert [result.status for result in results] == ["failed", "failed"]
    assert "no route" in str(results[0].failure)


def test_a_failed_attempt_is_repeated_with_longer_pauses_and_leaves_its_reason(tmp_path: Path) -> None:
    def answer(asked: dict[str, object]) -> object:
        return {"error": "the disk\nis full"} if asked["do"] == "look" else None

    world = World(tmp_path, answer)
    results = world.sweep()
    assert [result.status for result in results] == ["failed", "failed"]
    assert [result.attempts for result in results] == [3, 3]
    first = [pause for error, pause in world.seen.failures if pause is not None]
    assert sorted(set(first)) == [0.01, 0.02]
    for path in (tmp_path / "traces" / "e").glob("*/run.json"):
        manifest = Manifest.read(path)
        assert (manifest.status, manifest.attempt) == (FAILED, 3)
        assert manifest.failure is not None and "the disk" in manifest.failure
    assert not list((tmp_path / "traces" / "e").glob(".*.partial"))
    assert [result.attempts for result in world.sweep()] == [6, 6]  # resumed: as in run.json


def test_fail_fast_ends_with_the_first(tmp_path: Path) -> None:
    world = World(tmp_path, lambda asked: {"error": "no"} if asked["do"] == "look" else None)
    world.pool.lend(["h3"])  # so that only one run goes at a time
    results = world.sweep(fail_fast=True)
    assert sorted(result.status for result in results) == ["failed", "not done"]


def test_a_signal_whose_handler_is_slow_stops_the_sweep(tmp_path: Path) -> None:
    """A wait of the queue module in C never ends if a handler takes longer than the rest of its time limit."""
    stop, attempt_ends = threading.Event(), threading.Event()

    def answer(asked: dict[str, object]) -> object:
        if asked["do"] == "look":
            attempt_ends.wait(3)
            return {"error": "no"}
        return None

    def handle(*_: object) -> None:
        stop.set()
        time.sleep(3 * TICK_S)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 2.5 * TICK_S)
    world = World(tmp_path, answer)
    try:
        results = world.sweep(stop=stop)
    finally:
        signal.signal(signal.SIGALRM, before)
        attempt_ends.set()
    assert [result.status for result in results] == ["not done", "not done"]
    assert world.seen.failures == []


def test_a_host_that_is_lost_in_mid_run_is_no_fault_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_pools, "ASIDE_S", 0.05)
    lost = [HostLost("h1: cut off") for _ in range(5)]  # more often than a run is tried

    def answer(asked: dict[str, object]) -> object:
        if asked["do"] == "listen":
            return lost.pop() if lost else {"error": "enough"}
        return None

    world = World(tmp_path, answer)
    results = world.sweep()
    assert sum(isinstance(error, HostLost) for error, _ in world.seen.failures) >= 1
    assert sum(result.attempts for result in results) > 6  # three of each run, and those that lost a host
    for result in results:
        assert result.directory is not None
        assert result.attempts == Manifest.read(result.directory / "run.json").attempt


def test_an_output_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="output folder"), only_sweep(tmp_path / "file", "e"):
        pass
