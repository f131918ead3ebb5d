"""Encodes a script as one line that every login shell reads in the same way."""

from __future__ import annotations

import re
import shlex

_PLAIN = re.compile(r"[^'\\!\n\r]*")
"""Characters without a meaning between single quotes in sh, bash, zsh, csh and fish."""

_SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ./:=_,@+-")
_CODED = [chr(byte) if byte in _SAFE else f"\\0{byte:03o}" for byte in range(256)]
"""Every byte for `printf %b`, in characters that are safe between double quotes in every shell."""


def script_line(script: str, beginning: str = "") -> str:
    """The command line for an SSH server, which passes it to the login shell; that executes `sh`.

    `beginning` is printed with the process number before the output of the script: what precedes it is of ~/.bashrc.
    """
    if "\0" in script:
        raise ValueError("a word of a command cannot hold a zero byte")
    script = f"echo {shlex.quote(beginning)} $$; {script}" if beginning else script
    if _PLAIN.fullmatch(script):
        return f"exec sh -c '{script}'"
    coded = "".join(map(_CODED.__getitem__, script.encode("utf-8", "surrogateescape")))
    return f'exec sh -c \'eval "$(printf %b "{coded}")"\''


def path_word(path: str) -> str:
    """Quotes a path for a script: `~/` is the home of the login, and a leading dash is not an option."""
    if path.startswith("~/"):
        return '"$HOME"/' + shlex.quote(path[2:])
    return shlex.quote(f"./{path}" if path.startswith("-") else path)
