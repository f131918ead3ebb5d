"""driple-sample: what a host's device and network did, at high frequency."""

from __future__ import annotations

INTERRUPTED = 130


def main(argv: list[str] | None = None) -> int:
    """As `command_line.main`. Nothing is imported before it: Ctrl-C while things load is no reason for a traceback."""
    try:
        from driple.agents.sampler import command_line

        return command_line.main(argv)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(main())
