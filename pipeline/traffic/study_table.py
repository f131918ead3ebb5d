"""StudyTable: rows of the traffic study with the names of their columns."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from driple.contracts.errors import BadInput
from driple.contracts.run_dir import replacing
from driple.pipeline.traffic.traffic_job import TrafficJob

Jobs: TypeAlias = Sequence[TrafficJob]
Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class StudyTable:
    """Rows with the names of their columns."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def write_csv(self, folder: Path) -> Path:
        """Writes `<name>.csv`. Raises BadInput."""
        path = folder / f"{self.name}.csv"
        try:
            with replacing(path) as stream:
                writer = csv.writer(stream, lineterminator="\n")
                writer.writerow(self.columns)
                writer.writerows(self.rows)
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from None
        return path
