"""What all benchmarks have in common: their two options, the words for the machine, and where figures go."""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

from driple.contracts.run_dir import replacing


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser that knows `--json` and `--write`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print every measurement, and not the page")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the page")
    return parser


def machine(*more: str) -> str:
    """Cores, system and Python, then what else matters."""
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    return ", ".join([f"{os.cpu_count()} cores", system, f"Python {platform.python_version()}", *more])


def publish(found: Any, page: str, options: argparse.Namespace) -> None:
    """Prints the figures or the page, and keeps the page where that was asked for."""
    print(json.dumps(found, indent=1) if options.json else page)
    if options.write:
        with replacing(options.write) as stream:
            stream.write(page)
