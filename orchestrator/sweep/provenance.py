"""Software of a sweep: versions, and the git commit in a checkout."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

GIT_S = 10.0


@dataclass(frozen=True)
class Provenance:
    """Recorded in every run.json of a sweep."""

    versions: dict[str, str]
    git_commit: str | None


def provenance(agent_sha256: str | None = None) -> Provenance:
    """The software of this controller, and of the agent if one runs."""
    versions = {"controller/python": platform.python_version(), "controller/kernel": platform.release()}
    if agent_sha256 is not None:
        versions["agent"] = agent_sha256[:16]
    for package in ("driple", "paramiko"):
        versions[f"controller/{package}"] = metadata.version(package)
    return Provenance(versions, _git_commit(Path(__file__).resolve().parents[2]))


def _git_commit(folder: Path) -> str | None:
    """None outside a checkout, or without git."""
    if not (folder / ".git").exists() or not (folder / "setup.cfg").exists():
        return None
    git = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(git, capture_output=True, text=True, timeout=GIT_S, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
