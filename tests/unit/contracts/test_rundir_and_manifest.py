from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from driple.contracts.errors import BadInput, CorruptRun
from driple.contracts.fingerprint import Fingerprint
from driple.contracts.manifest import (
    FAILED,
    SEALED,
    ClockFit,
    ClockProbe,
    HostRecord,
    HostShare,
    Manifest,
    TaskRecord,
    as_specified,
    is_sealed,
    network_as_specified,
)
from driple.contracts.run_dir import RunPaths, replacing
from driple.contracts.run_spec import Measurement, RunSpec, Workload
from driple.contracts.setting import Setting

SPEC = RunSpec(
    setting=Setting.parse("cpu-p0w1-1g"),
    workload=Workload("ncf", "movielens", 256, strategy="allreduce"),
    measurement=Measurement(duration_s=1.5),
    together=(("worker:0",),),
)
MANIFEST = Manifest(
    run=SPEC,
    run_id=SPEC.id,
    status=SEALED,
    tasks=(TaskRecord("worker:0", "lab1", 0, traffic_source="nic:eth0", quality={"nic": {"asked_s": 0.01}}),),
    clocks={"lab1": ClockFit(ClockProbe(1_000, 5, 30_000), ClockProbe(3_000, 7, 20_000))},
    versions={"tensorflow": "2.21.0"},
)
FINGERPRINT = Fingerprint(2, 1.8e9, 2.8e7, 1.9, 1.2e10, 4e-5, 3e9, {"switch_s": 12.5})


def test_paths_are_those_of_the_design() -> None:
    paths = RunPaths("traces", "p2w2", "id")
    found = [
        paths.manifest,
        paths.job,
        paths.trace("ps:0"),
        paths.flows("ps:0"),
        paths.steps("worker:1"),
        paths.graph("worker"),
        paths.log("ps:0"),
    ]
    assert [str(path) for path in found] == [
        "traces/p2w2/id/run.json",
        "traces/p2w2/id/job.json",
        "traces/p2w2/id/trace/ps-0.parquet",
        "traces/p2w2/id/trace/ps-0.flows.parquet",
        "traces/p2w2/id/steps/worker-1.parquet",
        "traces/p2w2/id/graph/worker.parquet",
        "traces/p2w2/id/logs/ps-0.log",
    ]


def test_manifest_round_trip(tmp_path: Path) -> None:
    MANIFEST.write(tmp_path / "run.json")
    assert Manifest.read(tmp_path / "run.json") == MANIFEST
    assert is_sealed(tmp_path / "run.json", SPEC.id)
    assert not is_sealed(tmp_path / "run.json", "another")
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("kind", "setting", "reason", "expected"),
    [
        ("lab", "cpu-p0w1-1g", None, True),
        ("ssh", "cpu-p0w1-1g", None, True),
        ("local", "cpu-p0w1-pcie", None, True),
        ("local", "cpu-p0w1-1g", None, False),  # written before the reason was recorded
        ("local", "cpu-p0w1-1g", "no lab: namespaces are forbidden", False),
    ],
)
def test_a_manifest_tells_whether_the_network_was_as_specified(
    tmp_path: Path, kind: str, setting: str, reason: str | None, expected: bool
) -> None:
    spec = replace(SPEC, setting=Setting.parse(setting))
    host = HostRecord(kind, "h", "6.1", "b", 2, 10**9, "3.11")
    manifest = replace(MANIFEST, run=spec, run_id=spec.id, hosts={"lab1": host}, network_not_as_asked=reason)
    path = tmp_path / "run.json"
    manifest.write(path)
    assert network_as_specified(Manifest.read(path)) is expected
    assert is_sealed(path, spec.id, any_network=True)
    assert is_sealed(path, spec.id) is (reason is None)
    assert ("network_not_as_asked" in json.loads(path.read_text())) is (reason is not None)


@pytest.mark.parametrize(
    ("told", "asked", "used"),
    [
        ("cubic by route", None, "cubic"),
        ("bbr as probed", None, "bbr"),
        ("bbr and cubic as probed", None, None),
        ("of the kernel", None, None),
        (None, None, None),
        (None, "reno", "reno"),  # of earlier releases
    ],
)
def test_a_manifest_tells_what_tcp_used(told: str | None, asked: str | None, used: str | None) -> None:
    spec = replace(SPEC, network=replace(SPEC.network, congestion=asked))
    how = {} if told is None else {"congestion": told}
    assert replace(MANIFEST, run=spec, run_id=spec.id, network_done_by=how).congestion == used


def test_a_fingerprint_is_kept_and_one_that_is_missing_leaves_no_key(tmp_path: Path) -> None:
    """Earlier releases refuse keys that they do not know."""
    known = HostRecord("ssh", "h1", "6.1", "b", 2, 10**9, "3.11", fingerprint=FINGERPRINT)
    manifest = replace(MANIFEST, hosts={"h1": known, "h2": replace(known, fingerprint=None)})
    path = tmp_path / "run.json"
    manifest.write(path)
    assert Manifest.read(path) == manifest
    hosts = json.loads(path.read_text())["hosts"]
    assert hosts["h1"]["fingerprint"]["cores"] == 2
    assert "fingerprint" not in hosts["h2"]


def test_a_share_is_part_of_the_run_and_absent_without_one(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    MANIFEST.write(path)
    plain = json.loads(path.read_text())
    assert "share_not_as_asked" not in plain and "cores_per_host" not in plain["run"]
    spec = replace(SPEC, cores_per_host=0.45)
    host = HostRecord("lab", "h1", "6.1", "b", 2, 10**9, "3.11", share=HostShare(0.45, 5.0, "cgroup v1", core=1))
    manifest = replace(MANIFEST, run=spec, run_id=spec.id, hosts={"lab1": host})
    manifest.write(path)
    assert Manifest.read(path) == manifest and as_specified(manifest) and is_sealed(path, spec.id)
    without = replace(manifest, hosts={"lab1": replace(host, share=None)}, share_not_as_asked="no control groups")
    without.write(path)
    assert Manifest.read(path) == without and not as_specified(without)
    assert "share" not in json.loads(path.read_text())["hosts"]["lab1"]
    assert is_sealed(path, spec.id, any_network=True) and not is_sealed(path, spec.id)


def test_a_clock_is_mapped_between_and_beyond_its_probes() -> None:
    fit = ClockFit(ClockProbe(1_000_000, 500, 40), ClockProbe(3_000_000, 700, 90))
    assert fit.bound_ns == 90
    assert [fit.to_controller(host) for host in (1_000_000, 2_000_000, 3_000_000, 5_000_000)] == [
        999_500,
        1_999_400,
        2_999_300,
        4_999_100,
    ]
    assert ClockFit(fit.before, fit.before).to_controller(1_000_000) == 999_500


def test_a_failed_run_is_not_sealed(tmp_path: Path) -> None:
    replace(MANIFEST, status=FAILED).write(tmp_path / "run.json")
    assert not is_sealed(tmp_path / "run.json", SPEC.id)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        (json.dumps({"schema_version": 1})[:-3], "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "schema version None, this release reads 1"),
        ('{"schema_version": 2}', "schema version 2, this release reads 1"),
        ('{"schema_version": 1}', "key 'run' is missing"),
    ],
)
def test_a_broken_manifest_is_corrupt_and_never_sealed(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(CorruptRun, match=message):
        Manifest.read(path)
    assert not is_sealed(path, SPEC.id)


def test_a_missing_manifest_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(CorruptRun, match="No such file"):
        Manifest.read(tmp_path / "run.json")
    assert not is_sealed(tmp_path / "run.json", SPEC.id)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(CorruptRun, match="not a regular file"):
        Manifest.read(tmp_path / "run.json")
    assert not is_sealed(tmp_path / "run.json", SPEC.id)


def test_a_manifest_cannot_carry_another_runs_name() -> None:
    with pytest.raises(BadInput, match="is not the identity of the run it holds"):
        replace(MANIFEST, run_id="x")
    with pytest.raises(BadInput, match="expected one of running, sealed, failed"):
        replace(MANIFEST, status="good")


def test_replacing_keeps_the_old_file_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as stream:
        stream.write("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_symlink_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link, chained = tmp_path / "folder" / "file", tmp_path / "link", tmp_path / "chained"
    target.write_text("old")
    link.symlink_to("folder/file")
    chained.symlink_to("link")
    with pytest.raises(KeyboardInterrupt), replacing(chained) as stream:
        stream.write("half")
        raise KeyboardInterrupt
    assert target.read_text() == "old"
    with replacing(chained) as stream:
        stream.write("new")
    assert (str(link.readlink()), str(chained.readlink()), target.read_text()) == ("folder/file", "link", "new")
    dangling = tmp_path / "dangling"
    dangling.symlink_to("made")
    with replacing(dangling) as stream:
        stream.write("new")
    assert dangling.is_symlink() and (tmp_path / "made").read_text() == "new"


def test_a_symlink_to_itself_is_refused_and_stays(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels of symbolic links"), replacing(loop):
        pass
    assert loop.is_symlink() and list(tmp_path.iterdir()) == [loop]


def test_a_folder_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    for name in ("folder", "link"):
        with pytest.raises(IsADirectoryError, match="Is a directory"), replacing(tmp_path / name):
            raise AssertionError("it was opened")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "link"]


@pytest.mark.parametrize("mode", ["w", "wb"])
def test_a_named_pipe_is_written_to(tmp_path: Path, mode: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with replacing(pipe, mode) as stream:
            stream.write("new" if mode == "w" else b"new")
        assert os.read(reader, 100) == b"new"
    finally:
        os.close(reader)
    assert pipe.is_fifo() and [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_standard_output_is_written_to_in_order(tmp_path: Path, kind: str) -> None:
    # As /dev/stdout, but in a folder of the test: a defect must not damage the machine's own.
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    (tmp_path / "out").symlink_to("stdout")
    program = """if True:
        import sys
        from driple.contracts.run_dir import replacing

        print("before")
        for name in ("stdout", "/proc/self/fd/1", "/dev/fd/1", "out"):
            with replacing(name) as stream:
                stream.write("new\\n")
        print("after")
    """
    command = [sys.executable, "-c", program]
    if kind == "pipe":
        text = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True).stdout
    else:
        with (tmp_path / "file").open("w") as stream:
            subprocess.run(command, cwd=tmp_path, stdout=stream, check=True)
        text = (tmp_path / "file").read_text()
    assert text == "before\nnew\nnew\nnew\nnew\nafter\n"


def test_a_device_is_written_to_and_stays(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_text("x")
    except PermissionError:
        pytest.skip("this user may not make or open device nodes here")
    with replacing(device) as stream:
        stream.write("new")
    assert device.is_char_device() and [entry.name for entry in tmp_path.iterdir()] == ["null"]


def test_replacing_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "file") as stream:
            stream.write("new")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "file").read_text() == "new"


def test_a_disk_that_takes_no_more_is_one_line_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    program = """if True:
        import resource, sys
        from driple.contracts.command_guard import command
        from driple.contracts.run_dir import replacing

        def write(argv=None):
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            with replacing(sys.argv[1], "wb") as stream:
                stream.write(bytes(8192))
            return 0

        sys.exit(command(write)())
    """
    found = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (1, f"cannot write {path}: File too large\n")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
