"""Pythons as old as a host may have: on PATH, or beside the one that runs the tests, as version managers put them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def old_python(*minors: int) -> Path | None:
    """The first of Python 3.<minors> that is here and starts: a name on PATH may have nothing behind it."""
    beside = Path(sys.base_prefix).parent
    for minor in minors:
        installed = sorted(beside.glob(f"3.{minor}.*/bin/python3.{minor}"))
        for found in [*installed, *map(Path, filter(None, [shutil.which(f"python3.{minor}")]))]:
            if subprocess.run([found, "-c", ""], capture_output=True, timeout=60).returncode == 0:
                return found
    return None
