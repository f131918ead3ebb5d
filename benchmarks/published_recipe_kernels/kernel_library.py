"""The kernels as a loaded library: compiled by the system's C++ compiler on first use, and kept in the user's cache.

Nothing depends on it. Where there is no compiler, no writable cache, or DRIPLE_KERNELS=off, there is no library, and
callers go the plain way with the same results.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

SWITCH = "DRIPLE_KERNELS"
BUILD_S = 120
_FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC", "-pthread")
_EXTRAS = (("-march=native", "-fopenmp"), ("-march=native",), ())  # not every compiler has all of them
_log = logging.getLogger(__name__)


def library() -> ctypes.CDLL | None:
    """The library, or None where it is switched off or cannot be had."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no"):
        return None
    compiler = _compiler()
    return None if compiler is None else _library(compiler)


def _compiler() -> str | None:
    """As CXX says, or the first usual one in PATH."""
    names = (os.environ["CXX"],) if os.environ.get("CXX") else ("c++", "g++", "clang++")
    return next((found for name in names if (found := shutil.which(name))), None)


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(home) if home and Path(home).is_absolute() else Path.home() / ".cache") / "driple"
    except RuntimeError:  # no home: a container whose user is nobody
        return Path(tempfile.gettempdir()) / f"driple-{os.getuid()}"


@lru_cache(maxsize=8)
def _library(compiler: str) -> ctypes.CDLL | None:
    """Tried once in a process, also if it fails."""
    sources, cache = sorted((Path(__file__).parent / "kernels").glob("*.[ch]*")), _cache()
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = cache / f"kernels-{_fingerprint(compiler, sources)}.so"
        if not path.exists():
            _build(compiler, sources, path)
        if path.stat().st_uid != os.getuid():
            raise OSError(f"{path} belongs to someone else")
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError) as error:
        _log.debug("no native kernels: %s", error)
        return None


def _fingerprint(compiler: str, sources: list[Path]) -> str:
    """Of all that the library depends on: a home may be shared by machines of different kinds."""
    parts = [compiler, platform.machine(), _processor(), *_FLAGS, *(source.read_text() for source in sources)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _processor() -> str:
    """What the processor can do, as far as the system says."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.lower().startswith(("flags", "features"))), platform.processor())


def _build(compiler: str, sources: list[Path], path: Path) -> None:
    """Beside, then moved into place: another process may do the same at the same time."""
    files = [str(source) for source in sources if source.suffix == ".cpp"]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = Path(folder) / path.name
        for extra in _EXTRAS:
            command = [compiler, *_FLAGS, *extra, *files, "-o", str(built)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
            if done.returncode == 0:
                built.replace(path)
                return
        raise OSError(f"{compiler} failed: {done.stderr.strip()[-300:]}")
