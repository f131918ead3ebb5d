"""Adds step times of the time model to predictions: a target of its own, with its uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from driple.contracts.errors import BadInput
from driple.contracts.setting import CPU, Setting
from driple.contracts.strategy import WORKER
from driple.inspector.data.examples import unmeasured
from driple.inspector.predict.prediction import Prediction
from driple.inspector.predict.request import PredictionQuery, graphs_of, steps_of
from driple.inspector.time import time_folder
from driple.inspector.time.simulated_steps import StepSimulator, simulated_seconds
from driple.inspector.time.time_predictor import ANCHORED, NEW_SETTING, StepAnswer, TimePredictor
from driple.inspector.time.time_rows import Machines, read_time_rows
from driple.simulator.simulation import MachineSpeed

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class TimeOptions:
    """What the user says of the machine."""

    inspectors: str | Path | None = None
    """Folder of inspectors, which also has the time model."""
    anchors: Path | None = None
    """Datasets of a few runs on the machine."""
    machine_of: str | None = None
    """A measured setting, on whose machine the job would run."""


def with_step_times(
    answers: Sequence[Prediction], options: TimeOptions, *, only_simulation: bool = False, say: Say | None = None
) -> list[Prediction]:
    """The predictions of workers on processors with their step times; the others as they are.

    Args:
        answers: predictions.
        options: what the user says of the machine.
        only_simulation: the user asked for a simulation, so the time model is not used.
        say: receives a line before something that takes long.

    Raises:
        BadInput: the time model, the anchors or the named setting cannot be used.
    """
    named = options.anchors is not None or options.machine_of is not None
    folder = time_folder.find(options.inspectors)
    if named and (folder is None or only_simulation):
        why = "there is none; driple-train-time makes one" if folder is None else "a simulation does not use it"
        raise BadInput(f"--anchors and --machine-of are of the time model: {why}")
    if folder is None or only_simulation:
        return list(answers)
    stored = time_folder.load(folder)
    predictor = stored.predictor
    if options.anchors is not None:
        predictor = _anchored(predictor, Machines(stored.fingerprints), options.anchors)
    machine = None if options.machine_of is None else predictor.machine_of(Setting.parse(options.machine_of))
    return [_with_step(one, predictor, machine, say) for one in answers]


def _anchored(predictor: TimePredictor, machines: Machines, anchors: Path) -> TimePredictor:
    rows = read_time_rows(anchors, machines=machines)
    simulator = StepSimulator(anchors)
    speeds = dict(predictor.model.speeds)
    for machine in dict.fromkeys(row.machine for row in rows):
        if machine not in speeds:
            speeds[machine] = simulator.speed_of([row for row in rows if row.machine == machine])
    return predictor.with_anchors(simulator.simulated(rows, speeds), speeds)


def _with_step(answer: Prediction, predictor: TimePredictor, machine: str | None, say: Say | None) -> Prediction:
    query = answer.query
    if query.setting.device != CPU or answer.role != WORKER:
        return answer
    (graph,) = graphs_of([query], say=say)
    try:
        framework = query.known.framework
        example = unmeasured(graph, {**query.workload, "framework": framework})
        site = predictor.site_of(query.setting, framework, machine)
        simulated = _simulated(query, predictor.model.speeds.get(site[1]), say)
        found = predictor.predict(example, query.setting, simulated, site[1])
    except BadInput as error:
        return replace(answer, step_note=str(error))
    return replace(answer, step=found.distribution, step_note=_note(found, predictor))


def _simulated(query: PredictionQuery, speed: MachineSpeed | None, say: Say | None) -> float | None:
    with suppress(BadInput):  # a graph file without shapes, or of another number of servers
        (step,) = steps_of([query], say=say)
        return simulated_seconds(query.known, query.setting, step, speed)
    return None


_BASES = {
    NEW_SETTING: "this setting was not measured there: its numbers are those of other settings",
    ANCHORED: "with your runs as anchors",
}


def _note(found: StepAnswer, predictor: TimePredictor) -> str:
    note = f"step time on {predictor.machine_name(found.site[1])}"
    return f"{note}; {_BASES[found.basis]}" if found.basis in _BASES else note
