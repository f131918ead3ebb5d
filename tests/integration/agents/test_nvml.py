"""The GPU source through the real NVML binding, against scripted devices (tests/native/nvml_stub.c)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

from driple.pipeline.bursts.burst_metrics import Bib, measure
from driple.pipeline.readers.base import TraceInput
from driple.pipeline.readers.driple_trace import read_trace

pytestmark = pytest.mark.integration

SECONDS = 9.5
PERIOD_MS = 5.0
RING = 400  # two seconds, so that a machine that holds the test up for one proves nothing about lost samples
# One process, sixteen devices with a trouble each: as many scenarios for the time of the slowest wave.
WAVES = {0: (20, 20), 1: (50, 50), 2: (100, 100), 3: (200, 300), 4: (500, 500), 5: (1000, 1000), 6: (2000, 2000)}
SCRIPT = {
    0: "domain=boot",
    1: "domain=wall",
    2: "domain=mono late_us=20000",
    3: "domain=boot mem_busy_ms=40 mem_idle_ms=60",
    7: "busy_ms=100 idle_ms=150 fewer=1",
    8: "busy_ms=700 idle_ms=800 dry_idle=1",
    9: "busy_ms=1 idle_ms=0 dry_from_ms=1500 dry_to_ms=3500",
    10: "lost_after_ms=3000",
    11: "absurd_every=7",
    12: "mig=1 unsupported=util,samples",
    13: "unsupported=samples busy_ms=1000 idle_ms=1000",
    14: "domain=mono offset_us=-700000000 busy_ms=300 idle_ms=300",
    15: "unsupported=clock,power,temperature doubles=1 busy_ms=100 idle_ms=100",
}

DRIVER = """
import json, logging, sys, time
from driple.agents.sources.gpu.gpu_source import GpuSource

said = []
class Keep(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
logging.getLogger("driple").addHandler(Keep())

wanted, hz, seconds = json.loads(sys.argv[1])
sources = [GpuSource(name, position, hz) for position, name in enumerate(wanted)]
for source in sources:
    source.open()
rows = [[] for _ in sources]
late = [[] for _ in sources]
start, tick = time.monotonic(), 0
while time.monotonic() - start < seconds:
    tick += 1
    time.sleep(max(0.0, start + tick / hz - time.monotonic()))
    for source, mine, own in zip(sources, rows, late):
        if tick % source.period_ticks == 0:
            row = [None] * (len(source.columns) + 2)
            t = time.monotonic_ns()
            source.read(t, row, 1)
            assert row[0] is None and row[-1] is None
            mine.append([t, *row[1:-1]])
            own.extend(source.extra())
for source, own in zip(sources, late):
    own.extend(source.extra(last=True))
    source.close()
    source.close()
print(json.dumps({
    "columns": [list(s.columns) for s in sources], "period_ticks": [s.period_ticks for s in sources], "rows": rows,
    "late": late, "quality": [s.quality() for s in sources], "log": said,
}))
"""

Build = Callable[..., Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    script = Path(__file__).resolve().parents[2] / "native" / "nvml_stub.py"

    def made(*without: str) -> Path:
        folder = tmp_path_factory.mktemp("nvml")
        line = [sys.executable, str(script), "--into", str(folder)]
        subprocess.run([*line, *(f"--without={name}" for name in without)], check=True, stdout=subprocess.DEVNULL)
        return folder

    return made


@pytest.fixture(scope="module")
def stub(build: Build) -> Path:
    return build()


def start(folder: Path, script: str, *wanted: str, hz: float = 100, seconds: float = 1.5) -> subprocess.Popen[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_STUB": script}
    line = [sys.executable, "-c", DRIVER, json.dumps([wanted, hz, seconds])]
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def sampled(folder: Path, script: str, *wanted: str, **options: float) -> dict[str, Any]:
    process = start(folder, script, *wanted, **options)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def complaint(folder: Path, script: str, *wanted: str) -> str:
    """The last line of what a GPU that cannot be opened is answered with: the error and its message."""
    process = start(folder, script, *wanted)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    return err.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def bench(stub: Path) -> dict[str, Any]:
    """What sixteen devices gave in ten seconds."""
    words = [f"gpus=16 ring={RING} sample_us={int(PERIOD_MS * 1000)}"]
    for index, (busy, idle) in WAVES.items():
        words += [f"{index}.busy_ms={busy}", f"{index}.idle_ms={idle}"]
    for index, text in SCRIPT.items():
        words += [f"{index}.{word}" for word in text.split()]
    return sampled(stub, " ".join(words), *map(str, range(16)), hz=50, seconds=SECONDS)


def series(found: dict[str, Any], gpu: int, slot: int = 0) -> list[tuple[int, float]]:
    """The device's own samples of one column: (monotonic ns, value)."""
    return [(t, values[slot]) for t, values in found["late"][gpu] if values[slot] is not None]


def spans(samples: list[tuple[int, float]], threshold: float) -> list[tuple[bool, float, float]]:
    """Whole bursts and idle spans: (is burst, start in ms, length in ms). A sample speaks for the period before it."""
    found = []
    for burst, group in groupby(samples, key=lambda sample: sample[1] > threshold):
        times = [t for t, _ in group]
        found.append((burst, times[0] / 1e6 - PERIOD_MS, (times[-1] - times[0]) / 1e6 + PERIOD_MS))
    return found[1:-1]


@pytest.mark.parametrize("gpu", WAVES)
def test_a_square_wave_comes_back_to_within_one_sample_of_the_device(bench: dict[str, Any], gpu: int) -> None:
    busy, idle = WAVES[gpu]
    found = spans(series(bench, gpu), 50)
    # Two spans at the ends are cut; a machine that is too busy to start in time may cost one more.
    assert len(found) >= 2 * (SECONDS * 1000 - 500) / (busy + idle) - 4
    for burst, began, length in found:
        assert abs(length - (busy if burst else idle)) <= PERIOD_MS + 0.1
        # Placed on the host's clock, whichever clock stamped it.
        off = (began - (0 if burst else busy)) % (busy + idle)
        assert min(off, busy + idle - off) <= PERIOD_MS + 0.2


def test_memory_utilisation_has_its_own_wave(bench: dict[str, Any]) -> None:
    found = spans(series(bench, 3, slot=1), 30)
    assert len(found) > 100
    assert all(abs(length - (40 if burst else 60)) <= PERIOD_MS + 0.1 for burst, _, length in found)


def test_both_kinds_of_samples_share_a_row(bench: dict[str, Any]) -> None:
    both = [values for _, values in bench["late"][1] if None not in values[:2]]
    assert len(both) > 0.99 * len(bench["late"][1])


def test_no_sample_is_lost_or_repeated_and_quality_says_so(bench: dict[str, Any]) -> None:
    for gpu in WAVES:
        times = [t for t, _ in series(bench, gpu)]
        assert all(abs((b - a) / 1e6 - PERIOD_MS) < 0.2 for a, b in pairwise(times))
        quality = bench["quality"][gpu]
        assert quality["method"] == {"gpu_util_pct": "samples", "gpu_mem_util_pct": "samples"}
        assert quality["sample_period_ms"]["median_ms"] == PERIOD_MS
        assert (quality["sample_gaps"], quality["overruns"], quality["refused"], quality["gauge_reads"]) == (0, 0, 0, 0)
        assert quality["buffer"] == RING


@pytest.mark.parametrize(("gpu", "clock"), [(0, ("boot", "mono")), (1, ("wall",)), (2, ("mono",)), (14, ("device",))])
def test_the_clock_of_the_stamps_is_recognised(bench: dict[str, Any], gpu: int, clock: tuple[str, ...]) -> None:
    # A machine that was never suspended has been up for as long as its monotonic clock says.
    assert bench["quality"][gpu]["sample_clock"] in clock


def test_a_clock_of_the_devices_own_is_placed_by_arrival(bench: dict[str, Any]) -> None:
    found = spans(series(bench, 14), 50)
    assert len(found) >= 20
    for burst, began, length in found[6:]:  # the shortest delay must be met first
        assert abs(length - 300) <= PERIOD_MS + 5
        off = (began - (0 if burst else 300)) % 600
        assert min(off, 600 - off) <= 4 * PERIOD_MS


def test_a_driver_that_gives_less_than_it_has_loses_nothing(bench: dict[str, Any]) -> None:
    found = spans(series(bench, 7), 50)
    assert len(found) >= 60
    assert all(abs(length - (100 if burst else 150)) <= PERIOD_MS + 0.1 for burst, _, length in found)


def test_an_idle_device_that_stops_sampling_is_asked_by_gauge(bench: dict[str, Any]) -> None:
    quality = bench["quality"][8]
    assert quality["dry_reads"] > 0 and quality["gauge_reads"] > 0
    samples = series(bench, 8)
    bursts = [group for high, group in ((h, list(g)) for h, g in groupby(samples, key=lambda s: s[1] == 100)) if high]
    for group in bursts[1:-1]:
        length = (group[-1][0] - group[0][0]) / 1e6 + PERIOD_MS
        # The gauge says 100 in a whole window of a burst, never for longer than the burst.
        assert abs(length - 700) <= PERIOD_MS + 0.1
    assert any(value < 10 for _, value in samples)


def test_a_buffer_that_dries_while_the_device_works_is_no_idle(bench: dict[str, Any]) -> None:
    samples = series(bench, 9)
    assert {value for _, value in samples} == {100}
    times = [t for t, _ in samples]
    silent = [(a, b) for a, b in pairwise(times) if b - a > 20e6]
    assert silent, "the script left two seconds out"
    assert bench["quality"][9]["gauge_reads"] >= 4


def test_a_lost_device_is_null_from_then_on_and_the_others_go_on(bench: dict[str, Any]) -> None:
    quality = bench["quality"][10]
    lost = quality["lost_at_mono_ns"]
    before = [row for row in bench["rows"][10] if row[0] < lost]
    after = [row for row in bench["rows"][10] if row[0] >= lost]
    assert len(before) >= 5 and all(row[3] is not None for row in before)
    assert len(after) >= 10 and all(row[1:] == [None] * 6 for row in after)
    assert all(t <= lost for t, _ in bench["late"][10])
    assert sum("gpu10" in line for line in bench["log"]) == 1
    assert bench["rows"][11][-1][0] > lost + 2e9


def test_absurd_values_are_refused_and_counted(bench: dict[str, Any]) -> None:
    samples, quality = series(bench, 11), bench["quality"][11]
    assert all(0 <= value <= 100 for _, value in samples)
    assert quality["refused"] >= quality["samples"] // 7 - 2 > 100


def test_mig_gives_nulls_and_one_line(bench: dict[str, Any]) -> None:
    assert bench["late"][12] == []
    assert all(row[1] is None and row[2] is None and row[3] == 1 << 30 for row in bench["rows"][12])
    (line,) = [line for line in bench["log"] if "gpu12" in line]
    assert "gpu_util_pct" in line and "MIG" in line
    assert bench["quality"][12]["absent"] == ["gpu_util_pct", "gpu_mem_util_pct"]


def test_without_buffers_the_gauge_answers_in_the_row(bench: dict[str, Any]) -> None:
    assert bench["late"][13] == []
    values = [row[1] for row in bench["rows"][13]]
    assert None not in values and max(values) == 100 and min(values) == 0
    assert bench["quality"][13]["method"]["gpu_util_pct"] == "gauge"
    plain = [row for row in bench["rows"][13] if row[3] is not None]
    assert len(plain) < len(values) / 5  # memory and the like are not read at the gauge's rate


def test_what_a_device_lacks_is_null_in_one_line(bench: dict[str, Any]) -> None:
    assert all(row[3] is not None and row[4:] == [None, None, None] for row in bench["rows"][15])
    (line,) = [line for line in bench["log"] if "gpu15" in line]
    assert all(column in line for column in ("gpu_sm_clock_mhz", "gpu_power_mw", "gpu_temperature_c"))
    assert {0, 100} <= {value for _, value in series(bench, 15)}  # and doubles are read as such


def test_devices_with_all_they_need_say_nothing(bench: dict[str, Any]) -> None:
    assert len(bench["log"]) == 3, bench["log"]


def test_several_gpus_by_index_and_uuid_have_columns_of_their_own(stub: Path) -> None:
    uuid = "GPU-5ca1ab1e-0000-4000-8000-000000000001"
    found = sampled(stub, "gpus=2 0.used_mb=1 1.used_mb=2", "0", uuid, seconds=0.7)
    assert found["columns"][0][0] == "gpu_util_pct" and found["columns"][1][0] == "gpu_util_pct_1"
    assert [rows[0][3] for rows in found["rows"]] == [1 << 20, 2 << 20]
    assert [quality["uuid"][-1] for quality in found["quality"]] == ["0", "1"]
    assert found["quality"][1]["driver"] == "999.1.2"


def test_functions_that_an_old_driver_lacks(build: Build) -> None:
    lacking = build(
        "nvmlDeviceGetSamples", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage"
    )
    found = sampled(lacking, "used_mb=7", "0", seconds=0.7)
    row = found["rows"][0][0]
    assert row[1] is not None and row[3] == 7 << 20 and row[5] is None and row[6] == 61
    assert found["quality"][0]["absent"] == ["gpu_power_mw"]
    assert len(found["log"]) == 1


def test_a_buffer_that_spans_little_is_emptied_more_often(stub: Path) -> None:
    found = sampled(stub, "ring=20 sample_us=5000 busy_ms=40 idle_ms=60", "0", hz=100, seconds=1.0)
    assert found["period_ticks"] == [2]
    times = [t for t, _ in series(found, 0)]
    assert len(times) > 150


def test_a_rate_too_low_for_the_buffer_is_said_and_counted(stub: Path) -> None:
    found = sampled(stub, "ring=20 sample_us=5000", "0", hz=2, seconds=1.6)
    assert "raise --hz" in found["log"][0]
    assert found["quality"][0]["overruns"] >= 2


@pytest.mark.parametrize(
    "wanted", ["7", "4294967296", "GPU-5ca1ab1e-0000-4000-8000-00000000000f", "", "eth0", "-1", "٣"]
)
def test_an_unknown_gpu_is_answered_with_the_known_ones(stub: Path, wanted: str) -> None:
    line = complaint(stub, "gpus=2", wanted)
    assert "UnknownName: unknown GPU" in line
    assert "0, GPU-5ca1ab1e-0000-4000-8000-000000000000, 1, GPU-5ca1ab1e-0000-4000-8000-000000000001" in line


@pytest.mark.parametrize(
    ("script", "said"),
    [("init=9", "driver is not loaded"), ("init=18", "different versions"), ("gpus=0", "no GPU"), ("init=999", "NVML")],
)
def test_a_driver_that_does_not_work_is_bad_input_with_the_remedy(stub: Path, script: str, said: str) -> None:
    line = complaint(stub, script, "0")
    assert "BadInput" in line and said in line


def test_no_nvml_library_is_bad_input_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")  # hides the one that this machine may have
    line = complaint(tmp_path, "", "0")
    assert "BadInput" in line and "install the NVIDIA driver" in line and "leave out --gpu" in line


def commanded(folder: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_STUB": script}
    line = [sys.executable, "-m", "driple.agents.cli", *options]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60, check=False)


def measured(folder: Path, script: str, out: Path) -> dict[str, Bib]:
    """Burst and idle of the utilisation of one device in six seconds."""
    pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed to read the trace")
    ended = commanded(folder, script, "--gpu", "0", "--hz", "100", "--for", "6", "--json", "--out", str(out))
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["sources"]["gpu0"]["sample_gaps"] >= 4
    return {each.name: measure(each) for each in read_trace(TraceInput(out)).series if "util" in each.name}


def test_one_gpu_by_two_names_is_refused(stub: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "x.parquet")
    ended = commanded(stub, "gpus=2", "--gpu", "0", "--gpu", "00", "--hz", "100", "--for", "1", "--out", out)
    assert ended.returncode == 2 and not list(tmp_path.iterdir())
    assert "gpu1 is gpu0 once more (GPU-" in ended.stderr and len(ended.stderr.splitlines()) == 1


def test_the_command_samples_two_gpus_into_one_trace(stub: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed to read the trace")
    out = tmp_path / "trace.parquet"
    script = f"gpus=2 ring={RING} sample_us=5000 busy_ms=100 idle_ms=100 1.busy_ms=250 1.idle_ms=250"
    options = ("--gpu", "0", "--gpu", "1", "--nic", "lo", "--hz", "100", "--for", "2.5", "--json", "--out", str(out))
    ended = commanded(stub, script, *options)
    assert ended.returncode == 0, ended.stderr
    rows = parquet.read_table(out).to_pydict()
    for column, half in (("gpu_util_pct", 100), ("gpu_util_pct_1", 250)):
        samples = [(t, v) for t, v in zip(rows["t_mono_ns"], rows[column], strict=True) if v is not None]
        found = spans(samples, 50)
        assert len(found) >= 2.0 / half * 1000 - 2
        assert all(abs(length - half) <= PERIOD_MS + 0.1 for _, _, length in found)
    assert rows["t_mono_ns"] == sorted(rows["t_mono_ns"])
    quality = json.loads(ended.stdout)["sources"]
    assert quality["gpu1"]["method"]["gpu_util_pct"] == "samples" and quality["gpu0"]["sample_gaps"] == 0


@pytest.mark.parametrize(("busy_ms", "idle_ms"), [(200, 300), (200, 1000)])
def test_a_wave_of_a_device_that_is_silent_while_idle_comes_back(
    stub: Path, tmp_path: Path, busy_ms: int, idle_ms: int
) -> None:
    found = measured(
        stub, f"dry_idle=1 sample_us=20000 busy_ms={busy_ms} idle_ms={idle_ms}", tmp_path / "trace.parquet"
    )
    for bib in found.values():
        assert bib.pattern == "BIB"
        # Where the gauge could look, edges are those of the samples; where it could not, that is said.
        assert bib.idle_s == pytest.approx(idle_ms / 1e3, abs=0.0205)
        if bib.burst_s is not None:
            assert bib.burst_s == pytest.approx(busy_ms / 1e3, abs=0.0205)
        else:
            assert any(flag.startswith("gaps:") for flag in bib.flags)
        assert bib.idle_amount is not None and bib.idle_amount < 5


def test_holes_that_nobody_could_look_into_are_gaps(build: Build, tmp_path: Path) -> None:
    out = tmp_path / "trace.parquet"
    found = measured(build("nvmlDeviceGetUtilizationRates"), "dry_idle=1 sample_us=20000", out)
    for bib in found.values():
        gaps = [int(flag[5:]) for flag in bib.flags if flag.startswith("gaps:")]
        assert gaps and gaps[0] >= 10
        assert bib.bursts == 0 and bib.burst_s is not None and bib.burst_s < 3.5  # of six seconds


def test_the_last_samples_are_there_where_the_gpu_is_read_on_every_tick(stub: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed to read the trace")
    out = tmp_path / "trace.parquet"
    ended = commanded(stub, f"ring={RING} sample_us=5000", "--gpu", "0", "--hz", "7", "--for", "4", "--out", str(out))
    assert ended.returncode == 0, ended.stderr
    rows = parquet.read_table(out).to_pydict()
    samples = [t for t, v in zip(rows["t_mono_ns"], rows["gpu_util_pct"], strict=True) if v is not None]
    assert samples[-1] - rows["t_mono_ns"][0] > 3.9e9


@pytest.mark.parametrize("offset_us", [100_000, -100_000])
def test_a_clock_near_the_hosts_is_the_devices_own(stub: Path, offset_us: int) -> None:
    script = f"ring={RING} sample_us=5000 domain=wall offset_us={offset_us} busy_ms=300 idle_ms=300"
    found = sampled(stub, script, "0", hz=100, seconds=6)
    assert found["quality"][0]["sample_clock"] == "device"
    settled = found["late"][0][0][0] + 4e9
    edges = [began for burst, began, _ in spans(series(found, 0), 50) if burst and began * 1e6 > settled]
    assert edges and all(min(at % 600, 600 - at % 600) <= 4 * PERIOD_MS for at in edges)


def test_the_command_goes_on_without_a_lost_gpu(stub: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "trace.parquet")
    ended = commanded(stub, "lost_after_ms=600", "--gpu", "0", "--nic", "lo", "--for", "1.5", "--json", "--out", out)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("gpu0: the device is lost") == 1
    summary = json.loads(ended.stdout)
    assert summary["stopped_by"] == "duration" and summary["sources"]["gpu0"]["lost_at_mono_ns"] is not None


def test_the_command_names_the_gpus_that_there_are(stub: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.parquet"
    ended = commanded(stub, "gpus=2", "--gpu", "5", "--out", str(out))
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1 and "unknown GPU '5'" in ended.stderr and "000000000001" in ended.stderr
    assert not out.exists()
