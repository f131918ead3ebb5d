"""Noise of measured datasets: how much a run differs when it is repeated, on one machine and on several.

    python benchmarks/noise.py --write docs/benchmarks/noise.md
    python benchmarks/noise.py --datasets datasets --datasets other/datasets --write docs/benchmarks/noise.md

It measures nothing: it reads the rows of datasets, and the page of benchmarks/isolation.py for the figures with and
without shares of the processors. A folder of the same settings on another machine adds to the differences between
machines.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pages import parser_of, publish
from repeatability import mean_distance

from driple.contracts.formats.dataset import MEASURED, fill_later_columns
from driple.contracts.metrics import COLUMNS, NETWORK, TARGET_OF_COLUMN
from driple.contracts.row_machines import NEEDED, PLACED, machines_of, said
from driple.inspector.data.examples import WORKLOAD

ROLE = "worker"
STEP = "step_s"
LEAST = {"repetitions": 3, "machines": 2}
"""Fewest runs of a workload on one machine, and fewest machines, from which a difference is taken."""
ISOLATION = Path("docs/benchmarks/isolation.md")
BEFORE, AFTER = "none", "paced, bound"
"""Rows of the tables of that page: hosts that share all processors, and hosts with a share of their own."""
GOAL_PCT = 3.0

Row = dict[str, Any]
FIGURES = ("all", "network, sync", "CPU, sync", "step time, sync", "async")
HEADS = ("all targets", "TX and RX, sync", "CPU, sync", "step time, sync", "async")


@dataclass(frozen=True)
class Repeated:
    """A workload that ran several times under one condition."""

    update: str
    values: Mapping[str, Sequence[float]]
    """By target and STEP: a value for each run or machine, where it is known."""

    def distances(self) -> dict[str, float]:
        """Of each target: how far one value lies from the mean of the others, on average, as a share of it."""
        found = {}
        for name, values in self.values.items():
            known = np.asarray(values, dtype=np.float64)
            if len(known) >= 2 and (known > 0).all():
                found[name] = mean_distance(known)
        return found


def rows_of(folders: Iterable[Path]) -> list[Row]:
    """Measured rows of all datasets, with the number of their machine over all of them."""
    found: list[Row] = []
    for folder in folders:
        for path in sorted(folder.glob("*.parquet")):
            wanted = ("setting", "role", "repetition", "provenance", "cores_per_host", STEP, *WORKLOAD, *COLUMNS)
            names = dict.fromkeys((*wanted, *NEEDED, *PLACED))
            there = set(pq.read_schema(path).names)
            for row in pq.read_table(path, columns=[name for name in names if name in there]).to_pylist():
                if row["provenance"] == MEASURED:
                    fill_later_columns(row)
                    found.append({"file": str(path), **row})
    for row, number in zip(found, machines_of(found).numbers, strict=True):
        row["machine"] = number
    return found


def by_run(rows: Iterable[Row]) -> dict[tuple[str, Any], dict[tuple[Any, ...], dict[Any, list[Row]]]]:
    """Rows of workers by setting and machine, then by workload, then by run.

    Without a fingerprint the file stands for the machine.
    """
    found: dict[Any, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        if row["role"] == ROLE:
            machine = row["machine"] or row["file"]
            workload = tuple(row.get(name) for name in (*WORKLOAD, "cores_per_host"))
            found[row["setting"], machine][workload][row["run_id"]].append(row)
    return found


def means(rows: Sequence[Row]) -> dict[str, float]:
    """Of each target and STEP: the mean over the workers of a run, or over the runs of a machine."""
    found = {}
    for name in (*COLUMNS, STEP):
        known = [row[name] for row in rows if row.get(name) is not None]
        if known:
            found[name] = float(np.mean(known))
    return found


def repeated(parts: Sequence[Sequence[Row]]) -> Repeated:
    """Of rows of several runs, or of several machines."""
    each = [means(rows) for rows in parts]
    names = dict.fromkeys(name for one in each for name in one)
    values = {name: [one[name] for one in each if name in one] for name in names}
    return Repeated(str(parts[0][0]["update"]), values)


def within(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """By setting and machine: figures of workloads that were repeated there."""
    found = {}
    for (setting, machine), workloads in sorted(by_run(rows).items(), key=str):
        parts = [list(runs.values()) for runs in workloads.values() if len(runs) >= LEAST["repetitions"]]
        if parts:
            label = f"{setting}, machine {machine}" if isinstance(machine, int) else setting
            counts = {"workloads": len(parts), "runs": sum(map(len, parts))}
            found[label] = {**counts, **figures(map(repeated, parts))}
    return found


def across(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """By setting: figures of workloads that ran on several machines whose fingerprints differ."""
    together: dict[str, dict[tuple[Any, ...], dict[int, list[Row]]]] = defaultdict(lambda: defaultdict(dict))
    for (setting, machine), workloads in by_run(rows).items():
        if isinstance(machine, int):
            for workload, runs in workloads.items():
                together[setting][workload][machine] = [row for part in runs.values() for row in part]
    found = {}
    for setting, workloads in sorted(together.items()):
        shared = [list(by.values()) for by in workloads.values() if len(by) >= LEAST["machines"]]
        if shared:
            of_these = [row for parts in shared for part in parts for row in part]
            found[setting] = {
                "workloads": len(shared),
                "said": said(machines_of(of_these)),
                **figures(map(repeated, shared)),
            }
    return found


def figures(workloads: Iterable[Repeated]) -> dict[str, float]:
    """Mean distances over workloads and targets, in percent, by FIGURES."""
    kinds: dict[str, list[float]] = defaultdict(list)
    for one in workloads:
        for name, distance in one.distances().items():
            if name == STEP:
                kind = "step time, sync" if one.update == "sync" else ""
            else:
                resource = TARGET_OF_COLUMN[name].resource
                of_network = resource is not None and resource.kind == NETWORK
                kind = "async" if one.update != "sync" else "network, sync" if of_network else "CPU, sync"
                kinds["all"].append(100 * distance)
            kinds[kind].append(100 * distance)
    return {name: float(np.mean(kinds[name])) for name in FIGURES if kinds[name]}


def machines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The machines of the datasets: what was measured on them, when, and how fast they are."""
    by_machine: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in rows:
        number = row["machine"]
        by_machine[(number, "") if number else (sys.maxsize, row["file"])].append(row)
    found = []
    for _, own in sorted(by_machine.items()):
        number = own[0]["machine"]
        days = [
            datetime.datetime.fromtimestamp(row["started_real_s"], tz=datetime.timezone.utc).date().isoformat()
            for row in own
            if row["started_real_s"] is not None
        ]
        speeds = {name: float(np.median([row[name] for row in own])) for name in NEEDED} if number else {}
        found.append(
            {
                "machine": number,
                "settings": sorted({row["setting"] for row in own}),
                "runs": len({(row["file"], row["run_id"]) for row in own}),
                "days": sorted({min(days), max(days)}) if days else [],
                **speeds,
            }
        )
    return found


def isolation(page: str) -> dict[str, dict[str, dict[str, str]]]:
    """The rows BEFORE and AFTER of the first table under each setting of the page of benchmarks/isolation.py."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading, _, rest = part.partition("\n")
        table = [line.strip("| ").split(" | ") for line in rest.splitlines() if line.startswith("| ")]
        if not table or table[0][0] != "hosts" or HEADS[0] not in table[0]:
            continue
        rows = {}
        for cells in table[1:]:
            if len(cells) != len(table[0]):  # the next table of this setting
                break
            rows[cells[0]] = dict(zip(table[0], cells, strict=True))
        if BEFORE in rows and AFTER in rows:
            found[heading] = {name: rows[name] for name in (BEFORE, AFTER)}
    return found


def page(found: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    lines = [
        "# Noise",
        "",
        "How much the targets of a run differ when it is repeated: on one machine, on machines that differ, and with",
        "hosts that are isolated from each other. Written by `benchmarks/noise.py` from the rows of",
        f"{found['runs']} measured runs ({', '.join(found['folders'])}).",
        "",
        "The noise of a target is the mean distance of a run from the mean of its repetitions, in percent of the run's",
        "value, here averaged over workloads and targets of workers. A workload counts with at least",
        f"{LEAST['repetitions']} runs.",
        "",
        "## Machines",
        "",
        "Machines are told apart by [fingerprints](../guides/datasets.md#machines). Rows of releases up to 0.2 have",
        "none.",
        "",
        "| machine | settings | runs | days | cores | SHA-256, GB/s | zlib, MB/s | all cores | copy, GB/s |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_machine(one) for one in found["machines"]),
        "",
        "## Within a machine",
        "",
        f"| setting | workloads | runs | {' | '.join(HEADS)} |",
        "|---|---|---|" + "---|" * len(HEADS),
        *(_line(name, one, ("workloads", "runs")) for name, one in found["within"].items()),
        "",
        "## Across machines",
        "",
    ]
    if found["across"]:
        lines += [
            "The same workloads on the same setting, measured on machines whose fingerprints differ. The distance is",
            "that of a machine's mean from the mean of the others.",
            "",
            f"| setting | workloads | {' | '.join(HEADS)} |",
            "|---|---|" + "---|" * len(HEADS),
            *(_line(name, one, ("workloads",)) for name, one in found["across"].items()),
            "",
            *(f"- {name}: {one['said']}." for name, one in found["across"].items()),
        ]
    else:
        lines += ["No workload was measured on two machines that have fingerprints."]
    lines += [
        "",
        "## Before and after isolation",
        "",
        "Hosts that share all processors, and hosts with a share of their own (`cores_per_host`), side by side on one",
        f"machine, from [Isolated hosts](isolation.md). The goal is {GOAL_PCT:g} %.",
        "",
    ]
    if found["isolation"]:
        lines += [
            f"| setting | hosts | runs | {' | '.join(HEADS)} | goal |",
            "|---|---|---|" + "---|" * (len(HEADS) + 1),
            *(
                f"| {setting} | {name} | {one['runs']} | {' | '.join(one[head] for head in HEADS)} | {_goal(one)} |"
                for setting, rows in found["isolation"].items()
                for name, one in rows.items()
            ),
        ]
    else:
        lines += ["That page has no setting with both."]
    return "\n".join([*lines, ""])


def _goal(one: Mapping[str, str]) -> str:
    return "reached" if float(one[HEADS[0]].split()[0]) <= GOAL_PCT else "NOT reached"


def _machine(one: Mapping[str, Any]) -> str:
    about = [str(one["machine"] or "not known"), ", ".join(one["settings"]), str(one["runs"]), " to ".join(one["days"])]
    if one["machine"] is None:
        return f"| {' | '.join(about)} | - | - | - | - | - |"
    speeds = (
        f"{one['fingerprint_cores']:.0f}",
        f"{one['fingerprint_hash_bytes_per_s'] / 1e9:.2f}",
        f"{one['fingerprint_deflate_bytes_per_s'] / 1e6:.1f}",
        f"{one['fingerprint_core_speedup']:.2f}",
        f"{one['fingerprint_copy_bytes_per_s'] / 1e9:.1f}",
    )
    return f"| {' | '.join((*about, *speeds))} |"


def _line(name: str, one: Mapping[str, Any], counts: Sequence[str]) -> str:
    cells = [f"{one[figure]:.1f} %" if figure in one else "-" for figure in FIGURES]
    return f"| {' | '.join([name, *(str(one[count]) for count in counts), *cells])} |"


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--datasets",
        type=Path,
        action="append",
        metavar="DIR",
        help="folder of datasets; can be repeated (default: datasets)",
    )
    parser.add_argument(
        "--isolation",
        type=Path,
        default=ISOLATION,
        metavar="FILE",
        help="page of benchmarks/isolation.py (%(default)s)",
    )
    options: argparse.Namespace = parser.parse_args()
    folders = options.datasets or [Path("datasets")]
    rows = rows_of(folders)
    if not rows:
        parser.error(f"{', '.join(map(str, folders))}: no measured rows")
    found = {
        "folders": [f"`{folder.name}`" for folder in folders],
        "runs": len({(row["file"], row["run_id"]) for row in rows}),
        "machines": machines(rows),
        "within": within(rows),
        "across": across(rows),
        "isolation": isolation(options.isolation.read_text(encoding="utf-8")) if options.isolation.is_file() else {},
    }
    publish(found, page(found), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
