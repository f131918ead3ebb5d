"""What all commands share: help that ends with an example, one-line errors, exit codes."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from driple.contracts.command_guard import Main, command, printable

__all__ = ["CommandParser", "Main", "command", "printable"]


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line, and whose help ends with a real example."""

    def __init__(self, *, prog: str, description: str, example: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # a later option must not change what a short form in a user's script means
        )
        self.add_argument("--version", action=_Version, help="show the version and exit")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


class PartParser(argparse.ArgumentParser):
    """For the parts of a command. Not a CommandParser, which wants more arguments than argparse hands on."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    error = CommandParser.error


class _Version(argparse.Action):
    """`--version`, looked up only when asked for: importlib.metadata costs as much as the rest of a help page."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"{parser.prog} {version('driple')}")
        parser.exit()
