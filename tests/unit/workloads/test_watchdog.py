"""The ways out of a task, each in a process of its own; and how a peer is seen to go."""

from __future__ import annotations

import json
import queue
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from driple.workloads.runtime.watchdog import Peers
from driple.workloads.strategies.allreduce_barrier import StartBarrier

PROLOGUE = """
import sys, time, pathlib
from driple.workloads.runtime.task_output import TaskOutput
from driple.workloads.runtime.watchdog import Watchdog
watchdog = Watchdog(TaskOutput(pathlib.Path(sys.argv[1]), "worker:0"))
"""


def run(program: str, folder: Path) -> tuple[int, str, dict[str, Any]]:
    command = [sys.executable, "-c", PROLOGUE + program, str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, stdin=subprocess.DEVNULL)
    return result.returncode, result.stderr, json.loads((folder / "finished.json").read_text())


def test_a_time_limit_ends_a_task_whose_main_thread_waits_for_ever(tmp_path: Path) -> None:
    program = "watchdog.expect(60, 'no'); watchdog.expect(0.1, lambda: 'too late'); time.sleep(60)"
    code, words, finished = run(program, tmp_path)
    assert (code, words) == (1, "worker:0: too late\n")
    assert (finished["exit_code"], finished["message"]) == (1, "too late")


def test_nothing_ends_a_task_that_is_in_time(tmp_path: Path) -> None:
    program = "watchdog.expect(0.3, 'no'); watchdog.relax(); time.sleep(0.6); watchdog.leave(0)"
    assert run(program, tmp_path)[:2] == (0, "")


def test_only_the_first_last_words_are_heard(tmp_path: Path) -> None:
    program = """
import threading
for number in range(8):
    threading.Thread(target=watchdog.leave, args=(1, f"words\\nof {number}")).start()
time.sleep(60)
"""
    code, words, _ = run(program, tmp_path)
    assert code == 1
    assert len(words.splitlines()) == 1 and words.startswith("worker:0: words\\nof ")


def test_a_closed_stdin_ends_a_task(tmp_path: Path) -> None:
    code, words, _ = run("watchdog.end_with_stdin(); time.sleep(60)", tmp_path)
    assert code == 1 and "stdin was closed" in words


def test_a_peer_that_closes_its_connection_and_its_port_is_lost() -> None:
    lost: queue.Queue[str] = queue.Queue()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        peers = Peers({"ps:0": address}, lost.put)
        for _ in range(2):
            # Only the idle connection is closed, and the port still answers: not lost, but called again.
            connection, _ = server.accept()
            connection.close()
        connection, _ = server.accept()
        assert peers.missing() == [] and lost.empty()
    connection.close()
    assert lost.get(timeout=20) == "ps:0"


def test_a_peer_that_never_was_there_is_missing_and_not_lost() -> None:
    lost: queue.Queue[str] = queue.Queue()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        peers = Peers({"ps:0": address}, lost.put)
        with pytest.raises(queue.Empty):
            lost.get(timeout=0.5)
        assert peers.missing() == [f"ps:0 ({address})"]


def test_a_start_barrier_ends_when_all_have_met_and_frees_the_ports() -> None:
    with socket.socket() as a, socket.socket() as b, socket.socket() as c:
        for each in (a, b, c):
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in (a, b, c)]
    addresses = {f"worker:{index}": f"127.0.0.1:{port}" for index, port in enumerate(ports)}
    barriers = [
        StartBarrier(me, address, {name: other for name, other in addresses.items() if name != me})
        for me, address in addresses.items()
    ]
    threads = [threading.Thread(target=barrier.wait, daemon=True) for barrier in barriers]
    for thread in threads[:2]:
        thread.start()
    with socket.create_connection(("127.0.0.1", ports[0])) as stranger:
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
    threads[0].join(1.0)
    assert threads[0].is_alive() and barriers[0].missing() == [f"worker:2 (127.0.0.1:{ports[2]})"]
    threads[2].start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()
