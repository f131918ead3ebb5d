"""Conversion to pandas, which is imported only when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Iterable, Mapping, Optional, Sequence

from driple.contracts.errors import BadInput


def data_frame(rows: Iterable[Mapping[str, Any]], columns: Optional[Sequence[str]] = None) -> Any:
    """A pandas.DataFrame of rows, for the methods `to_frame`. Raises BadInput if pandas is not installed."""
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise BadInput("to_frame needs pandas: pip install 'driple[pipeline]'") from None
    return pandas.DataFrame(list(rows), columns=columns)
