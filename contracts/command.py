"""Shared by all commands: help with an example, one-line errors, exit codes."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from driple.contracts.command_guard import Main, command, printable

__all__ = ["CommandParser", "Main", "command", "printable"]


class CommandParser(argparse.ArgumentParser):
    """An argument parser with one-line errors, whose help ends with an example."""

    def __init__(self, *, prog: str, description: str, example: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # a new option must not change the meaning of an abbreviation in a script
        )
        self.add_argument("--version", action=_Version, help="show the version and exit")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


class PartParser(argparse.ArgumentParser):
    """The parser of a subcommand. argparse cannot pass the arguments of a CommandParser."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    error = CommandParser.error


class _Version(argparse.Action):
    """`--version`. Imports importlib.metadata only when used, because it is slow."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"{parser.prog} {version('driple')}")
        parser.exit()
