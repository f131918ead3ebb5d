"""A simulated host: reads runs from stdin and answers each with a line (contracts/protocol/simulation_messages.py).

The controller starts it for `driple-run --simulate` and `hosts: simulated`. It ends when stdin closes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from driple.contracts.command import command
from driple.contracts.errors import BadInput, DripleError
from driple.contracts.protocol.message import Tagged
from driple.contracts.protocol.simulation_messages import Failed, Simulate, read_line


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Answers until stdin closes."""
    for line in sys.stdin:
        print(_answer(line).to_line(), flush=True)
    return 0


def _answer(line: str) -> Tagged:
    from driple.simulator.run_job import run_job

    request = read_line(line)
    if not isinstance(request, Simulate):
        raise BadInput(f"expected a request to simulate, got {request.tag}")
    try:
        return run_job(Path(request.job), Path(request.folder))
    except DripleError as error:
        return Failed(folder=request.folder, message=str(error), bad_input=isinstance(error, BadInput))
    except OSError as error:  # such as a full disk: the next run may fit
        where = f"{error.filename}: " if error.filename else ""
        return Failed(folder=request.folder, message=f"{where}{error.strerror or error}", bad_input=False)


if __name__ == "__main__":
    sys.exit(main())
