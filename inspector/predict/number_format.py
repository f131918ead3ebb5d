"""Numbers for people: three figures, and a unit that fits."""

from __future__ import annotations

import math

_UNITS: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e-3, "ms")),
    "time": ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")),
    "B": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "B/s": ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")),
    "%": ((1.0, "%"),),
    "": ((1.0, ""),),
}
NONE = "-"


def figures(value: float, count: int = 3) -> str:
    """The number of figures, without an exponent, and never less than the whole number."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = int(f"{value:.{count - 1}e}".partition("e")[2])  # after rounding: 0.9999 is 1.00
    return f"{value:.{max(0, count - 1 - exponent)}f}"


def scale_of(value: float, unit: str) -> tuple[float, str]:
    """The divisor for a value of this size, and its unit."""
    scales = _UNITS.get(unit, ((1.0, unit),))
    # 0.9999 s is 1.00 s, and not 1000 ms.
    return next((scale for scale in scales if value >= 0.9995 * scale[0]), scales[-1])


def quantity(value: float, unit: str, spread: float | None = None) -> str:
    """`267 ms`, `267 ±12 ms`, `57.9 MB/s`; a dash for NaN."""
    if math.isnan(value):
        return NONE
    size, name = scale_of(value, unit)
    shown = figures(value / size)
    if spread is None or math.isnan(spread):
        return f"{shown} {name}"
    places = len(shown.partition(".")[2])
    return f"{shown} ±{spread / size:.{places}f} {name}"


def span(ends: tuple[float, float], unit: str) -> str:
    """`1.42 to 1.80 s`, both in the unit of the greater one; `1.42 s or more` where that has no limit."""
    least, greatest = ends
    if math.isinf(greatest):
        return f"{quantity(least, unit)} or more"
    size, name = scale_of(greatest, unit)
    return f"{figures(least / size)} to {figures(greatest / size)} {name}".rstrip()
