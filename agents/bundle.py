"""Builds what a host gets as one file that python3 >= 3.8 runs: `python -m driple.agents.bundle FILE`.

A zip archive that Python executes: this room, contracts, and nvidia-ml-py's one module. It is the sampler, and the
steward where its first word is `steward`. The same sources give the same bytes, so a controller can tell by a checksum
whether a host has it already.

Sources are there compiled too, by the Python that builds it: Python keeps nothing of what it compiles from an archive,
and would do it again at each start. Another version of Python passes over these and compiles.
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

from driple.contracts.command import CommandParser, command
from driple.contracts.errors import BadInput
from driple.contracts.run_dir import replacing

PROG = "python -m driple.agents.bundle"

_MAIN = """\
import sys
if sys.version_info < (3, 8):
    sys.exit("driple-sample: error: expected python3 >= 3.8, got %s" % sys.version.split()[0])
if sys.argv[1:2] == ["steward"]:
    import gc, os
    del sys.argv[1]
    gc.disable()  # all that is loaded stays
    from driple.agents.cli_daemon import main
    gc.freeze()
    gc.enable()
    code = main()
    os._exit(code)  # it has ended all that it started: taking Python itself apart would only take time
from driple.agents.cli import main
sys.exit(main())
"""
_UNCHECKED = 1
"""Flag of a compiled file that is known by its source's hash and never compared with it."""
_NO_REFERENCES = 2
"""Marshal's last format that is the same whatever else the compiling process has in memory."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def build(path: Path) -> None:
    """Writes the archive.

    Raises:
        BadInput: nvidia-ml-py is not installed here, or the file cannot be written.
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
        BadInput: nvidia-ml-py is not installed here.
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
    for room in ("agents", "contracts"):
        folder = _folder(f"driple.{room}")
        for path in folder.rglob("*.py"):
            name, source = f"driple/{room}/{path.relative_to(folder).as_posix()}", path.read_bytes()
            contents[name] = source
            with suppress(ValueError):  # Python 3.14 has constants that the format has not: hosts compile that one
                contents[f"{name}c"] = _compiled(name, source)
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise BadInput("nvidia-ml-py is not installed here; the sampler carries it: pip install nvidia-ml-py")
    contents["pynvml.py"] = Path(spec.origin).read_bytes()
    version = metadata.version("driple")
    facts = f"Metadata-Version: 2.1\nName: driple\nVersion: {version}\n"
    contents[f"driple-{version}.dist-info/METADATA"] = facts.encode()
    return contents


def _compiled(name: str, source: bytes) -> bytes:
    """As in a .pyc file (PEP 552). The name is what tracebacks show."""
    code = compile(source, name, "exec", dont_inherit=True)
    head = importlib.util.MAGIC_NUMBER + _UNCHECKED.to_bytes(4, "little") + importlib.util.source_hash(source)
    return head + marshal.dumps(code, _NO_REFERENCES)


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


@command
def main(argv: Optional[Sequence[str]] = None) -> int:
    """Builds it and, where it is a file, says how large it is."""
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
