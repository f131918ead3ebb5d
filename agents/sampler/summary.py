"""Output for people: a progress line while sampling, a short table at the end."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, TextIO

from driple.agents.sampler.ticker import SECOND_NS, Ticker


class ProgressLine:
    """One line on a terminal, rewritten every second."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._start = time.monotonic_ns()

    def __call__(self, ticker: Ticker, written: int) -> None:
        seconds = (time.monotonic_ns() - self._start) / SECOND_NS
        text = f"{seconds:6.0f} s  {ticker.kept} ticks  {ticker.missed} missed  {written / 1e6:.1f} MB"
        self._stream.write(f"\r{text}\033[K")
        self._stream.flush()

    def clear(self) -> None:
        self._stream.write("\r\033[K")
        self._stream.flush()


def table(summary: Mapping[str, Any], files: Mapping[Path, int]) -> str:
    """The quality of a trace in some lines."""
    loop = summary["loop"]
    lateness = loop["lateness_us"]
    priority = summary["priority"]
    lines = [
        f"{summary['seconds']:.1f} s, {loop['ticks']} ticks, {loop['missed_ticks']} missed "
        f"({loop['missed_pct']:g} %), {loop['late_ticks']} late; stopped by: {summary['stopped_by']}",
        f"lateness median {_number(lateness['median'])} us, p99 {_number(lateness['p99'])} us; "
        f"{_number(loop['cpu_share_pct'])} % of a core, {loop['peak_memory_bytes'] / 1e6:.0f} MB; "
        f"priority {priority['policy']}" + (f" ({priority['refused']})" if "refused" in priority else ""),
        "",
        f"{'source':14} {'asked ms':>9} {'real ms':>9} {'p99 ms':>9} {'gaps':>5}  value refreshed every",
    ]
    for name, source in summary["sources"].items():
        lines.append(_line(name, source, _refresh(source["columns"], source["reads"])))
    for name, source in summary["tables"].items():
        lines.append(_line(name, source, f"{source['rows']} rows of at most {source.get('most_flows', '?')} flows"))
    lines += ["", *(f"{path}: {rows} rows" for path, rows in files.items())]
    return "\n".join(lines)


def _line(name: str, source: Mapping[str, Any], last: str) -> str:
    real = source["real_period_ms"]
    return (
        f"{name:14} {_number(source['asked_period_ms']):>9} {_number(real['median']):>9} {_number(real['p99']):>9} "
        f"{source.get('gaps', 0):>5}  {last}".rstrip()
    )


def _refresh(columns: Mapping[str, Mapping[str, Any]], reads: int) -> str:
    """Refresh periods; columns with the same text are listed together."""
    told: Dict[str, List[str]] = {}
    for column, quality in columns.items():
        told.setdefault(_one(quality, reads), []).append(column)
    return "; ".join(text if len(told) == 1 else f"{', '.join(names)} {text}" for text, names in told.items())


def _one(quality: Mapping[str, Any], reads: int) -> str:
    refresh: Optional[float] = quality["refresh_ms"]
    if refresh is None:
        return "(no value)" if quality["nulls"] >= reads else "(hardly changed)"
    return f"{_number(refresh)} ms" + (" (held)" if quality["held"] else "")


def _number(value: Optional[float]) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
