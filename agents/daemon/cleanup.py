"""Commands that take off what was done to a host: run when its steward ends, in whatever way, or when they are asked.

Each is written down before the thing is done that it takes off. A steward that was killed with -9 leaves them to the
next, which runs them before anything else.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Sequence

from driple.agents.daemon.work_dir import UNDO

LIMIT_S = 10.0
_KEPT = 4000


class Undo:
    """The folder of them, one file a command."""

    def __init__(self, work: Path) -> None:
        self._folder = work / UNDO

    def later(self, name: str, argv: Sequence[str]) -> None:
        """Writes a command down, in place of an earlier one of that name. Raises OSError."""
        import hashlib  # a steward starts without what it may never need

        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{hashlib.sha256(name.encode('utf-8')).hexdigest()[:16]}.json"
        path.write_text(json.dumps({"name": name, "argv": list(argv)}), encoding="utf-8")

    def now(self) -> List[str]:
        """Runs them all; the names of those that did not end with 0. None is tried twice."""
        failed = []
        with suppress(FileNotFoundError):
            for path in sorted(self._folder.iterdir()):
                with suppress(ValueError, KeyError, TypeError):  # half a file on a disk that was full
                    order = json.loads(path.read_text(encoding="utf-8"))
                    if run(order["argv"], LIMIT_S)["exit_code"] != 0:
                        failed.append(str(order["name"]))
                path.unlink()
        return failed


def run(argv: Sequence[str], limit_s: float) -> Dict[str, Any]:
    """Runs a short command to its end; -1 is the exit code of one that was not there or took too long."""
    try:
        done = subprocess.run(list(argv), stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return {"exit_code": -1, "stdout": "", "stderr": f"took longer than {limit_s:g} s"}
    except OSError as error:
        return {"exit_code": -1, "stdout": "", "stderr": f"{argv[0]}: {error.strerror}"}
    words = [text.decode("utf-8", "replace")[-_KEPT:] for text in (done.stdout, done.stderr)]
    return {"exit_code": done.returncode, "stdout": words[0], "stderr": words[1]}
