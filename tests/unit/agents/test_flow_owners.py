"""Whose a flow is, where the kernel does not let us see."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from driple.agents import flows
from driple.agents.flows import FlowTable


@pytest.fixture
def table() -> Iterator[FlowTable]:
    found = FlowTable(100, 10)
    found.open()
    yield found
    found.close()


def owner(table: FlowTable, port: int) -> object:
    (row,) = [row for row in table.read(0) if row[3] == port]
    return row[6]


@pytest.mark.parametrize(("hidden", "mine", "expected"), [(False, False, 0), (True, False, None), (True, True, 1)])
def test_where_descriptors_may_not_be_read_a_flow_may_be_the_tasks(
    table: FlowTable, hidden: bool, mine: bool, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.readlink

    def readlink(path: str) -> str:
        if hidden:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(flows.os, "readlink", readlink)  # type: ignore[attr-defined]
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        inode = os.fstat(client.fileno()).st_ino
        table.task_sockets = lambda: {inode} if mine else set()
        table.task_pids = lambda: [os.getpid()]
        assert owner(table, client.getsockname()[1]) == expected
