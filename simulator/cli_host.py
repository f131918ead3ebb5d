"""A simulated host: reads requests from stdin and answers each in lines (contracts/protocol/simulation_messages.py).

The controller starts it for `driple-run --simulate` and `hosts: simulated`. It ends when stdin closes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from driple.contracts.command import command
from driple.contracts.errors import BadInput, DripleError
from driple.contracts.protocol.message import Tagged
from driple.contracts.protocol.simulation_messages import Check, Checked, Failed, Simulate, Simulating, read_line
from driple.contracts.setting import Setting

EVERY_S = 1.0


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Answers until stdin closes."""
    for line in sys.stdin:
        print(_answer(line).to_line(), flush=True)
    return 0


def _answer(line: str) -> Tagged:
    request = read_line(line)
    folder = getattr(request, "folder", "")
    try:
        return _done(request)
    except DripleError as error:
        return Failed(folder=folder, message=str(error), bad_input=isinstance(error, BadInput))
    except OSError as error:  # such as a full disk: the next run may fit
        where = f"{error.filename}: " if error.filename else ""
        return Failed(folder=folder, message=f"{where}{error.strerror or error}", bad_input=False)


def _done(request: Tagged) -> Tagged:
    from driple.simulator.run_job import run_job
    from driple.simulator.simulation import check_setting

    if isinstance(request, Check):
        check_setting(Setting.parse(request.setting), request.topology)
        return Checked(setting=request.setting)
    if isinstance(request, Simulate):
        return run_job(Path(request.job), Path(request.folder), _Teller(request.folder))
    raise BadInput(f"expected a request to simulate, got {request.tag}")


class _Teller:
    """Tells the progress of a run, at most once a second. Without a controller this fails, and the process ends."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._told = time.monotonic()

    def __call__(self, share: float) -> None:
        now = time.monotonic()
        if now - self._told >= EVERY_S:
            self._told = now
            print(Simulating(folder=self._folder, share=share).to_line(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
