"""From runs to medians, to the table in docs and to what the sampler was to reach."""

from __future__ import annotations

import statistics
from typing import Any

from sampler_contestants import BUSY, QUIET, Contestant

KEYS = ["rate_hz", "cpu_pct", "late_p50_ms", "late_p99_ms", "missed_pct", "memory_mb", "slowdown_pct", "stolen_ms"]
UNDISTURBED = "undisturbed_missed_pct"


def summary(field_of: list[Contestant]) -> list[dict[str, Any]]:
    found = []
    for contestant in field_of:
        row: dict[str, Any] = {"name": contestant.name, "hz": contestant.hz}
        if contestant.lacks:
            found.append({**row, "cannot_run": contestant.lacks})
            continue
        for condition, runs in contestant.runs.items():
            figures = {}
            for key in KEYS:
                values = [run[key] for run in runs if run.get(key) is not None]
                if values:
                    figures[key] = {"median": statistics.median(values), "least": min(values), "most": max(values)}
            row[condition] = figures
            # Ticks that pass while a hypervisor runs something else cannot be kept by anybody: shown apart as well.
            undisturbed = [run["missed_pct"] for run in runs if "missed_pct" in run and not run["stolen_ms"]]
            if undisturbed:
                figures[UNDISTURBED] = {"most": max(undisturbed), "rounds": len(undisturbed)}
            row["priority"] = next((run["priority"] for run in runs if "priority" in run), None)
        found.append(row)
    return found


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """What the sampler is to reach, and whether it did."""

    def figure(name: str, hz: int, condition: str, key: str, kind: str = "median") -> float | None:
        row = next((row for row in rows if row["name"] == name and row["hz"] == hz), {})
        found = row.get(condition, {}).get(key, {}).get(kind)
        return None if found is None else float(found)

    def line(what: str, value: float | None, limit: float, unit: str) -> str:
        if value is None:
            return f"- {what}: not measured."
        return f"- {what}: {value:.2f}{unit}, {'reached' if value <= limit else 'NOT reached'} (at most {limit}{unit})."

    def share(hz: int, condition: str) -> float | None:
        own = figure("driple-sample", hz, condition, "cpu_pct")
        other = figure("psutil + pynvml loop", hz, condition, "cpu_pct")
        # At equal rate: a loop that attains half the rate reads half as often.
        rates = [figure(name, hz, condition, "rate_hz") for name in ("driple-sample", "psutil + pynvml loop")]
        if own is None or not other or not rates[0] or not rates[1]:
            return None
        return (own / rates[0]) / (other / rates[1])

    most = figure("driple-sample", 100, BUSY, "missed_pct", "most")
    memory = max(figure("driple-sample", hz, c, "memory_mb", "most") or 0 for hz in (100, 1000) for c in (QUIET, BUSY))
    return [
        line("CPU at 100 Hz, quiet", figure("driple-sample", 100, QUIET, "cpu_pct"), 2, " % of a core"),
        line("CPU at 100 Hz, all cores busy", figure("driple-sample", 100, BUSY, "cpu_pct"), 2, " % of a core"),
        line("ticks missed at 100 Hz, all cores busy, worst round", most, 0, " %"),
        line(
            f"the same, of {figure('driple-sample', 100, BUSY, UNDISTURBED, 'rounds') or 0:g} rounds in which no "
            "hypervisor took processor time",
            figure("driple-sample", 100, BUSY, UNDISTURBED, "most"),
            0,
            " %",
        ),  # fmt: skip
        line("CPU at 1000 Hz, quiet", figure("driple-sample", 1000, QUIET, "cpu_pct"), 8, " % of a core"),
        line("CPU at 1000 Hz, all cores busy", figure("driple-sample", 1000, BUSY, "cpu_pct"), 8, " % of a core"),
        line("ticks missed at 1000 Hz, all cores busy", figure("driple-sample", 1000, BUSY, "missed_pct"), 0.5, " %"),
        line("CPU per read against the psutil + pynvml loop, 100 Hz, quiet", share(100, QUIET), 0.33, ""),
        line("CPU per read against the psutil + pynvml loop, 1000 Hz, quiet", share(1000, QUIET), 0.33, ""),
        line("resident memory, worst", memory, 30, " MB"),
    ]


def markdown(found: dict[str, Any]) -> str:
    def cell(figures: dict[str, Any], key: str, digits: int) -> str:
        if key not in figures:
            return "-"
        value = figures[key]
        text = f"{value['median']:.{digits}f}"
        spread = f"{value['least']:.{digits}f} to {value['most']:.{digits}f}"
        return text if value["least"] == value["most"] or key == "memory_mb" else f"{text} ({spread})"

    parts = []
    for condition, title in ((QUIET, "Machine quiet"), (BUSY, "Training steps on every core")):
        lines = []
        for row in found["rows"]:
            if "cannot_run" in row:
                lines.append(f"| {row['name']} | {row['hz']:g} | cannot run: {row['cannot_run']} ||||||||")
                continue
            figures = row[condition]
            shown = [cell(figures, key, digits) for key, digits in (("rate_hz", 0), ("cpu_pct", 2))]
            shown += [" / ".join(cell(figures, key, 2) for key in ("late_p50_ms", "late_p99_ms"))]
            shown += [cell(figures, key, digits) for key, digits in (("missed_pct", 2), ("memory_mb", 0))]
            shown += [cell(figures, "slowdown_pct", 1), cell(figures, "stolen_ms", 0), row["priority"] or "-"]
            lines.append(f"| {row['name']} | {row['hz']:g} | " + " | ".join(shown) + " |")
        head = "| what | asked, Hz | attained, Hz | CPU, % of a core | late p50 / p99, ms | missed, % | memory, MB "
        head += "| slower steps, % | stolen, ms | priority |\n|---|---|---|---|---|---|---|---|---|---|"
        parts.append(f"## {title}\n\n{head}\n" + "\n".join(lines))
    step = found["step"] if found["step"] == "TensorFlow" else f"stand-in for TensorFlow's ({found['step']})"
    verdict = "\n".join(found["verdicts"])
    return f"""# Cost of sampling

{found["machine"]}; {found["date"]}. {found["rounds"]} rounds with all candidates in turn, windows of
{found["seconds"]:g} s, median (range). Load average before the run: {found["load"]:.2f}. Reproduce
with `python benchmarks/sampler.py --write docs/benchmarks/sampler.md`.

All candidates read one task: a GPU (the scripted one of tests/native, with a sample every 20 ms), one network
interface, CPU time and memory of a process tree, and those of the host. driple-sample also reads the flows of two TCP
connections, five times a second. CPU and memory are of the whole process, including threads and ended children, without
start and end. Late: for driple-sample, after its deadline; for the others, which sleep between reads, beyond their
period. Missed: deadlines without a read. Slower steps: training steps per second on all cores, compared with those
just before and after without a sampler; the step is {step}. Stolen: CPU time that the hypervisor took
meanwhile; no sampler can keep ticks in it. gpustat itself waits 0.1 s within each query; nvitop, gpustat, vmstat
and sar read less than the others.

{parts[0]}

{parts[1]}

## Goals

{verdict}
"""
