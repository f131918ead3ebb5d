"""A look at what tasks will find on a host: its GPUs, and what an interpreter has installed. Both may hang or lie."""

from __future__ import annotations

import json
import subprocess
from typing import Any, Dict, Sequence

from driple.contracts.errors import BadInput, shown

PYTHON_S = 20.0
GPUS_S = 30.0

# Reads what is installed and imports none of it: TensorFlow alone would take seconds, and perhaps a GPU.
_VERSIONS = """\
import json, platform, sys
from importlib import metadata
def version(*names):
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
print(json.dumps({
    "version": platform.python_version(),
    "executable": sys.executable,
    "driple": version("driple"),
    "tensorflow": version("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly"),
    "tf_keras": version("tf-keras"),
    "numpy": version("numpy"),
}))
"""


def python_versions(prefix: Sequence[str]) -> Dict[str, Any]:
    """What the interpreter at the end of this command line has.

    Raises:
        BadInput: it is not there, or does not answer.
    """
    shown_as = " ".join(prefix)
    try:
        done = subprocess.run(
            [*prefix, "-c", _VERSIONS], stdin=subprocess.DEVNULL, capture_output=True, timeout=PYTHON_S - 1
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"{shown_as}: no answer within {PYTHON_S - 1:g} s") from None
    except OSError as error:
        raise BadInput(f"{shown_as}: {error.strerror}") from None
    try:
        found = json.loads(done.stdout.splitlines()[-1])
        if done.returncode == 0 and isinstance(found, dict):
            return found
    except (ValueError, IndexError):
        pass
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    last = words[-1] if words else shown(done.stdout[-60:])
    raise BadInput(f"{shown_as}: expected a Python 3.8 or later, but it ended with {done.returncode}: {last}")


def gpus() -> Dict[str, Any]:
    """Index, UUID and name of every GPU.

    Raises:
        BadInput: NVML is not here or does not start.
    """
    from driple.agents.sources.gpu.nvml import Nvml, text

    nvml = Nvml()
    found = []
    for index in range(nvml.py.nvmlDeviceGetCount()):
        about: Dict[str, Any] = {"index": index, "uuid": None, "name": None}
        try:
            handle = nvml.py.nvmlDeviceGetHandleByIndex(index)
            about["uuid"] = text(nvml.py.nvmlDeviceGetUUID(handle))
            about["name"] = text(nvml.py.nvmlDeviceGetName(handle))
        except nvml.py.NVMLError as error:  # one that is lost must not hide the others
            about["error"] = str(error)
        found.append(about)
    return {"gpus": found}
