"""A short probe of the link between two hosts: rate of a TCP stream, then the share of datagrams that arrive.

Both ends run in forked processes.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from contextlib import suppress
from typing import Tuple

from driple.contracts.errors import BadInput
from driple.contracts.protocol.requests import HeardAnswer, SendAnswer

# Limits of the receiving and of the sending end.
LISTEN_S = 60.0
SEND_S = 40.0

_PATIENCE_S = 5.0
_QUIET_S = 0.2
# Least interval of datagrams, and their share of the stream's rate: faster ones would be lost in our own queue.
_PACE_S = 0.0005
_SHARE = 0.2
_DATAGRAMS_S = 10.0
_CHUNK = 1 << 18
_BUFFER = 4 << 20
_TCP_CONGESTION = 13
_MIN_RTT = 148  # offset of tcpi_min_rtt in struct tcp_info; the handshake counts, so queues do not add to it


def listening_sockets() -> Tuple[socket.socket, socket.socket]:
    """A listening TCP socket and a UDP socket on the same port, on all addresses. Raises BadInput if none is free."""
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
    raise BadInput("no port is free for both TCP and UDP")


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as tried:
            tried.bind(("::", 0))
    except OSError:
        return False
    return True


def hear(tcp: socket.socket, udp: socket.socket, until: int) -> HeardAnswer:
    """Counts one stream and all datagrams, until the descriptor `until` closes and nothing more arrives."""
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
    return HeardAnswer(tcp_bytes=tcp_bytes, tcp_seconds=last_s - begin_s, udp_packets=packets)


def send(address: str, port: int, seconds: float, packets: int, payload: int) -> SendAnswer:
    """Streams, then sends datagrams at a constant rate. Raises BadInput if the other end cannot be reached."""
    try:
        sent, took_s, rtt_ms, congestion = _stream(address, port, seconds)
        pace_s = max(_PACE_S, payload * took_s / (_SHARE * sent)) if sent else _PACE_S
        count = _datagrams(address, port, packets, payload, pace_s)
        return SendAnswer(bytes=sent, seconds=took_s, packets=count, rtt_ms=rtt_ms, congestion=congestion)
    except OSError as error:  # also a timeout
        raise BadInput(f"{address} port {port}: {error.strerror or error}") from None


def _stream(address: str, port: int, seconds: float) -> Tuple[int, float, float, str]:
    data = bytes(_CHUNK)
    sent = 0
    with socket.create_connection((address, port), _PATIENCE_S) as sock:
        begin_s = time.monotonic()
        while time.monotonic() < begin_s + seconds:
            sent += sock.send(data)
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        rtt_us = struct.unpack_from("=I", info, _MIN_RTT)[0] if len(info) >= _MIN_RTT + 4 else 0
        congestion = sock.getsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, 16).partition(b"\0")[0].decode()
        sock.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            sock.recv(1)  # comes when the other end has it all
        return sent, time.monotonic() - begin_s, rtt_us / 1000, congestion


def _datagrams(address: str, port: int, packets: int, payload: int, pace_s: float) -> int:
    """Sends datagrams for at most `_DATAGRAMS_S`. Returns their number."""
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
            with suppress(ConnectionRefusedError):  # reported for an earlier one; this one counts too
                sock.sendto(data, target)
    return packets
