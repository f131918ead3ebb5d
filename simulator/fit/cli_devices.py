"""Regenerates the device, host and fabric files of GPU settings from public measurements.

python -m driple.simulator.fit.cli_devices DATA
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from driple.contracts.command import CommandParser, command
from driple.contracts.errors import BadInput


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Parses arguments, calls `regenerate`, and prints errors of the fits.

    Returns:
        0 done; 1 a file cannot be written; 2 bad input.
    """
    arguments = _parser().parse_args(argv)
    try:
        datetime.date.fromisoformat(arguments.date)
    except ValueError:
        raise BadInput(f"--date: expected a date such as 2026-11-18, got {arguments.date}") from None
    from driple.simulator.fit.regenerate import regenerate

    regenerate(arguments.data, arguments.output, arguments.errors, arguments.date, lambda line: print(line, flush=True))
    return 0


def _parser() -> CommandParser:
    made = CommandParser(
        prog="python -m driple.simulator.fit.cli_devices",
        description="Fit the parameters of GPUs, GPU servers and links to public measurements, and write their files\n"
        "and a table of all errors. It takes a few minutes; equal measurements give equal files.",
        example="python -m driple.simulator.fit.cli_devices ../measurements",
    )
    add = made.add_argument
    add("data", type=Path, metavar="DATA", help="folder of the public measurements")
    add("--output", type=Path, default=Path("simulator"), metavar="DIR", help="default: %(default)s")
    errors = Path("benchmarks", "data", "simulator-gpu.json")
    add("--errors", type=Path, default=errors, metavar="FILE", help="table of errors (default: %(default)s)")
    today = datetime.date.today().isoformat()
    add("--date", default=today, metavar="DATE", help="date of the fit, for the files (default: today)")
    return made


if __name__ == "__main__":
    sys.exit(main())
