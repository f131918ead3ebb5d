"""Opens an SSH connection along a route: socket, host key, login. Every error is one line."""

from __future__ import annotations

import logging
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field

import paramiko

from driple.contracts.errors import HostLost, HostRefused
from driple.orchestrator.hosts.known_hosts import HostKeys
from driple.orchestrator.hosts.login import Login
from driple.orchestrator.hosts.route import Route

LOST_AFTER_S = 30.0  # a connection without acknowledgements for so long is lost
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
"""Ciphers with authentication first: the others need a second pass in Python for every packet."""
_IDLE_CHECK_S = 1.0
_MAX_JUMPS = 8
_AT_ONCE = 8
_GATES = [threading.BoundedSemaphore(_AT_ONCE) for _ in range(_MAX_JUMPS + 1)]
"""Limits for jump hosts, by distance: sshd drops connections beyond ten that are not logged in yet (MaxStartups). A
thread that waits for one limit holds only those of smaller distance."""


@dataclass
class Connection:
    """A logged-in transport and what carries it."""

    transport: paramiko.Transport
    below: list[Callable[[], None]] = field(default_factory=list)

    def close(self) -> None:
        sock = self.transport.sock
        with suppress(OSError, EOFError):  # wakes the thread of the transport
            sock.shutdown(socket.SHUT_RDWR)
        self.transport.close()
        self.transport.join(5.0)
        with suppress(OSError):
            sock.close()
        for close in reversed(self.below):
            close()


def dial(route: Route, keys: HostKeys, login: Login, plug: Callable[[], socket.socket] | None = None) -> Connection:
    """Connects and logs in; `plug` returns a connected socket, instead of the route.

    Raises HostRefused for a wrong login or key, and HostLost for any other error, which may be temporary.
    """
    # Without a handler, logging would print paramiko's tracebacks on stderr. Our errors contain their causes.
    if logging.getLogger("paramiko").level == logging.NOTSET:
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    with _GATES[route.depth] if route.depth else nullcontext():
        return _dial(route, keys, login, plug)


def _dial(route: Route, keys: HostKeys, login: Login, plug: Callable[[], socket.socket] | None) -> Connection:
    below: list[Callable[[], None]] = []
    connection = None
    try:
        sock = _socket(route, plug, below)
        deadline = time.monotonic() + route.timeout_s
        with suppress(OSError, AttributeError):  # a socket of another family, or a channel of a jump host
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(LOST_AFTER_S * 1000))
        transport = paramiko.Transport(sock)
        connection = Connection(transport, below)
        _shake_hands(transport, route, keys, deadline)
        transport.auth_timeout = _left(deadline)
        login.authenticate(transport)
        transport.channel_timeout = LOST_AFTER_S
        # paramiko's thread polls ten times a second, which with many hosts disturbs measurements.
        sock.settimeout(_IDLE_CHECK_S)
    except BaseException:
        if connection is not None:
            connection.close()
        else:
            for close in reversed(below):
                close()
        raise
    return connection


def _socket(route: Route, plug: Callable[[], socket.socket] | None, below: list[Callable[[], None]]) -> socket.socket:
    try:
        if plug is not None:
            return plug()
        if route.jump is not None:
            return _through(route, below)
        if route.proxy_command is not None:
            carried = _proxy(route.proxy_command, below)
            return _passed(carried, route) if route.proxy_passes_socket else carried
        return socket.create_connection((route.hostname, route.port), route.timeout_s)
    except socket.gaierror as error:
        raise HostLost(
            f"{route}: the name {route.hostname!r} could not be resolved ({error.strerror}); "
            "check `address` in the inventory, HostName in ~/.ssh/config, or this machine's DNS"
        ) from None
    except TimeoutError:
        raise HostLost(
            f"{route}: no connection within {route.timeout_s:g} s; check that it is up and the port is open"
        ) from None
    except OSError as error:
        raise HostLost(f"{route}: {error.strerror or error}; check that it is up and sshd listens there") from None


def _through(route: Route, below: list[Callable[[], None]]) -> socket.socket:
    assert route.jump is not None
    if route.depth >= _MAX_JUMPS:
        raise HostRefused(f"{route}: ProxyJump is circular in ~/.ssh/config")
    jump = route.jump()
    connection = dial(jump, HostKeys(jump), Login(jump))
    below.append(connection.close)
    try:
        channel = connection.transport.open_channel(
            "direct-tcpip", (route.hostname, route.port), ("127.0.0.1", 0), timeout=route.timeout_s
        )
    except paramiko.ChannelException as error:
        if error.code == 1:
            raise HostRefused(f"{route}: the jump host {jump} forbids forwarding (AllowTcpForwarding)") from None
        raise HostLost(f"{route}: the jump host {jump} cannot reach it") from None
    except (paramiko.SSHException, EOFError) as error:
        raise HostLost(f"{route}: the jump host {jump} did not connect to it: {error}") from None
    return channel  # type: ignore[no-any-return]  # close enough to a socket for paramiko, which made it


def _proxy(command: str, below: list[Callable[[], None]]) -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end() -> None:
        process.kill()
        process.wait()

    below.append(end)
    return ours


def _passed(carrier: socket.socket, route: Route) -> socket.socket:
    with carrier:
        carrier.settimeout(route.timeout_s)
        _, descriptors, _, _ = socket.recv_fds(carrier, 1, 1)
    if not descriptors:
        raise HostLost(f"{route}: the ProxyCommand of ~/.ssh/config ended without a connection")
    return socket.socket(fileno=descriptors[0])


def _shake_hands(transport: paramiko.Transport, route: Route, keys: HostKeys, deadline: float) -> None:
    options = transport.get_security_options()
    options.ciphers = [*_CIPHERS]
    options.key_types = keys.algorithms(options.key_types)
    transport.banner_timeout = transport.handshake_timeout = limit = _left(deadline)
    late = HostLost(f"{route}: no SSH handshake within {route.timeout_s:g} s; it is overloaded, or not an SSH server")
    try:
        transport.start_client(timeout=limit)
        if not transport.initial_kex_done:  # paramiko returns without an error after the time limit
            raise late
        keys.check(transport.get_remote_server_key())
    except paramiko.ssh_exception.IncompatiblePeer as error:
        # Also if the host has no key of a known type.
        raise HostRefused(f"{route}: no common algorithms: {error}; {keys.expected()}") from None
    except (paramiko.SSHException, EOFError, OSError) as error:
        if time.monotonic() >= deadline or "banner" in str(error) and _left(deadline) < 0.2:
            raise late from None
        cause = str(error) or "the connection was closed"
        raise HostLost(f"{route}: no SSH handshake: {cause}; it may not be an SSH server, or be full") from None


def _left(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())
