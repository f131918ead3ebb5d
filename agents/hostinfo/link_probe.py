"""A short probe of the link between two hosts: how fast a TCP stream is, and how many datagrams arrive.

One end listens, the other sends; both in processes of their own, aside.
"""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import suppress
from typing import Any, Dict, Tuple

from driple.contracts.errors import BadInput

# For a probe that nobody asks about, and for all that sending can take.
LISTEN_S = 60.0
SEND_S = 40.0

_PATIENCE_S = 5.0
_QUIET_S = 0.2
# Not faster than this, and with this share of the rate that the stream had: or they would be lost in our own queue.
_PACE_S = 0.0005
_SHARE = 0.2
_DATAGRAMS_S = 10.0
_CHUNK = 1 << 18
_BUFFER = 4 << 20


def ears() -> Tuple[socket.socket, socket.socket]:
    """A TCP socket that listens and a UDP socket, on the same port of every address.

    Raises:
        BadInput: no port is free for both.
    """
    family = socket.AF_INET6 if _has_ipv6() else socket.AF_INET
    for _ in range(20):
        tcp, udp = socket.socket(family, socket.SOCK_STREAM), socket.socket(family, socket.SOCK_DGRAM)
        try:
            if family == socket.AF_INET6:
                for one in (tcp, udp):
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            tcp.bind(("", 0))
            udp.bind(("", tcp.getsockname()[1]))
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            tcp.listen(1)
        except OSError:
            tcp.close()
            udp.close()
            continue
        return tcp, udp
    raise BadInput("no port is free for TCP and UDP alike")


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::", 0))
    except OSError:
        return False
    return True


def hear(tcp: socket.socket, udp: socket.socket, until: int) -> Dict[str, Any]:
    """Counts one stream and all datagrams, until the descriptor `until` closes and nothing more comes."""
    buffer = bytearray(_CHUNK)
    tcp_bytes = packets = 0
    begin_s = last_s = 0.0
    end_s = float("inf")
    with selectors.DefaultSelector() as selector:
        for one in (tcp, udp, until):
            selector.register(one, selectors.EVENT_READ)
        while time.monotonic() < end_s:
            told = end_s < float("inf")
            ready = selector.select(_QUIET_S if told else None)
            if told and not ready:
                break
            for key, _ in ready:
                if key.fileobj == until:
                    selector.unregister(until)
                    end_s = time.monotonic() + _PATIENCE_S
                elif key.fileobj is udp:
                    udp.recv_into(buffer)
                    packets += 1
                elif key.fileobj is tcp:
                    stream, _ = tcp.accept()
                    selector.unregister(tcp)
                    selector.register(stream, selectors.EVENT_READ)
                    begin_s = last_s = time.monotonic()
                else:
                    size = 0
                    with suppress(ConnectionError):
                        size = stream.recv_into(buffer)
                    if size:
                        tcp_bytes, last_s = tcp_bytes + size, time.monotonic()
                    else:
                        selector.unregister(stream)
                        stream.close()  # tells the sender that all has arrived
    return {"tcp_bytes": tcp_bytes, "tcp_seconds": last_s - begin_s, "udp_packets": packets}


def send(address: str, port: int, seconds: float, packets: int, payload: int) -> Dict[str, Any]:
    """Streams, then sends datagrams at an even pace.

    Raises:
        BadInput: the other end cannot be reached.
    """
    try:
        sent, took_s = _stream(address, port, seconds)
        pace_s = max(_PACE_S, payload * took_s / (_SHARE * sent)) if sent else _PACE_S
        return {"bytes": sent, "seconds": took_s, "packets": _datagrams(address, port, packets, payload, pace_s)}
    except OSError as error:  # also a timeout
        raise BadInput(f"{address} port {port}: {error.strerror or error}") from None


def _stream(address: str, port: int, seconds: float) -> Tuple[int, float]:
    data = bytes(_CHUNK)
    sent = 0
    with socket.create_connection((address, port), _PATIENCE_S) as sock:
        begin_s = time.monotonic()
        while time.monotonic() < begin_s + seconds:
            sent += sock.send(data)
        sock.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            sock.recv(1)  # comes when the other end has it all
        return sent, time.monotonic() - begin_s


def _datagrams(address: str, port: int, packets: int, payload: int, pace_s: float) -> int:
    """Sends as many as fit into the time there is for them; how many that were."""
    family, kind, _, _, target = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
    data = bytes(payload)
    with socket.socket(family, kind) as sock:
        begin_s = time.monotonic()
        for number in range(packets):
            ahead_s = begin_s + number * pace_s - time.monotonic()
            if ahead_s > 0:
                time.sleep(ahead_s)
            if time.monotonic() > begin_s + _DATAGRAMS_S:
                return number
            with suppress(ConnectionRefusedError):  # of an earlier one: nobody listens there, and this one counts too
                sock.sendto(data, target)
    return packets
