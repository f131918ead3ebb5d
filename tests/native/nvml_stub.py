"""Builds nvml_stub.c into a folder: with that folder in LD_LIBRARY_PATH, programs that ask NVML meet a scripted device.

    python tests/native/nvml_stub.py --into /tmp/stub [--without nvmlDeviceGetSamples]
    NVML_STUB='gpus=2 busy_ms=200 idle_ms=300' LD_LIBRARY_PATH=/tmp/stub nvitop --once

Used by the tests and the benchmark, and by hand to try a sampler on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_stub.c")
LIBRARY = "libnvidia-ml.so.1"


def rest(defined: str, without: Sequence[str]) -> str:
    """C text of the functions that pynvml knows and the stub does not define: they are there and not supported.

    A driver exports them all. gpustat and nvitop treat a missing one as an old driver and warn about it.
    """
    spec = find_spec("pynvml")
    assert spec is not None and spec.origin is not None
    known = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', Path(spec.origin).read_text()))
    own = set(re.findall(r"^[\w ]+\*?\b(nvml\w+)\(", defined, re.MULTILINE))
    return "".join(f"int {name}(void) {{ return NOT_SUPPORTED; }}\n" for name in sorted(known - own - set(without)))


def build(folder: Path, without: Sequence[str] = ()) -> Path:
    """Compiles the stub.

    Args:
        folder: Where the library goes.
        without: Functions that this "driver" does not have.

    Returns:
        The library.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / LIBRARY
    defined = SOURCE.read_text()
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "nvml_stub.c")
        source.write_text(defined + rest(defined, without))
        # Under another name a function is missing under its own.
        renamed = [f"-D{name}=absent_{name}" for name in without]
        line = ["cc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", *renamed]
        subprocess.run([*line, str(source), "-o", str(library)], check=True)
    return library


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True, help="folder for the library")
    parser.add_argument("--without", action="append", default=[], metavar="FUNCTION", help="leave a function out")
    arguments = parser.parse_args()
    print(build(arguments.into, arguments.without))
    return 0


if __name__ == "__main__":
    sys.exit(main())
