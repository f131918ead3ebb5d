"""Python and packages of an interpreter."""

from __future__ import annotations

import json
import subprocess
from typing import Dict, Sequence

from driple.contracts.errors import BadInput, shown
from driple.contracts.protocol.requests import PythonInfo
from driple.contracts.strategy import BACKENDS, FRAMEWORKS

PYTHON_S = 20.0

_PACKAGES: Dict[str, Sequence[str]] = {"driple": ("driple",), "numpy": ("numpy",)}
for _packages in [each.packages for each in FRAMEWORKS.values()] + [each.packages for each in BACKENDS.values()]:
    _PACKAGES.update(_packages)

# Reads the metadata and imports nothing: importing TensorFlow takes seconds, and may occupy a GPU.
_VERSIONS = """\
import json, platform, sys
from importlib import metadata
def version(names):
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
print(json.dumps({
    "version": platform.python_version(),
    "executable": sys.executable,
    "packages": {name: version(names) for name, names in json.loads(sys.argv[1]).items()},
}))
"""


def python_versions(prefix: Sequence[str]) -> PythonInfo:
    """Packages of the interpreter that this command line runs. Raises BadInput if it does not answer."""
    shown_as = " ".join(prefix)
    try:
        done = subprocess.run(
            [*prefix, "-c", _VERSIONS, json.dumps(_PACKAGES)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PYTHON_S - 1,
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"{shown_as}: no answer within {PYTHON_S - 1:g} s") from None
    except OSError as error:
        raise BadInput(f"{shown_as}: {error.strerror}") from None
    try:
        if done.returncode == 0:
            return PythonInfo.read(json.loads(done.stdout.splitlines()[-1]), shown_as)
    except (BadInput, ValueError, IndexError):
        pass
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    last = words[-1] if words else shown(done.stdout[-60:])
    raise BadInput(f"{shown_as}: expected a Python 3.8 or later, but it ended with {done.returncode}: {last}")
