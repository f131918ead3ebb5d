"""Reads Kineto and other Chrome traces: the time in which each device ran a kernel."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput, shown
from driple.contracts.metrics import BUSY
from driple.pipeline.readers.base import Reader, Source, TraceInput
from driple.pipeline.traces.series import FloatArray, Series

KERNELS = ("kernel", "gpu_op")
COPIES = ("gpu_memcpy", "gpu_memset")
BIN_S = 0.001
MAX_BINS = 20_000_000
"""Limit of all series together: bounds the memory."""


def _recognises(given: TraceInput) -> bool:
    return given.start[:2] == b"\x1f\x8b" or given.start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")


def _read(given: TraceInput) -> Source:
    """Busy shares per device: kernels, copies, NCCL; without such events, complete events of each process."""
    path = given.without_columns("a Chrome trace")
    events = _events(path)
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    others: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        start, length = _number(event.get("ts")), _number(event.get("dur"))
        if start is None or length is None or length < 0:
            continue
        category = str(event.get("cat", "")).lower()
        span = (start / 1e6, (start + length) / 1e6)
        device = _device(event)
        if category in KERNELS:
            spans[f"gpu{device}.kernel_busy"].append(span)
            if "nccl" in str(event.get("name", "")).lower():
                spans[f"gpu{device}.nccl_busy"].append(span)
        elif category in COPIES:
            spans[f"gpu{device}.copy_busy"].append(span)
        else:
            others[f"pid{event.get('pid', 0)}.busy"].append(span)
    what = "Chrome trace (kernels)" if spans else "Chrome trace (all complete events)"
    spans = spans or others
    if not spans:
        raise BadInput(f"{path}: no complete events (ph X) with times and durations")
    start_s = min(span[0] for each in spans.values() for span in each)
    end_s = max(span[1] for each in spans.values() for span in each)
    bin_s = max(BIN_S, (end_s - start_s) * len(spans) / MAX_BINS)
    found = tuple(
        Series(name, *_busy(each, start_s, end_s, bin_s), "%", BUSY, bin_s) for name, each in sorted(spans.items())
    )
    return Source(
        what, found, notes=(f"{sum(map(len, spans.values()))} events, busy time in bins of {bin_s * 1e3:g} ms",)
    )


def _events(path: Path) -> list[Any]:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        value = json.loads(data)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or 'not readable as gzip (cut short?)'}") from None
    except (EOFError, zlib.error):
        raise BadInput(f"{path}: not readable as gzip (cut short?)") from None
    except (ValueError, RecursionError):
        raise BadInput(f"{path}: not valid JSON (cut short?)") from None
    events = value.get("traceEvents") if isinstance(value, dict) else value
    if not isinstance(events, list):
        raise BadInput(f"{path}: JSON, but no Chrome trace: without a list {shown('traceEvents')}")
    return events


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def _device(event: dict[str, Any]) -> Any:
    arguments = event.get("args")
    device = arguments.get("device") if isinstance(arguments, dict) else None
    return event.get("pid", 0) if device is None else device


def _busy(
    spans: list[tuple[float, float]], start_s: float, end_s: float, bin_s: float
) -> tuple[FloatArray, FloatArray]:
    """The percentage of each bin that at least one span covers. Spans of several streams overlap."""
    edges = np.array(sorted(spans))
    reach = np.maximum.accumulate(edges[:, 1])
    begins = np.r_[True, edges[1:, 0] > reach[:-1]]
    first = edges[begins, 0]
    last = reach[np.r_[np.flatnonzero(begins)[1:] - 1, len(reach) - 1]]
    bins = start_s + bin_s * np.arange(int(np.ceil((end_s - start_s) / bin_s)) + 1)
    # Busy time until each edge of a bin, by interpolation.
    at = np.stack([first, last], axis=1).ravel()
    until: FloatArray = np.repeat(np.r_[0.0, np.cumsum(last - first)], 2)[1:-1]
    busy = np.interp(bins, at, until)
    return bins[1:] - start_s, 100.0 * np.diff(busy) / bin_s


READER = Reader(_recognises, _read)
