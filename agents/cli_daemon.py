"""Command of the agent daemon, inside the one file that hosts get: `python3 agent.pyz daemon`.

Without argparse, which takes as long to load as the rest of the agent. Every option has a value, so pairs are enough.
"""

from __future__ import annotations

import math
import sys
from typing import Dict, Optional, Sequence

from driple.agents.daemon.daemon import Daemon, Settings
from driple.contracts.command_guard import command
from driple.contracts.errors import BadInput

PROG = "driple-agent"
NEEDED = {"--work", "--owner"}
USAGE = f"""\
usage: {PROG} --work DIR --owner TEXT [--wait S] [--orphan S]

Start, watch and end processes on this host for a controller, which sends JSON lines on stdin.
When the controller goes away, everything that was started is ended.

  --work DIR     work folder; nothing outside it is changed
  --owner TEXT   who uses the host; shown to others who wait for it
  --wait S       seconds to wait for a host in use (0)
  --orphan S     end after this many seconds without a line (30)

example:
  python3 agent.pyz daemon --work '~/.driple' --owner 'me@here p2w2'"""


@command
def main(argv: Optional[Sequence[str]] = None) -> int:
    """Parses and serves. Exit codes: 0 asked to end, 1 busy or cannot start, 2 bad input, 3 controller gone."""
    words = sys.argv[1:] if argv is None else argv
    if words in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    options = dict(zip(words[::2], words[1::2]))
    if len(words) % 2 or not NEEDED <= options.keys() <= NEEDED | {"--wait", "--orphan"}:
        raise _bad("expected --work, --owner and optionally --wait and --orphan, each with a value")
    wait_s, orphan_s = _seconds(options, "--wait", 0.0), _seconds(options, "--orphan", 30.0)
    return Daemon(Settings(options["--work"], options["--owner"], wait_s, orphan_s)).run()


def _seconds(options: Dict[str, str], name: str, default: float) -> float:
    try:
        value = float(options.get(name, default))
    except ValueError:
        value = -1.0
    if not (math.isfinite(value) and value >= 0):
        raise _bad(f"{name}: expected seconds, got {options[name]!r}")
    return value


def _bad(what: str) -> BadInput:
    return BadInput(f"{PROG}: error: {what} (see {PROG} --help)")


if __name__ == "__main__":
    raise SystemExit(main())
