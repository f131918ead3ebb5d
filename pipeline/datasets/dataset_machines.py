"""Numbers the machines of the rows of a dataset. contracts/row_machines.py tells them apart."""

from __future__ import annotations

from collections.abc import Sequence

from driple.contracts.formats.dataset import MEASURED
from driple.contracts.row_machines import COLUMN, machines_of, said
from driple.pipeline.datasets.dataset_file import Row


def number_machines(rows: Sequence[Row]) -> tuple[int, str]:
    """Sets the column `machine` of all rows of a file. Returns how many there are, and a note if that is a problem.

    The numbers follow from the rows alone, so a dataset that grew run by run equals one that was built at once.
    """
    found = machines_of(rows)
    for row, number in zip(rows, found.numbers, strict=True):
        row[COLUMN] = number
    unknown = sum(row["provenance"] == MEASURED and row[COLUMN] is None for row in rows)
    notes = []
    if found.mixed:
        notes.append(f"{said(found)}: driple-train refuses them; take those of one with --select {COLUMN}=1")
    if found.count and unknown:
        notes.append(f"{unknown} rows without a steady fingerprint: which machine they come from is not known")
    return found.count, "; ".join(notes)
