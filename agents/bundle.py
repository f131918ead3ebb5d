"""Builds the one file that is brought to hosts and needs only python3 >= 3.8: `python -m driple.agents.bundle FILE`.

A zip archive that Python executes: the packages agents and contracts, and the bindings of GPU vendors. It runs the
sampler, or the agent daemon or the packet capture if the first argument is `daemon` or `capture`. The same sources give
the same bytes, so the controller can compare checksums to see whether a host already has it.

It also contains the modules compiled by the Python that builds it, because Python does not cache what it compiles from
an archive. Another version of Python ignores these and compiles the sources.
"""

from __future__ import annotations

import importlib.util
import io
import marshal
import sys
import zipfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Dict, Optional, Sequence

from driple.agents.sources.gpu.registry import VENDORS
from driple.contracts.command import CommandParser, command
from driple.contracts.errors import BadInput
from driple.contracts.run_dir import replacing

PROG = "python -m driple.agents.bundle"

_MAIN = """\
import sys
if sys.version_info < (3, 8):
    sys.exit("driple-sample: error: expected python3 >= 3.8, got %s" % sys.version.split()[0])
if sys.argv[1:2] == ["daemon"]:
    import gc, os
    del sys.argv[1]
    gc.disable()  # everything that is loaded stays
    from driple.agents.cli_daemon import main
    gc.freeze()
    gc.enable()
    code = main()
    os._exit(code)  # everything is ended: tearing down the interpreter would only take time
if sys.argv[1:2] == ["capture"]:
    del sys.argv[1]
    from driple.agents.cli_capture import main
else:
    from driple.agents.cli import main
sys.exit(main())
"""
_UNCHECKED = 1  # flag of a compiled file that is hash-based and never checked against its source
_NO_REFERENCES = 2  # the last marshal format whose output does not depend on other objects in memory
_EPOCH = (1980, 1, 1, 0, 0, 0)


def build(path: Path) -> None:
    """Writes the archive.

    Raises:
        BadInput: the binding of a GPU vendor is not installed here, or the file cannot be written.
    """
    content = archive()
    try:
        with replacing(path, "wb") as stream:
            stream.write(content)
        path.chmod(path.stat().st_mode | 0o111)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def archive() -> bytes:
    """The file's content.

    Raises:
        BadInput: the binding of a GPU vendor is not installed here.
    """
    stream = io.BytesIO(b"#!/usr/bin/env python3\n")
    stream.seek(0, io.SEEK_END)
    contents = _contents()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, contents[name])
    return stream.getvalue()


def _contents() -> Dict[str, bytes]:
    contents = {"__main__.py": _MAIN.encode(), "driple/__init__.py": b""}
    for package in ("agents", "contracts"):
        folder = _folder(f"driple.{package}")
        for path in folder.rglob("*.py"):
            name, source = f"driple/{package}/{path.relative_to(folder).as_posix()}", path.read_bytes()
            contents[name] = source
            with suppress(ValueError):  # Python 3.14 has constants that this format lacks: hosts compile that module
                contents[f"{name}c"] = _compiled(name, source)
    for vendor in VENDORS:
        if not vendor.binding:
            continue
        spec = importlib.util.find_spec(vendor.binding)
        if spec is None or spec.origin is None:
            needed = f"pip install {vendor.distribution}"
            raise BadInput(f"{vendor.binding} is not installed here; the sampler needs it: {needed}")
        contents[f"{vendor.binding}.py"] = Path(spec.origin).read_bytes()
    version = metadata.version("driple")
    facts = f"Metadata-Version: 2.1\nName: driple\nVersion: {version}\n"
    contents[f"driple-{version}.dist-info/METADATA"] = facts.encode()
    return contents


def _compiled(name: str, source: bytes) -> bytes:
    """Content of a .pyc file (PEP 552). Tracebacks show `name`."""
    code = compile(source, name, "exec", dont_inherit=True)
    head = importlib.util.MAGIC_NUMBER + _UNCHECKED.to_bytes(4, "little") + importlib.util.source_hash(source)
    return head + marshal.dumps(code, _NO_REFERENCES)


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


@command
def main(argv: Optional[Sequence[str]] = None) -> int:
    """Builds the file and prints its size."""
    parser = CommandParser(
        prog=PROG,
        description="Build the sampler as one file for hosts that have nothing but python3 >= 3.8.",
        example=f"{PROG} driple-sample.pyz",
    )
    parser.add_argument("file", type=Path, help="where to put it; - for standard output")
    path = parser.parse_args(argv).file
    if str(path) == "-":
        sys.stdout.buffer.write(archive())
        return 0
    build(path)
    print(f"{path}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
