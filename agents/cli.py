"""driple-sample: what a host's device and network did, at high frequency."""

from __future__ import annotations

from typing import Optional, Sequence

INTERRUPTED = 130


def main(argv: Optional[Sequence[str]] = None) -> int:
    """As `command_line.main`, which is loaded only here: Ctrl-C while it loads is no reason for a traceback."""
    try:
        from driple.agents import command_line

        return command_line.main(argv)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(main())
