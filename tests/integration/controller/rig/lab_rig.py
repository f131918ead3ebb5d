"""A lab, its pool and sweeps on it, in this process: TensorFlow is loaded once for many runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from driple.contracts.errors import RunFailed
from driple.contracts.manifest import Manifest
from driple.orchestrator.attempt import fetch
from driple.orchestrator.attempt.attempt import Attempt
from driple.orchestrator.config.experiment import load_experiment
from driple.orchestrator.config.inventory import HostSpec
from driple.orchestrator.hosts.agent_file import AgentFile
from driple.orchestrator.hosts.base import Host
from driple.orchestrator.hosts.host_pool import HostPool
from driple.orchestrator.hosts.lab_backend import lab_cluster
from driple.orchestrator.hosts.registry import Cluster
from driple.orchestrator.lab.lab_client import Lab
from driple.orchestrator.planning.plan import PlannedRun, plan
from driple.orchestrator.planning.resume import sealed_runs
from driple.orchestrator.sweep.provenance import provenance
from driple.orchestrator.sweep.scheduler import RunResult, Sweep, SweepOptions, only_sweep

SETTING = "cpu-p1w2-1g"
HOSTS = 3
CLOCK_OFFSET_S = 60.0
"""What lab2's monotonic clock is ahead of the machine's, in every test."""
DISK_MB = 192

EXPERIMENT = """\
name: faults
setting: {setting}
hosts: lab
workloads:
  - {workload}
{length}
warmup_steps: 2
threads: 1
sampling_hz: 50
retries: {retries}
retry_wait: 100ms
timeouts: {{start: 90s, step: {step}, run: 3min, stop: 10s}}
"""


@dataclass
class Seen:
    """A watcher that keeps what it sees, and does something when training has begun."""

    during: Callable[[Sweep], None] | None = None
    after_failure: Callable[[], None] | None = None
    failures: list[RunFailed] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    sweep: Sweep | None = None
    trouble: list[BaseException] = field(default_factory=list)

    def begin(self, total: int, done: int) -> None: ...

    def started(self, run: PlannedRun, hosts: Sequence[str], attempt: int) -> None:
        self.attempts.append(attempt)

    def progress(self, run: PlannedRun, text: str) -> None:
        number = text.split()[1].partition("/")[0].rstrip(",")
        if self.during is not None and int(number) >= 3:
            during, self.during = self.during, None
            threading.Thread(target=self._do, args=(during,), daemon=True).start()

    def attempt_failed(self, run: PlannedRun, error: RunFailed, again_in_s: float | None) -> None:
        self.failures.append(error)
        if self.after_failure is not None:
            self.after_failure()

    def ended(self, result: RunResult) -> None: ...

    def tick(self) -> None: ...

    def _do(self, during: Callable[[Sweep], None]) -> None:
        try:
            assert self.sweep is not None
            during(self.sweep)
        except BaseException as error:
            self.trouble.append(error)


class Rig:
    """One lab for all tests. A pool that a test has spoilt is replaced."""

    def __init__(self, lab: Lab, agent: AgentFile) -> None:
        self.lab = lab
        self.agent = agent
        self.pool: HostPool | None = None
        self.cluster: Cluster | None = None

    def sweep(
        self,
        folder: Path,
        *,
        during: Callable[[Sweep], None] | None = None,
        after_failure: Callable[[], None] | None = None,
        workload: str = "{model: lenet, batch_size: 4, image_size: 32, width: 0.125}",
        length: str = "steps: 30",
        retries: int = 1,
        step: str = "60s",
        cold: bool = False,
        setting: str = SETTING,
        more: str = "",
        connect: Callable[[HostSpec], Host] | None = None,
    ) -> tuple[list[RunResult], Seen]:
        """Does what is not done of a small experiment."""
        file = folder / "faults.yaml"
        text = EXPERIMENT.format(setting=setting, workload=workload, length=length, retries=retries, step=step)
        file.write_text(text + more)
        experiment = load_experiment(file)
        runs = plan(experiment)
        output = folder / "traces"
        self.cluster = lab_cluster(self.lab, experiment)
        if self.pool is None:
            self.pool = HostPool(self.cluster.specs, connect or self.cluster.connect, self.agent, "tests")
        seen = Seen(during, after_failure)
        with only_sweep(output, experiment.name):
            fetch.remove_partials(output, experiment.name)
            done = sealed_runs(output, experiment.name, [run.id for run in runs])
            to_do = [run for run in runs if run.id not in done]
            options = SweepOptions(output=output, cold=cold)
            sweep = Sweep(experiment, to_do, self.cluster, self.pool, options, seen, provenance(self.agent.sha256))
            seen.sweep = sweep
            results = sweep.go()
        assert not seen.trouble, seen.trouble
        return results, seen

    def on(self, host: str, script: str) -> str:
        """Runs a shell script on a host, over a connection of its own."""
        assert self.cluster is not None
        connection = self.cluster.connect(self.cluster.specs[host])
        connection.open()
        try:
            return connection.run(["sh", "-c", script], timeout_s=60).stdout.decode()
        finally:
            connection.close()

    def left(self) -> list[str]:
        """What runs on the hosts beyond an sshd, an agent and a process that forks tasks; and folders of runs."""
        script = (
            "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done; "
            'find "$HOME/.driple/runs" -mindepth 1 2>/dev/null'
        )
        found = []
        for name in self.lab.names:
            lines = [line.strip() for line in self.on(name, script).splitlines() if line.strip()]
            warm = [line for line in lines if "driple.workloads.cli warm" in line]
            expected = ("sshd", " daemon ", "driple.workloads.cli warm", "sh -c", "tr ", "init", "unshare")
            found += [f"{name}: {line}" for line in lines if not any(word in line for word in expected)]
            found += [f"{name}: {line}" for line in set(warm) if warm.count(line) > 1]
        return found

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()
            self.pool = None


def attempt_of(sweep: Sweep) -> Attempt:
    """The attempt that is on its way."""
    (job,) = sweep._running
    assert job.attempt is not None
    return job.attempt


def manifest_of(folder: Path) -> Manifest:
    """Of the only run."""
    (path,) = (folder / "traces" / "faults").glob("*/run.json")
    return Manifest.read(path)


def half_done(folder: Path) -> list[Path]:
    """What must never be left beside runs."""
    return [path for path in (folder / "traces" / "faults").iterdir() if path.name.endswith(".partial")]
