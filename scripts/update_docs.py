#!/usr/bin/env python
"""Write the parts of docs/reference that come from the code: key tables, dataset columns, help texts.

    python scripts/update_docs.py           rewrites the pages
    python scripts/update_docs.py --check   exit code 1 if a page is out of date

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import configparser
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from driple.contracts.formats.dataset import TABLES
from driple.contracts.metrics import RESOURCES
from driple.orchestrator.config.experiment import KEYS
from driple.orchestrator.config.inventory import HOST_KEYS
from driple.orchestrator.config.workload_grid import GRID_KEYS

CHECKOUT = Path(__file__).resolve().parents[1]
PART = re.compile(r"(<!-- generated: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> int:
    """Rewrite or check all pages of docs/reference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    made = parts()
    stale = []
    for page in sorted((CHECKOUT / "docs/reference").glob("*.md")):
        old = page.read_text()
        new = PART.sub(lambda match: f"{match[1]}\n{made[match[2]]}\n\n{match[3]}", old)
        if same(old, new):
            continue
        stale.append(page.name)
        if not check:
            page.write_text(new)
    for name in stale:
        print(f"docs/reference/{name}: {'out of date, run scripts/update_docs.py' if check else 'written'}")
    return 1 if check and stale else 0


def same(old: str, new: str) -> bool:
    """Versions of Python wrap help texts differently: only words count."""
    return old.split() == new.split()


def parts() -> dict[str, str]:
    """The text of each part by its name."""
    return {
        "experiment keys": _keys("key", KEYS),
        "workload keys": _keys("key", GRID_KEYS),
        "host keys": _keys("key of a host", HOST_KEYS),
        "dataset columns": _columns(),
        "command help": _help(),
    }


def _keys(title: str, table: Mapping[str, str]) -> str:
    return "\n".join([f"| {title} | meaning |", "|---|---|", *(f"| `{k}` | {v} |" for k, v in table.items())])


def _columns() -> str:
    others = tuple(f"{resource.key}_" for resource in RESOURCES[1:])
    lines: list[str] = []
    for title, columns in TABLES.items():
        lines += [f"### {title}", "", "| column | type | meaning |", "|---|---|---|"]
        for column in columns:
            if title != "Statistics" or not column.name.startswith(others):
                lines.append(f"| `{column.name}` | {column.type} | {column.meaning} |")
        lines.append("")
    return "\n".join(lines).strip()


def _help() -> str:
    config = configparser.ConfigParser()
    config.read(CHECKOUT / "setup.cfg")
    scripts = config["options.entry_points"]["console_scripts"].split("\n")
    names = [line.split("=")[0].strip() for line in scripts if line]
    texts = []
    for name in names:
        done = subprocess.run(
            [Path(sys.executable).with_name(name), "--help"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": "100"},
        )
        texts.append(f"## {name}\n\n```text\n{done.stdout.strip()}\n```")
    return "\n\n".join(texts)


if __name__ == "__main__":
    sys.exit(main())
