"""Command of the packet capture, inside the one file that hosts get: `python3 agent.pyz capture`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Optional, Sequence

from driple.contracts.command import CommandParser, command
from driple.contracts.errors import BadInput

PROG = "driple-capture"


@command
def main(argv: Optional[Sequence[str]] = None) -> int:
    """Captures until stdin closes or says `stop`. Exit codes: 0 fine, 2 bad input or no permission."""
    parser = CommandParser(
        prog=PROG,
        description="Record the headers of all packets of an interface until stdin closes. Needs CAP_NET_RAW.",
        example="python3 agent.pyz capture --nic eth0 --out /tmp/packets.parquet",
    )
    parser.add_argument("--nic", required=True, metavar="NAME", help="network interface")
    parser.add_argument("--out", metavar="FILE", type=Path, help="the packet file; FILE.samples is written")
    parser.add_argument("--host", default="", metavar="NAME", help="name of this host in the file")
    parser.add_argument("--limit", type=float, default=86_400.0, metavar="S", help="upper limit (%(default)g)")
    parser.add_argument("--keeper", default="", metavar="SOCKET", help="Unix socket that passes packet sockets on")
    parser.add_argument("--check", action="store_true", help="only check whether it can be done")
    given = parser.parse_args(argv)
    if (given.out is None) != given.check:
        raise BadInput(f"{PROG}: error: expected either --out FILE or --check")

    from driple.agents.capture.capture_session import CaptureSpec, capture, check, tell

    spec = CaptureSpec(given.out or Path(), given.nic, given.host, given.limit, given.keeper)
    if given.check:
        check(spec)
        return 0
    tell(capture(spec))
    return 0


if __name__ == "__main__":
    sys.exit(main())
