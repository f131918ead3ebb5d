"""The one file that is brought to every host: steward and sampler. Built once for a sweep, known by its hash."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from driple.contracts.errors import RunFailed

BUILD_S = 60.0
PYTHON_FLAGS = ("-I", "-S")
"""It needs the standard library alone, and to look for what else is installed takes as long as half its start."""
ARRIVAL = b"exec(%a)\n" % Path(__file__).with_name("bootstrap.py").read_text(encoding="utf-8")
"""The first thing on stdin, as one line: so a list of processes shows what runs, and not a program's text."""


@dataclass(frozen=True)
class Agent:
    """Its content and the name it has on hosts."""

    content: bytes
    sha256: str

    @property
    def file_name(self) -> str:
        """Names the content: another version is another file, and one that is there can be used as it is."""
        return f"agent-{self.sha256[:16]}.pyz"

    def arrival(self, python: str, work_dir: str) -> list[str]:
        """The head of a command line that runs it on a host, told `ARRIVAL` first; see arrival.py.

        Where the file is not there, it says a line, {"bring": ...}, and wants the content on stdin.
        """
        path = f"{work_dir.rstrip('/')}/{self.file_name}"
        about = [str(len(self.content)), str(zlib.crc32(self.content))]
        return [python, *PYTHON_FLAGS, "-c", "exec(input())", path, *about]


def build_agent() -> Agent:
    """Builds it by its room's own command, through a pipe: a controller that is killed meanwhile leaves no file."""
    command = [sys.executable, "-m", "driple.agents.bundle", "-"]
    built = subprocess.run(command, capture_output=True, timeout=BUILD_S, check=False)
    if built.returncode != 0:
        raise RunFailed(f"the sampler's file could not be built: {built.stderr.decode(errors='replace').strip()}")
    return Agent(built.stdout, hashlib.sha256(built.stdout).hexdigest())
