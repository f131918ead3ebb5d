"""A command on a host over SSH: its streams, its end, and the detection of a lost connection."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import paramiko

from driple.contracts.errors import HostError, HostLost
from driple.orchestrator.hosts.text_lines import Lines, Tail

SEND_LIMIT_S = 30.0
LOST = (paramiko.SSHException, EOFError, OSError)  # exceptions of paramiko for a closed channel or connection
_PIECE = 256 * 1024
_MAX_NOISE = 1024 * 1024


class SshChannel:
    """A long-lived process on a host. `receive` also reads its stderr."""

    def __init__(self, process: Process, host: str, command: str) -> None:
        self._process = process
        self._host = host
        self._command = command
        self._lines = Lines()
        self._receiving = threading.Lock()
        self._sending = threading.Lock()
        self._closed = False

    def send(self, line: str) -> None:
        self.write(line.encode() + b"\n")

    def write(self, content: bytes) -> None:
        with self._sending:
            if self._process.channel.exit_status >= 0 and not self._closed:  # nobody would read it
                raise HostError(f"{self._host}: {self._command} has ended (exit code {self.exit_code})")
            try:
                self._process.channel.settimeout(SEND_LIMIT_S)
                self._process.channel.sendall(content)
            except TimeoutError:
                self.close()
                raise HostLost(f"{self._host}: {self._command} read nothing for {SEND_LIMIT_S:g} s") from None
            except LOST:
                if self._closed:
                    raise HostError(f"{self._host}: the channel to {self._command} is closed") from None
                self._process.check_connection()
                raise HostError(f"{self._host}: {self._command} has ended (exit code {self.exit_code})") from None

    def receive(self, timeout_s: float | None) -> str | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._receiving:
            while True:
                try:
                    line = self._lines.pop()
                except HostError as error:
                    self.close()
                    raise HostError(f"{self._host}: {self._command} said {error}") from None
                if line is not None:
                    return line
                piece = self._process.read(None if deadline is None else deadline - time.monotonic())
                if piece:
                    self._lines.feed(piece)
                    continue
                if not self._closed:
                    self._process.channel.status_event.wait(1.0)
                    self._process.check_connection()
                return self._lines.rest()

    def close(self) -> None:
        self._closed = True
        self._process.close()

    @property
    def last_words(self) -> str:
        return self._process.stderr.content().decode("utf-8", "replace")

    @property
    def exit_code(self) -> int | None:
        code = self._process.exit_status()
        return None if code < 0 else code


class _Wake(threading.Event):
    """Set by paramiko when there is something to read. Its `clear`, when one of two buffers is empty, is ignored."""

    def clear(self) -> None:
        pass

    def reset(self) -> None:
        super().clear()


class Process:
    """A command on a channel: its output, without that of the login shell before it."""

    def __init__(self, channel: paramiko.Channel, beginning: str, kept: int, host: str) -> None:
        self.channel = channel
        self.stderr = Tail(kept)
        self._host = host
        self.pid: int | None = None  # known once it has begun
        self._beginning: bytes | None = rf"{beginning} (\d+)\n".encode()
        self._noise = b""
        self._wake = _Wake()
        # Not Channel.fileno(): a thread that polls it does not wake when another closes the channel.
        channel.in_buffer.set_event(self._wake)
        channel.in_stderr_buffer.set_event(self._wake)

    def read(self, timeout_s: float | None) -> bytes:
        """Some bytes of stdout; none at its end. Raises TimeoutError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            piece = self._read(None if deadline is None else deadline - time.monotonic())
            if self._beginning is None:
                return piece
            self._noise += piece
            found = re.search(self._beginning, self._noise)
            if found is not None:
                self.pid = int(found[1])
                piece, self._beginning = self._noise[found.end() :], None
                if piece:
                    return piece
            elif not piece:  # the shell did not reach the command
                self._beginning = None
                return self._noise
            elif len(self._noise) > _MAX_NOISE:
                self._noise = self._noise[-1000:]

    def _read(self, timeout_s: float | None) -> bytes:
        channel = self.channel
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self._wake.reset()  # before the checks: later data sets it again
            ended = channel.eof_received or channel.closed
            while channel.recv_stderr_ready():
                self.stderr.feed(self._take(channel.recv_stderr))
            if channel.recv_ready():
                return self._take(channel.recv)
            if ended:
                return b""
            if not self._wake.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"{self._host}: nothing within {timeout_s} s")

    def _take(self, receive: Callable[[int], bytes]) -> bytes:
        try:
            return receive(_PIECE)
        except LOST:  # reading sends a window update
            raise HostLost(f"{self._host}: the connection was lost") from None

    def write(self, content: bytes, deadline: float, take: Callable[[bytes], object]) -> None:
        """Writes all of stdin and closes it. Reads output meanwhile, for which the command may wait."""
        self.channel.settimeout(0.02)  # there is no event for free space
        view = memoryview(content)
        while view and not self.channel.closed:
            try:
                view = view[self.channel.send(view[:_PIECE]) :]
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise
            except LOST:
                break  # it closed its stdin or ended; see its exit status
            if self.channel.recv_ready() or self.channel.recv_stderr_ready():
                try:
                    take(self.read(0.0))
                except TimeoutError:
                    continue
        with suppress(*LOST):
            self.channel.shutdown_write()

    def await_exit(self, timeout_s: float) -> None:
        if not self.channel.status_event.wait(max(0.0, timeout_s)):
            raise TimeoutError
        self.check_connection()

    def check_connection(self) -> None:
        """Raises HostLost if the end of the stream was that of the connection."""
        if self.channel.exit_status >= 0:
            return
        # The transport wakes readers before it reports its end. Otherwise a signal ended the command.
        if self.channel.eof_received:
            self.channel.transport.join(0.1)
        if not self.channel.eof_received or not self.channel.transport.is_active():
            raise HostLost(f"{self._host}: the connection was lost")

    def exit_status(self) -> int:
        return int(self.channel.exit_status)

    def last_line(self) -> str:
        lines = self.stderr.content().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.exit_status()}"

    def close(self) -> None:
        with suppress(*LOST):
            self.channel.close()
