"""Builds what a host gets as one file that python3 >= 3.8 runs: `python -m driple.agents.bundle FILE`.

A zip archive that Python executes: this room, contracts, and nvidia-ml-py's one module. It is the sampler, and the
steward where its first word is `steward`. The same sources give the
same bytes, so a controller can tell by a checksum whether a host has it already.
"""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Dict, Optional, Sequence

from driple.contracts.command import CommandParser, command
from driple.contracts.errors import BadInput
from driple.contracts.rundir import replacing

PROG = "python -m driple.agents.bundle"

_MAIN = """\
import sys
if sys.version_info < (3, 8):
    sys.exit("driple-sample: error: expected python3 >= 3.8, got %s" % sys.version.split()[0])
if sys.argv[1:2] == ["steward"]:
    del sys.argv[1]
    from driple.agents.cli_steward import main
else:
    from driple.agents.cli import main
sys.exit(main())
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def build(path: Path) -> None:
    """Writes the archive.

    Raises:
        BadInput: nvidia-ml-py is not installed here, or the file cannot be written.
    """
    contents = _contents()
    try:
        with replacing(path, "wb") as stream:
            stream.write(b"#!/usr/bin/env python3\n")
            with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
                for name in sorted(contents):
                    entry = zipfile.ZipInfo(name, _EPOCH)
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(entry, contents[name])
        path.chmod(path.stat().st_mode | 0o111)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def _contents() -> Dict[str, bytes]:
    contents = {"__main__.py": _MAIN.encode(), "driple/__init__.py": b""}
    for room in ("agents", "contracts"):
        for source in _folder(f"driple.{room}").glob("*.py"):
            contents[f"driple/{room}/{source.name}"] = source.read_bytes()
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise BadInput("nvidia-ml-py is not installed here; the sampler carries it: pip install nvidia-ml-py")
    contents["pynvml.py"] = Path(spec.origin).read_bytes()
    version = metadata.version("driple")
    facts = f"Metadata-Version: 2.1\nName: driple\nVersion: {version}\n"
    contents[f"driple-{version}.dist-info/METADATA"] = facts.encode()
    return contents


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


@command
def main(argv: Optional[Sequence[str]] = None) -> int:
    """Builds it and says how large it is."""
    parser = CommandParser(
        prog=PROG,
        description="Build the sampler as one file for hosts that have nothing but python3 >= 3.8.",
        example=f"{PROG} driple-sample.pyz",
    )
    parser.add_argument("file", type=Path, help="where to put it")
    path = parser.parse_args(argv).file
    build(path)
    print(f"{path}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
