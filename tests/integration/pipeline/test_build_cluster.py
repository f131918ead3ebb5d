"""Builds on real clusters: two Dask worker processes, a local Ray. The bytes are those of a local build."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from driple.contracts.errors import DripleError
from driple.contracts.json_values import to_plain
from driple.contracts.manifest import Manifest
from driple.contracts.run_spec import JobSpec
from driple.pipeline.datasets.build import build_dataset
from driple.pipeline.datasets.engine import Engine, connected, parse

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    # Both libraries leave sockets and loops to the end of the process.
    pytest.mark.filterwarnings("default"),
]
pytest.importorskip("joblib")
pytest.importorskip("pyarrow")

START_S = 60.0


def process_id(_: int) -> int:
    time.sleep(0.2)  # long enough that one worker cannot have done all
    return os.getpid()


@pytest.fixture(scope="module")
def traces(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example runs as three repetitions each."""
    folder = tmp_path_factory.mktemp("traces")
    sources = [path.parent for path in (checkout / "tests/data/runs").rglob("run.json")]
    sources.sort(key=lambda run: sum(path.stat().st_size for path in run.rglob("*")))
    for source in sources[:2]:
        for repetition in range(3):
            manifest = Manifest.read(source / "run.json")
            spec = replace(manifest.run, repetition=repetition)
            run = folder / "e" / spec.id
            shutil.copytree(source, run)
            job = JobSpec.from_json(json.loads((run / "job.json").read_text()))
            text = json.dumps(to_plain(replace(job, run=spec)))
            (run / "job.json").write_text(text)
            sums = {**manifest.checksums, "job.json": hashlib.sha256(text.encode()).hexdigest()}
            replace(manifest, run=spec, run_id=spec.id, checksums=sums).write(run / "run.json")
    broken = min((folder / "e").iterdir())
    (broken / "trace/worker-0.parquet").write_bytes(b"PAR1")
    return folder


@pytest.fixture(scope="module")
def local(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process makes of them."""
    output = tmp_path_factory.mktemp("local")
    report = build_dataset([traces], output=output)
    assert len(report.set_aside) == 1
    return output


@contextmanager
def started(*commands: list[str], environment: dict[str, str] | None = None) -> Iterator[list[int]]:
    """Processes in sessions of their own, ended with all that they start."""
    env = {**os.environ, **(environment or {})}
    quiet = subprocess.DEVNULL
    running = [
        subprocess.Popen(command, stdout=quiet, stderr=quiet, env=env, start_new_session=True) for command in commands
    ]
    try:
        yield [process.pid for process in running]
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGTERM)
        for process in running:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"nothing came up at port {port}")


def same(local: Path, output: Path) -> None:
    names = sorted(path.name for path in local.glob("*.parquet"))
    assert names == sorted(path.name for path in output.glob("*.parquet"))
    assert names
    for name in names:
        assert (output / name).read_bytes() == (local / name).read_bytes()


@pytest.fixture(scope="module")
def dask_address() -> Iterator[str]:
    """A scheduler and two worker processes."""
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("distributed is not installed")
    port = free_port()
    common = ["--host", "127.0.0.1", "--no-dashboard"]
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", str(port), *common]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", f"tcp://127.0.0.1:{port}", *common]
    with started(scheduler, *([*worker, "--nthreads", "1", "--no-nanny"] for _ in range(2))):
        wait_for(port)
        yield f"127.0.0.1:{port}"


def test_dask_gives_the_bytes_of_a_local_build(dask_address: str, traces: Path, local: Path, tmp_path: Path) -> None:
    engine = parse(f"dask://{dask_address}")
    with connected(engine) as pool:
        _wait_for_two(dask_address)
        workers = {pid for _, pid in pool.map(process_id, list(range(8)))}
    assert len(workers) == 2
    assert os.getpid() not in workers
    report = build_dataset([traces], output=tmp_path, engine=engine)
    assert (report.found, report.computed, len(report.set_aside)) == (6, 6, 1)
    same(local, tmp_path)


def _wait_for_two(address: str) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.Client(f"tcp://{address}", set_as_default=False) as client:
        client.wait_for_workers(2, timeout=START_S)


def test_a_scheduler_without_workers_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("driple.pipeline.datasets.engine.CONNECT_S", 3.0)
    port = free_port()
    common = ["--host", "127.0.0.1", "--no-dashboard"]
    with started([sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", str(port), *common]):
        wait_for(port)
        with (
            pytest.raises(DripleError, match="has no workers; start some"),
            connected(Engine(kind="dask", address=f"127.0.0.1:{port}")),
        ):
            pass


@pytest.fixture(scope="module")
def ray_ports() -> Iterator[tuple[int, int]]:
    """A Ray of this machine with two processors; its own port and that of its client server."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed")
    own, client = free_port(), free_port()
    # Its sockets stand in that folder, and their paths may not be long.
    folder = tempfile.mkdtemp(prefix="ray-")
    command = [
        sys.executable, "-m", "ray.scripts.scripts",
        "start", "--head", "--block", "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats",
        "--node-ip-address=127.0.0.1", f"--port={own}", f"--ray-client-server-port={client}", f"--temp-dir={folder}",
        "--object-store-memory=100000000",
    ]  # fmt: skip
    # Its client server starts a process for each client, and gives it 30 s: too few on a busy machine.
    with started(command, environment={"RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "120"}):
        wait_for(own)
        wait_for(client)
        yield own, client
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("way", ["auto", "client"])
def test_ray_gives_the_bytes_of_a_local_build(
    way: str, ray_ports: tuple[int, int], traces: Path, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a process of its own: ray leaves its mark on the one that it was in.
    own, client = ray_ports
    engine = "ray://auto" if way == "auto" else f"ray://127.0.0.1:{client}"
    if way == "auto":
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{own}")
    command = [sys.executable, "-m", "driple.pipeline.cli", str(traces), "--output", str(tmp_path), "--engine", engine]
    result = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=150)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["runs"], report["computed"], len(report["set_aside"])) == (6, 6, 1)
    same(local, tmp_path)


def test_no_ray_is_one_line(tmp_path: Path, traces: Path) -> None:
    pytest.importorskip("ray")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    command = [sys.executable, "-m", "driple.pipeline.cli", str(traces), "--output", str(tmp_path)]
    result = subprocess.run(
        [*command, "--engine", f"ray://127.0.0.1:{free_port()}"],
        capture_output=True, text=True, timeout=100, env=environment,
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "nothing answers at ray://127.0.0.1:" in result.stderr
