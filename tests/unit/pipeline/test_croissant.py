"""The machine-readable card of datasets: what it says, that it is what the files are, and that readers take it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.formats.dataset import COLUMNS
from driple.pipeline.cli import main
from driple.pipeline.datasets.croissant import FILE, parse_about, write_card
from driple.pipeline.datasets.merge import merge_datasets

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("joblib")

SETTING = "cpu-p1w1-1g"
ABOUT = {
    "license": "https://creativecommons.org/publicdomain/zero/1.0/",
    "creator": "Somebody",
    "url": "https://example.org/",
    "citeAs": "Somebody: Rows. 2026",
}


@pytest.fixture
def folder(checkout: Path, tmp_path: Path) -> Path:
    """Measured rows of a few models."""
    merge_datasets(checkout / "datasets" / f"{SETTING}.parquet", output=tmp_path / "few", select="model=lenet")
    return tmp_path / "few"


def card_of(folder: Path) -> Any:
    return json.loads((folder / FILE).read_text(encoding="utf-8"))


def test_every_file_and_column_is_described(folder: Path) -> None:
    assert write_card(folder, ABOUT) == folder / FILE
    card = card_of(folder)
    (file,) = card["distribution"]
    content = (folder / f"{SETTING}.parquet").read_bytes()
    assert file["sha256"] == hashlib.sha256(content).hexdigest()
    assert (file["contentUrl"], file["contentSize"]) == (f"{SETTING}.parquet", f"{len(content)} B")
    splits, rows = card["recordSet"]
    schema = pq.read_schema(folder / f"{SETTING}.parquet")
    assert [field["source"]["extract"]["column"] for field in rows["field"]] == schema.names
    meanings = {column.name: column.meaning for column in COLUMNS}
    for field in rows["field"]:
        assert field["description"] == meanings[field["name"]]
        assert field.get("repeated", False) == str(schema.field(field["name"]).type).startswith("list")
    assert [one["splits/name"] for one in splits["data"]] == ["train", "val", "test"]


def test_it_has_what_the_format_requires(folder: Path) -> None:
    write_card(folder, ABOUT)
    card = card_of(folder)
    required = {"@context", "@type", "conformsTo", "description", "license", "name", "url", "creator", "datePublished"}
    assert required <= card.keys()
    assert card["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    ids = [one["@id"] for one in _nodes(card) if len(one) > 1 and "@id" in one and "@type" in one]
    assert len(ids) == len(set(ids))
    named = {one["@id"] for one in _nodes(card) if set(one) == {"@id"}}
    assert named <= set(ids)
    terms = {key for one in _nodes(card) for key in one if not key.startswith(("@", "splits/"))}
    context = card["@context"]
    of_schema = {"name", "description", "license", "url", "creator", "version", "dateCreated", "datePublished"}
    of_schema |= {"keywords", "distribution", "contentUrl", "contentSize", "encodingFormat", "sha256"}
    assert terms <= of_schema | context.keys()


def _nodes(value: Any) -> list[dict[str, Any]]:
    """All objects of a card, without its context."""
    if isinstance(value, list):
        return [node for item in value for node in _nodes(item)]
    if not isinstance(value, dict):
        return []
    return [value, *(node for key, item in value.items() if key not in ("@context", "data") for node in _nodes(item))]


def test_what_the_owner_said_stays_and_the_same_files_give_the_same_bytes(folder: Path) -> None:
    write_card(folder, ABOUT)
    before = (folder / FILE).read_bytes()
    write_card(folder)
    assert (folder / FILE).read_bytes() == before
    write_card(folder, {"creator": "Another"})
    card = card_of(folder)
    assert (card["creator"]["name"], card["license"]) == ("Another", ABOUT["license"])
    assert card_of(folder)["name"] == "few"


def test_without_an_owner_nothing_is_made_up(folder: Path) -> None:
    write_card(folder)
    assert not {"license", "creator", "url", "citeAs"} & card_of(folder).keys()


def test_what_it_refuses(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="licence.*did you mean 'license'"):
        write_card(folder, {"licence": "x"})
    with pytest.raises(BadInput, match="has no datasets"):
        write_card(tmp_path)
    (folder / FILE).write_text("{}")
    with pytest.raises(BadInput, match=r"croissant\.json: not a card of datasets; move it away"):
        write_card(folder)
    assert (folder / FILE).read_text() == "{}"
    with pytest.raises(BadInput, match="expected KEY=VALUE"):
        parse_about(["license"])


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"{key}={value}" for key, value in ABOUT.items()]
    assert main(["--card", str(folder), *(word for one in words for word in ("--about", one))]) == 0
    assert capsys.readouterr().out == f"{folder / FILE}\n"
    assert card_of(folder)["creator"]["name"] == "Somebody"
    for bad in (["--card"], ["--card", "--merge", "x"], ["--about", "name=x", "traces"], ["--card", "x", "--prune"]):
        with pytest.raises(SystemExit) as stop:
            main(bad)
        assert stop.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(importlib.util.find_spec("mlcroissant") is None, reason="needs mlcroissant")
@pytest.mark.filterwarnings("default")  # of its dependencies
def test_the_reader_of_the_format_takes_it(folder: Path) -> None:
    import mlcroissant

    write_card(folder, ABOUT)
    dataset = mlcroissant.Dataset(jsonld=folder / FILE)
    assert not dataset.metadata.ctx.issues.errors
    assert not dataset.metadata.ctx.issues.warnings
    rows = list(dataset.records(SETTING))
    table = pq.read_table(folder / f"{SETTING}.parquet").to_pylist()
    assert len(rows) == len(table)
    assert {row[f"{SETTING}/model"] for row in rows} <= {"lenet", b"lenet"}
    assert [row[f"{SETTING}/batch_size"] for row in rows] == [row["batch_size"] for row in table]
    assert {row[f"{SETTING}/split_architecture"] for row in rows} <= {"train", b"train"}
    assert [len(row[f"{SETTING}/op_type"]) for row in rows if row[f"{SETTING}/op_type"] is not None] == [
        row["nodes"] for row in table if row["op_type"] is not None
    ]


def test_rows_without_a_side_refer_to_none(folder: Path, tmp_path: Path) -> None:
    table = pq.read_table(folder / f"{SETTING}.parquet")
    place = table.schema.get_field_index("split_architecture")
    nulls = pa.array([None] * len(table), type=pa.string())
    pq.write_table(table.set_column(place, "split_architecture", nulls), tmp_path / f"{SETTING}.parquet")
    write_card(tmp_path)
    fields = {field["name"]: field for field in card_of(tmp_path)["recordSet"][1]["field"]}
    assert "references" not in fields["split_architecture"]
    assert fields["split_random"]["references"] == {"field": {"@id": "splits/name"}}


def test_the_card_of_the_repository_is_that_of_its_datasets(checkout: Path, tmp_path: Path) -> None:
    for path in (checkout / "datasets").glob("*.parquet"):
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / FILE).write_bytes((checkout / "datasets" / FILE).read_bytes())
    write_card(tmp_path)
    said = "run: driple-build-dataset --card datasets"
    assert (tmp_path / FILE).read_bytes() == (checkout / "datasets" / FILE).read_bytes(), said
    assert card_of(tmp_path)["license"] == "https://creativecommons.org/publicdomain/zero/1.0/"
