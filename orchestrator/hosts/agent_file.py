"""The one file that is copied to every host: agent and sampler. Built once per sweep, identified by its hash."""

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
"""It needs only the standard library; `-S` skips the search for packages, half of the start time."""
BOOTSTRAP = b"exec(%a)\n" % Path(__file__).with_name("bootstrap.py").read_text(encoding="utf-8")
"""The first line on stdin: so a list of processes shows a short command, not the text of a program."""


@dataclass(frozen=True)
class AgentFile:
    """Content and name of the file."""

    content: bytes
    sha256: str

    @property
    def file_name(self) -> str:
        """Identifies the content: another version has another name, and an existing file can be used as it is."""
        return f"agent-{self.sha256[:16]}.pyz"

    def command(self, python: str, work_dir: str) -> list[str]:
        """Head of a command line that runs the file on a host; it reads BOOTSTRAP from stdin first.

        If the file is not there, it prints a line, {"bring": ...}, and reads the content from stdin.
        """
        path = f"{work_dir.rstrip('/')}/{self.file_name}"
        about = [str(len(self.content)), str(zlib.crc32(self.content))]
        return [python, *PYTHON_FLAGS, "-c", "exec(input())", path, *about]


def build_agent() -> AgentFile:
    """Builds the file by its command, through a pipe: a controller that is killed meanwhile leaves no file."""
    command = [sys.executable, "-m", "driple.agents.bundle", "-"]
    built = subprocess.run(command, capture_output=True, timeout=BUILD_S, check=False)
    if built.returncode != 0:
        raise RunFailed(f"the agent's file could not be built: {built.stderr.decode(errors='replace').strip()}")
    return AgentFile(built.stdout, hashlib.sha256(built.stdout).hexdigest())
