"""Thousands of damaged files: a plan or clear lines, never a traceback, never a side effect."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
from pathlib import Path

import pytest

from driple.orchestrator.cli import main

FILES = 5200
SEED = 20221116

SINK = """
name: all
setting: [cpu-p1w2-1g, cpu-p1w1-1g]
hosts: lab
placement: {spread: 2}
defaults: &d {optimiser: [sgd, adam], sequence_length: 8}
workloads:
  - model: [resnet20, transformer]
    batch_size: &b [8, 16]
    exclude: [{model: resnet20, optimiser: sgd}]
    include: [{model: vgg16, batch_size: 4}]
  - {<<: *d, model: alexnet, dataset: cifar10, batch_size: *b, update: async, width: 0.5}
steps: 10
network: {rate: 100mbit, delay: 5ms, loss: [0%, 2%]}
timeouts: {start: 90s, step: 1min}
retries: 2
"""
TOKENS = [
    "~", "null", "true", "-1", "0", "1e999", "010", "1:30", "9" * 400, "[]", "{}", "[[[[", "}", "&a", "*a", "*b",
    "<<: *d", "!!python/name:os.system", "!x", "'", '"', "|", ">", "#", "---", "...", "%YAML 9.9", "\t", "\0",
    "\x1b[2J", "\ufeff", "\u202e", "é", "模型", "💥", ": ", "- ", "? ", "model", "steps: 5", "use: paper",
    "hosts: /etc/passwd", "hosts: .", "name: ../x", "lab9", "ps:0", "100%", "5ms", "cpu-p0w1-1g", "v100-p1w2-pcie",
]  # fmt: skip


def damage(text: str, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        lines = text.splitlines(keepends=True) or [""]
        at = rng.randrange(len(lines))
        where = rng.randrange(len(text) + 1)
        match rng.randrange(9):
            case 0:
                del lines[at]
                text = "".join(lines)
            case 1:
                text = "".join([*lines, lines[at]])
            case 2:
                rng.shuffle(lines)
                text = "".join(lines)
            case 3:
                text = text[:where]
            case 4:
                text = text[:where] + text[where + rng.randrange(1, 12) :]
            case 5 | 6:
                text = text[:where] + rng.choice(TOKENS) + text[where:]
            case 7:
                words = text.split(" ")
                words[rng.randrange(len(words))] = rng.choice(TOKENS)
                text = " ".join(words)
            case 8:
                lines[at] = lines[at].replace(":", ":" + rng.choice(TOKENS), 1)
                text = "".join(lines)
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    if data and rng.random() < 0.1:
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_damaged_files(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(SEED)
    shutil.copytree(checkout / "experiments", tmp_path / "x")
    monkeypatch.chdir(tmp_path)
    originals = [SINK, *((checkout / "experiments" / name).read_text() for name in ("p2w2.yaml", "dml-traffic.yaml"))]
    path = tmp_path / "x" / "damaged.yaml"
    path.touch()
    before = files_below(tmp_path)
    outcomes = {0: 0, 2: 0}
    for number in range(FILES):
        data = damage(rng.choice(originals), rng)
        path.write_bytes(data)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["x/damaged.yaml", "--dry-run", "--json"])
        outcomes[code] += 1
        if code == 0:
            assert json.loads(out.getvalue())["runs"], (number, data)
            assert err.getvalue() == ""
        else:
            assert out.getvalue() == ""
            assert err.getvalue(), (number, data)
            assert all(
                line.startswith(("x/", "/etc/passwd")) and line.isprintable() for line in err.getvalue().splitlines()
            ), (
                number,
                data,
            )
        if number % 500 == 0:
            path.write_bytes(b"")
            assert files_below(tmp_path) == before
    path.write_bytes(b"")
    assert files_below(tmp_path) == before
    # A fuzz that only ever sees one outcome tests nothing.
    assert min(outcomes.values()) > FILES / 20, outcomes
