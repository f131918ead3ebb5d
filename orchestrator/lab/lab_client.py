"""Lab: hosts in network namespaces of this machine, seen from outside."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from driple.contracts.errors import BadInput, HostLost, RunFailed, UnknownName
from driple.contracts.manifest import HostShare
from driple.contracts.run_spec import NetworkCondition
from driple.orchestrator.lab import control_messages
from driple.orchestrator.lab import lab_folder as folders
from driple.orchestrator.lab.lab_start import LabUnavailableError, caller, launch
from driple.orchestrator.lab.layout import DATA_NIC, LINKS, LabFiles, LabPlan

__all__ = ["DEFAULT_NAME", "Lab", "LabUnavailableError", "living_labs"]

DEFAULT_NAME = "lab"  # of a detached lab

_ACTION_LIMIT_S = 60.0
_END_LIMIT_S = 10.0


def living_labs() -> list[str]:
    """Names of this user's labs that are up. Removes folders of labs that have ended."""
    return [folders.name_of(folder) for folder in folders.living()]


class Lab:
    """A running lab. Methods are thread-safe and have time limits.

    Unless detached, it ends with the process that started it, however that ends.
    """

    data_nic = DATA_NIC

    def __init__(self, folder: Path, process: subprocess.Popen[bytes] | None = None) -> None:
        self.folder = folder
        self._files = LabFiles(folder)
        self._process = process
        self._closing = threading.Lock()
        described = self.describe()
        self._hosts: Mapping[str, Mapping[str, Any]] = described["hosts"]
        self.names: tuple[str, ...] = tuple(self._hosts)
        self.user: str = described["plan"]["user"]
        self.key_file: Path = self._files.key
        self._shares: Mapping[str, Mapping[str, Any]] = described["shares"]["hosts"]
        self.share_fault: str | None = described["shares"]["fault"]

    @classmethod
    def start(
        cls,
        *,
        hosts: int,
        rate_mbit: float | None = 1000.0,
        disk_mb: int = 1024,
        clock_offsets_s: Mapping[str, float] | None = None,
        cores_per_host: float | None = None,  # share of the processors of processes that join `share_files`
        share_period_us: int = LabPlan.share_period_us,
        pace_us: int | None = LabPlan.pace_us,
        bind_hosts: bool = LabPlan.bind_hosts,
        detached: bool = False,  # runs until `close` is called
        name: str | None = None,  # of its folder; `attach` finds a detached lab by it
    ) -> Lab:
        """Creates a lab (arguments as of LabPlan). Raises LabUnavailableError, with the reason."""
        plan = LabPlan(
            hosts=hosts,
            rate_mbit=rate_mbit,
            disk_mb=disk_mb,
            clock_offsets_s=dict(clock_offsets_s or {}),
            cores_per_host=cores_per_host,
            share_period_us=share_period_us,
            pace_us=pace_us,
            bind_hosts=bind_hosts,
            detached=detached,
            **caller(),  # type: ignore[arg-type]
        )
        name = name or (DEFAULT_NAME if detached else f"run-{os.getpid()}-{secrets.token_hex(4)}")
        folder = folders.path_of(name)
        return cls(folder, launch(plan, folder))

    @classmethod
    def attach(cls, folder_or_name: Path | str | None = None) -> Lab:
        """The running lab of that name or folder; without one, the only lab that runs."""
        labs = {folders.name_of(folder): folder for folder in folders.living()}
        if isinstance(folder_or_name, Path):
            folder_or_name = folders.name_of(folder_or_name)
        if folder_or_name is None:
            folder_or_name = DEFAULT_NAME if DEFAULT_NAME in labs or len(labs) != 1 else next(iter(labs))
        if folder_or_name not in labs:
            up = f"up now: {', '.join(labs)}" if labs else "none is up"
            raise BadInput(f"no lab {folder_or_name!r} is up ({up}); `driple-lab up` creates one")
        return cls(labs[folder_or_name])

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        return folders.name_of(self.folder)

    @property
    def ssh_config(self) -> Path:
        return self._files.ssh_config

    @property
    def control_socket(self) -> Path:
        """The supervisor's Unix socket; hosts see it too."""
        return self._files.socket

    def host_key(self, name: str) -> str:
        return str(self._hosts[self._known(name)]["host_key"])

    def data_address(self, name: str) -> str:
        return str(self._hosts[self._known(name)]["data_address"])

    def share_files(self, name: str) -> tuple[str, ...]:
        """Files that a process of the host is written to, so that it has the share of the host; none without one."""
        share = self._shares.get(self._known(name))
        return () if share is None else tuple(share["files"])

    @property
    def shares(self) -> dict[str, HostShare]:
        """By host, the share that it has."""
        return {name: HostShare(**share["record"]) for name, share in self._shares.items()}

    def connect(self, name: str, timeout_s: float = 10.0) -> socket.socket:
        """A TCP connection to the host's sshd over the management link. Raises HostLost if it does not answer."""
        question = {"do": "connect", "host": self._known(name), "timeout_s": timeout_s}
        _, descriptors = self._ask(question, timeout_s + 5)
        return socket.socket(fileno=descriptors[0])

    def shape(self, condition: NetworkCondition, link_mbit: float | None) -> dict[str, str]:
        """Sets the condition of all data links; returns the mechanisms, such as `{"rate": "tbf", "loss": "nft"}`.

        `link_mbit` is the rate if the condition has none. Raises RunFailed if the kernel cannot; nothing was changed.
        """
        rate = condition.rate_mbit if condition.rate_mbit is not None else link_mbit
        how, _ = self._ask({"do": "shape", "shape": {**asdict(condition), "rate_mbit": rate}})
        return dict(how)

    def set_link(self, name: str, up: bool, which: Literal["data", "mgmt"] = "data") -> None:
        if which not in LINKS:
            raise UnknownName("link", which, LINKS)
        self._ask({"do": "set_link", "host": self._known(name), "link": which, "up": up})

    def kill_host(self, name: str, *, silent: bool = True) -> None:
        """Ends a host and all its processes. If `silent`, as a power cut does: its connections are not closed."""
        self._ask({"do": "kill_host", "host": self._known(name), "silent": silent})

    def revive_host(self, name: str) -> None:
        """Boots a host that is down, with the same addresses and keys and an empty home."""
        self._ask({"do": "revive_host", "host": self._known(name)})

    def describe(self) -> dict[str, Any]:
        answer, _ = self._ask({"do": "describe"})
        return dict(answer)

    @property
    def supervisor_pid(self) -> int:
        """The first process of the lab; the lab ends with it."""
        with self._call(5.0) as line:
            return control_messages.other_side(line)

    def close(self) -> None:
        """Removes the lab completely. Safe to call twice."""
        with self._closing:
            self._end()
            if self._process is not None:
                self._wait(self._process)
            folders.clear(self.folder, patience_s=_END_LIMIT_S)

    def _end(self) -> None:
        try:
            line = control_messages.call(self._files.socket, _END_LIMIT_S)
        except OSError:
            return  # its supervisor is gone
        with line:
            supervisor = control_messages.other_side(line)
            try:
                control_messages.send(line, {"do": "down"})
                control_messages.receive(line)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    os.kill(supervisor, signal.SIGKILL)
            except OSError:
                pass  # it ended before it read the request

    @staticmethod
    def _wait(process: subprocess.Popen[bytes]) -> None:
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        try:
            process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel ends the supervisor with unshare, and all hosts with the supervisor
            process.wait()

    def _known(self, name: str) -> str:
        if name not in self._hosts:
            raise UnknownName("lab host", name, self.names)
        return name

    def _call(self, timeout_s: float) -> socket.socket:
        try:
            return control_messages.call(self._files.socket, timeout_s)
        except OSError as error:
            raise RunFailed(
                f"the lab {self.name!r} is gone: its supervisor does not answer ({error.strerror})"
            ) from None

    def _ask(self, question: Mapping[str, object], timeout_s: float = _ACTION_LIMIT_S) -> tuple[Any, list[int]]:
        """One connection per request, so that threads do not wait for one another."""
        with self._call(timeout_s) as line:
            try:
                control_messages.send(line, question)
                answer, descriptors = control_messages.receive(line)
            except TimeoutError:
                raise RunFailed(f"the lab {self.name!r} did not {question['do']} within {timeout_s:g} s") from None
            except OSError as error:
                raise RunFailed(f"the lab {self.name!r} is gone: {error.strerror}") from None
        if answer is None:
            raise RunFailed(f"the lab {self.name!r} ended during the request to {question['do']}")
        if "lost" in answer:
            raise HostLost(f"lab host {answer['lost']}; `driple-lab status` shows which hosts are up")
        if "failed" in answer:
            raise RunFailed(f"lab: {answer['failed']}")
        return answer["ok"], descriptors
