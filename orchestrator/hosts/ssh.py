"""SshHost: a machine over SSH.

It uses paramiko directly. fabric's Connection accepts keys of unknown hosts silently, ignores Include in
~/.ssh/config, has no time limits and runs commands as text.
"""

from __future__ import annotations

import secrets
import shlex
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import paramiko

from driple.contracts.errors import HostError, HostLost, HostRefused, shown
from driple.contracts.run_dir import replacing
from driple.orchestrator.config.inventory import HostSpec
from driple.orchestrator.hosts.base import KEPT_WORDS, Finished
from driple.orchestrator.hosts.connect import LOST_AFTER_S, Connection, dial
from driple.orchestrator.hosts.known_hosts import HostKeys
from driple.orchestrator.hosts.login import Login
from driple.orchestrator.hosts.remote_command import LOST, Process, SshChannel
from driple.orchestrator.hosts.route import Options, Route, direct_route, find_route
from driple.orchestrator.hosts.shell import path_word, script_line

_KEPT_STDERR = 1024 * 1024
_KILL_LIMIT_S = 5.0


class SshHost:
    """A host over SSH. Several threads may use it at once, as far as its sshd's MaxSessions goes."""

    def __init__(
        self,
        spec: HostSpec,  # takes precedence over ~/.ssh/config
        *,
        config_file: Path | None = None,  # instead of ~/.ssh/config
        known_hosts: Sequence[Path] | None = None,  # instead of the files of the configuration
        accept_new: bool = False,  # add the key of an unknown host to the first file; never a changed key
        connect: Callable[[], socket.socket] | None = None,  # returns a connected socket at every `open`
        host_key: str | None = None,  # with `connect`, the only key that is accepted, as in a .pub file
        connect_timeout_s: float | None = None,  # instead of ConnectTimeout of the configuration, or 10 s
    ) -> None:
        """Connects nothing yet. With `connect`, ~/.ssh/config and known_hosts are ignored."""
        if (connect is None) != (host_key is None):
            raise ValueError("connect and host_key belong together")
        self.name = spec.name
        self._spec = spec
        self._options = Options(
            config_file=config_file or Path.home() / ".ssh" / "config",
            known_hosts=known_hosts,
            accept_new=accept_new,
            connect_timeout_s=connect_timeout_s,
        )
        self._plug = connect
        self._host_key = host_key
        self._route: Route | None = None
        self._connection: Connection | None = None
        self._opening = threading.Lock()

    def open(self) -> None:
        with self._opening:
            if self._connection is not None:
                if self._connection.transport.is_active():
                    return
                self._connection.close()
                self._connection = None
            spec, options = self._spec, self._options
            route = find_route(spec, options) if self._plug is None else direct_route(spec, options)
            self._connection = dial(route, HostKeys(route, only=self._host_key), Login(route), self._plug)
            self._route = route

    def close(self) -> None:
        with self._opening:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> Finished:
        """Runs a short command to the end of its output; kills it and raises HostError if that takes too long."""
        pieces: list[bytes] = []
        words = shlex.join(argv)
        process = self._execute(f"exec {words}", what=words, timeout_s=timeout_s, stdin=stdin, take=pieces.append)
        return Finished(process.exit_status(), b"".join(pieces), process.stderr.content())

    def start(self, argv: Sequence[str]) -> SshChannel:
        words = shlex.join(argv)
        return SshChannel(self._begin(f"exec {words}", KEPT_WORDS), str(self), argv[0])

    def put(self, content: bytes, path: str, *, mode: int = 0o644, timeout_s: float = 60.0) -> None:
        # `cat` instead of SFTP: one round trip instead of seven, and no subsystem needed. The size is checked before
        # the move, because `cat` takes a broken connection for the end of the file.
        beside, target = path_word(f"{path}.{secrets.token_hex(4)}.partial"), path_word(path)
        script = (
            f"if test -d {target}; then echo it is a folder >&2; exit 1; fi; umask 077; cat > {beside} && "
            f"chmod {mode:o} {beside} && test $(wc -c < {beside}) -eq {len(content)} && "
            f"mv -f {beside} {target} || {{ rm -f {beside}; exit 1; }}"
        )
        process = self._execute(script, what=f"write {path}", timeout_s=timeout_s, stdin=content)
        if process.exit_status() != 0:
            raise HostError(f"{self}: cannot write {path}: {process.last_line()}")

    def get(self, path: str, target: Path, *, timeout_s: float = 600.0) -> None:
        try:
            with replacing(target, "wb") as stream:
                process = self._execute(
                    f"exec cat {path_word(path)}", what=f"read {path}", timeout_s=timeout_s, take=stream.write
                )
                if process.exit_status() != 0:
                    raise HostError(f"{self}: cannot read {path}: {process.last_line()}")
        except OSError as error:
            raise HostError(f"{self}: cannot fetch {path} to {target}: {error.strerror}") from None

    def __str__(self) -> str:
        return self.name if self._route is None else str(self._route)

    def _execute(
        self, script: str, *, what: str, timeout_s: float, stdin: bytes = b"", take: Callable[[bytes], object] = bytes
    ) -> Process:
        deadline = time.monotonic() + timeout_s
        process = self._begin(script, _KEPT_STDERR, timeout_s)
        try:
            process.write(stdin, deadline, take)
            while True:
                piece = process.read(deadline - time.monotonic())
                if not piece:
                    break
                take(piece)
            process.await_exit(deadline - time.monotonic())
        except TimeoutError:
            late = f"{self}: {shown(what, 200)} did not end within {timeout_s:g} s"
            if self._kill(process):
                raise HostError(f"{late}; it was killed") from None
            raise HostLost(f"{late}, and the host does not answer; it may still run there") from None
        finally:
            process.close()
        return process

    def _kill(self, process: Process) -> bool:
        """Kills a command. Without a terminal it would survive the end of its channel."""
        if process.pid is None:
            return False
        # Every command has its own process group. sshd ignores the signal message of SSH for root.
        try:
            killer = self._begin(f"kill -KILL -{process.pid}", 1000, _KILL_LIMIT_S)
            killer.read(_KILL_LIMIT_S)
            killer.close()
        except (HostError, TimeoutError):
            return False
        return True

    def _begin(self, script: str, kept: int, timeout_s: float = LOST_AFTER_S) -> Process:
        connection = self._connection
        if connection is None or not connection.transport.is_active():
            raise HostLost(f"{self}: the connection is gone")
        started, limit = time.monotonic(), min(timeout_s, LOST_AFTER_S)
        beginning = f"driple-{secrets.token_hex(8)}"
        channel = None
        try:
            channel = connection.transport.open_session(timeout=limit)
            process = Process(channel, beginning, kept, str(self))
            timer = threading.Timer(limit, channel.close)  # exec_command has no time limit of its own
            timer.daemon = True
            timer.start()
            try:
                channel.exec_command(script_line(script, beginning).encode("utf-8", "surrogateescape"))
            finally:
                timer.cancel()
        except LOST as error:
            if channel is not None:
                with suppress(*LOST):  # it is as gone as the connection
                    channel.close()
            if isinstance(error, paramiko.ChannelException) and connection.transport.is_active():
                raise HostError(
                    f"{self}: opens no more sessions: {error}; see MaxSessions in its sshd_config"
                ) from None
            if connection.transport.is_active() and time.monotonic() < started + limit:
                raise HostRefused(f"{self}: runs no commands: {error}; check the shell of the login") from None
            cause = str(error) or "the connection was closed"
            raise HostLost(f"{self}: no command could be started within {limit:g} s: {cause}") from None
        return process
