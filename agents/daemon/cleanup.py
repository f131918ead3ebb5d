"""Commands that revert changes to a host: run when its agent ends, for whatever reason, or on request.

Each is stored before the change is made. If an agent is killed with -9, the next one runs them before anything else.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import List, Sequence

from driple.agents.daemon.work_dir import UNDO
from driple.contracts.protocol.requests import RunAnswer

LIMIT_S = 10.0
_KEPT = 4000


class Cleanup:
    """The folder of commands, one file each."""

    def __init__(self, work: Path) -> None:
        self._folder = work / UNDO

    def later(self, name: str, argv: Sequence[str]) -> None:
        """Stores a command; replaces an earlier one of that name. Raises OSError."""
        import hashlib  # keeps the start of the agent quick

        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{hashlib.sha256(name.encode('utf-8')).hexdigest()[:16]}.json"
        path.write_text(json.dumps({"name": name, "argv": list(argv)}), encoding="utf-8")

    def now(self) -> List[str]:
        """Runs and removes all of them. Returns the names of those that failed."""
        failed = []
        with suppress(FileNotFoundError):
            for path in sorted(self._folder.iterdir()):
                with suppress(ValueError, KeyError, TypeError):  # half a file on a disk that was full
                    order = json.loads(path.read_text(encoding="utf-8"))
                    if run(order["argv"], LIMIT_S).exit_code != 0:
                        failed.append(str(order["name"]))
                path.unlink()
        return failed


def run(argv: Sequence[str], limit_s: float) -> RunAnswer:
    """Runs a short command to its end. The exit code is -1 if it does not exist or takes too long."""
    import subprocess  # not at the start of the agent, of which it would take a tenth

    try:
        done = subprocess.run(list(argv), stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return RunAnswer(exit_code=-1, stdout="", stderr=f"took longer than {limit_s:g} s")
    except OSError as error:
        return RunAnswer(exit_code=-1, stdout="", stderr=f"{argv[0]}: {error.strerror}")
    words = [text.decode("utf-8", "replace")[-_KEPT:] for text in (done.stdout, done.stderr)]
    return RunAnswer(exit_code=done.returncode, stdout=words[0], stderr=words[1])
