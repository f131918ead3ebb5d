"""The training graph of every model of the zoo at batch 32: time, memory, size.

    python benchmarks/zoo_graphs.py [--json] [--write docs/benchmarks/zoo-graphs.md]

One process after TensorFlow is loaded, one graph after the other, as a user gets them with `graph --all`. Run it on a
quiet machine; the CPU seconds say how quiet it was.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from datetime import date

from pages import machine, parser_of, publish

from driple.contracts.zoo import MODELS

SETTING = "cpu-p2w2-1g"
LINE = re.compile(
    r"\[\d+/\d+\] (?P<model>\S+): (?P<nodes>\d+) nodes, (?P<edges>\d+) edges, "
    r"(?P<seconds>[\d.]+) s \((?P<cpu_seconds>[\d.]+) s CPU\), (?P<peak_mb>\d+) MB resident"
)


def measure() -> list[dict[str, str]]:
    command = [
        sys.executable,
        "-m",
        "driple.workloads.cli",
        "graph",
        "--all",
        "--batch-size",
        "32",
        "--setting",
        SETTING,
    ]
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run([*command, "--out", folder], check=True, stdout=subprocess.PIPE, text=True)
    rows = [match.groupdict() for match in map(LINE.match, result.stdout.splitlines()) if match]
    missing = set(MODELS) - {row["model"] for row in rows}
    if missing:
        sys.exit(f"no figures for {', '.join(sorted(missing))}:\n{result.stdout}")
    return sorted(rows, key=lambda row: -float(row["seconds"]))


def markdown(rows: list[dict[str, str]]) -> str:
    columns = ("model", "nodes", "edges", "seconds", "cpu_seconds", "peak_mb")
    lines = "\n".join(f"| {' | '.join(row[column] for column in columns)} |" for row in rows)
    total, most = sum(float(row["seconds"]) for row in rows), max(int(row["peak_mb"]) for row in rows)
    return f"""# Graphs of the zoo

{len(rows)} models at batch 32 for {SETTING}, synchronous, in one process; {machine()}; {date.today()}. Slowest
first: the slowest took {rows[0]["seconds"]} s, all together {total:.0f} s, at most {most} MB resident. Reproduce with
`python benchmarks/zoo_graphs.py --write docs/benchmarks/zoo-graphs.md`.

| model | nodes | edges | s | CPU s | peak MB |
|---|---|---|---|---|---|
{lines}
"""


def main() -> None:
    parser = parser_of(__doc__)
    arguments = parser.parse_args()
    rows = measure()
    publish(rows, markdown(rows), arguments)


if __name__ == "__main__":
    main()
