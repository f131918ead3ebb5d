"""Graphs that are made once: keys, the cache, and what goes wrong."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import predict_work as work
import pytest

from driple.contracts.errors import BadInput, RunFailed
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.inspector.predict import graph_cache
from driple.inspector.predict.graph_cache import GraphRequest, cache_folder, cached_graphs

WORKLOAD = Workload("resnet20", "cifar10", 16, image_size=32)
WANTED = GraphRequest(WORKLOAD, Setting.parse("cpu-p1w2-1g"))


class Maker:
    """Stands in for the process with TensorFlow."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.calls = 0
        self.code, self.said = 0, ""

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.calls += 1
        (out,) = [word.removeprefix("--out=") for word in command if word.startswith("--out=")]
        Path(out).write_bytes(self.content if self.code == 0 else self.content[:100])
        return subprocess.CompletedProcess(command, self.code, "", self.said)


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch, checkout: Path) -> Maker:
    made = Maker(work.run_graph(checkout).read_bytes())
    # Not subprocess.run itself: libraries that are loaded meanwhile use it too.
    monkeypatch.setattr(graph_cache, "subprocess", SimpleNamespace(run=made, DEVNULL=subprocess.DEVNULL))
    monkeypatch.setattr(graph_cache, "_need_maker", lambda wanted: None)
    monkeypatch.setattr(graph_cache, "stored_graph", lambda workload, setting: None)
    return made


def silent(line: str) -> None:
    """Nobody listens."""


def test_a_graph_is_made_once(maker: Maker, tmp_path: Path) -> None:
    first = cached_graphs([WANTED, WANTED], tmp_path / "cache", silent)[WANTED]
    assert cached_graphs([WANTED], tmp_path / "cache", silent)[WANTED].ops == first.ops
    assert maker.calls == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [WANTED.file_name]
    assert WANTED.file_name.startswith("resnet20-b16-s32-momentum-sync-")


def test_a_damaged_one_is_made_again(maker: Maker, tmp_path: Path) -> None:
    (tmp_path / WANTED.file_name).write_bytes(maker.content[:500])
    cached_graphs([WANTED], tmp_path, silent)
    assert maker.calls == 1
    assert (tmp_path / WANTED.file_name).read_bytes() == maker.content


@pytest.mark.parametrize(("code", "kind"), [(2, BadInput), (1, RunFailed), (-9, RunFailed)])
def test_a_failure_leaves_nothing_behind(maker: Maker, tmp_path: Path, code: int, kind: type[Exception]) -> None:
    maker.code, maker.said = code, "a line of TensorFlow\nown.py:build: ValueError at line 3: no\n"
    with pytest.raises(kind, match="own.py:build: ValueError at line 3: no"):
        cached_graphs([WANTED], tmp_path, silent)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_done_without(maker: Maker, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    heard: list[str] = []
    assert cached_graphs([WANTED], tmp_path / "cache", heard.append)[WANTED].ops
    assert "the graph is not kept" in heard[-1]


def test_without_tensorflow_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driple.inspector.predict.graph_cache.find_spec", lambda name: None)
    assert cached_graphs([WANTED], tmp_path, silent)[WANTED].ops  # its graph is stored with driple
    wide = replace(WANTED, workload=replace(WORKLOAD, width=2.0))
    with pytest.raises(BadInput) as caught:
        cached_graphs([wide], tmp_path, silent)
    assert "pip install 'driple[workloads]'" in str(caught.value) and "--graph" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_key_has_all_that_makes_a_graph(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        **{"model": "resnet32", "dataset": "imagenet", "batch_size": 17, "optimiser": "adam", "update": "async"},
        **{"image_size": 33, "width": 0.5, "sharding": "round_robin", "code_sha256": "00", "sequence_length": 5},
    }
    others = [replace(WANTED, workload=replace(WORKLOAD, **{name: value})) for name, value in changes.items()]
    others += [replace(WANTED, setting=Setting.parse(text)) for text in ("v100-p1w2-1g", "cpu-p2w2-1g")]
    every = [WANTED, *others]
    assert len({one.key for one in every}) == len(every)
    for same in ("cpu-p1w3-1g", "cpu-p1w2-100m"):
        assert replace(WANTED, setting=Setting.parse(same)).key == WANTED.key
    rings = [replace(WANTED, setting=Setting.parse(text)).key for text in ("cpu-p0w2-1g", "cpu-p0w3-1g")]
    assert len({WANTED.key, *rings}) == 3
    before = WANTED.key
    for changed in ("driple", "tensorflow"):
        monkeypatch.setattr(graph_cache, "_version", lambda name, changed=changed: "9" if name == changed else "1")
        assert WANTED.key != before
        before = WANTED.key


def test_own_code_is_known_by_what_it_says_and_not_by_where_it_lies() -> None:
    here, there = (
        GraphRequest(replace(WORKLOAD, model=f"{path}:build", code_sha256="00"), WANTED.setting, Path(path))
        for path in ("a/model.py", "/b/model.py")
    )
    assert here.key == there.key
    other = replace(here, workload=replace(here.workload, model="a/model.py:other"))
    assert other.key != here.key


def test_where_the_cache_is() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/driple/graphs")
    for environment in ({}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}):
        assert cache_folder(environment) == Path.home() / ".cache/driple/graphs"
