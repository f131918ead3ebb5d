"""Merges datasets, and takes the rows of a selection from them.

The same rows and conditions give the same bytes, whatever the order of the sources. All sources are read and compared
before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from driple.contracts.errors import BadInput, shown
from driple.contracts.formats.dataset import (
    SIMULATED,
    SIMULATED_FOLDER,
    SUFFIX,
    check_one_share,
    dataset_path,
)
from driple.contracts.row_machines import COLUMN as MACHINE
from driple.pipeline.datasets import dataset_file as files
from driple.pipeline.datasets.build_report import BuildResult, SettingReport
from driple.pipeline.datasets.dataset_file import Dataset, Row
from driple.pipeline.datasets.dataset_machines import number_machines
from driple.pipeline.datasets.output_folder import locked
from driple.pipeline.datasets.row_selection import Selection

OF_THE_RUN = ("inputs_sha256", "rules_version")
"""Columns in which all rows of a run agree: its run.json, and the rules by which the rows were made."""


@dataclass(frozen=True)
class _Part:
    """Rows of one run."""

    source: Path
    rows: list[Row]


def merge_datasets(
    sources: str | Path | Sequence[str | Path], *, output: str | Path = "datasets", select: str | Iterable[str] = ()
) -> BuildResult:
    """Merges the datasets of each setting into one file. Rows that several sources have are taken once.

    Args:
        sources: folders of datasets, with those in `simulated/`, or files.
        output: the folder of the new datasets. It may be one of the sources, unless rows are selected.
        select: conditions on rows, such as `model=resnet*,framework=torch`; by default all rows.

    Raises:
        BadInput: a source cannot be read, two of them have different rows of a run, the output has a dataset that is
            not among the sources, or no row is selected. Then nothing is written.
    """
    output = Path(output)
    selection = Selection.parse([select] if isinstance(select, str) else select)
    paths = list(_files([sources] if isinstance(sources, (str, Path)) else sources))
    by_dataset: dict[tuple[str, bool], list[Path]] = {}
    for path in paths:
        by_dataset.setdefault(_about(path), []).append(path)
    result = BuildResult()
    with locked(output):
        done: list[tuple[SettingReport, bytes]] = []
        for (setting, simulated), parts in sorted(by_dataset.items()):
            target = dataset_path(output, setting, simulated)
            merged, found = _merged(setting, parts, selection)
            result.found += found
            if not merged.rows:
                continue
            report = SettingReport(setting, str(target), added=len(merged.rows))
            report.describe(merged.rows)
            content = files.to_bytes(merged, files.shared_metadata(merged))
            _check_target(target, parts, selection, content)
            done.append((report, content))
        if not done:
            raise BadInput("--select: no row of these datasets satisfies the conditions")
        for report, content in done:
            report.written = files.put(content, Path(report.file))
    result.settings = [report for report, _ in done]
    return result


def _files(sources: Iterable[str | Path]) -> Iterator[Path]:
    """The files of all sources, each once."""
    seen: set[Path] = set()
    for source in map(Path, sources):
        if source.is_dir():
            found = [path for folder in (source, source / SIMULATED_FOLDER) for path in folder.glob(f"*{SUFFIX}")]
            if not found:
                raise BadInput(f"{source}: has no datasets (files *{SUFFIX}); driple-build-dataset makes them")
        elif source.is_file():
            found = [source]
        else:
            raise BadInput(f"{source}: no such file or folder")
        for path in sorted(found):
            if path.resolve() not in seen:
                seen.add(path.resolve())
                yield path


def _about(path: Path) -> tuple[str, bool]:
    """The setting of a file, and whether its rows are simulated."""
    setting, provenances = files.about(path)
    if len(provenances) > 1 and SIMULATED in provenances:
        raise BadInput(f"{path}: has simulated rows beside others, which never go into the same file")
    return setting, SIMULATED in provenances


def _merged(setting: str, paths: Sequence[Path], selection: Selection) -> tuple[Dataset, int]:
    """The selected rows of some files, and the number of runs in the files."""
    runs: dict[str, _Part] = {}
    every: set[str] = set()
    merged = Dataset(setting)
    for path in paths:
        dataset = files.read(path, setting)
        number_machines(dataset.rows)  # files of earlier releases have fingerprints alone
        for key, rows in dataset.runs().items():
            every.add(key)
            kept = [row for row in rows if selection.takes(row)]
            if kept:
                part = _Part(path, kept)
                runs[key] = _joined(key, runs[key], part) if key in runs else part
        merged.graphs.update(dataset.graphs)
    merged.rows = [row for part in runs.values() for row in part.rows]
    try:
        check_one_share(row.get("cores_per_host") for row in merged.rows)
    except BadInput as error:
        raise BadInput(f"{setting}: {error}") from None
    return merged, len(every)


def _joined(run: str, first: _Part, second: _Part) -> _Part:
    """The rows of both, each task once. Raises BadInput if they differ."""
    tasks = {row.get("task"): row for row in first.rows}
    for row in second.rows:
        known = tasks.setdefault(row.get("task"), row)
        apart = _difference(known, row) or _difference(first.rows[0], row, OF_THE_RUN)
        if apart is not None:
            raise BadInput(
                f"{first.source} and {second.source}: different rows of run {run} ({apart}); select the rows of one "
                "measurement of it first (--select), or build both with this release"
            )
    return _Part(first.source, list(tasks.values()))


def _difference(one: Row, other: Row, names: Iterable[str] | None = None) -> str | None:
    """The first column in which two rows differ. The number of a machine depends on the other rows of the file."""
    for name in sorted({*one, *other} - {MACHINE}) if names is None else names:
        if one.get(name) != other.get(name):
            return f"{name}: {shown(one.get(name))} and {shown(other.get(name))}"
    return None


def _check_target(target: Path, sources: Sequence[Path], selection: Selection, content: bytes) -> None:
    """Raises BadInput if rows would be lost."""
    if not target.exists():
        return
    among = target.resolve() in {path.resolve() for path in sources}
    if among and selection:
        raise BadInput(f"{target}: is one of the sources, which --select would reduce; give another --output")
    if not among and target.read_bytes() != content:
        raise BadInput(f"{target}: exists and is not among the sources; name it too, or give another --output")
