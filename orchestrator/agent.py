"""The one file that is brought to every host: steward and sampler. Built once for a sweep, known by its hash."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from driple.contracts.errors import RunFailed

BUILD_S = 60.0


@dataclass(frozen=True)
class Agent:
    """Its content and the name it has on hosts."""

    content: bytes
    sha256: str

    @property
    def file_name(self) -> str:
        """Names the content: another version is another file, and one that is there can be used as it is."""
        return f"agent-{self.sha256[:16]}.pyz"


def build_agent() -> Agent:
    """Builds it by its room's own command; the rooms meet in files."""
    with tempfile.TemporaryDirectory(prefix="driple-") as folder:
        path = Path(folder) / "agent.pyz"
        built = subprocess.run(
            [sys.executable, "-m", "driple.agents.bundle", str(path)],
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
        if built.returncode != 0:
            raise RunFailed(f"the sampler's file could not be built: {built.stderr.strip()}")
        content = path.read_bytes()
    return Agent(content, hashlib.sha256(content).hexdigest())
