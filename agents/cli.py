"""driple-sample: samples the GPU, the network and a task of a host at high frequency."""

from __future__ import annotations

INTERRUPTED = 130


def main(argv: list[str] | None = None) -> int:
    """As `command_line.main`, which is imported here so that Ctrl-C during the import causes no traceback."""
    try:
        from driple.agents.sampler import command_line

        return command_line.main(argv)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(main())
