"""Adds the training steps of measured runs to the file beside their datasets.

A row of a dataset has the graph without what only a simulation needs (kernel shapes, tensors by server). The file keeps
that when the traces are gone. Steps that the stored graphs of the zoo give are not stored again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from driple.contracts.errors import BadInput
from driple.contracts.formats.training_steps import STEPS
from driple.contracts.run_dir import RunPaths
from driple.contracts.run_spec import RunSpec
from driple.contracts.setting import CPU
from driple.contracts.strategy import WORKER
from driple.pipeline.graph.public import (
    StepKey,
    TrainingStep,
    read_step,
    read_steps,
    step_key,
    stored_step,
    write_steps,
)


def collect_steps(runs: Iterable[tuple[Path, RunSpec]], output: Path) -> int:
    """The number of steps that were added to the file in the folder of datasets `output`.

    Only those of processors are stored: on a GPU, some ops stay on the host.

    Args:
        runs: folder and specification of each run.
        output: the folder of datasets.

    Raises:
        BadInput: there is a file of that name that is something else.
    """
    path = output / STEPS
    wanted: dict[StepKey, tuple[Path, RunSpec]] = {}
    for folder, run in runs:
        if run.setting.device == CPU and run.workload.code_sha256 is None:
            wanted.setdefault(step_key(run.workload, run.setting.servers), (folder, run))
    if not wanted:
        return 0
    known: dict[StepKey, TrainingStep] = dict(read_steps(path)) if path.is_file() else {}
    added = 0
    for key, (folder, run) in wanted.items():
        graph = RunPaths(folder.parent, "", folder.name).graph(WORKER)
        if key in known or not graph.is_file() or stored_step(run.workload, run.setting) is not None:
            continue
        try:
            known[key] = read_step(graph, loop_length=run.workload.sequence_length or 1)
        except BadInput:
            continue  # its rows exist already, or the build reports the graph: nothing is lost but a simulation
        added += 1
    if added:
        write_steps(known, path)
    return added
