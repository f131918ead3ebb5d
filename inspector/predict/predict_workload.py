"""predict: the resource use of training jobs that have never run, from their graphs.

found = predict("resnet56", setting="cpu-p2w2-1g", batch_size=[16, 64])
for one in found:
    print(one.step_time_s, one.metrics["net_rx_burst_s"], one.intervals["net_rx_burst_s"], one.novelty)
found.to_frame()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driple.contracts.errors import BadInput
from driple.contracts.setting import Setting
from driple.contracts.strategy import RING, WORKER, default_strategy
from driple.inspector.model import store
from driple.inspector.predict import request
from driple.inspector.predict.job_answer import with_jobs
from driple.inspector.predict.measured_values import measured_values
from driple.inspector.predict.plan_request import plan_of, with_workers, worker_counts
from driple.inspector.predict.prediction import Predictions
from driple.inspector.predict.simulated_answer import simulated_answer
from driple.inspector.predict.step_answer import TimeOptions, with_step_times
from driple.inspector.predict.step_traffic import with_traffic
from driple.pipeline.graph.public import OpGraph, TrainingStep
from driple.simulator.simulation import check_setting, no_device

if TYPE_CHECKING:
    from driple.inspector.predict.predictor import Inspector


def predict(
    model: str | None = None,
    *,
    setting: str | Sequence[str],
    batch_size: int | Sequence[int] | None = None,
    update: str | Sequence[str] | None = None,
    inspectors: str | Path | None = None,
    role: str = "worker",
    graph: str | Path | None = None,
    graph_device: str | None = None,
    code: str | None = None,
    torch: str | None = None,
    framework: str | None = None,
    strategy: str | None = None,
    dataset: str | None = None,
    size: int | None = None,
    width: float | None = None,
    optimiser: str | None = None,
    sharding: str | None = None,
    topology: str | None = None,
    backend: str | None = None,
    datasets: str | Path = "datasets",
    measured: str | Path | None = None,
    simulate: bool = False,
    anchors: str | Path | None = None,
    machine_of: str | None = None,
    workers: int | Sequence[int] | None = None,
    epochs: float | None = None,
    examples: int | None = None,
    price_per_hour: float | Sequence[float] | Mapping[str, float] | None = None,
    price_per_worker_hour: float | None = None,
    deadline: str | float | None = None,
    budget: float | None = None,
    start_up: str | float | None = None,
    fresh: bool = False,
    say: Callable[[str], None] | None = None,
) -> Predictions:
    """Predicts every combination of settings, batch sizes and update modes.

    Args:
        model: a model of the zoo by name; or give `graph`, `code` or `torch`.
        setting: one, or several.
        batch_size: examples per worker and step; one, or several (default 32; of a graph file its own).
        update: `sync`, `async` or both (default sync; of a graph file its own).
        inspectors: the folder of inspectors; default `./inspectors`, then those installed with driple.
        role: `worker` or `ps`.
        graph: a GraphDef (.pb, .pbtxt), an ONNX file (.onnx) or a graph file of driple (.parquet).
        graph_device: whose ops in that file, `worker:0`; default the first worker.
        code: a model of your own in tf_keras, `file.py:function`.
        torch: a model of your own in torch, `file.py:function`.
        framework: that trains a model of the zoo; default the first one that can on the setting.
        strategy: `ps`, `allreduce` or `pair_averaging`; default that of the setting. Another one is always simulated.
        dataset: what it reads; default the model's own.
        size: image side or sequence length; default the model's own.
        width: multiplier of channels or units; default 1.
        optimiser: default momentum.
        sharding: of variables over servers; default balanced.
        topology: path of the gradients of an all-reduce; default ring. Another one is always simulated.
        backend: what carries them, `nccl`, `grpc`, `gloo` or `mpi`; then the answer is always simulated. Default of a
            simulation: `nccl` in a ring of GPUs, else `grpc`.
        datasets: where the dataset of an inspector may be, if its training rows are not kept beside it.
        measured: a folder of datasets with rows of the workload, whose means are put next to the predictions.
        simulate: simulate, even if there is an inspector. Without this, a setting is simulated that has no inspector.
        anchors: a folder of datasets of a few runs on the machine: their step times correct the time model.
        machine_of: a measured setting, on whose machine the job would run; default for a measured setting itself.
        workers: numbers of workers: each setting with each of them, as a scaling curve (`Predictions.scaling`).
        epochs: passes of the job over its examples; then `Prediction.job` has the times of the whole training.
        examples: of an epoch.
        price_per_hour: of the whole cluster: one for all settings, one for each in their order, or by setting.
        price_per_worker_hour: of each worker, instead.
        deadline: the total time that is available, `8h` or seconds (`Predictions.ranking`).
        budget: the money that is available.
        start_up: the time that the job takes besides its steps, `30s` or seconds; default: from the measured runs in
            `datasets`, if they tell it.
        fresh: build the graph again, even if it is cached or stored.
        say: receives a line before something that takes long.

    Raises:
        BadInput: an unknown name, neither an inspector nor a device file, or options that contradict each other.
        RunFailed: the graph could not be built.
    """
    options: dict[str, Any] = {"setting": setting, "batch_size": batch_size, "update": update, "optimiser": optimiser}
    options |= {"graph": graph, "graph_device": graph_device, "code": code, "dataset": dataset, "sharding": sharding}
    options |= {"topology": topology, "backend": backend, "torch": torch, "framework": framework, "strategy": strategy}
    asked = request.request_of(model, size=size, width=width, **options)
    counts = worker_counts(workers)
    plan = plan_of(
        asked.settings,
        role,
        workers=counts,
        epochs=epochs,
        examples=examples,
        price_per_hour=price_per_hour,
        price_per_worker_hour=price_per_worker_hour,
        deadline=deadline,
        budget=budget,
        start_up=start_up,
    )
    if counts and role != WORKER:
        raise BadInput(f"--workers: the cycle of role {role} is not a training step; leave --role out")
    asked = replace(asked, settings=with_workers(asked.settings, counts))
    usual = {default_strategy(one.servers) for one in asked.settings}
    simulate = simulate or topology not in (None, RING) or backend is not None or not {strategy} <= {None, *usual}
    queries = request.queries(asked)
    folders = {one: inspector_of(one, inspectors, role, simulate=simulate) for one in asked.settings}
    simulated = [place for place, query in enumerate(queries) if folders[query.setting] is None]
    predicted = [place for place, query in enumerate(queries) if folders[query.setting] is not None]
    for place in simulated:  # before anything that takes long
        check_setting(queries[place].setting, queries[place].path)
    how: dict[str, Any] = {"fresh": fresh, "say": say}
    steps = request.steps_of([queries[place] for place in simulated], **how)
    graphs = dict(zip(predicted, request.graphs_of([queries[place] for place in predicted], **how), strict=True))
    known: dict[int, OpGraph | TrainingStep] = {**dict(zip(simulated, steps, strict=True)), **graphs}
    queries = [query.with_batch_of(known[place]) for place, query in enumerate(queries)]
    answers = (simulated_answer(queries[place], step, role, say) for place, step in zip(simulated, steps, strict=True))
    found = dict(zip(simulated, answers, strict=True))
    for one, folder in folders.items():
        if folder is not None:
            places = [place for place in predicted if queries[place].setting == one]
            inspector = _load(folder, one, Path(datasets))
            own = inspector.answer([queries[place] for place in places], [graphs[place] for place in places])
            found |= dict(zip(places, with_traffic(own, say), strict=True))
    ordered = [found[place] for place in range(len(queries))]
    machine = TimeOptions(
        inspectors=inspectors, anchors=None if anchors is None else Path(anchors), machine_of=machine_of
    )
    ordered = with_step_times(ordered, machine, only_simulation=simulate, say=say)
    if measured is not None:
        rows = [measured_values(answer.query, role, answer.columns, Path(measured)) for answer in ordered]
        ordered = [replace(answer, **fields) for answer, fields in zip(ordered, rows, strict=True)]
    if plan is not None:
        ordered = with_jobs(ordered, plan, Path(datasets))
    return Predictions(tuple(ordered), scaled=bool(counts))


def inspector_of(setting: Setting, inspectors: str | Path | None, role: str, *, simulate: bool) -> Path | None:
    """The folder of the inspector that answers; None to simulate: if asked to, or if there is no inspector.

    Raises:
        BadInput: there is no device file to simulate with, or no inspector in the folder that the user named.
    """
    missing = no_device(setting)
    if simulate:
        if missing is not None:
            raise BadInput(f"{setting}: {missing}")
        return None
    try:
        return store.find(inspectors, str(setting), role)
    except BadInput as error:
        if missing is not None:
            raise BadInput(f"{error}; to simulate it without one: {missing}") from None
        if inspectors is not None:
            raise BadInput(f"{error}; --simulate answers without an inspector") from None
        return None


def _load(folder: Path, setting: Setting, datasets: Path) -> Inspector:
    from driple.inspector.predict.predictor import Inspector  # needs torch: only after names and graphs are right

    inspector = Inspector(folder, datasets)
    if inspector.setting != str(setting):
        raise BadInput(f"{folder}: its inspector is of {inspector.setting}, not of {setting}")
    return inspector
