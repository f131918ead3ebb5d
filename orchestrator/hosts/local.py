"""LocalHost: this machine as a host, without SSH."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from driple.contracts.errors import HostError, HostLost, shown
from driple.contracts.run_dir import replacing
from driple.orchestrator.hosts.base import KEPT_WORDS, Finished
from driple.orchestrator.hosts.text_lines import Lines, Tail

SEND_LIMIT_S = 30.0
END_LIMIT_S = 15.0  # how long `close` waits for processes after closing their stdin
_PIECE = 256 * 1024


class LocalHost:
    """This machine. Each process has its own session, so that Ctrl-C reaches the controller only."""

    def __init__(self, name: str = "local") -> None:
        self.name = name
        self._channels: list[LocalChannel] = []

    def open(self) -> None:
        """There is nothing to connect."""

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> Finished:
        process = self._process(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with process:
            try:
                stdout, stderr = process.communicate(stdin, timeout=timeout_s)
            except subprocess.TimeoutExpired:
                raise HostError(
                    f"{self.name}: {shown(shlex.join(argv), 200)} did not end within {timeout_s:g} s"
                ) from None
            finally:
                _kill_session(process)
        return Finished(max(process.returncode, -1), stdout, stderr)

    def start(self, argv: Sequence[str]) -> LocalChannel:
        # A socket: unlike closing a pipe, shutting it down wakes a thread that waits for it.
        ours, theirs = socket.socketpair()
        try:
            process = self._process(argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        channel = LocalChannel(self.name, process, ours)
        self._channels.append(channel)
        return channel

    def put(self, content: bytes, path: str, *, mode: int = 0o644, timeout_s: float = 60.0) -> None:
        try:
            with replacing(_home(path), "wb") as stream:
                stream.write(content)
                os.fchmod(stream.fileno(), mode)
        except OSError as error:
            raise HostError(f"{self.name}: cannot write {path}: {error.strerror}") from None

    def get(self, path: str, target: Path, *, timeout_s: float = 600.0) -> None:
        try:
            with _home(path).open("rb") as source, replacing(target, "wb") as stream:
                shutil.copyfileobj(source, stream, _PIECE)
        except OSError as error:
            raise HostError(f"{self.name}: cannot copy {path} to {target}: {error.strerror}") from None

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        for channel in self._channels:
            channel.end()
        self._channels.clear()

    def _process(self, argv: Sequence[str], **streams: object) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(list(argv), start_new_session=True, **streams)  # type: ignore[call-overload, no-any-return]
        except (OSError, ValueError) as error:
            cause = error.strerror if isinstance(error, OSError) else str(error)
            raise HostError(f"{self.name}: cannot start {shown(shlex.join(argv), 200)}: {cause}") from None


class LocalChannel:
    """A long-lived process on this machine."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], stream: socket.socket) -> None:
        self._name = name
        self._process = process
        self._stream = stream
        self._stream.settimeout(SEND_LIMIT_S)
        self._lines = Lines()
        self._words = Tail(KEPT_WORDS)
        self._receiving = threading.Lock()
        self._sending = threading.Lock()
        self._closed = False
        self._words_open = True
        self._poll = select.poll()
        self._poll.register(stream, select.POLLIN)
        assert process.stderr is not None
        self._stderr = process.stderr
        os.set_blocking(self._stderr.fileno(), False)
        self._poll.register(self._stderr, select.POLLIN)

    def send(self, line: str) -> None:
        self.write(line.encode() + b"\n")

    def write(self, content: bytes) -> None:
        with self._sending:
            if self._closed:
                raise HostError(f"{self._name}: the channel is closed")
            try:
                self._stream.sendall(content)
            except TimeoutError:
                self.close()
                raise HostLost(
                    f"{self._name}: process {self._process.pid} read nothing for {SEND_LIMIT_S:g} s"
                ) from None
            except OSError:
                code = self.exit_code
                raise HostError(f"{self._name}: process {self._process.pid} has ended (exit code {code})") from None

    def receive(self, timeout_s: float | None) -> str | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._receiving:
            while True:
                line = self._lines.pop()
                if line is not None:
                    return line
                if self._closed:
                    return None
                left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
                ready = {descriptor for descriptor, _ in self._poll.poll(left)}
                if not ready:
                    raise TimeoutError(f"{self._name}: no line within {timeout_s} s")
                if self._words_open and self._stderr.fileno() in ready:
                    self._hear()
                if self._stream.fileno() in ready and not self._take():
                    self._hear()
                    with suppress(subprocess.TimeoutExpired):
                        self._process.wait(1.0)
                    return self._lines.rest()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        with self._receiving:  # the waiting thread was woken; now the descriptors can be closed
            self._stream.close()
            self._stderr.close()

    def end(self) -> None:
        """Waits for the process after its stdin was closed; kills its session if it does not end."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_LIMIT_S)
        _kill_session(self._process)

    @property
    def last_words(self) -> str:
        return self._words.content().decode("utf-8", "replace")

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def _take(self) -> bool:
        try:
            piece = self._stream.recv(_PIECE)
        except OSError:
            return False
        self._lines.feed(piece)
        return bool(piece)

    def _hear(self) -> None:
        """Reads stderr, which would block the process if nobody did."""
        while self._words_open and not self._closed:
            try:
                piece = os.read(self._stderr.fileno(), _PIECE)
            except BlockingIOError:
                return
            if not piece:
                self._words_open = False
                self._poll.unregister(self._stderr)
            self._words.feed(piece)


def _home(path: str) -> Path:
    return Path(path).expanduser() if path.startswith("~/") else Path(path)


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
