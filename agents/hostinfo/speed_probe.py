"""Takes the fingerprint of this machine: a micro-benchmark of about a second (contracts/fingerprint.py).

Runs in a forked process. hashlib, zlib and sockets release Python's lock, so threads use all cores.
"""

from __future__ import annotations

import hashlib
import os
import random
import socket
import statistics
import threading
import time
import zlib
from typing import Any, Callable, Dict, List

from driple.contracts.fingerprint import Fingerprint

_REPEATS = 5
_HASH_BYTES = 4 << 20
_DEFLATE_BYTES = 1 << 19
_LEVEL = 6
_COPY_BYTES = 64 << 20  # with its source 128 MB: larger than most caches
_STREAM_BYTES = 32 << 20
_CHUNK_BYTES = 1 << 18
_ROUND_TRIPS = 300
_PATIENCE_S = 5.0


def take_fingerprint() -> Fingerprint:
    """Measures. Raises OSError if the machine lacks something, such as a loopback interface."""
    cores = len(os.sched_getaffinity(0))
    zeros = bytes(_HASH_BYTES)
    words = _words(_DEFLATE_BYTES)
    found: Dict[str, List[float]] = {
        "hash_bytes_per_s": _repeat(lambda: _HASH_BYTES / _seconds(lambda: hashlib.sha256(zeros).digest())),
        "deflate_bytes_per_s": _repeat(lambda: _DEFLATE_BYTES / _seconds(lambda: zlib.compress(words, _LEVEL))),
        "core_speedup": _repeat(lambda: _core_speedup(words, cores)),
        "copy_bytes_per_s": _copies(),
        "switch_s": _switches(),
        "loopback_bytes_per_s": _repeat(_loopback),
    }
    medians: Dict[str, Any] = {name: _rounded(statistics.median(values)) for name, values in found.items()}
    spreads = {name: round(_spread_pct(values), 2) for name, values in found.items()}
    return Fingerprint(cores=cores, spread_pct=spreads, **medians)


def _repeat(measure: Callable[[], float]) -> List[float]:
    measure()  # warms caches and the processor's clock
    return [measure() for _ in range(_REPEATS)]


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _spread_pct(values: List[float]) -> float:
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return 100.0 * (ordered[-1 - quarter] - ordered[quarter]) / statistics.median(ordered)


def _words(size: int) -> bytes:
    """Text of random words: neither trivial nor impossible to compress, and the same everywhere."""
    source = random.Random(1)
    words = [bytes(source.choices(b"etaoinshrdlu", k=source.randint(2, 9))) for _ in range(2000)]
    return b" ".join(source.choices(words, k=size // 4))[:size]


def _core_speedup(data: bytes, cores: int) -> float:
    """Alone and together right after each other, so that a change of the clock speed affects both.

    With zlib and not a hash: a few milliseconds could be over before the scheduler spreads the threads.
    """
    alone_s = _seconds(lambda: zlib.compress(data, _LEVEL))
    threads = [threading.Thread(target=lambda: zlib.compress(data, _LEVEL)) for _ in range(cores)]

    def together() -> None:
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    return cores * alone_s / _seconds(together)


def _copies() -> List[float]:
    source, target = bytearray(_COPY_BYTES), bytearray(_COPY_BYTES)

    def copy() -> None:
        target[:] = source

    return _repeat(lambda: _COPY_BYTES / _seconds(copy))


def _switches() -> List[float]:
    """Time of a round trip to a child, which returns every byte."""
    there, here = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(there[1])  # else this end would keep the pipe open
            while os.read(there[0], 1):
                os.write(here[1], b"x")
        finally:
            os._exit(0)
    try:

        def trips() -> None:
            for _ in range(_ROUND_TRIPS):
                os.write(there[1], b"x")
                os.read(here[0], 1)

        return _repeat(lambda: _seconds(trips) / _ROUND_TRIPS)
    finally:
        for fd in (*there, *here):
            os.close(fd)
        os.waitpid(child, 0)


def _loopback() -> float:
    chunk, buffer = bytes(_CHUNK_BYTES), bytearray(_CHUNK_BYTES)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        with socket.create_connection(listener.getsockname(), _PATIENCE_S) as sender:
            receiver, _ = listener.accept()
            with receiver:
                receiver.settimeout(_PATIENCE_S)

                def send() -> None:
                    for _ in range(_STREAM_BYTES // _CHUNK_BYTES):
                        sender.sendall(chunk)
                    sender.shutdown(socket.SHUT_WR)

                thread = threading.Thread(target=send)
                begin = time.perf_counter()
                thread.start()
                received = 0
                while True:
                    size = receiver.recv_into(buffer)
                    if not size:
                        break
                    received += size
                took_s = time.perf_counter() - begin
                thread.join()
    return received / took_s
