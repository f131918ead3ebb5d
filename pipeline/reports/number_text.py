"""Formats numbers for people."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone

UNKNOWN = "–"
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def duration(seconds: float | None) -> str:
    """`12.3 ms`, `1.23 s`."""
    if seconds is None:
        return UNKNOWN
    return f"{plain(seconds * 1e3)} ms" if 0 < abs(seconds) < 1 else f"{plain(seconds)} s"


def amount(value: float | None, unit: str) -> str:
    """`12.3 MB/s`, `98 %`; seconds as a duration."""
    if value is None:
        return UNKNOWN
    if unit == "s":
        return duration(value)
    if unit.endswith("/s"):
        for scale, prefix in _PREFIXES:
            if abs(value) >= scale:
                return f"{plain(value / scale)} {prefix}{unit}"
    return f"{plain(value)} {unit}".rstrip()


def with_unit(unit: str) -> Callable[[float], str]:
    """`amount` for one unit."""
    return lambda value: amount(value, unit)


def plain(value: float | None) -> str:
    """Three digits, without an exponent if possible."""
    if value is None:
        return UNKNOWN
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float | None) -> str:
    """0.123 as `12.3 %`."""
    if share is None:
        return UNKNOWN
    return f"{100 * share:.1f} %" if abs(share) < 100 else f"{100 * share:.2g} %"


def size(count: float) -> str:
    """Bytes."""
    return amount(count, "B") if count < 1000 else amount(count, "B/s").removesuffix("/s")


def when(seconds: float | None) -> str | None:
    """A time in seconds since 1970 as UTC; None if it is unknown or invalid."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return None


def counted(number: int, what: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def listed(names: Iterable[object], most: int = 12) -> str | None:
    """The distinct names in order; None if there are none."""
    found = sorted({str(name) for name in names if name is not None})
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more if found else None


def median(values: Sequence[float]) -> float | None:
    """The median; None if there are no values."""
    return float(statistics.median(values)) if values else None


def summary(values: Sequence[float]) -> dict[str, float | int | None]:
    """Statistics as JSON values."""
    return {
        "count": len(values),
        "least": min(values, default=None),
        "median": median(values),
        "greatest": max(values, default=None),
    }
