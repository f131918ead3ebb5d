"""The kinds of reports. To add one, write a module with a `PAGE` and add it to PAGES."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput
from driple.contracts.run_dir import replacing
from driple.pipeline.reports import dataset_page, inspector_page, sweep_page, traffic_page
from driple.pipeline.reports.page_layout import Page, Report, Watch, render

PAGES: tuple[Page, ...] = (dataset_page.PAGE, inspector_page.PAGE, traffic_page.PAGE, sweep_page.PAGE)
"""The first kind that finds inputs at a path makes the report."""


@dataclass(frozen=True)
class WrittenReport:
    """A report on disk."""

    path: Path
    title: str
    facts: Mapping[str, Any] = field(repr=False)
    """The content for programs, as JSON values."""
    notes: Sequence[str]
    """Warnings."""
    size_bytes: int


def write_report(
    path: str | Path, *, output: str | Path | None = None, title: str | None = None, progress: Watch = lambda *_: None
) -> WrittenReport:
    """Writes a self-contained HTML page about a sweep, datasets or inspectors.

    Args:
        path: a folder of runs, a dataset or a folder of datasets, an inspector or a folder of inspectors.
        output: the page; by default `report.html` in the folder, or next to the file.
        title: the heading of the page.
        progress: called during the work.

    Raises:
        BadInput: there is nothing to report on, or the page cannot be written.
    """
    path = Path(path)
    output = Path(output) if output else path / "report.html" if path.is_dir() else path.with_suffix(".html")
    if output.is_dir():
        raise BadInput(f"--output {output}: a folder; expected the name of a file")
    report = report_of(path, progress)
    page = render(report, title)
    try:
        with replacing(output) as stream:
            stream.write(page)
    except OSError as error:
        raise BadInput(f"{output}: cannot be written: {error.strerror}; give --output FILE.html") from None
    return WrittenReport(
        output,
        report.heading(title),
        {**report.facts, "provenance": report.provenance},
        report.notes,
        len(page.encode()),
    )


def report_of(path: Path, watch: Watch) -> Report:
    """The report on the files at a path. Raises BadInput if there are none, or the only one cannot be read."""
    expected = f"expected {', or '.join(page.expected for page in reversed(PAGES))}"
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder; {expected}")
    try:
        for page in PAGES:
            inputs = page.find(path)
            if inputs:
                return page.make(inputs, path, watch)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    raise BadInput(f"{path}: {expected}")
