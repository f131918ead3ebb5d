"""Finds data that ships with the package: experiments, inspectors, graphs of the zoo."""

from __future__ import annotations

from pathlib import Path
from typing import Optional


def installed_data(name: str) -> Optional[Path]:
    """The folder `name` that was installed with driple, or that of the checkout; None if there is none.

    setup.cfg maps the top-level folder `name` to `driple/<name>` in a wheel. An editable install leaves it in place.
    """
    contracts = Path(__file__).resolve().parent
    # In a wheel contracts/ and the data are both in driple/; in a checkout both are at the top.
    folder = contracts.parent / name
    return folder if folder.is_dir() else None
