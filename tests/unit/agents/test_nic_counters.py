"""Counters that wrap, are reset, vanish and come back; by fake files and fake counters."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from driple.agents.sources.nic import COLUMNS, Counters, NetlinkCounters, NicSource, SysfsCounters, connect, interfaces
from driple.contracts.errors import BadInput

SECOND = 1_000_000_000


class FakeCounters:
    way = "fake"

    def __init__(self, counts: tuple[int, int, int, int]) -> None:
        self.counts: Any = counts

    def read(self) -> Any:
        if isinstance(self.counts, Exception):
            raise self.counts
        return self.counts

    def close(self) -> None:
        pass


class FakeNic(NicSource):
    """An interface called lo whose counters the test holds."""

    def __init__(self, counters: FakeCounters) -> None:
        super().__init__("lo")
        self.fake: FakeCounters | None = counters

    def _connect(self) -> Counters:
        if self.fake is None:
            raise OSError(19, "No such device")
        return self.fake


def read(source: NicSource, t: int = 0) -> list[Any]:
    row: list[Any] = [None] * 6
    source.read(t, row, 1)
    assert row[0] is row[5] is None
    return row[1:5]


def fake_interface(folder: Path, **counts: int) -> Path:
    statistics = folder / "eth7" / "statistics"
    statistics.mkdir(parents=True, exist_ok=True)
    for column in COLUMNS:
        name = column.partition("_")[2]
        (statistics / name).write_text(f"{counts[name]}\n")
    return statistics


def test_files_are_read_again_by_kept_descriptors(tmp_path: Path) -> None:
    statistics = fake_interface(tmp_path, tx_bytes=1, rx_bytes=2, tx_packets=3, rx_packets=4)
    counters = SysfsCounters("eth7", tmp_path)
    assert counters.read() == (1, 2, 3, 4)
    (statistics / "rx_bytes").write_text(f"{2**64 - 1}\n")
    assert counters.read() == (1, 2**64 - 1, 3, 4)
    (statistics / "rx_bytes").write_text("")
    with pytest.raises(ValueError, match="invalid literal"):
        counters.read()
    counters.close()
    counters.close()
    with pytest.raises(OSError, match="No such file"):
        SysfsCounters("eth8", tmp_path)


def test_both_ways_tell_the_same_of_the_same_interface() -> None:
    assert "lo" in interfaces()
    try:
        netlink, sysfs = NetlinkCounters("lo"), SysfsCounters("lo")
    except OSError as error:
        pytest.skip(f"only one way on this machine: {error}")
    for _ in range(20):
        before, between, after = netlink.read(), sysfs.read(), netlink.read()
        assert all(a <= b <= c for a, b, c in zip(before, between, after, strict=True))
    netlink.close()
    sysfs.close()
    with pytest.raises(OSError):
        NetlinkCounters("none")


def test_without_netlink_the_files_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    counters = connect("lo")
    assert counters.way == "sysfs"
    counters.close()


def test_an_unknown_interface_names_those_that_are_there() -> None:
    with pytest.raises(BadInput, match=r"unknown interface 'lo0'; did you mean 'lo'\? \(known: .*lo"):
        NicSource("lo0").open()


def test_wraps_and_resets_are_noticed_and_values_stay_raw(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeCounters((2**32 - 10, 500, 5, 5))
    source = FakeNic(fake)
    source.open()
    fake.counts = (20, 600, 6, 6)
    assert read(source) == [20, 600, 6, 6]
    assert {**source.quality(), "way": ""} == {
        "interface": "lo",
        "way": "",
        "wraps": 1,
        "resets": 0,
        "vanished": 0,
    }
    with caplog.at_level(logging.WARNING):
        for counts in ((0, 0, 0, 0), (5, 5, 5, 5), (1, 1, 1, 1)):
            fake.counts = counts
            assert read(source) == list(counts)
    assert source.quality()["resets"] == 2
    assert len(caplog.records) == 1


def test_an_interface_that_vanishes_gives_nulls_and_one_line_and_may_come_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeCounters((1, 2, 3, 4))
    source = FakeNic(fake)
    source.open()
    assert read(source, 1) == [1, 2, 3, 4]
    fake.counts, source.fake = OSError(19, "No such device"), None
    with caplog.at_level(logging.WARNING):
        for t in range(5):
            assert read(source, t * SECOND) == [None] * 4
    assert len(caplog.records) == 1
    assert "No such device" in caplog.text
    source.fake = FakeCounters((0, 0, 0, 0))
    assert read(source, 10 * SECOND) == [0, 0, 0, 0]
    assert source.quality()["vanished"] == 1
    assert source.quality()["resets"] == 1
    source.close()


def test_a_second_interface_has_columns_of_its_own() -> None:
    source = NicSource("lo", 1)
    assert source.name == "nic1"
    assert list(source.columns) == ["nic_tx_bytes_1", "nic_rx_bytes_1", "nic_tx_packets_1", "nic_rx_packets_1"]
