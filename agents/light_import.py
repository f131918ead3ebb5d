"""Imports a large module of the one-file sampler without the memory cost of its compilation.

A module in an archive is compiled at every start. For pynvml's 7000 lines that raises our resident memory from 23 to
40 MB, and allocators rarely return it. So another process compiles it, and ours loads the result.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipimport
from contextlib import suppress
from importlib import import_module
from pathlib import Path

_COMPILE = "import py_compile, sys; py_compile.compile(sys.argv[1], doraise=True)"
_PATIENCE_S = 60.0


def import_light(name: str) -> None:
    """Imports a module; one in an archive is first compiled by another process. Raises ImportError."""
    archive = getattr(globals().get("__loader__"), "archive", None)
    if archive is not None and name not in sys.modules:
        # Not through find_spec, which compiles what it finds in an archive.
        source = zipimport.zipimporter(archive).get_source(name)
        with suppress(OSError, subprocess.SubprocessError), tempfile.TemporaryDirectory(prefix="driple-") as folder:
            path = Path(folder) / f"{name}.py"
            path.write_text(source or "", encoding="utf-8")
            subprocess.run([sys.executable, "-I", "-c", _COMPILE, str(path)], check=True, timeout=_PATIENCE_S)
            sys.path.insert(0, folder)
            try:
                import_module(name)
            finally:
                sys.path.remove(folder)
    import_module(name)
