"""Quality of a killed sampler's trace, recomputed from its rows: its last note is some seconds older."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driple.agents.sampler.parquet_writer import Field
from driple.agents.sampler.quality import Reads, SourceQuality
from driple.agents.sampler.samples_file import Stream
from driple.agents.sampler.samples_writer import SampleWriter
from driple.agents.sampler.seal import seal
from driple.agents.sampler.ticker import Ticker
from driple.contracts.formats.trace import METADATA_KEY

pq = pytest.importorskip("pyarrow.parquet")

MS = 1_000_000
TIMES = (Field("t_mono_ns", "int64", True), Field("t_real_ns", "int64"))
NIC = (Field("nic_tx_bytes", "uint64"), Field("nic_rx_bytes", "uint64"))
HOST = (Field("host_cpu_busy_ns", "int64"), Field("host_mem_used_bytes", "int64"))
GPU = (Field("gpu_util_pct", "float32"),)
STREAMS = [
    Stream("trace", TIMES + NIC + HOST + GPU),
    *(Stream("trace", TIMES[:1] + own) for own in (NIC, HOST, GPU)),
    Stream("flows", (TIMES[0], Field("flow", "uint64"))),
]
BEGAN = 7_000 * MS
BLOCK = 50
SLOW = 20


def first_note() -> dict[str, Any]:
    """As a sampler writes it after its first tick."""

    def of(columns: tuple[Field, ...], ticks: int, **own: Any) -> dict[str, Any]:
        reads = Reads(10 * MS * ticks)
        reads.observe([BEGAN])
        return {**own, **SourceQuality([field.name for field in columns], reads).summary()}

    loop = Ticker(100, lambda _: False).summary()
    loop.update(ticks=1, cpu_share_pct=3.0, peak_memory_bytes=10**7, values_refused=0)
    return {
        "priority": {"policy": "fifo"},
        "stopped_by": None,
        "seconds": 0.0,
        "first_mono_ns": BEGAN,
        "last_mono_ns": BEGAN,
        "loop": loop,
        "sources": {
            "nic": of(NIC, 1, interface="eth0", resets=0),
            "host": of(HOST, SLOW, failures=0),
            "gpu0": of(GPU, SLOW),
        },
        "tables": {
            "flows": {"asked_period_ms": 200.0, "reads": 1, "gaps": 0, "rows": 1, "read_cost_us": {}, "walks": 1}
        },
    }


def numbers() -> list[int]:
    """Of the ticks that were kept: a stop of 2 s cost 200 of them."""
    return [*range(105), *range(305, 505)]


def left(out: Path, note: dict[str, Any] | None, about: dict[str, Any] | None = None) -> Path:
    """305 ticks at 100 Hz. The counter changes every 4 ticks, the host is read every 20, the GPU has its own times."""
    writer = SampleWriter(out, STREAMS, {"asked": {"hz": 100}} if about is None else about)
    rows = []
    for number in numbers():
        # Every third is late by more than half a period; that is no miss, nor is the short interval after it.
        t = BEGAN + 10 * MS * number + (6 * MS if number % 3 == 1 else 0)
        slow = number % SLOW == 0
        host = (t if slow else None, None if number == 60 else 5 if slow else None)
        rows.append((t, None, number // 4, None if number == 3 else 1, *host, None))
    for start in range(0, len(rows), BLOCK):
        writer.add(0, list(zip(*rows[start : start + BLOCK], strict=True)))
        if start == 0 and note is not None:
            writer.note(note)
        writer.add(3, [[BEGAN + MS * (start + i) for i in range(10)], [1.0] * 10])
    writer.add(4, [[BEGAN, BEGAN, BEGAN + 200 * MS], [1, 2, 1]])
    writer.flush()
    writer.close()
    return writer.path


def sealed(samples: Path) -> dict[str, Any]:
    (trace, *_) = seal(samples)
    about: dict[str, Any] = json.loads(pq.read_schema(trace).metadata[METADATA_KEY.encode()])
    return about


def test_the_loop_is_counted_from_the_rows(tmp_path: Path) -> None:
    about = sealed(left(tmp_path / "x.parquet", first_note()))
    assert (about["clean_stop"], about["quality_from"]) == (False, "rows")
    loop = about["loop"]
    assert (loop["asked_period_ms"], loop["ticks"], loop["missed_ticks"]) == (10.0, 305, 200)
    assert loop["missed_pct"] == round(100 * 200 / 505, 4)
    assert (about["first_mono_ns"], about["last_mono_ns"]) == (BEGAN, BEGAN + 5040 * MS)
    assert about["seconds"] == 5.04


def test_sources_are_counted_from_the_rows(tmp_path: Path) -> None:
    sources = sealed(left(tmp_path / "x.parquet", first_note()))["sources"]
    nic, host, gpu = sources["nic"], sources["host"], sources["gpu0"]
    assert (nic["reads"], nic["gaps"], nic["asked_period_ms"]) == (305, 1, 10.0)
    assert nic["real_period_ms"]["max"] == pytest.approx(2010, abs=10)
    sent, received = nic["columns"]["nic_tx_bytes"], nic["columns"]["nic_rx_bytes"]
    assert (sent["nulls"], received["nulls"], received["changes"]) == (0, 1, 0)
    assert sent["changes"] > 50
    assert sent["refresh_ms"] == pytest.approx(40, rel=0.2)
    assert sent["held"] is True
    # Ticks 0, 20 .. 100 and 320 .. 500.
    assert (host["reads"], host["gaps"], host["asked_period_ms"]) == (16, 1, 200.0)
    assert host["real_period_ms"]["median"] == pytest.approx(200, rel=0.05)
    assert [column["nulls"] for column in host["columns"].values()] == [0, 1]
    assert gpu["late_samples"] == 70
    assert gpu["columns"]["gpu_util_pct"]["refresh_ms"] == pytest.approx(1, rel=0.05)


def test_what_rows_do_not_tell_is_null_and_the_last_note_is_kept_as_such(tmp_path: Path) -> None:
    note = first_note()
    about = sealed(left(tmp_path / "x.parquet", note))
    for name in ("late_ticks", "lateness_us", "cpu_share_pct", "peak_memory_bytes", "values_refused"):
        assert about["loop"][name] is None
    nic, gpu, flows = about["sources"]["nic"], about["sources"]["gpu0"], about["tables"]["flows"]
    assert (nic["interface"], nic["resets"]) == ("eth0", None)
    assert set(nic["read_cost_us"].values()) == {None}
    # Its reads gave nothing to the ticks' rows, so nobody can count them.
    assert (gpu["reads"], gpu["gaps"], gpu["columns"]["gpu_util_pct"]["nulls"]) == (None, None, None)
    assert (flows["rows"], flows["asked_period_ms"]) == (3, 200.0)
    assert {flows[name] for name in ("reads", "gaps", "walks", "read_cost_us")} == {None}
    assert about["priority"] == {"policy": "fifo"}
    kept = ("seconds", "first_mono_ns", "last_mono_ns", "loop", "sources", "tables")
    assert about["last_note"] == {key: note[key] for key in kept}


def test_after_a_clean_stop_the_note_is_what_counts(tmp_path: Path) -> None:
    note = {**first_note(), "clean_stop": True}
    about = sealed(left(tmp_path / "x.parquet", note))
    assert {key: about[key] for key in note} == note
    assert "quality_from" not in about
    assert "last_note" not in about


def test_without_any_note_the_loop_is_known_all_the_same(tmp_path: Path) -> None:
    about = sealed(left(tmp_path / "x.parquet", None))
    assert (about["loop"]["ticks"], about["loop"]["missed_ticks"], about["sources"]) == (305, 200, {})


def test_the_period_comes_from_the_note_where_no_rate_was_kept(tmp_path: Path) -> None:
    assert sealed(left(tmp_path / "x.parquet", first_note(), {}))["loop"]["missed_ticks"] == 200
    assert "loop" not in sealed(left(tmp_path / "y.parquet", None, {}))


def test_a_rate_whose_period_is_not_round_does_not_drift(tmp_path: Path) -> None:
    """A day at 700 Hz: the period rounded for show would be some 1200 ticks off."""
    period = round(1e9 / 700)
    last = 700 * 86_400
    writer = SampleWriter(tmp_path / "x.parquet", STREAMS[:1], {"asked": {"hz": 700}})
    writer.add(0, [[0, period, last * period], *([None] * 3 for _ in STREAMS[0].fields[1:])])
    writer.note({"loop": {"asked_period_ms": round(period / 1e6, 4)}})
    writer.flush()
    writer.close()
    assert sealed(writer.path)["loop"]["missed_ticks"] == last + 1 - 3
