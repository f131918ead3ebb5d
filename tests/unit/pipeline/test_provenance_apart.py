"""Simulated and measured runs: rows never share a file, and everything made of simulated ones says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import driple
from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import is_simulated, joined_provenance
from driple.contracts.manifest import SIMULATED, Manifest
from driple.orchestrator.planning.resume import measured_runs
from driple.pipeline import cli as build_cli
from driple.pipeline import cli_metrics, cli_report
from driple.pipeline.datasets.build import build_dataset
from driple.pipeline.datasets.dataset_file import read

pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("joblib")

RUN = "cpu-p1w2-1g-lenet-b8-s32-momentum-sync-c365236547d4"
SETTING = "cpu-p1w2-1g"


@pytest.fixture
def traces(checkout: Path, tmp_path: Path) -> Path:
    """The same run twice: measured, and as if it was simulated, which started later."""
    source = checkout / "tests/data/runs" / RUN
    for kind in ("measured", SIMULATED):
        shutil.copytree(source, tmp_path / "traces" / kind / RUN)
    path = tmp_path / "traces" / SIMULATED / RUN / "run.json"
    found = Manifest.read(path)
    hosts = {name: replace(host, kind=SIMULATED) for name, host in found.hosts.items()}
    replace(found, hosts=hosts, started_real_s=(found.started_real_s or 0) + 1e6).write(path)
    return tmp_path / "traces"


def test_provenances_are_joined_and_recognised() -> None:
    assert joined_provenance(["simulated", "measured", "measured"]) == "measured and simulated"
    assert joined_provenance(["measured and simulated", "simulated"]) == "measured and simulated"
    for text, simulated in (("simulated", True), ("measured and simulated", True), ("measured", False), (None, False)):
        assert is_simulated(text) is simulated


def test_the_same_run_measured_and_simulated_is_in_two_files(traces: Path, tmp_path: Path) -> None:
    report = build_dataset(traces, output=tmp_path / "out", jobs=1)
    assert not report.set_aside
    assert {done.file: done.provenance for done in report.settings} == {
        str(tmp_path / "out" / f"{SETTING}.parquet"): "measured",
        str(tmp_path / "out/simulated" / f"{SETTING}.parquet"): "simulated",
    }
    for done in report.settings:
        assert {row["provenance"] for row in read(Path(done.file), SETTING).rows} == {done.provenance}
    assert list(report.to_frame()["provenance"]) == ["measured", "simulated"]
    again = build_dataset(traces, output=tmp_path / "out", jobs=1)
    assert (again.computed, [done.kept for done in again.settings]) == (0, [3, 3])


def test_pruning_one_kind_leaves_the_other(traces: Path, tmp_path: Path) -> None:
    build_dataset(traces, output=tmp_path / "out", jobs=1)
    build_dataset(traces / SIMULATED, output=tmp_path / "out", jobs=1, prune=True)
    assert len(read(tmp_path / "out" / f"{SETTING}.parquet", SETTING).rows) == 3


@pytest.mark.parametrize(("first", "second"), [("measured", SIMULATED), (SIMULATED, "measured")])
def test_rows_of_the_other_kind_in_a_file_are_refused(traces: Path, tmp_path: Path, first: str, second: str) -> None:
    out = tmp_path / "out"
    build_dataset(traces / first, output=out, jobs=1)
    names = {"measured": out / f"{SETTING}.parquet", SIMULATED: out / "simulated" / f"{SETTING}.parquet"}
    names[second].parent.mkdir(exist_ok=True)
    names[first].rename(names[second])
    before = names[second].read_bytes()
    with pytest.raises(BadInput, match=f"has {first} rows, and {second} rows never go into the same file; move it to"):
        build_dataset(traces / second, output=out, jobs=1)
    assert names[second].read_bytes() == before


def test_rows_of_one_kind_do_not_count_as_done_for_the_other(traces: Path, tmp_path: Path) -> None:
    build_dataset(traces / SIMULATED, output=tmp_path, jobs=1)
    path = tmp_path / "simulated" / f"{SETTING}.parquet"
    table = pq.read_table(path)  # the counters of the copied run are those of a real machine, which had other load
    pq.write_table(table.drop_columns("flags").append_column("flags", [[[]] * len(table)]), path)
    assert measured_runs(tmp_path, [SETTING], [RUN]) == frozenset()
    assert measured_runs(tmp_path, [SETTING], [RUN], simulated=True) == {RUN}


def test_the_build_names_simulated_datasets_first(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(traces), "--output", str(tmp_path / "out"), "--jobs", "1"]
    assert build_cli.main(words) == 0
    assert capsys.readouterr().out.startswith(f"SIMULATED: {tmp_path}/out/simulated/{SETTING}.parquet: rows of simul")
    assert build_cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["provenance"] == "measured and simulated"
    assert {name: one["provenance"] for name, one in found["settings"].items()} == {
        SETTING: "measured",
        f"simulated/{SETTING}": "simulated",
    }


def test_runs_and_metrics_have_a_provenance(traces: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert list(driple.runs(traces).to_frame()["provenance"]) == ["measured", "simulated"]
    for kind, first in (("measured", f"run {RUN}"), (SIMULATED, "SIMULATED: a simulated run, not a measured one")):
        folder = traces / kind / RUN
        assert set(driple.metrics(folder).to_frame()["provenance"]) == {kind}
        picture, events = tmp_path / f"{kind}.svg", tmp_path / f"{kind}.json"
        assert cli_metrics.main([str(folder), "--plot", str(picture), "--perfetto", str(events)]) == 0
        assert capsys.readouterr().out.splitlines()[0] == first
        assert cli_metrics.main([str(folder), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["provenance"] == kind
        title = json.loads(events.read_text())["traceEvents"][0]["args"]["name"]
        assert title.endswith("(simulated)") is (kind == SIMULATED)
        assert ("(simulated) -->" in picture.read_text()) is (kind == SIMULATED)


Pages = Callable[..., tuple[str, dict[str, object]]]


@pytest.fixture
def page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pages:
    def write(path: Path, *words: str) -> tuple[str, dict[str, object]]:
        output = tmp_path / "page.html"
        assert cli_report.main([str(path), "--output", str(output), "--json", *words]) == 0
        return output.read_text(), json.loads(capsys.readouterr().out)

    return write


def test_pages_say_it_in_their_title(traces: Path, page: Pages, tmp_path: Path) -> None:
    build_dataset(traces, output=tmp_path / "out", jobs=1)
    for path, simulated in (
        (traces / SIMULATED, True),
        (traces / "measured", False),
        (tmp_path / "out/simulated", True),
        (tmp_path / "out" / f"{SETTING}.parquet", False),
    ):
        text, facts = page(path)
        assert ("(simulated)</h1>" in text and "(simulated)</title>" in text) is simulated
        assert facts["provenance"] == ("simulated" if simulated else "measured")
    assert "<h1>Mine (simulated)</h1>" in page(traces / SIMULATED, "--title", "Mine")[0]
    (tmp_path / "out" / f"{SETTING}.parquet").unlink()
    assert "(simulated)</h1>" in page(tmp_path / "out")[0]  # nothing measured is there


def test_a_page_of_both_kinds_of_runs_is_refused(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli_report.main([str(traces)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "1 measured and 1 simulated runs: a report never mixes them" in error


def test_a_trace_of_a_simulated_task_says_so_alone(checkout: Path, tmp_path: Path) -> None:
    source = checkout / "tests/data/runs" / RUN / "trace/worker-0.parquet"
    table = pq.read_table(source)
    metadata = {**json.loads(table.schema.metadata[b"driple"]), "simulated": True}
    pq.write_table(table.replace_schema_metadata({"driple": json.dumps(metadata)}), tmp_path / "worker-0.parquet")
    assert driple.metrics(source).provenance == "measured"
    assert driple.metrics(tmp_path / "worker-0.parquet").provenance == "simulated"
