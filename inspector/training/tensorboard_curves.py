"""Learning curves as TensorBoard reads them.

Written record by record with tensorboard's own parts. torch's writer would load TensorFlow wherever it is installed:
seconds, and lines on the terminal that nobody asked for.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driple.inspector.training.train_network import Epoch


class Curves:
    """One event file of one training."""

    def __init__(self, folder: Path) -> None:
        """Begins a file beside those of the parts before, which TensorBoard reads as one.

        Raises:
            ImportError: tensorboard is not installed.
        """
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        folder.mkdir(parents=True, exist_ok=True)
        part = len(list(folder.glob("*tfevents*")))  # read in the order of names
        self._writer = RecordWriter((folder / f"events.out.tfevents.{part:04}.driple").open("xb"))
        self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    def add(self, epoch: int, values: Mapping[str, float]) -> None:
        """One point of each curve."""
        points = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(self._event(wall_time=time.time(), step=epoch, summary=self._summary(value=points)))

    def close(self) -> None:
        """No more points."""
        self._writer.close()

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())
        self._writer.flush()


class AllCurves:
    """Curves of every network of an ensemble; without tensorboard one line that says so."""

    def __init__(self, folder: Path, *, go_on: bool, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._open: dict[int, Curves] = {}
        self._on = True
        if not go_on:  # curves of an earlier training would be drawn through these
            shutil.rmtree(folder, ignore_errors=True)

    def __call__(self, member: int, epoch: Epoch) -> None:
        """One more epoch of a network."""
        if not self._on:
            return
        if member not in self._open:
            self.close()
            try:
                self._open[member] = Curves(self._folder / f"network-{member}")
            except ImportError:
                self._on = False
                self._say("no learning curves: tensorboard is not installed (pip install 'driple[inspector]')")
                return
        self._open[member].add(epoch.number, {name: value for name, value in epoch.row.items() if name != "seconds"})

    def close(self) -> None:
        """No more points."""
        for curves in self._open.values():
            curves.close()
