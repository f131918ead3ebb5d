"""StudyTable: rows of the traffic study with the names of their columns."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import MEASURED, is_simulated
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
    provenance: str = MEASURED
    """Of all rows."""

    @property
    def heading(self) -> str:
        """The title, which says if the rows are simulated."""
        return f"{self.title} ({self.provenance})" if is_simulated(self.provenance) else self.title

    def write_csv(self, folder: Path) -> Path:
        """Writes `<name>.csv`, with a column of the provenance. Raises BadInput."""
        path = folder / f"{self.name}.csv"
        try:
            with replacing(path) as stream:
                writer = csv.writer(stream, lineterminator="\n")
                writer.writerow((*self.columns, "provenance"))
                writer.writerows((*row, self.provenance) for row in self.rows)
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from None
        return path
