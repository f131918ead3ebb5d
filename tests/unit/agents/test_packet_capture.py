"""The packet ring and its files, on real traffic of the loopback interface."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from driple.agents.capture.packet_ring import LAYOUTS, PacketRing, open_packet_socket
from driple.agents.capture.seal_packets import seal_packets
from driple.agents.cli_capture import main
from driple.contracts.errors import BadInput
from driple.contracts.formats.packets import PACKET_COLUMNS, TCP
from driple.contracts.protocol.capture_lines import READY, STOP, CaptureSummary
from driple.pipeline.readers.packet_file import read_packet_file

DATA = bytes(range(256)) * 4096


@pytest.fixture(autouse=True)
def permitted() -> None:
    try:
        open_packet_socket().close()
    except BadInput as error:
        pytest.skip(str(error))


class Capture:
    """A capture process on loopback."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.samples = Path(f"{out}.samples")
        command = [sys.executable, "-m", "driple.agents.cli_capture", "--nic", "lo", "--out", str(out), "--host", "me"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == READY

    def stop(self) -> CaptureSummary:
        out, _ = self.process.communicate(STOP + "\n", timeout=20)
        assert self.process.returncode == 0
        return CaptureSummary.read(json.loads(out), "summary")


@pytest.fixture
def capture(tmp_path: Path) -> Iterator[Capture]:
    made = Capture(tmp_path / "packets.parquet")
    yield made
    made.process.kill()
    made.process.communicate()


def send(data: bytes, address: str = "127.0.0.1") -> int:
    """Sends over TCP and waits until all is there; the port of the receiver."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        port = int(listener.getsockname()[1])
        got = []

        def receive() -> None:
            line, _ = listener.accept()
            with line:
                while part := line.recv(1 << 16):
                    got.append(len(part))

        thread = threading.Thread(target=receive)
        thread.start()
        with socket.create_connection((address, port)) as line:
            line.sendall(data)
        thread.join()
    assert sum(got) == len(data)
    return port


def payload_to(path: Path, port: int) -> int:
    """Bytes of the stream to a port. A busy machine sends some of them twice, even over loopback."""
    packets, _ = read_packet_file(path)
    own = packets.of_flows([flow.destination.port == port and flow.protocol == TCP for flow in packets.flows])
    if not len(own):
        return 0
    begin = (own.seq - own.seq[0] + 2**31) % 2**32  # the numbers may wrap, and a packet may overtake the first
    begin -= begin.min()
    there = np.zeros(int((begin + own.payload_bytes).max()) + 1)
    np.add.at(there, begin, 1)
    np.add.at(there, begin + own.payload_bytes, -1)
    return int(np.count_nonzero(np.cumsum(there)[:-1]))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_every_byte_of_a_stream_is_there(capture: Capture, address: str) -> None:
    if address == "::1" and not Path("/proc/net/if_inet6").read_text().count("lo"):
        pytest.skip("this machine has no IPv6 on loopback")
    port = send(DATA, address)
    summary = capture.stop()
    told = seal_packets(capture.samples, capture.out)
    assert (summary.dropped, summary.stopped_early, told.dropped, told.damaged_bytes) == (0, None, 0, 0)
    assert told.rows == summary.frames > 0
    assert not capture.samples.exists()
    assert payload_to(capture.out, port) == len(DATA)
    packets, facts = read_packet_file(capture.out)
    assert (facts.host, facts.interface) == ("me", "lo")
    ends = {flow.destination.address for flow in packets.flows if flow.destination.port == port}
    assert ends == {address}
    assert facts.first_mono_us * 1000 <= packets.t_ns.min() <= packets.t_ns.max() <= facts.last_mono_us * 1000


def test_the_file_is_plain_parquet_with_the_declared_columns(capture: Capture) -> None:
    send(DATA)
    capture.stop()
    seal_packets(capture.samples, capture.out)
    schema = pq.read_schema(capture.out)
    assert [(field.name, str(field.type)) for field in schema] == [(c.name, c.type) for c in PACKET_COLUMNS]


def test_a_killed_capture_keeps_what_was_recorded(capture: Capture, tmp_path: Path) -> None:
    port = send(DATA)
    deadline = time.monotonic() + 20
    copy = tmp_path / "copy.parquet"
    while not copy.exists() or payload_to(copy, port) < len(DATA):  # until what has arrived is in the file
        assert time.monotonic() < deadline
        time.sleep(0.1)
        seal_packets(Path(shutil.copy(capture.samples, tmp_path / "copy.samples")), copy)
    capture.process.kill()
    capture.process.communicate()
    assert seal_packets(capture.samples, capture.out).stopped_early == "the capture was killed"
    assert payload_to(capture.out, port) == len(DATA)


def test_a_damaged_capture_loses_only_the_damaged_block(capture: Capture) -> None:
    ports = []
    for _ in range(6):
        ports.append(send(DATA))
        time.sleep(0.1)  # each stream has blocks of its own
    capture.stop()
    raw = bytearray(capture.samples.read_bytes())
    blocks = [found.start() for found in re.finditer(rb"blk:\0", raw)]  # of the first stream
    largest = max(blocks, key=lambda at: int(struct.unpack_from("<I", raw, at + 12)[0]))
    raw[largest + 40] ^= 0xFF
    capture.samples.write_bytes(raw)
    told = seal_packets(capture.samples, capture.out)
    assert told.damaged_bytes > 0 and told.rows > 0
    assert capture.samples.exists()  # it is all there is of the damaged part
    found = [payload_to(capture.out, port) == len(DATA) for port in ports]
    assert found.count(True) >= 1
    assert "damaged" in " ".join(read_packet_file(capture.out)[0].notes)


def test_a_damaged_packet_file_loses_only_a_row_group(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    send(DATA)
    capture.stop()
    monkeypatch.setattr("driple.agents.capture.seal_packets.GROUP_ROWS", 16)
    rows = seal_packets(capture.samples, capture.out).rows
    file = pq.ParquetFile(capture.out)
    assert file.num_row_groups > 2
    chunk = file.metadata.row_group(1).column(0)
    raw = bytearray(capture.out.read_bytes())
    raw[chunk.data_page_offset + chunk.total_compressed_size - 6] ^= 0xFF  # in the checksum of gzip
    capture.out.write_bytes(raw)
    packets, _ = read_packet_file(capture.out)
    assert len(packets) == rows - 16
    assert packets.notes == (f"{capture.out.name}: 1 damaged blocks; 16 packets are missing",)
    raw[-4:] = b"none"
    capture.out.write_bytes(raw)
    with pytest.raises(BadInput, match="not readable as a packet file"):
        read_packet_file(capture.out)


def test_an_interface_that_is_not_there_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nic", "none0", "--out", str(tmp_path / "x.parquet")]) == 2
    assert capsys.readouterr().err == "capture on none0: No such device\n"
    assert list(tmp_path.iterdir()) == []


def test_a_check_records_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nic", "lo", "--check"]) == 0
    assert main(["--nic", "lo"]) == 2
    assert "expected either --out FILE or --check" in capsys.readouterr().err


def test_without_the_capability_one_line_tells_the_remedy() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give the capability up")
    program = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(24, 13, 0, 0, 0)\n"  # drops CAP_NET_RAW from what is executed
        "import os; words = [sys.executable, '-m', 'driple.agents.cli_capture', '--nic', 'lo', '--check']\n"
        "os.execv(sys.executable, words)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "CAP_NET_RAW" in done.stderr and "setcap cap_net_raw+ep" in done.stderr


def test_a_full_ring_counts_what_it_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    small = LAYOUTS[0]._replace(slots=1)
    ring = PacketRing(open_packet_socket(), "lo", small)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            for _ in range(6000):
                line.sendto(b"x", ("127.0.0.1", 9))
        taken, block = 0, ring.take()
        while block is not None:
            taken += block[0]
            block = ring.take()
        assert ring.count_dropped() > 0
        assert taken >= 4096
    finally:
        ring.close()
