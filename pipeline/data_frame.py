"""Conversion to pandas, which is imported only when it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from driple.contracts.errors import BadInput

if TYPE_CHECKING:
    import pandas as pd


def data_frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A pandas table of rows. Raises BadInput if pandas is not installed."""
    try:
        import pandas as pd
    except ImportError:
        raise BadInput("pandas is not installed: pip install 'driple[pipeline]'") from None
    return pd.DataFrame(list(rows), columns=columns)
