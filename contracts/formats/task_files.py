"""Files that a task and its sampler leave in the task's folder.

    steps.jsonl     a JSON object per step, with the columns of trace.py STEP_COLUMNS
    ready.json      the task is ready: a ps answers, a worker is past the start barrier
    finished.json   how the task ended: `Finished`

The two markers are moved into place, so a reader never sees half a file. A task that was killed leaves no
finished.json.
"""

from __future__ import annotations

from typing import Dict

from driple.contracts.protocol.message import Message

STEPS_FILE = "steps.jsonl"
READY_FILE = "ready.json"
FINISHED_FILE = "finished.json"
GRAPH_FILE = "graph.parquet"
STEPS_TABLE = "steps.parquet"
STDOUT_LOG, STDERR_LOG, SAMPLER_LOG = "stdout.log", "stderr.log", "sampler.log"

OK = "ok"
ERROR = "error"
BAD_INPUT = "bad_input"
OUT_OF_MEMORY = "out_of_memory"
LOST_PEER = "lost_peer"
"""The task ended because another task did: the other one has the cause."""
UNREADABLE = "unreadable"
"""Not written by a task: the agent could not read the file."""


class Finished(Message):
    """Content of finished.json."""

    task: str = ""
    mono_ns: int = 0
    exit_code: int
    message: str
    """The cause in one line; empty if the task succeeded."""
    steps: int = 0
    kind: str
    """How it ended: one of the constants above."""
    ran: Dict[str, str] = {}  # noqa: RUF012  (no dataclass: never changed in place)
    """What it used: version of the framework, backend, topology. Empty if it did not come so far."""
