"""The process manager of MPI: processes exchange values, and none waits for one that is lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from driple.workloads.collectives.process_manager import ProcessManager

LONG_S = 60.0


class Process:
    """What MPICH says for one process."""

    def __init__(self, address: str, rank: int) -> None:
        host, _, port = address.rpartition(":")
        self.line = socket.create_connection((host, int(port)), timeout=20)
        self.answers = self.line.makefile("r", encoding="ascii")
        self.rank = rank

    def ask(self, text: str, lines: int = 1) -> list[str]:
        self.line.sendall(f"cmd={text}\n".encode("ascii"))
        return [self.answers.readline().strip() for _ in range(lines)]

    def begin(self) -> None:
        told = self.ask(f"initack pmiid={self.rank}", lines=4)
        assert told[0] == "cmd=initack rc=0" and f"cmd=set rank={self.rank}" in told

    def enter(self) -> None:
        self.line.sendall(b"cmd=barrier_in\n")

    def close(self) -> None:
        self.answers.close()
        self.line.close()


@pytest.fixture
def manager() -> ProcessManager:
    return ProcessManager("127.0.0.1", 3, LONG_S)


@pytest.fixture
def processes(manager: ProcessManager) -> Iterator[list[Process]]:
    made = [Process(manager.address, rank) for rank in range(3)]
    for one in made:
        one.begin()
    yield made
    for one in made:
        one.close()


def test_values_of_one_reach_the_others_after_a_barrier(processes: list[Process]) -> None:
    for one in processes:
        assert one.ask(f"put kvsname=job key=address-{one.rank} value=tcp://10.0.0.{one.rank} 7") == [
            "cmd=put_result rc=0 msg=success"
        ]
    for one in processes:
        one.enter()
    for one in processes:
        assert one.answers.readline() == "cmd=barrier_out rc=0\n"
        assert one.ask("get kvsname=job key=address-2") == ["cmd=get_result rc=0 msg=success value=tcp://10.0.0.2 7"]
        assert one.ask("get kvsname=job key=none")[0].startswith("cmd=get_result rc=-1")
        assert one.ask("spawn nprocs=1")[0].startswith("cmd=spawn_result rc=-1")
        assert one.ask("finalize") == ["cmd=finalize_ack rc=0"]


def test_nobody_waits_for_a_process_that_is_lost(processes: list[Process]) -> None:
    first, second, lost = processes
    first.enter()
    lost.close()
    assert first.answers.readline() == ""
    second.enter()  # afterwards
    assert second.answers.readline() == ""


def test_nobody_waits_for_one_that_is_lost_in_the_barrier(processes: list[Process]) -> None:
    first, second, lost = processes
    for one in (first, lost):
        one.enter()
    lost.close()
    assert first.answers.readline() == ""
    second.enter()
    assert second.answers.readline() == ""


def test_nobody_waits_for_ever_for_one_that_does_not_come() -> None:
    manager = ProcessManager("127.0.0.1", 2, 0.1)
    only = Process(manager.address, 0)
    only.begin()
    only.enter()
    assert only.answers.readline() == ""
    only.close()


def test_a_connection_that_says_nothing_is_no_process(manager: ProcessManager, processes: list[Process]) -> None:
    Process(manager.address, 9).close()
    for one in processes:
        one.enter()
    assert [one.answers.readline() for one in processes] == ["cmd=barrier_out rc=0\n"] * 3
