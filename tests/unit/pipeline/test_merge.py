"""Merging datasets and selecting rows: the same rows, the same bytes, and nothing lost silently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import SIMULATED, dataset_path
from driple.pipeline.cli import main
from driple.pipeline.datasets.dataset_file import Dataset, put, read, shared_metadata, to_bytes
from driple.pipeline.datasets.merge import merge_datasets
from driple.pipeline.datasets.row_selection import Selection

pytest.importorskip("joblib")
pytest.importorskip("pyarrow")

SETTING = "cpu-p1w1-1g"
FEW = "model=lenet,model=alexnet,model=ncf"


@pytest.fixture(scope="module")
def few(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the measured rows of three models."""
    folder = tmp_path_factory.mktemp("few")
    merge_datasets(checkout / "datasets" / f"{SETTING}.parquet", output=folder, select=FEW)
    return folder


def rewritten(source: Path, folder: Path, simulated: bool = False, **changes: Any) -> Path:
    """The dataset of a folder with other values in all rows, in another folder."""
    found = read(source / f"{SETTING}.parquet", SETTING)
    rows = [{**row, **changes, **({"provenance": SIMULATED} if simulated else {})} for row in found.rows]
    other = Dataset(SETTING, rows, found.graphs)
    folder.mkdir(parents=True, exist_ok=True)
    put(to_bytes(other, shared_metadata(other)), dataset_path(folder, SETTING, simulated))
    return folder


def content(folder: Path) -> bytes:
    return (folder / f"{SETTING}.parquet").read_bytes()


@pytest.mark.parametrize(
    "conditions",
    [
        ("model=l*", "model=alexnet", "model=n?f,model=lenet"),  # lenet twice
        ("role=ps", "role=worker,model=lenet", "role=worker,model!=lenet"),
    ],
)
def test_parts_merge_to_the_whole_in_any_order(few: Path, tmp_path: Path, conditions: tuple[str, ...]) -> None:
    parts = [tmp_path / f"part{number}" for number, _ in enumerate(conditions)]
    for part, condition in zip(parts, conditions, strict=True):
        merge_datasets(few, output=part, select=condition)
    for number, order in enumerate((parts, parts[::-1])):
        result = merge_datasets(order, output=tmp_path / f"all{number}")
        assert content(tmp_path / f"all{number}") == content(few)
        assert result.found == result.settings[0].runs
    rows = read(few / f"{SETTING}.parquet", SETTING).rows
    assert {row["model"] for row in rows} == {"lenet", "alexnet", "ncf"}


def test_rows_keep_their_graphs(few: Path, tmp_path: Path) -> None:
    merge_datasets(few, output=tmp_path, select="model=alexnet,task=worker:0")
    found, before = read(tmp_path / f"{SETTING}.parquet", SETTING), read(few / f"{SETTING}.parquet", SETTING)
    assert found.graphs.keys() == {row["graph"] for row in found.rows} < before.graphs.keys()
    for key, graph in found.graphs.items():
        assert list(graph["op_bytes"]) == list(before.graphs[key]["op_bytes"])


def test_two_measurements_of_a_run_are_refused_and_nothing_is_written(few: Path, tmp_path: Path) -> None:
    other = rewritten(few, tmp_path / "other", started_real_s=1e9)
    with pytest.raises(BadInput, match=r"different rows of run \S+ \(started_real_s: ") as caught:
        merge_datasets([few, other], output=tmp_path / "out")
    assert "\n" not in str(caught.value)
    workers, servers = tmp_path / "workers", tmp_path / "servers"
    merge_datasets(few, output=workers, select="role=worker")
    merge_datasets(rewritten(few, tmp_path / "again", inputs_sha256="0"), output=servers, select="role=ps")
    with pytest.raises(BadInput, match=r"different rows of run \S+ \(inputs_sha256: "):
        merge_datasets([workers, servers], output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_number_of_a_machine_is_no_difference(few: Path, tmp_path: Path) -> None:
    other = rewritten(few, tmp_path / "other", machine=3)
    merge_datasets([other, few], output=tmp_path / "out")
    assert content(tmp_path / "out") == content(few)


def test_simulated_rows_stay_apart(few: Path, tmp_path: Path) -> None:
    both = rewritten(few, rewritten(few, tmp_path / "both"), simulated=True)
    result = merge_datasets(both, output=tmp_path / "out")
    assert [done.provenance for done in result.settings] == ["measured", "simulated"]
    assert content(tmp_path / "out") == content(few)
    file = dataset_path(tmp_path / "out", SETTING, simulated=True)
    assert {row["provenance"] for row in read(file, SETTING).rows} == {SIMULATED}
    alone = merge_datasets(file, output=tmp_path / "alone")  # a file says itself what its rows are
    assert [done.file for done in alone.settings] == [str(dataset_path(tmp_path / "alone", SETTING, simulated=True))]


def test_shares_of_processors_stay_apart(few: Path, tmp_path: Path) -> None:
    other = rewritten(few, tmp_path / "other", cores_per_host=0.5)
    merge_datasets(few, output=tmp_path / "lenet", select="model=lenet")
    merge_datasets(other, output=tmp_path / "ncf", select="model=ncf")
    with pytest.raises(BadInput, match="cores_per_host in one dataset"):
        merge_datasets([tmp_path / "lenet", tmp_path / "ncf"], output=tmp_path / "out")


def test_no_rows_of_the_output_are_lost(few: Path, tmp_path: Path) -> None:
    merge_datasets(few, output=tmp_path / "out", select="model=lenet")
    merge_datasets(few, output=tmp_path / "more", select="model=ncf")
    with pytest.raises(BadInput, match="exists and is not among the sources"):
        merge_datasets(tmp_path / "more", output=tmp_path / "out")
    with pytest.raises(BadInput, match="is one of the sources, which --select would reduce"):
        merge_datasets(tmp_path / "out", output=tmp_path / "out", select="role=ps")
    again = merge_datasets(few, output=tmp_path / "out", select="model=lenet")
    assert not again.settings[0].written
    merge_datasets([tmp_path / "out", tmp_path / "more"], output=tmp_path / "out")
    assert {row["model"] for row in read(tmp_path / "out" / f"{SETTING}.parquet", SETTING).rows} == {"lenet", "ncf"}


ROW = {"model": "resnet20", "batch_size": 16, "width": 0.5, "image_size": None, "flags": ["foreign_load"], "machine": 2}


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("model=resnet20", True),
        ("model=resnet", False),
        ("model=resnet*", True),
        ("model=vgg*,model=resnet*", True),
        ("model=resnet*,batch_size=32", False),
        ("batch_size=16", True),
        ("batch_size=16.0", True),
        ("batch_size=16..64", True),
        ("batch_size=..15", False),
        ("batch_size=17..", False),
        ("batch_size=17..,batch_size=..16", True),
        ("width=0.25..0.75", True),
        ("image_size=", True),
        ("image_size=1..", False),
        ("image_size!=", False),
        ("model!=vgg*", True),
        ("model!=res*,batch_size=16", False),
        ("flags=foreign*", True),
        ("flags!=foreign_load", False),
        ("flags=", False),
        ("framework=torch", False),
        (" machine = 2 ", True),
    ],
)
def test_conditions(text: str, taken: bool) -> None:
    assert Selection.parse([text]).takes(ROW) is taken


def test_several_selections_add_up() -> None:
    assert not Selection.parse(["model=resnet*", "batch_size=8"]).takes(ROW)
    assert Selection.parse([]).takes(ROW)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--merge"], "--merge, --select and --card go with folders of datasets"),
        (["--select", "model=x"], "--merge, --select and --card go with folders of datasets"),
        (["--merge", "here", "--published", "x.pkl"], "--merge, --select and --card go with folders of datasets"),
        (["--merge", "here", "--prune"], "--prune goes with traces"),
        (["--merge", "here", "--include-loopback"], "--include-loopback goes with traces"),
        (["--merge", "nowhere"], "nowhere: no such file or folder"),
        (["--merge", "empty"], "empty: has no datasets"),
        (["--merge", "text.parquet"], "text.parquet: not a dataset that can be read"),
        (["--select", "model", "empty"], "--select 'model': expected COLUMN=VALUE"),
        (["--select", "modle=x", "empty"], "no column 'modle'; did you mean model?"),
        (["--select", "nothing=x", "empty"], "no column 'nothing'; docs/reference/file-formats.md lists them"),
        (["--select", "batch_size=many", "empty"], "batch_size=many: expected a number, or a range such as 16..64"),
        (["--select", "batch_size=9..3", "empty"], "no number is in this range"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    words: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("text.parquet").write_text("hello")
    try:
        code = main([*words, "--output", "out"])
    except SystemExit as stop:
        code = int(stop.code or 0)
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (2, 1)
    assert reason in error
    assert not Path("out").exists()


def test_the_command(few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--select", "model=lenet", "--select", "role=worker", str(few), "--output", str(tmp_path / "out")]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{SETTING}: 4 rows of 4 runs, 2 graphs -> ")
    assert text.endswith("runs found, 4 taken\n")
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"][SETTING]["rows"] == 4
    assert main(["--select", "model=nothing", str(few), "--output", str(tmp_path / "none")]) == 2
    assert "no row of these datasets satisfies the conditions" in capsys.readouterr().err
