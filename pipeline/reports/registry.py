"""What a path is: a sweep, datasets or inspectors."""

from __future__ import annotations

from pathlib import Path

from driple.contracts.errors import BadInput, BadSetting
from driple.contracts.formats.dataset import SUFFIX
from driple.contracts.setting import Setting
from driple.pipeline.reports.dataset_page import dataset_report
from driple.pipeline.reports.inspector_files import FILE
from driple.pipeline.reports.inspector_page import inspector_report
from driple.pipeline.reports.page_layout import Report, Watch
from driple.pipeline.reports.sweep_page import sweep_report
from driple.pipeline.traces.run_index import find_runs

EXPECTED = (
    "expected a sweep (a folder with run directories), a dataset (<setting>.parquet, or the folder of them) or an "
    "inspector (a folder with inspector.json)"
)


def report_of(path: Path, watch: Watch) -> Report:
    """The report of whatever is there.

    Raises:
        BadInput: nothing is there, it is nothing of ours, or the one file of it cannot be read.
    """
    if path.is_file():
        if path.suffix != SUFFIX:
            raise BadInput(f"{path}: {EXPECTED}")
        return dataset_report([path], path, watch)
    if not path.is_dir():
        raise BadInput(f"{path}: no such file or folder; {EXPECTED}" if not path.exists() else f"{path}: {EXPECTED}")
    try:
        if (path / FILE).exists():
            return inspector_report([path], path, watch)
        datasets = sorted(file for file in path.glob(f"*{SUFFIX}") if _is_setting(file.name.removesuffix(SUFFIX)))
        if datasets:
            return dataset_report(datasets, path, watch)
        inspectors = sorted(file.parent for file in path.glob(f"*/{FILE}"))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    if inspectors:
        return inspector_report(inspectors, path, watch)
    if next(find_runs(path), None) is None:
        raise BadInput(f"{path}: {EXPECTED}")
    return sweep_report(path, watch)


def default_output(path: Path) -> Path:
    """Inside the folder, or beside the file."""
    return path / "report.html" if path.is_dir() else path.with_suffix(".html")


def _is_setting(name: str) -> bool:
    try:
        Setting.parse(name)
    except BadSetting:
        return False
    return True
