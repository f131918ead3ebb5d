"""Writes the files of a task that contracts/formats/task_files.py describes."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput
from driple.contracts.formats.task_files import ERROR, FINISHED_FILE, OK, READY_FILE, STEPS_FILE, Finished
from driple.contracts.run_dir import replacing

_LOOK_S = 0.01


class TaskOutput:
    """The only writer in a task's folder."""

    def __init__(self, folder: Path, task: str) -> None:
        self.folder = folder
        self.task = task
        self.steps = 0
        self.share_path: str | None = None
        """The file that `ready` waits for."""
        self._ran: dict[str, str] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for left in (
                READY_FILE,
                FINISHED_FILE,
            ):  # of an earlier attempt: readers must not see it
                (folder / left).unlink(missing_ok=True)
            self._steps = (folder / STEPS_FILE).open("w", encoding="ascii")
        except OSError as error:
            raise BadInput(f"{folder}: {error.strerror}") from None

    def step(
        self, step: int, global_step: int, start_ns: int, end_ns: int, loss: float, accuracy: float | None = None
    ) -> None:
        """Writes and flushes a line, so that readers see it and a killed task does not lose it.

        `accuracy` is None or NaN where nobody computes it.
        """
        line = {
            "step": step,
            "global_step": global_step,
            "start_mono_ns": start_ns,
            "end_mono_ns": end_ns,
            "loss": loss if math.isfinite(loss) else None,  # JSON has no NaN
            "accuracy": accuracy if accuracy is not None and math.isfinite(accuracy) else None,
        }
        self._steps.write(json.dumps(line) + "\n")
        self._steps.flush()
        self.steps += 1

    def ready(self, **ran: str) -> None:
        """Marks the task as ready; `ran` says what it uses: versions, backend, topology, bytes of gradients.

        Returns when the tasks of the job have the share of their hosts, if they get one.
        """
        self._ran = ran
        self._marker(READY_FILE, {"pid": os.getpid(), **ran})
        while self.share_path is not None and not Path(self.share_path).exists():
            time.sleep(_LOOK_S)

    def finished(self, exit_code: int, message: str, kind: str | None = None) -> None:
        """Writes how the task ended; `kind` is a constant of task_files.py."""
        kind = kind or (ERROR if exit_code else OK)
        marker = Finished(exit_code=exit_code, message=message, steps=self.steps, kind=kind, ran=self._ran)
        self._marker(FINISHED_FILE, vars(marker))

    def close(self) -> None:
        """Closes the file. A task need not call it before it exits."""
        self._steps.close()

    def _marker(self, name: str, value: dict[str, Any]) -> None:
        with replacing(self.folder / name) as stream:
            json.dump({"task": self.task, "mono_ns": time.monotonic_ns(), **value}, stream)
            stream.write("\n")
