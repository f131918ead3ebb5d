"""Finds the worker's ops by their device names, such as `/job:worker/replica:0/task:0/device:GPU:0`.

Unless the caller names a device, the worker is the task that the file names. If the file names none, it is the lowest
task of the first job in the graph out of `worker`, `chief`, `master` and `localhost`, with all ops that name no job:
these run where the session is, and TensorFlow 2 functions place only their updates. If any of these ops is on a GPU,
only those on a GPU or on no named kind of device count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from driple.contracts.errors import BadInput, shown

WORKER_JOBS = ("worker", "chief", "master", "localhost")
KINDS = ("CPU", "GPU", "TPU")
_PART = re.compile(r"(job|replica|task):([^/:]+)|(?:device:)?([A-Za-z_]+):(\d+|\*)")


@dataclass(frozen=True)
class Device:
    """A device, or a pattern of devices; None matches anything."""

    job: str | None = None
    task: int | None = None
    kind: str | None = None
    index: int | None = None

    def covers(self, other: Device) -> bool:
        return all(
            mine is None or mine == theirs
            for mine, theirs in (
                (self.job, other.job),
                (self.task, other.task),
                (self.kind, other.kind),
                (self.index, other.index),
            )
        )


def parse(text: str) -> Device:
    """Parses a device name, parts of it, a task (`worker:1`, `ps`) or a kind (`GPU:0`). Raises BadInput."""
    if not text.startswith("/") and text:
        name, _, number = text.partition(":")
        text = f"/{name.upper()}:{number or '*'}" if name.upper() in KINDS else f"/job:{name}/task:{number or '*'}"
    found: dict[str, str] = {}
    for part in filter(None, text.split("/")):
        match = _PART.fullmatch(part)
        if match is None:
            raise BadInput(f"not a device: {shown(text)}; such as /job:worker/task:0/device:GPU:0, worker:0 or GPU")
        if match[1]:
            found[match[1]] = match[2]
        else:
            found["kind"], found["index"] = match[3].upper(), match[4]
    try:
        task, index = (None if found.get(key, "*") == "*" else int(found[key]) for key in ("task", "index"))
    except ValueError:
        raise BadInput(f"not a device: {shown(text)}: the task is not a number") from None
    return Device(found.get("job"), task, found.get("kind"), index)


def worker_ops(names: Sequence[str], wanted: str | None, task: str | None) -> list[bool]:
    """Whether each op belongs to the worker, by the device name of each op (empty if it has none).

    `wanted` is a device pattern of the caller, `task` the task that the file names. Raises BadInput if no op matches.
    """
    known = {name: parse(name) for name in set(names)}
    pattern = parse(wanted or task or "") if wanted or task else _default(list(known.values()))
    homeless = not (wanted or task)
    chosen = {name for name, device in known.items() if pattern.covers(device) or homeless and device.job is None}
    if pattern.kind is None and any(known[name].kind == "GPU" for name in chosen):
        chosen = {name for name in chosen if known[name].kind in ("GPU", None)}
    if not chosen:
        there = ", ".join(sorted(filter(None, known))[:5]) or "none named"
        raise BadInput(f"no op is on {shown(wanted or task or 'a worker')} (devices: {there})")
    return [name in chosen for name in names]


def _default(devices: list[Device]) -> Device:
    jobs = {device.job for device in devices if device.job}
    for job in WORKER_JOBS:
        if job in jobs:
            tasks = [device.task for device in devices if device.job == job and device.task is not None]
            return Device(job, min(tasks, default=None))
    return Device(WORKER_JOBS[0]) if jobs else Device()
