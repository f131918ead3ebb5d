"""A process manager for MPI processes that were started by others: version 1 of the wire protocol PMI of MPICH.

A process connects (PMI_PORT), says its rank (PMI_ID), and exchanges the addresses of its network library with the
others. Both sides send lines of `key=value` pairs, first `cmd`. A barrier is over when all processes are in it.

A process that waits in a barrier holds Python's lock, so nothing else in it can notice that another one is lost. The
manager does: it hangs up on those that wait, and MPICH ends them.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

_LIMITS = "kvsname_max=256 keylen_max=64 vallen_max=4096"
_NAME = "job"


def start(host: str, processes: int, seconds: float) -> tuple[str, subprocess.Popen[str]]:
    """Starts it as a process of its own: MPI holds Python's lock while it waits for the answers.

    Args:
        host: the address to listen at.
        processes: how many will come.
        seconds: how long the others wait for one that does not come.

    Returns:
        Its `host:port`, and the process, which ends when this one does: its stdin is closed then.
    """
    command = [sys.executable, "-m", __name__, host, str(processes), str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process.stdout.readline().strip(), process


class ProcessManager:
    """Serves the processes of one job, in threads."""

    def __init__(self, host: str, processes: int, seconds: float) -> None:
        """Arguments as of `start`."""
        self._listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._processes = processes
        self._values: dict[str, str] = {}
        self._lock = threading.Lock()
        self._waiting: list[socket.socket] = []
        self._missing = processes
        self._lost = False
        threading.Thread(target=self._accept, name="process manager", daemon=True).start()
        patience = threading.Timer(seconds, self._give_up)
        patience.daemon = True
        patience.start()

    @property
    def address(self) -> str:
        """`host:port`."""
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        def say(line: str) -> None:
            connection.sendall(f"cmd={line}\n".encode("ascii"))

        answers: dict[str, Callable[[dict[str, str]], str]] = {
            "initack": self._greeting,
            "init": lambda _: "response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": lambda _: f"maxes {_LIMITS} rc=0",
            "get_appnum": lambda _: "appnum appnum=0 rc=0",
            "get_my_kvsname": lambda _: f"my_kvsname kvsname={_NAME} rc=0",
            "get_universe_size": lambda _: f"universe_size size={self._processes} rc=0",
            "put": self._put,
            "get": self._get,
            "finalize": lambda _: "finalize_ack rc=0",
        }
        last = ""
        with connection, connection.makefile("r", encoding="ascii") as lines, contextlib.suppress(OSError):
            for line in lines:
                request = _pairs(line)
                last = request["cmd"]
                if last == "barrier_in":
                    self._barrier(connection)
                elif last in answers:
                    say(answers[last](request))
                else:
                    say(f"{last}_result rc=-1 msg=unknown_command")
        if last not in ("", "finalize"):  # whoever says nothing is none of the processes
            self._lose()

    def _greeting(self, request: dict[str, str]) -> str:
        with self._lock:
            self._missing -= 1
        told = (f"size={self._processes}", f"rank={request['pmiid']}", "debug=0")
        return "\n".join(["initack rc=0", *(f"cmd=set {pair}" for pair in told)])

    def _put(self, request: dict[str, str]) -> str:
        self._values[request["key"]] = request["value"]
        return "put_result rc=0 msg=success"

    def _get(self, request: dict[str, str]) -> str:
        value = self._values.get(request["key"])
        if value is None:
            return "get_result rc=-1 msg=key_not_found value=unknown"
        return f"get_result rc=0 msg=success value={value}"

    def _barrier(self, connection: socket.socket) -> None:
        with self._lock:
            self._waiting.append(connection)
            if self._lost:
                self._hang_up()
            elif len(self._waiting) == self._processes:
                for each in self._waiting:
                    with contextlib.suppress(OSError):  # it is lost, which its own thread will see
                        each.sendall(b"cmd=barrier_out rc=0\n")
                self._waiting.clear()

    def _give_up(self) -> None:
        if self._missing > 0:
            self._lose()

    def _lose(self) -> None:
        """A process has gone, or never came: no barrier will be over."""
        with self._lock:
            self._lost = True
            self._hang_up()

    def _hang_up(self) -> None:
        for each in self._waiting:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._waiting.clear()


def _pairs(line: str) -> dict[str, str]:
    """The pairs of a line. A value comes last and may have blanks in it."""
    head, _, value = line.strip().partition(" value=")
    pairs = dict(pair.split("=", 1) for pair in head.split() if "=" in pair)
    return {"cmd": "", **pairs, "value": value}


if __name__ == "__main__":
    print(ProcessManager(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])).address, flush=True)
    sys.stdin.read()
