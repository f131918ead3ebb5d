"""The steward's command, inside the one file that hosts get: `python3 agent.pyz steward`."""

from __future__ import annotations

import math
from typing import Optional, Sequence

from driple.contracts.command import CommandParser, command

PROG = "driple-steward"


@command
def main(argv: Optional[Sequence[str]] = None) -> int:
    """Parses, serves, gives the exit code: 0 told to end, 1 busy or cannot start, 2 bad input, 3 orphaned."""
    parser = CommandParser(
        prog=PROG,
        description="Start, watch and end processes on this host, as a controller says by JSON lines on stdin.\n"
        "When the controller goes, all that was started goes too.",
        example="python3 agent.pyz steward --work '~/.driple' --owner 'me@here p2w2'",
    )
    parser.add_argument("--work", required=True, metavar="DIR", help="its folder; nothing outside is changed")
    parser.add_argument("--owner", required=True, metavar="TEXT", help="who uses the host, for others who wait for it")
    parser.add_argument(
        "--wait", type=_seconds, default=0.0, metavar="S", help="wait so long for a host in use (%(default)g)"
    )
    parser.add_argument(
        "--orphan", type=_seconds, default=30.0, metavar="S", help="end after so long without a line (%(default)g)"
    )
    arguments = parser.parse_args(argv)

    from driple.agents.steward import Settings, Steward

    return Steward(Settings(arguments.work, arguments.owner, arguments.wait, arguments.orphan)).run()


def _seconds(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(text)
    return value


if __name__ == "__main__":
    raise SystemExit(main())
