"""A machine-readable card of a folder of datasets: `croissant.json`, in Croissant 1.0 (https://mlcommons.org/croissant).

It has every file with its size and SHA-256, and every column with type and meaning. The same files and values give the
same bytes. What only the owner knows (licence, creator, address) is taken from the card that is there, unless given.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, UnknownName, shown
from driple.contracts.formats.dataset import COLUMNS, SIDES, SPLIT, SUFFIX, TARGET, Column, joined_provenance
from driple.contracts.json_values import read_json_file
from driple.contracts.run_dir import replacing
from driple.pipeline.datasets import dataset_file as files

FILE = "croissant.json"
CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
PARQUET = "application/x-parquet"
ABOUT = {
    "name": "of the datasets",
    "license": "its address",
    "url": "where the datasets are described",
    "creator": "a name",
    "version": "MAJOR.MINOR.PATCH",
    "citeAs": "a citation, BibTeX if possible",
}
"""What the owner of datasets can say of them."""

_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    **{
        name: f"cr:{name}"
        for name in (
            *(
                "citeAs",
                "column",
                "equivalentProperty",
                "extract",
                "field",
                "fileProperty",
                "fileObject",
                "fileSet",
                "format",
                "includes",
            ),
            *("isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
            *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
        )
    },
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "description": {"@container": "@language"},
    "name": {"@container": "@language"},
}
_TYPES = {"text": "sc:Text", "int": "sc:Integer", "real": "sc:Float"}
_SPLITS = dict(zip(SIDES, ("cr:TrainingSplit", "cr:ValidationSplit", "cr:TestSplit"), strict=True))
_NEEDED = ("run_id", "provenance", "started_real_s", "model", "graph", *(column.name for column in SPLIT))


@dataclass(frozen=True)
class _File:
    """A dataset of the folder."""

    name: str
    content: bytes
    columns: tuple[Column, ...]
    rows: list[dict[str, Any]]
    """With the columns _NEEDED."""

    @property
    def setting(self) -> str:
        return self.name.removesuffix(SUFFIX)

    def describe(self) -> str:
        models = {row["model"] for row in self.rows} - {None}
        runs = {row["run_id"] for row in self.rows}
        kinds = joined_provenance(row["provenance"] for row in self.rows)
        return (
            f"Setting {self.setting}: {len(self.rows)} {kinds} rows of {len(runs)} runs, {len(models)} architectures."
        )


def write_card(folder: str | Path, about: Mapping[str, str] | None = None) -> Path:
    """Writes the card of the datasets in a folder; those in its `simulated/` have a card of their own.

    Args:
        folder: with `<setting>.parquet`.
        about: what the owner says, by the keys of ABOUT. Values of the card that is there stay.

    Raises:
        BadInput: there are no datasets, one cannot be read, or the card that is there is something else.
        UnknownName: a key that is not in ABOUT.
    """
    folder = Path(folder)
    for key in about or {}:
        if key not in ABOUT:
            raise UnknownName("value of a card", key, tuple(ABOUT))
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise BadInput(f"{folder}: has no datasets (files *{SUFFIX}); driple-build-dataset makes them")
    card = folder / FILE
    known = {"name": folder.resolve().name, "version": "1.0.0", **_before(card), **(about or {})}
    text = _text(_card([_read(path) for path in paths], known))
    if not card.is_file() or card.read_text(encoding="utf-8") != text:
        with replacing(card) as stream:
            stream.write(text)
    return card


def _before(card: Path) -> dict[str, str]:
    """What the owner said in an earlier card."""
    if not card.exists():
        return {}

    def decode(value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or value.get("conformsTo") != CONFORMS_TO:
            raise BadInput("not a card of datasets; move it away")
        creator = value.get("creator")
        said = {**value, "creator": creator.get("name") if isinstance(creator, dict) else None}
        return {key: said[key] for key in ABOUT if isinstance(said.get(key), str)}

    return read_json_file(card, decode)


def _read(path: Path) -> _File:
    files.about(path)  # raises for other files
    import pyarrow.parquet as pq

    content = path.read_bytes()
    with pq.ParquetFile(path) as file:
        names = set(file.schema_arrow.names)
        rows = file.read(columns=[name for name in _NEEDED if name in names]).to_pylist()
    columns = tuple(column for column in COLUMNS if column.name in names)
    return _File(path.name, content, columns, [{name: row.get(name) for name in _NEEDED} for row in rows])


def _card(found: Sequence[_File], about: Mapping[str, str]) -> dict[str, Any]:
    creator = about.get("creator")
    kinds = joined_provenance(row["provenance"] for one in found for row in one.rows)
    runs = {(one.name, row["run_id"]) for one in found for row in one.rows}
    graphs = {row["graph"] for one in found for row in one.rows} - {None}
    values = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": about["name"],
        "description": (
            "How distributed training jobs use processors, GPUs and the network: bursts and idle times by resource, "
            f"and step times, of {len(runs)} {kinds} runs on {len(found)} settings, with {len(graphs)} computational "
            "graphs. A row is a task of a run. A graph is in the first row that names it."
        ),
        "license": about.get("license"),
        "url": about.get("url"),
        "creator": creator and {"@type": "sc:Organization", "name": creator},
        "version": about["version"],
        "citeAs": about.get("citeAs"),
        **_dates(row["started_real_s"] for one in found for row in one.rows),
        "keywords": ["distributed training", "performance prediction", "computational graph", "network traffic"],
        "distribution": [_file_object(one) for one in found],
        "recordSet": [_splits(), *(_record_set(one) for one in found)],
    }
    return {name: value for name, value in values.items() if value is not None}


def _dates(times: Iterable[float | None]) -> dict[str, str]:
    """Days of the first and the last run."""
    known = [datetime.fromtimestamp(time, tz=timezone.utc).date().isoformat() for time in times if time is not None]
    return {"dateCreated": min(known), "datePublished": max(known)} if known else {}


def _file_object(one: _File) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": one.name,
        "name": one.name,
        "description": one.describe(),
        "contentUrl": one.name,
        "contentSize": f"{len(one.content)} B",
        "encodingFormat": PARQUET,
        "sha256": hashlib.sha256(one.content).hexdigest(),
    }


def _splits() -> dict[str, Any]:
    """What the sides of splits are called, and what they mean."""
    return {
        "@type": "cr:RecordSet",
        "@id": "splits",
        "name": "splits",
        "dataType": "cr:Split",
        "key": {"@id": "splits/name"},
        "field": [
            {"@type": "cr:Field", "@id": "splits/name", "name": "name", "dataType": "sc:Text"},
            {"@type": "cr:Field", "@id": "splits/url", "name": "url", "dataType": ["sc:URL", "cr:Split"]},
        ],
        "data": [{"splits/name": side, "splits/url": meaning} for side, meaning in _SPLITS.items()],
    }


def _record_set(one: _File) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": one.setting,
        "name": one.setting,
        "description": one.describe(),
        "key": [{"@id": f"{one.setting}/{name}"} for name in ("run_id", "task")],
        "field": [_field(one, column) for column in one.columns],
    }


def _field(one: _File, column: Column) -> dict[str, Any]:
    kind = _TYPES[column.value_type]
    # A reader joins by references, and refuses rows without a value.
    refers = column in SPLIT and all(row[column.name] is not None for row in one.rows)
    return {
        "@type": "cr:Field",
        "@id": f"{one.setting}/{column.name}",
        "name": column.name,
        "description": column.meaning,
        "dataType": [kind, "cr:Label"] if column in TARGET else kind,
        **({"repeated": True} if column.is_list else {}),
        "source": {"fileObject": {"@id": one.name}, "extract": {"column": column.name}},
        **({"references": {"field": {"@id": "splits/name"}}} if refers else {}),
    }


def _text(card: Mapping[str, Any]) -> str:
    """JSON with a line for each value, file and column, so that changes can be read."""
    return f"{_lines(card, 0)}\n"


def _lines(value: Any, depth: int) -> str:
    line = json.dumps(value, ensure_ascii=False)
    if not _long(value) or depth > _DEPTH:
        return line
    inner = " " * (depth + 1)
    if isinstance(value, Mapping):
        parts = [f"{json.dumps(name)}: {_lines(item, depth + 1)}" for name, item in value.items()]
    else:
        parts = [_lines(item, depth + 1) for item in value]
    brackets = "{}" if isinstance(value, Mapping) else "[]"
    return f"{brackets[0]}\n{inner}" + f",\n{inner}".join(parts) + f"\n{' ' * depth}{brackets[1]}"


_DEPTH = 3
"""Deeper values, such as the columns, are on one line each."""


def _long(value: Any) -> bool:
    return isinstance(value, (list, Mapping)) and bool(value) and len(json.dumps(value)) > 100


def parse_about(texts: Iterable[str]) -> dict[str, str]:
    """From `key=value` texts. Raises BadInput."""
    found = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not value.strip():
            raise BadInput(f"--about {shown(text)}: expected KEY=VALUE, such as license=https://...")
        found[key.strip()] = value.strip()
    return found
