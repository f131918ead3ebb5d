"""What a build or a merge of datasets did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from driple.contracts.data_frame import data_frame
from driple.contracts.formats.dataset import SPLITS, joined_provenance, split_column
from driple.pipeline.datasets.dataset_file import Row
from driple.pipeline.datasets.dataset_machines import number_machines
from driple.pipeline.datasets.run_rows import RULES_VERSION
from driple.pipeline.datasets.splits import empty_sides

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class LeftOut:
    """A run, or a graph of a published file, that was set aside."""

    run: str
    """The folder or file, as the user named it."""
    reason: str
    traceback: str | None = None


@dataclass
class SettingReport:
    """Changes of one dataset. Counts are of rows."""

    setting: str
    file: str
    provenance: str = ""
    """Of its rows."""
    added: int = 0
    replaced: int = 0
    kept: int = 0
    removed: int = 0
    rows: int = 0
    runs: int = 0
    graphs: int = 0
    families: int = 0
    by_older_rules: int = 0
    """Rows that were made by an earlier version of the rules, from runs that are gone."""
    machines: int = 0
    """Machines of the rows, told apart by their fingerprints; 0 without any."""
    machines_note: str = ""
    """What to know if runs had different machines, or some rows have no fingerprint."""
    empty: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Sides without rows, by split."""
    written: bool = False

    def describe(self, rows: Sequence[Row]) -> None:
        """Sets what follows from all rows of the dataset, and numbers their machines."""
        self.rows = len(rows)
        self.provenance = joined_provenance(row["provenance"] for row in rows)
        self.runs = len({row["run_id"] for row in rows})
        self.graphs = len({row["graph"] for row in rows} - {None})
        self.families = len({row["family"] for row in rows if row.get("family")})
        self.machines, self.machines_note = number_machines(rows)
        self.by_older_rules = sum(row["rules_version"] != RULES_VERSION for row in rows)
        self.empty = {split: empty_sides(row.get(split_column(split)) for row in rows) for split in SPLITS}


@dataclass
class BuildResult:
    """Result of a build."""

    found: int = 0
    """Runs that were found."""
    computed: int = 0
    """Runs that were processed, successfully or not."""
    steps: int = 0
    """Training steps that were added for simulations."""
    settings: list[SettingReport] = field(default_factory=list)
    set_aside: list[LeftOut] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 if no run could be used."""
        return 1 if self.found and len(self.set_aside) >= self.found else 0

    @property
    def provenance(self) -> str:
        """Of the rows of all datasets."""
        return joined_provenance(done.provenance for done in self.settings if done.provenance)

    def to_frame(self) -> pd.DataFrame:
        """A table with a row for each dataset."""
        return data_frame(map(asdict, self.settings))
