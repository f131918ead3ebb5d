"""From rounds to medians, to the tables in docs and to what the controller was to reach."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from controller_fleet import BARE, OURS, SSH, SSH_ONE_BY_ONE
from controller_runs import HOSTS, PARTS, SETTING, WORKLOAD

FEW, MANY = 4, 32


def verdicts(found: dict[str, Any]) -> list[str]:
    """What it is to reach, and whether it did."""
    later = _later(found)

    def line(what: str, value: float, limit: float, unit: str) -> str:
        return f"- {what}: {value:.2f}{unit}, {'reached' if value < limit else 'NOT reached'} (under {limit:g}{unit})."

    def ratio(name: str, count: int, other: str, than: int) -> float:
        pairs = zip(_totals(found, name, count), _totals(found, other, than), strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    resumes = found["resumes"]
    return [
        line("overhead of a run, warm hosts", _median(later, "overhead_s"), 3, " s"),
        line("CPU time of the controller per run", _median(later, "cpu_s"), 1, " s"),
        line("32 hosts against 4", ratio(OURS, MANY, OURS, FEW), 3, "x"),
        f"  For comparison, {BARE}, is {ratio(BARE, MANY, BARE, FEW):.2f}x: all hosts share {found['cores']} cores.",
        line("32 hosts, ours against one process per action", ratio(OURS, MANY, SSH, MANY), 0.5, "x"),
        line("resume of 10 000 runs, complete dry run", _median(resumes, "dry_s"), 5, " s"),
        line("the same with the real command, until it has decided", _median(resumes, "decided_s"), 5, " s"),
        line("until its first run is started, lab included", _median(resumes, "started_s"), 5, " s"),
    ]


def markdown(found: dict[str, Any]) -> str:
    """The file in docs."""
    return f"""# Cost of the controller

{found["machine"]}; {found["date"]}.
Rounds with all candidates in turn: {found["rounds"]}; median (range). Load average before: {found["load"]:.2f}.
Hosts are those of [the lab](../guides/lab.md): their sshd, agent daemons and tasks share the machine's cores.
Reproduce with
`python benchmarks/controller.py --write docs/benchmarks/controller.md`.

## Goals

{chr(10).join(found["verdicts"])}

## Overhead of one run

{SETTING}, {WORKLOAD}: {HOSTS} hosts, a task and a sampler on each; sweeps of {found["runs"]} runs. The job
lasts from the message that the first task runs to the last message of the last worker. The rest of the time from the
start of an attempt to the end of its cleanup is overhead. CPU is that of the controller's process with all threads,
without children.

{_runs(found)}

Once per sweep, before its first run, the agent file is built in {_spread(found["agent_s"])} s and the
lab is created in {_spread(found["lab_s"])} s.

## Many hosts

Connect, copy the agent and a spec, start a process, stop it, fetch a file of 100 KB, on fresh hosts; seconds in total.
Ours also starts an agent daemon on each host, which starts and stops the process, and closes the connection at the end.
The others use one `ssh` or `scp` process for each of six actions per host, on as many hosts at once as ours has
threads. They connect from inside the lab's network, without the helper of the lab's ssh-config, and with the key
exchange that ours uses, which is cheaper than OpenSSH's default.

{_hosts(found)}

Steps of our host pool, in seconds:

{_steps(found)}

CPU time per host, with {MANY} hosts: {_cpu(found)}.
On a real cluster the controller spends only its own share. Here all of it is spent on
{found["cores"]} cores: with many hosts the time is CPU time, with 4 much of it is waiting. A cheaper host makes
4 hosts faster too, so the ratio does not fall with it.

## Resume

10 000 runs planned, 9 990 of them sealed. `driple-run` as a whole process, seconds:

| | median (range) |
|---|---|
| `--dry-run`, to its end | {_spread(row["dry_s"] for row in found["resumes"])} |
| the real command, until it has decided | {_spread(row["decided_s"] for row in found["resumes"])} |
| until the first run is started: agent built, lab up | {_spread(row["started_s"] for row in found["resumes"])} |
"""


def _later(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [run for runs in found["sweeps"] for run in runs[1:]]


def _median(rows: Iterable[dict[str, Any]], key: str) -> float:
    return float(statistics.median(row[key] for row in rows))


def _spread(values: Iterable[float]) -> str:
    ordered = sorted(values)
    if not ordered:
        return "-"
    text = f"{statistics.median(ordered):.2f}"
    return text if len(ordered) == 1 else f"{text} ({ordered[0]:.2f} to {ordered[-1]:.2f})"


def _totals(found: dict[str, Any], name: str, count: int) -> list[float]:
    return [sum(steps.values()) for steps in found["hosts"].get(name, {}).get(count, [])]


def _runs(found: dict[str, Any]) -> str:
    first = [runs[0] for runs in found["sweeps"]]
    columns = (first, _later(found))
    rows = [
        ("**overhead, s**", *(_spread(run["overhead_s"] for run in runs) for runs in columns)),
        ("**CPU of the controller, s**", *(_spread(run["cpu_s"] for run in runs) for runs in columns)),
        ("the job itself, s", *(_spread(run["job_s"] for run in runs) for runs in columns)),
    ]
    for part in PARTS:
        rows.append((part, *(_spread(run["parts"].get(part, 0.0) for run in runs) for runs in columns)))
    rest = [[run["overhead_s"] - sum(run["parts"].values()) for run in runs] for runs in columns]
    rows.append(("other", *map(_spread, rest)))
    head = "| | first of a sweep | the others |\n|---|---|---|\n"
    return head + "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _hosts(found: dict[str, Any]) -> str:
    lines = ["| | 4 hosts | 32 hosts | 32 : 4 |", "|---|---|---|---|"]
    for name in (OURS, SSH, SSH_ONE_BY_ONE, BARE):
        few, many = _totals(found, name, FEW), _totals(found, name, MANY)
        ratios = [b / a for a, b in zip(few, many, strict=False)]
        lines.append(f"| {name} | {_spread(few)} | {_spread(many)} | {_spread(ratios)} |")
    return "\n".join(lines)


def _cpu(found: dict[str, Any]) -> str:
    rows = found["cpu_ms"]
    return ", ".join(f"{kind} {_spread(row[kind] for row in rows)} ms" for kind in rows[0])


def _steps(found: dict[str, Any]) -> str:
    few, many = (found["hosts"][OURS][count] for count in (FEW, MANY))
    lines = ["| | 4 hosts | 32 hosts |", "|---|---|---|"]
    for step in few[0]:
        lines.append(f"| {step} | {_spread(row[step] for row in few)} | {_spread(row[step] for row in many)} |")
    return "\n".join(lines)
