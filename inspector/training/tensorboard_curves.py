"""Learning curves for TensorBoard.

Written with tensorboard's own record writer: torch's would load TensorFlow where it is installed, which takes seconds
and prints lines.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driple.inspector.training.train_network import Epoch


class LearningCurves:
    """The curves of every network of an ensemble, an event file each; without tensorboard one line reports it."""

    def __init__(self, folder: Path, *, go_on: bool, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._writer: Any = None
        self._event: Any = None
        self._summary: Any = None
        self._member: int | None = None
        self._installed = True
        if not go_on:  # curves of an earlier training would be drawn through these
            shutil.rmtree(folder, ignore_errors=True)

    def __call__(self, member: int, epoch: Epoch) -> None:
        """Adds an epoch of a network."""
        if self._installed and member != self._member:
            self._begin(member)
        if self._installed:
            values = {name: value for name, value in epoch.row.items() if name != "seconds"}
            points = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            self._write(step=epoch.number, summary=self._summary(value=points))

    def close(self) -> None:
        """Closes the last file."""
        if self._writer is not None:
            self._writer.close()

    def _begin(self, member: int) -> None:
        """Begins a file beside those of earlier parts of the training, which TensorBoard reads as one."""
        self.close()
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError:
            self._installed = False
            self._say("no learning curves: tensorboard is not installed (pip install 'driple[inspector]')")
            return
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        folder = self._folder / f"network-{member}"
        folder.mkdir(parents=True, exist_ok=True)
        part = len(list(folder.glob("*tfevents*")))  # read in the order of names
        self._writer = RecordWriter((folder / f"events.out.tfevents.{part:04}.driple").open("xb"))
        self._member = member
        self._write(file_version="brain.Event:2")

    def _write(self, **values: Any) -> None:
        self._writer.write(self._event(wall_time=time.time(), **values).SerializeToString())
        self._writer.flush()
