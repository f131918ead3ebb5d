"""What the controller costs: one run beyond its job, 32 hosts against 4 and against ssh, a resume of 10 000 runs.

    python benchmarks/controller.py [--quick] [--rounds 5] [--json] [--write docs/benchmarks/controller.md]

Everything is real: the lab with its sshd, TensorFlow tasks, the system's ssh and scp, the driple-run command. Every
round has a sweep on 4 lab hosts, the steps on 4 and on 32 hosts by each contestant, and a resume; the order changes
from round to round. Medians and ranges of all rounds are shown. Run it on a quiet machine; some 90 s a round.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

from commands import sweep as ten_thousand
from commands import timed
from controller_fleet import BARE, OURS, SSH, SSH_ONE_BY_ONE, Hosts
from controller_report import markdown, verdicts
from controller_runs import HOSTS, sweep
from pages import machine, parser_of, publish

from driple.orchestrator.hosts.agent_file import build_agent
from driple.orchestrator.lab.lab_client import Lab

FEW, MANY_HOSTS = 4, 32
LIMIT_S = 120.0


def resume(experiment: Path, output: Path) -> dict[str, float]:
    """Seconds of the dry run; and of the real command, until it has decided and until the first run is started."""
    command = [str(Path(sys.executable).parent / "driple-run"), str(experiment), "--output", str(output)]
    dry_s = timed(lambda: subprocess.run([*command, "--dry-run"], check=True, stdout=subprocess.DEVNULL))
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seen: dict[str, float] = {"dry_s": dry_s}
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "9990 of 10000 runs are done already" in line:
                seen["decided_s"] = time.perf_counter() - began
            elif "started on" in line:
                seen["started_s"] = time.perf_counter() - began
                break
        process.send_signal(signal.SIGINT)  # it stops cleanly, and nothing has changed for the next round
        process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert seen.keys() == {"dry_s", "decided_s", "started_s"}, seen
    return seen


def measure(rounds: int, runs: int) -> dict[str, Any]:
    """Every round's figures."""
    found: dict[str, Any] = {"sweeps": [], "hosts": {}, "resumes": [], "lab_s": [], "agent_s": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        experiment, _, full = ten_thousand(folder)
        agent = build_agent()
        many = Hosts(stack.enter_context(Lab.start(hosts=MANY_HOSTS)), agent, folder)
        contestants = [(name, count) for name in (OURS, SSH, BARE) for count in (FEW, MANY_HOSTS)]
        contestants += [(SSH_ONE_BY_ONE, FEW)]  # 32 hosts would take eight times as long

        def steps(name: str, count: int) -> None:
            many.clean()
            found["hosts"].setdefault(name, {}).setdefault(count, []).append(many.do(name, count))

        def one_sweep() -> None:
            found["agent_s"].append(timed(build_agent))
            began = time.monotonic()
            with Lab.start(hosts=HOSTS) as lab:
                found["lab_s"].append(time.monotonic() - began)
                found["sweeps"].append(sweep(lab, agent, runs))

        for name in (OURS, SSH):  # once for nothing: fills the caches
            many.clean()
            many.do(name, FEW)
        actions: list[tuple[str, Callable[[], object]]] = [("sweep", one_sweep)]
        actions += [(f"{n}, {c} hosts", lambda n=n, c=c: steps(n, c)) for n, c in contestants]  # type: ignore[misc]
        actions += [("resume", lambda: found["resumes"].append(resume(experiment, full)))]
        for number in range(rounds):
            for what, action in actions if number % 2 == 0 else reversed(actions):
                seconds = timed(action)
                print(f"round {number + 1}/{rounds}: {what}: {seconds:.1f} s", file=sys.stderr)
    found["cpu_ms"] = many.cpu_ms[MANY_HOSTS]
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round: whether it works, not how well")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="of each sweep; the first has cold hosts (%(default)s)")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.runs = 1, 2
    load = os.getloadavg()[0]
    ssh = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr.split(",")[0].split()[0]
    found: dict[str, Any] = {
        "machine": machine(ssh.replace("_", " ")),
        "cores": os.cpu_count(),
        "date": str(date.today()),
        "load": load,
        "rounds": options.rounds,
        "runs": options.runs,
        **measure(options.rounds, options.runs),
    }
    found["verdicts"] = verdicts(found)
    publish(found, markdown(found), options)


if __name__ == "__main__":
    main()
