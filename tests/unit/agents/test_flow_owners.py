"""Whose a flow is, where the kernel does not let us see; and when the kernel has to look for flows."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from driple.agents.sources import tcp_flows
from driple.agents.sources.tcp_flows import FlowTable


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

    monkeypatch.setattr(tcp_flows.os, "readlink", readlink)  # type: ignore[attr-defined]
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        inode = os.fstat(client.fileno()).st_ino
        table.task_sockets = lambda: {inode} if mine else set()
        table.task_pids = lambda: [os.getpid()]
        assert owner(table, client.getsockname()[1]) == expected


def counters(table: FlowTable, t_ms: int, port: int) -> list[tuple[object, object]]:
    rows = table.read(t_ms * 1_000_000)
    return sorted((row[7], row[8]) for row in rows if port in (row[3], row[5]))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_flows_that_are_known_are_asked_for_one_by_one(
    table: FlowTable, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = [b"1 1"]
    monkeypatch.setattr(table, "_count_opened", lambda: opened[0])  # others open connections on this machine too
    monkeypatch.setattr(tcp_flows, "_FEW", 10_000)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as server, socket.socket(family) as client:
        server.bind((host, 0))
        server.listen()
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        port = client.getsockname()[1]
        for t_ms in range(0, 600, 200):
            counters(table, t_ms, port)
        table._known = {cookie: kept for cookie, kept in table._known.items() if port in (kept.ends[1], kept.ends[3])}
        client.sendall(bytes(1000))
        accepted.recv(1000, socket.MSG_WAITALL)
        walks = table._walks
        assert counters(table, 600, port) == [(0, 1000), (1001, 0)]
        assert table._walks == walks
        opened[0] = b"2 1"
        counters(table, 700, port)
        counters(table, 800, port)
        assert table._walks == walks + 2  # a connection is counted before it can be found
        assert len(counters(table, 1900, port)) == 2
        assert table._walks == walks + 3  # whatever the count says, once a second
        table._known = {cookie: kept for cookie, kept in table._known.items() if port in (kept.ends[1], kept.ends[3])}
        accepted.close()
        client.close()
        assert counters(table, 2000, port) == []
        assert table._walks == walks + 4  # one is gone


def test_the_kernel_counts_the_connections_that_are_opened(table: FlowTable) -> None:
    before = table._count_opened()
    assert before is not None
    assert len(before.split()) == 2
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        after = table._count_opened()
    assert after is not None
    assert [int(b) > int(a) for a, b in zip(before.split(), after.split(), strict=True)] == [True, True]
