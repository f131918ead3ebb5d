"""Every file in tests/data/broken must be refused with the lines in the .expected file beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from driple.orchestrator.cli import main

BROKEN = sorted((Path(__file__).parents[2] / "data" / "broken").glob("*.yaml"))


def test_there_are_enough() -> None:
    assert len(BROKEN) >= 40


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_clear_lines_and_exit_code_2(
    path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    for expected in path.with_suffix(".expected").read_text().splitlines():
        assert expected in captured.err
    for line in captured.err.splitlines():
        assert line.startswith(str(path))
        assert line.isprintable()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_100_mb_is_refused_unread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as stream:
        stream.truncate(100_000_000)
    assert main([str(path)]) == 2
    assert capsys.readouterr().err == f"{path}: 100000000 bytes; an experiment file has at most 1000000\n"


@pytest.mark.parametrize("name", [".", "missing.yaml", "/dev/zero", "a\0b", "x" * 300])
def test_what_is_no_file(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([name]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
