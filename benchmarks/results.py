"""All figures of docs/benchmarks/results.md, from the measured datasets of the repository.

    python benchmarks/results.py                          all of it: two hours on two processors
    python benchmarks/results.py --part noise             one part anew, and the page

Every part keeps its figures, with machine and date, in docs/benchmarks/results/<part>.json. The page is made of these
files, and of docs/benchmarks/results/causes.md: what is believed of the weak figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import results_accuracy
import results_design
import results_families
import results_noise
import results_page
import results_recipe
import results_rows
import results_servers
import results_transfer
import torch

PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "noise": results_noise.measure,
    "accuracy": results_accuracy.measure,
    "servers": results_servers.measure,
    "recipe": results_recipe.measure,
    "families": results_families.measure,
    "design": results_design.measure,
    "rows": results_rows.measure,
    "transfer": results_transfer.measure,
}
THREADS = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the parts that are asked for, then the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=Path, default=Path("datasets"))
    parser.add_argument("--part", action="append", choices=[*PARTS, "page"], help="default: all")
    parser.add_argument("--docs", type=Path, default=Path("docs/benchmarks"), help="folder of results.md and results/")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(THREADS)
    folder = arguments.docs / "results"
    folder.mkdir(parents=True, exist_ok=True)
    for name in [part for part in PARTS if part in (arguments.part or PARTS)]:
        begin = time.perf_counter()
        figures = PARTS[name](arguments.datasets)
        kept = {"made": _made(time.perf_counter() - begin), "figures": figures}
        (folder / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
    there = [name for name in PARTS if (folder / f"{name}.json").is_file()]
    found = {name: json.loads((folder / f"{name}.json").read_text()) for name in there}
    causes = (folder / "causes.md").read_text()
    (arguments.docs / "results.md").write_text(results_page.page(found, causes))
    results_page.draw(found, folder)
    return 0


def _made(seconds: float) -> dict[str, Any]:
    return {
        "date": str(date.today()),
        "minutes": round(seconds / 60, 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, {THREADS} threads, "
        f"Python {platform.python_version()}, torch {torch.__version__}",
    }


if __name__ == "__main__":
    sys.exit(main())
