#!/usr/bin/env python
"""Find and execute the snippets of README.md, docs/ and the notebook. CONTRIBUTING.md describes the marks.

python scripts/doc_snippets.py            counts the snippets by what is done with them
python scripts/doc_snippets.py --update   executes marked commands and writes their output into the pages
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
NOTEBOOK = CHECKOUT / "docs/tutorial/workflow.ipynb"
DATA = ("datasets", "experiments", "inspectors", "tests/data", "zoo_graphs")
LIMIT_S = 300

_BLOCK = re.compile(
    r"^(?P<indent> *)(?:<!-- test: (?P<mark>.*?) -->\n *)?```(?P<language>\w+)(?: title=\"(?P<title>.+?)\")?\n"
    r"(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    """Line of its first line of text, from 1."""
    language: str
    title: str | None
    """File that it is written to before anything is executed."""
    marks: tuple[str, ...]
    text: str

    @property
    def place(self) -> str:
        """For messages and names of tests."""
        return f"{self.page.relative_to(CHECKOUT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command of a console block."""

    text: str
    output: str
    """What the page shows; empty if it shows nothing."""


def pages() -> list[Path]:
    """README.md and all pages of docs/."""
    return [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text")) + 1
        marks = tuple((match["mark"] or "").split())
        found.append(Block(page, line, match["language"], match["title"], marks, textwrap.dedent(match["text"])))
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a console block: lines that begin with `$ `, each with the lines below it."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    return [Command(*part.partition("\n")[::2]) for part in parts]


def cells(notebook: Path) -> list[str]:
    """The code cells of a notebook."""
    document = json.loads(notebook.read_text())
    return ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == "code"]


def script(chosen: list[Block]) -> str:
    """Python blocks of one page as one program, on the same lines as in the page."""
    lines: list[str] = []
    for block in chosen:
        lines += [""] * (block.line - 1 - len(lines))
        lines += block.text.splitlines()
    return "\n".join(lines) + "\n"


def options(command: str) -> tuple[list[str], list[str]]:
    """The program of one of our commands with its sub-command, and its options; else two empty lists."""
    words = shlex.split(command.split(" | ")[0], comments=True)
    program: list[str] = []
    if words and re.fullmatch(r"driple-[a-z-]+", words[0]):
        program = words[:2] if words[0] == "driple-lab" else words[:1]
    elif words[:3] == ["python", "-m", "driple.workloads.cli"]:
        program = words[:4]
    given = itertools.takewhile(lambda word: word != "--", words[len(program) :])
    return program, [word.partition("=")[0] for word in given if program and word.startswith("--")]


def names(code: str) -> set[str]:
    """Attributes of the package `driple` that a program uses."""
    found = ast.walk(ast.parse(code))
    nodes = [node for node in found if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    return {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "driple"}


def workspace(folder: Path, page: Path | None = None) -> None:
    """Copies the shipped data into a folder, where snippets may write, and writes the files that a page shows."""
    for name in DATA:
        if (CHECKOUT / name).exists():
            shutil.copytree(CHECKOUT / name, folder / name, dirs_exist_ok=True)
    for block in blocks(page) if page else ():
        if block.title:
            (folder / block.title).write_text(block.text)


def execute(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder, with the commands of this environment."""
    home = folder / ".home"
    home.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "COLUMNS": "100",
    }
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
    )


def exit_code(block: Block) -> int:
    """The exit code that a block expects."""
    return next((int(mark.partition("=")[2]) for mark in block.marks if mark.startswith("exit=")), 0)


def same(shown: str, real: str, numbers: bool) -> bool:
    """Whether a page shows the real output. `...` stands for any lines; with `numbers`, any number may be another."""

    def plain(text: str) -> list[str]:
        lines = [line.rstrip() for line in text.strip().splitlines()]
        return [" ".join(_NUMBER.sub("N", line).split()) for line in lines] if numbers else lines

    pattern = "\n".join(r"(?:.*\n)*?.*" if line == "..." else re.escape(line) for line in plain(shown))
    return re.fullmatch(pattern, "\n".join(plain(real))) is not None


def update(page: Path) -> bool:
    """Writes the real output of marked commands into a page; says whether it changed."""
    old = text = page.read_text()
    with tempfile.TemporaryDirectory() as name:
        workspace(Path(name), page)
        for block in blocks(page):
            if block.language != "console" or "run" not in block.marks:
                continue
            for command in commands(block):
                done = execute(command.text, Path(name))
                real = done.stdout if exit_code(block) == 0 else done.stderr
                if command.output and not same(command.output, real, "numbers" in block.marks):
                    print(f"{block.place}: {command.text}")
                    text = text.replace(f"$ {command.text}\n{command.output}", f"$ {command.text}\n{real}")
    page.write_text(text)
    return text != old


def kinds() -> Iterator[str]:
    """What is done with each snippet."""
    for block in itertools.chain.from_iterable(blocks(page) for page in pages()):
        if block.language == "python" and not block.title:
            yield f"python: {' '.join(block.marks) or 'executed'}"
        elif block.language == "console":
            for _ in commands(block):
                yield f"command: {'executed' if 'run' in block.marks else 'options checked'}"
        elif block.language == "yaml":
            yield "yaml"
    yield from ("notebook cell: executed" for _ in cells(NOTEBOOK))


def main() -> int:
    """Count, or update."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true")
    if parser.parse_args().update:
        for page in pages():
            update(page)
        return 0
    for kind, count in sorted(Counter(kinds()).items()):
        print(f"{count:4}  {kind}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
