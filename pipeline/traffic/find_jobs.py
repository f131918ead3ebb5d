"""Finds the jobs at a path: runs, pcap files, folders of captures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from driple.contracts.errors import BadInput, DripleError
from driple.contracts.formats.dataset import is_simulated
from driple.pipeline.traces.run_index import MANIFEST, find_runs
from driple.pipeline.traffic.capture_job import capture_job, captures_of
from driple.pipeline.traffic.run_traffic import run_job
from driple.pipeline.traffic.traffic_job import TrafficJob

EXPECTED = "expected runs, a pcap or pcapng file, or a folder of these"


@dataclass(frozen=True)
class Jobs:
    """Jobs, and what could not be used, with the reasons."""

    jobs: tuple[TrafficJob, ...]
    set_aside: tuple[tuple[Path, str], ...] = ()

    @property
    def provenance(self) -> str:
        """Of all jobs: they are either measured or simulated."""
        return self.jobs[0].provenance


def find_jobs(paths: Sequence[Path], progress: Callable[[str, int, int], None] = lambda *_: None) -> Jobs:
    """All jobs at or below the paths. What is broken is set aside, unless it is all there is.

    Raises:
        BadInput: there is no job, the only one cannot be read, or some are simulated and others measured.
    """
    places = list(dict.fromkeys(place for path in paths for place in _readable_places(path)))
    jobs: list[TrafficJob] = []
    aside: list[tuple[Path, str]] = []
    for number, place in enumerate(places):
        progress("jobs", number, len(places))
        try:
            jobs.append(_job(place))
            aside += jobs[-1].set_aside
        except DripleError as error:
            if len(places) == 1:
                raise BadInput(str(error)) from None
            aside.append((place, str(error)))
    progress("jobs", len(places), len(places))
    if not jobs:
        raise BadInput(
            f"{aside[0][0]}: {aside[0][1]} (and {len(aside) - 1} more cannot be used)"
            if aside
            else f"{', '.join(map(str, paths))}: {EXPECTED}"
        )
    _same_provenance(jobs)
    return Jobs(tuple(jobs), tuple(aside))


def _same_provenance(jobs: Sequence[TrafficJob]) -> None:
    first = jobs[0]
    for job in jobs:
        if is_simulated(job.provenance) != is_simulated(first.provenance):
            raise BadInput(
                f"{first.path} is {first.provenance} and {job.path} is {job.provenance}: "
                "simulated and measured runs are not shown together; pass them separately"
            )


def _job(place: Path) -> TrafficJob:
    if place.is_dir() and not captures_of(place):
        return run_job(place)
    name = place.name if place.name not in ("", "..") else place.resolve().name
    return capture_job(name, place, captures_of(place))


def _readable_places(path: Path) -> list[Path]:
    try:
        return _places(path)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def _places(path: Path) -> list[Path]:
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder; {EXPECTED}")
    if path.is_file():
        if not captures_of(path):
            raise BadInput(f"{path}: not a pcap or pcapng file; {EXPECTED}")
        return [path]
    if (path / MANIFEST).exists() or captures_of(path):
        return [path]
    found = [folder for folder, _ in find_runs(path)]
    folders = sorted(folder for folder in path.rglob("*") if folder.is_dir() and not _inside(folder, found))
    return found + [folder for folder in folders if captures_of(folder)]


def _inside(folder: Path, runs: Sequence[Path]) -> bool:
    return any(run == folder or run in folder.parents for run in runs)
