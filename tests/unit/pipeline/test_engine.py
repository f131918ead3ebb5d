"""Where runs are worked on: the words of --engine, processes that die, clusters that are not there."""

from __future__ import annotations

import socket

import pytest
from engine_work import square, square_or_die

from driple.contracts.errors import BadInput, DripleError
from driple.pipeline.datasets.engine import Engine, connected, parse

pytest.importorskip("joblib")


def test_the_words_of_the_option() -> None:
    assert parse("local", 3) == Engine(jobs=3)
    assert parse("local").jobs >= 1
    assert parse("dask://host.example:8786") == Engine(kind="dask", address="host.example:8786")
    assert parse("dask://[::1]:8786").address == "[::1]:8786"
    assert parse("ray://auto") == Engine(kind="ray", address="auto")


@pytest.mark.parametrize(
    "text",
    ["", "spark://a:1", "dask", "dask://", "dask://host", "dask://auto", "ray://h:99999", "local://x", "dask://a:1;b"],
)
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="expected local, dask://host:port, ray://host:port or ray://auto"):
        parse(text)


def test_jobs_are_of_the_local_engine() -> None:
    with pytest.raises(BadInput, match="goes with --engine local"):
        parse("ray://auto", 2)
    with pytest.raises(BadInput, match="expected 1 or more"):
        parse("local", 0)


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_item_comes_back_once_with_its_result(jobs: int) -> None:
    with connected(Engine(jobs=jobs)) as pool:
        assert dict(pool.map(square, list(range(50)))) == {number: number * number for number in range(50)}
        assert list(pool.map(square, [])) == []


def test_a_process_that_dies_takes_only_its_own_item_with_it(caplog: pytest.LogCaptureFixture) -> None:
    with connected(Engine(jobs=2)) as pool:
        found = dict(pool.map(square_or_die, list(range(6))))
    assert found == {number: None if number == 3 else number * number for number in range(6)}
    assert "a worker process died" in caplog.text


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_cluster_that_is_not_there_is_one_line(kind: str) -> None:
    pytest.importorskip("distributed" if kind == "dask" else "ray")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers there
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(DripleError, match=f"nothing answers at {kind}://{address}: Connection refused"),
            connected(Engine(kind=kind, address=address)),
        ):
            pass
