"""One line, every shell: words arrive byte for byte."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys

import pytest

from driple.orchestrator.hosts.shell import path_word, script_line

HOSTILE = [
    "",
    " ",
    "a b",
    "'",
    '"',
    'it\'s "quoted"',
    "line\nbreak\n",
    "\r\ttab",
    "$(touch /tmp/x)",
    "`id`",
    "$HOME",
    "${HOME}",
    "-n",
    "--",
    "\\",
    "\\'\\n\\0101",
    "!!",
    "a!b",
    "*?[a]{b,c}",
    "~",
    "=ls",
    "%self",
    "#no",
    ";|&<>()",
    "日本 é",
    "\udcff\udc80",
    "x=1",
]
ECHO = "import os,sys; os.write(1, b'\\0'.join(os.fsencode(word) for word in sys.argv[1:]))"


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "tcsh", "fish", "busybox sh"])
@pytest.mark.parametrize("words", [HOSTILE, ["plain", "words", "=ls", "%1"]], ids=["hostile", "plain"])
def test_words_pass_through_every_shell(shell: str, words: list[str]) -> None:
    if shutil.which(shell.split()[0]) is None:
        pytest.skip(f"no {shell} here")
    line = script_line(f"exec {shlex.join([sys.executable, '-c', ECHO, *words])}", "begin")
    done = subprocess.run([*shell.split(), "-c", line.encode("utf-8", "surrogateescape")], capture_output=True)
    expected = b"\0".join(word.encode("utf-8", "surrogateescape") for word in words)
    begin, _, words_back = done.stdout.partition(b"\n")
    assert (words_back, done.stderr, done.returncode) == (expected, b"", 0)
    assert begin.split()[0] == b"begin"
    assert begin.split()[1].isdigit()


def test_a_zero_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="zero byte"):
        script_line("echo a\0b")


@pytest.mark.parametrize(
    ("path", "word"),
    [("~/a b", "\"$HOME\"/'a b'"), ("-x", "./-x"), ("/tmp/$(id)", "'/tmp/$(id)'"), ("~other/x", "'~other/x'")],
)
def test_paths_as_words(path: str, word: str) -> None:
    assert path_word(path) == word
