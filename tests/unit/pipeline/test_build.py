"""Builds of real runs: what is computed, what is kept, what is set aside, and that nothing half-done stays."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driple.contracts.errors import BadInput, DripleError
from driple.contracts.formats.dataset import LIST_NAMES, LOOPBACK_FLAG, MISMATCH_FLAG
from driple.contracts.json_values import to_plain
from driple.contracts.manifest import Manifest
from driple.contracts.metrics import COLUMNS
from driple.contracts.run_spec import JobSpec
from driple.contracts.strategy import FRAMEWORKS
from driple.pipeline.datasets import build as building
from driple.pipeline.datasets import run_rows as making
from driple.pipeline.datasets.build import build_dataset
from driple.pipeline.datasets.build_report import BuildResult
from driple.pipeline.datasets.dataset_file import read
from driple.pipeline.datasets.engine import Engine
from driple.pipeline.datasets.splits import architecture_side, random_side

pytest.importorskip("joblib")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def examples(checkout: Path) -> list[Path]:
    """Real runs, the smallest first."""
    found = [path.parent for path in (checkout / "tests/data/runs").rglob("run.json")]
    return sorted(found, key=lambda run: sum(path.stat().st_size for path in run.rglob("*")))[:3]


def reseal(folder: Path, /, **changes: Any) -> None:
    """Gives a run that was edited the checksums of what is there now."""
    sums = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "run.json"
    }
    manifest = Manifest.read(folder / "run.json")
    replace(manifest, checksums=sums, **changes).write(folder / "run.json")


def copy(source: Path, traces: Path, *, repetition: int = 0, experiment: str = "e") -> Path:
    """The run as another repetition of itself."""
    manifest = Manifest.read(source / "run.json")
    spec = replace(manifest.run, repetition=repetition)
    run = traces / experiment / spec.id
    shutil.copytree(source, run)
    job = JobSpec.from_json(json.loads((run / "job.json").read_text()))
    (run / "job.json").write_text(json.dumps(to_plain(replace(job, run=spec))))
    reseal(run, run=spec, run_id=spec.id)
    return run


def done(traces: Path, output: Path, **options: Any) -> BuildResult:
    return build_dataset([traces], output=output, engine=Engine(), **options)


def only_file(output: Path) -> Path:
    (found,) = output.glob("*.parquet")
    return found


@pytest.fixture
def traces(examples: list[Path], tmp_path: Path) -> Path:
    """Two repetitions of the smallest example."""
    for repetition in range(2):
        copy(examples[0], tmp_path / "traces", repetition=repetition)
    return tmp_path / "traces"


def test_every_task_of_every_run_is_a_row(examples: list[Path], tmp_path: Path) -> None:
    from driple.pipeline.bursts.task_metrics import task_metrics
    from driple.pipeline.graph.public import read_graph
    from driple.pipeline.traces.load_run import load_run

    for example in examples:
        copy(example, tmp_path / "traces")
    report = done(tmp_path / "traces", tmp_path / "out")
    assert (report.found, report.computed, report.set_aside, report.exit_code) == (len(examples), len(examples), [], 0)
    datasets = {found.setting: read(Path(found.file), found.setting) for found in report.settings}
    for example in examples:
        run = load_run(example)
        spec = run.manifest.run
        found = datasets[str(spec.setting)]
        rows = [row for row in found.rows if row["run_id"] == spec.id]
        assert [row["task"] for row in rows] == list(spec.setting.tasks)
        graph = read_graph(example / "graph/worker.parquet")
        for row in rows:
            expected = task_metrics(run, row["task"])
            assert {name: row[name] for name in COLUMNS} == dict(expected.targets)
            assert row["step_s"] == expected.step_s
            assert row["role"] == row["task"].split(":")[0]
            assert (row["model"], row["batch_size"]) == (spec.workload.model, spec.workload.batch_size)
            assert row["split_architecture"] == architecture_side(row["family"])
            assert row["split_random"] == random_side(spec.workload)
            assert (row["provenance"], row["device"]) == ("measured", "cpu")
            assert tuple(found.graphs[row["graph"]]["op_type"]) == graph.ops
            assert (row["nodes"], row["edges"]) == (len(graph.ops), len(graph.edges))


def test_metadata_group_a_graph_as_the_dataset_does(traces: Path, tmp_path: Path) -> None:
    from driple.contracts.json_values import from_plain
    from driple.pipeline.graph.public import SizeBatches, group, op_frequency, read_graph

    done(traces, tmp_path / "out")
    metadata = pq.read_schema(only_file(tmp_path / "out")).metadata
    graph = read_graph(next(traces.rglob("worker.parquet")))
    frequency = json.loads(metadata[b"driple.op_frequency"])
    assert frequency == op_frequency([graph])  # two runs of one graph count once
    batches = from_plain(SizeBatches, json.loads(metadata[b"driple.size_batches"]))
    assert group(graph, "proportional", frequency, context=batches).features.shape[1] == 3


def test_unchanged_runs_are_not_computed_again(traces: Path, examples: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done(traces, out)
    before = only_file(out)
    first = before.read_bytes(), before.stat().st_ino
    again = done(traces, out)
    assert again.computed == 0
    assert (again.settings[0].kept, again.settings[0].written) == (again.settings[0].rows, False)
    assert (before.read_bytes(), before.stat().st_ino) == first

    copy(examples[0], traces, repetition=7)
    grown = done(traces, out)
    tasks = len(pq.read_table(before).filter(pq.read_table(before)["repetition"].to_numpy() == 7))
    assert (grown.computed, grown.settings[0].added, grown.settings[0].kept) == (1, tasks, 2 * tasks)
    at_once = done(traces, tmp_path / "at_once")
    assert at_once.computed == 3
    assert only_file(tmp_path / "at_once").read_bytes() == only_file(out).read_bytes()


def test_a_changed_run_is_replaced(traces: Path, tmp_path: Path) -> None:
    done(traces, tmp_path / "out")
    run = min((traces / "e").iterdir())
    reseal(run, attempt=2)
    report = done(traces, tmp_path / "out")
    rows = read(only_file(tmp_path / "out"), report.settings[0].setting).rows
    assert report.computed == 1
    assert report.settings[0].replaced == sum(row["attempt"] == 2 for row in rows) == len(rows) // 2


def test_new_rules_compute_what_is_there_and_keep_what_is_gone(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(traces, tmp_path / "out")
    shutil.rmtree(min((traces / "e").iterdir()))
    for module in (building, making):
        monkeypatch.setattr(module, "RULES_VERSION", 99)
    monkeypatch.setattr(making.RunRows, "__init__", _with_rules(making.RunRows, 99))
    report = done(traces, tmp_path / "out")
    (found,) = report.settings
    assert (report.computed, found.replaced, found.kept, found.by_older_rules) == (1, 3, 3, 3)


def _with_rules(kind: type, version: int) -> Callable[..., None]:
    original: Callable[..., None] = kind.__init__  # type: ignore[misc]
    return lambda self, *values: original(self, *values, version)


def test_rows_of_runs_that_are_gone_stay_until_pruned(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done(traces, out)
    gone, left = sorted((traces / "e").iterdir())
    shutil.rmtree(gone)
    assert done(traces, out).settings[0].rows == 6
    pruned = done(traces, out, prune=True).settings[0]
    assert (pruned.rows, pruned.removed, pruned.written) == (3, 3, True)
    assert {row["run_id"] for row in read(only_file(out), pruned.setting).rows} == {left.name}


def _parquet_cut_short(run: Path) -> None:
    path = next((run / "trace").glob("worker-0.parquet"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    reseal(run)


def _changed_after_sealing(run: Path) -> None:
    path = run / "trace/worker-0.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def _other_schema(run: Path) -> None:
    value = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**value, "schema_version": 99}))


def _pipe(name: str) -> Callable[[Path], None]:
    def replace_by_pipe(run: Path) -> None:
        (run / name).unlink()
        os.mkfifo(run / name)

    return replace_by_pipe


def _folder_for_file(run: Path) -> None:
    (run / "steps/worker-0.parquet").unlink()
    (run / "steps/worker-0.parquet").mkdir()


def _not_a_graph(run: Path) -> None:
    shutil.copy(run / "steps/worker-0.parquet", run / "graph/worker.parquet")
    reseal(run)


def _no_graph(run: Path) -> None:
    (run / "graph/worker.parquet").unlink()
    reseal(run)


def _odd_values(run: Path) -> None:
    manifest = Manifest.read(run / "run.json")
    first, *others = manifest.tasks
    odd = replace(first, quality={"loop": {"missed_pct": "many"}})
    replace(manifest, tasks=(odd, *others)).write(run / "run.json")


def _huge_number(run: Path) -> None:
    reseal(run, attempt=2**70)


def _reaches_out(run: Path) -> None:
    manifest = Manifest.read(run / "run.json")
    replace(manifest, checksums={**manifest.checksums, "../../../secret": "0"}).write(run / "run.json")


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut short": (_parquet_cut_short, "trace/worker-0.parquet: not readable as Parquet"),
    "changed after sealing": (_changed_after_sealing, "trace/worker-0.parquet: changed since it was sealed"),
    "failed": (lambda run: reseal(run, status="failed", failure="worker:0 died"), "marked failed: worker:0 died"),
    "running": (lambda run: reseal(run, status="running"), "the run is marked running"),
    "schema": (_other_schema, "run.json: schema version 99, this release reads 1"),
    "half a manifest": (lambda run: (run / "run.json").write_text("{"), "run.json: not valid JSON (cut short?)"),
    "no manifest": (lambda run: (run / "run.json").unlink(), "run.json: missing"),
    "missing file": (lambda run: (run / "steps/worker-1.parquet").unlink(), "steps/worker-1.parquet: missing"),
    "pipe for a trace": (_pipe("trace/ps-0.parquet"), "trace/ps-0.parquet: not a regular file"),
    "pipe for the manifest": (_pipe("run.json"), "run.json: not a regular file"),
    "folder for a file": (_folder_for_file, "steps/worker-0.parquet: not a regular file"),
    "not a graph": (_not_a_graph, "graph/worker.parquet: a Parquet file, but not of a graph"),
    "no graph": (_no_graph, "graph/worker.parquet: missing"),
    "odd values": (_odd_values, "a value that no column can hold"),
    "huge number": (_huge_number, "a value that no column can hold"),
    "reaches out": (_reaches_out, "../../../secret: outside the run's folder"),
}


def test_runs_of_a_release_that_wrote_no_graph_have_rows_without_one(
    examples: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of PyTorch in earlier releases."""
    earlier = replace(FRAMEWORKS["tensorflow"], graph_since_start=False)
    monkeypatch.setattr(making, "FRAMEWORKS", {"tensorflow": earlier})
    _no_graph(copy(examples[0], tmp_path / "traces"))
    report = done(tmp_path / "traces", tmp_path / "out")
    assert report.set_aside == []
    (file,) = report.settings
    rows = read(Path(file.file), file.setting).rows
    assert rows and {row["graph"] for row in rows} == {None}


@pytest.fixture
def spoilt(examples: list[Path], tmp_path: Path) -> Iterator[dict[str, Path]]:
    """A run for each fault, beside a good one."""
    (tmp_path / "secret").write_text("")
    runs = {}
    for number, (name, (spoil, _)) in enumerate(FAULTS.items(), start=1):
        runs[name] = copy(examples[0], tmp_path / "traces", repetition=number)
        spoil(runs[name])
    yield runs


def test_what_cannot_be_used_is_set_aside_with_its_reason(
    spoilt: dict[str, Path], examples: list[Path], tmp_path: Path
) -> None:
    good = copy(examples[0], tmp_path / "traces")
    report = done(tmp_path / "traces", tmp_path / "out")
    reasons = {left.run: left.reason for left in report.set_aside}
    for name, (_, reason) in FAULTS.items():
        assert reason in reasons[str(spoilt[name])], name
        assert "\n" not in reasons[str(spoilt[name])]
    assert not any(left.traceback for left in report.set_aside)
    assert (len(reasons), report.found, report.exit_code) == (len(FAULTS), len(FAULTS) + 1, 0)
    done(good, tmp_path / "alone")  # a run's own folder will do
    assert only_file(tmp_path / "out").read_bytes() == only_file(tmp_path / "alone").read_bytes()


def test_nothing_is_written_when_no_run_can_be_used(spoilt: dict[str, Path], tmp_path: Path) -> None:
    report = done(tmp_path / "traces", tmp_path / "out")
    assert report.exit_code == 1
    assert not (tmp_path / "out").exists()


def test_a_run_that_went_bad_keeps_its_rows(traces: Path, tmp_path: Path) -> None:
    done(traces, tmp_path / "out")
    content = only_file(tmp_path / "out").read_bytes()
    run = min((traces / "e").iterdir())
    _parquet_cut_short(run)
    report = done(traces, tmp_path / "out")
    assert report.set_aside[0].reason.endswith("; its previous rows stay")
    assert only_file(tmp_path / "out").read_bytes() == content
    assert done(traces, tmp_path / "out", prune=True).settings[0].removed == 0


def test_an_unforeseen_fault_of_one_run_does_not_stop_the_others(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = min((traces / "e").iterdir())
    original = making.rows_of

    def stumbles(folder: Path, inputs: str) -> making.RunRows:
        if folder.name == bad.name:
            raise ZeroDivisionError("a\nb")
        return original(folder, inputs)

    monkeypatch.setattr(making, "rows_of", stumbles)
    report = done(traces, tmp_path / "out")
    (left,) = report.set_aside
    assert left.reason == "unexpected ZeroDivisionError: a b"
    assert "in stumbles" in (left.traceback or "")
    assert report.settings[0].runs == 1


def test_of_two_folders_with_one_run_the_later_is_used(examples: list[Path], tmp_path: Path) -> None:
    early = copy(examples[0], tmp_path / "traces", experiment="a")
    late = copy(examples[0], tmp_path / "traces", experiment="b")
    reseal(early, started_real_s=2e9)
    reseal(late, started_real_s=1e9)  # named later, started earlier
    report = done(tmp_path / "traces", tmp_path / "out")
    (left,) = report.set_aside
    assert left.run == str(late)
    assert left.reason.startswith(f"the same run as {early}")
    assert {row["started_real_s"] for row in read(only_file(tmp_path / "out"), report.settings[0].setting).rows} == {
        2e9
    }


def test_a_damaged_copy_does_not_displace_a_good_one(examples: list[Path], tmp_path: Path) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    first, good, bad, worst = (copy(examples[0], traces, experiment=name) for name in "abcd")
    _changed_after_sealing(bad)
    reseal(worst, started_real_s=2e9)
    _changed_after_sealing(worst)
    report = done(traces, out)
    reasons = {left.run: left.reason for left in report.set_aside}
    assert (report.exit_code, report.settings[0].runs, sorted(reasons)) == (0, 1, [str(first), str(bad), str(worst)])
    assert reasons[str(first)].startswith(f"the same run as {good}, which is used")
    assert "changed since it was sealed" in reasons[str(bad)] and reasons[str(bad)] == reasons[str(worst)]
    content = only_file(out).read_bytes()
    report = done(traces, out)
    reasons = {left.run: left.reason for left in report.set_aside}
    assert (report.exit_code, report.settings[0].kept, len(reasons)) == (0, 3, 3)
    assert "which is used" not in "".join(reasons.values()) and "rows stay" not in "".join(reasons.values())
    assert done(traces, out, rebuild=True).settings[0].replaced == 3
    assert only_file(out).read_bytes() == content
    _changed_after_sealing(good)
    _changed_after_sealing(first)
    report = done(traces, tmp_path / "none")
    assert (report.exit_code, len(report.set_aside), report.settings) == (1, 4, [])


def test_a_copy_on_loopback_does_not_displace_a_good_one(examples: list[Path], tmp_path: Path) -> None:
    copy(examples[0], tmp_path / "traces", experiment="a")
    local = copy(examples[0], tmp_path / "traces", experiment="b")
    on_loopback(local)
    report = done(tmp_path / "traces", tmp_path / "out")
    assert [left.run for left in report.set_aside] == [str(local)] and report.settings[0].runs == 1


def test_links_that_lead_back_and_hidden_folders_are_not_followed(traces: Path, tmp_path: Path) -> None:
    shutil.copytree(min((traces / "e").iterdir()), traces / "e" / ".half.1.partial")
    (traces / "e" / "back").symlink_to(traces)
    assert done(traces, tmp_path / "out").found == 2


def test_folders_without_runs_are_bad_input(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="no run directories"):
        done(tmp_path / "empty", tmp_path / "out")
    with pytest.raises(BadInput, match="no such folder"):
        done(tmp_path / "nowhere", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_build_that_is_refused_leaves_no_folder_behind(traces: Path, tmp_path: Path) -> None:
    with pytest.raises(DripleError, match="nothing answers at dask"):
        build_dataset(traces, output=tmp_path / "a/out", engine="dask://127.0.0.1:1")
    assert not (tmp_path / "a").exists()


def on_loopback(run: Path) -> None:
    hosts = {name: replace(host, kind="local") for name, host in Manifest.read(run / "run.json").hosts.items()}
    reseal(run, hosts=hosts)


def test_a_run_on_loopback_is_set_aside_unless_it_is_asked_for(traces: Path, tmp_path: Path) -> None:
    """A lab that could not be created: the tasks ran on loopback, in a setting whose links have 1 Gbit/s."""
    out = tmp_path / "out"
    done(traces, out)
    lab, local = sorted((traces / "e").iterdir())
    on_loopback(local)
    report = done(traces, out)
    (left,) = report.set_aside
    assert left.run == str(local) and "did not communicate over the network of the setting" in left.reason
    assert report.settings[0].removed == 3  # an earlier release had used it
    assert {row["run_id"] for row in read(only_file(out), report.settings[0].setting).rows} == {lab.name}
    for _ in range(2):
        report = done(traces, out, include_loopback=True)
        assert not report.set_aside
        rows = read(only_file(out), report.settings[0].setting).rows
        assert {row["run_id"] for row in rows if LOOPBACK_FLAG in row["flags"]} == {local.name}
    assert (report.computed, report.settings[0].kept) == (0, 6)
    on_loopback(lab)
    report = done(traces, out)
    assert report.exit_code == 1 and not list(out.glob("*.parquet"))


def test_a_run_on_other_links_never_replaces_the_same_run_on_the_right_ones(
    examples: list[Path], tmp_path: Path
) -> None:
    regular = copy(examples[0], tmp_path / "traces")
    other = copy(examples[0], tmp_path / "traces", experiment="later")
    later = Manifest.read(regular / "run.json").started_real_s
    assert later is not None
    reseal(other, network_not_as_asked="links carry 10 Mbit/s instead of 1000", started_real_s=later + 1000)
    for _ in range(2):
        report = done(tmp_path / "traces", tmp_path / "out", include_loopback=True)
        (left,) = report.set_aside
        assert left.run == str(other) and str(regular) in left.reason
        rows = read(only_file(tmp_path / "out"), report.settings[0].setting).rows
        assert not any(MISMATCH_FLAG in row["flags"] for row in rows)
    shutil.rmtree(regular)
    report = done(tmp_path / "traces", tmp_path / "out", include_loopback=True)
    rows = read(only_file(tmp_path / "out"), report.settings[0].setting).rows
    assert all(MISMATCH_FLAG in row["flags"] for row in rows)


def test_the_result_is_a_table_for_pandas(traces: Path, tmp_path: Path) -> None:
    frame = done(traces, tmp_path / "out").to_frame()
    assert (frame["rows"].tolist(), frame["runs"].tolist()) == ([6], [2])


def test_a_second_builder_is_kept_out(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (out / ".lock").open("w+") as other:
        other.write("4711\n")
        other.flush()
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BadInput, match=r"another driple-build-dataset \(process 4711\) is at work"):
            done(traces, out)
    done(traces, out)
    only_file(out)


def test_an_end_in_the_middle_leaves_what_was_there(
    traces: Path, examples: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    done(traces, out)
    content = only_file(out).read_bytes()
    copy(examples[0], traces, repetition=5)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("driple.contracts.run_dir.os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        done(traces, out)
    monkeypatch.undo()
    assert only_file(out).read_bytes() == content
    assert sorted(path.name for path in out.iterdir()) == [".lock", only_file(out).name]
    assert done(traces, out).settings[0].added == 3


def test_a_dataset_that_cannot_be_read_is_not_overwritten(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done(traces, out)
    path = only_file(out)
    path.write_bytes(path.read_bytes()[:-50])
    content = path.read_bytes()
    with pytest.raises(BadInput, match="move it away"):
        done(traces, out)
    assert path.read_bytes() == content


def test_two_processes_give_the_bytes_of_one(examples: list[Path], tmp_path: Path) -> None:
    for run in examples[:2]:
        for repetition in range(2):
            copy(run, tmp_path / "traces", repetition=repetition)
    done(tmp_path / "traces", tmp_path / "one")
    seen: list[tuple[int, int, int]] = []
    build_dataset([tmp_path / "traces"], output=tmp_path / "two", jobs=2, progress=lambda *now: seen.append(now))
    for path in (tmp_path / "one").glob("*.parquet"):
        assert (tmp_path / "two" / path.name).read_bytes() == path.read_bytes()
    assert seen == [(count, 4, 0) for count in range(5)]


def test_the_example_of_the_document_runs(
    traces: Path, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(traces, tmp_path / "datasets")
    text = (checkout / "docs/guides/datasets.md").read_text()
    example = text.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(example.replace("cpu-p1w2-1g", only_file(tmp_path / "datasets").stem), names)
    assert set(names["ops"]) == set(names["frequency"])
    assert names["worker"]["op_type"] is None  # the first row of the graph is a server's


def test_graphs_of_repetitions_stand_once(traces: Path, tmp_path: Path) -> None:
    done(traces, tmp_path / "out")
    table = pq.read_table(only_file(tmp_path / "out"))
    assert len(set(table["graph"].to_pylist())) == 1
    assert table["op_type"].null_count == table.num_rows - 1
    assert set(LIST_NAMES) <= set(table.column_names)
