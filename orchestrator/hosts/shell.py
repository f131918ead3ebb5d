"""A script as one line of text that every login shell takes the same way."""

from __future__ import annotations

import re
import shlex

_PLAIN = re.compile(r"[^'\\!\n\r]*")
"""What sh, bash, zsh, csh and fish all leave alone between single quotes: fish reads \\ there, csh ! and line ends."""

_SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ./:=_,@+-")
_CODED = [chr(byte) if byte in _SAFE else f"\\0{byte:03o}" for byte in range(256)]
"""Every byte as `printf %b` takes it, in what no shell minds between double quotes."""


def script_line(script: str, beginning: str = "") -> str:
    """The line for an SSH server, which gives it to the login's own shell. That passes it on to `sh` and is gone.

    Args:
        script: for `sh`; words in it are quoted with shlex.
        beginning: printed on a line of its own, with the process number, before anything that the script itself says.
            What stands before it on stdout is from files like ~/.bashrc.
    """
    if "\0" in script:
        raise ValueError("a word of a command cannot hold a zero byte")
    script = f"echo {shlex.quote(beginning)} $$; {script}" if beginning else script
    if _PLAIN.fullmatch(script):
        return f"exec sh -c '{script}'"
    coded = "".join(map(_CODED.__getitem__, script.encode("utf-8", "surrogateescape")))
    return f'exec sh -c \'eval "$(printf %b "{coded}")"\''


def path_word(path: str) -> str:
    """A path as a word of a script: `~/` is the login's home, and a leading dash is no option."""
    if path.startswith("~/"):
        return '"$HOME"/' + shlex.quote(path[2:])
    return shlex.quote(f"./{path}" if path.startswith("-") else path)
