"""predict: the resource use of training jobs that have never run, from their graphs.

found = predict("resnet56", setting="cpu-p2w2-1g", batch_size=[16, 64])
for one in found:
    print(one.step_time_s, one.metrics["net_rx_burst_s"], one.intervals["net_rx_burst_s"], one.novelty)
found.to_frame()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput
from driple.inspector.model import store
from driple.inspector.predict import request
from driple.inspector.predict.measured_values import measured_values
from driple.inspector.predict.prediction import Prediction, Predictions


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
    dataset: str | None = None,
    size: int | None = None,
    width: float | None = None,
    optimiser: str | None = None,
    sharding: str | None = None,
    datasets: str | Path = "datasets",
    measured: str | Path | None = None,
    fresh: bool = False,
    say: Callable[[str], None] | None = None,
) -> Predictions:
    """Predicts every combination of settings, batch sizes and update modes.

    Args:
        model: a model of the zoo by name; or give `graph` or `code`.
        setting: one, or several.
        batch_size: examples per worker and step; one, or several (default 32; of a graph file its own).
        update: `sync`, `async` or both (default sync; of a graph file its own).
        inspectors: the folder of inspectors; default `./inspectors`, then those installed with driple.
        role: `worker` or `ps`.
        graph: a GraphDef (.pb, .pbtxt) or a graph file of driple (.parquet).
        graph_device: whose ops in that file, `worker:0`; default the first worker.
        code: a model of your own, `file.py:function`.
        dataset: what it reads; default the model's own.
        size: image side or sequence length; default the model's own.
        width: multiplier of channels or units; default 1.
        optimiser: default momentum.
        sharding: of variables over servers; default balanced.
        datasets: where the dataset of an inspector may be, if its training rows are not kept beside it.
        measured: a folder of datasets with rows of the workload, whose means are put next to the predictions.
        fresh: build the graph again, even if it is cached or stored.
        say: receives a line before something that takes long.

    Raises:
        BadInput: an unknown name, no such inspector, or options that contradict each other.
        RunFailed: the graph could not be built.
    """
    options: dict[str, Any] = {"setting": setting, "batch_size": batch_size, "update": update, "optimiser": optimiser}
    options |= {"graph": graph, "graph_device": graph_device, "code": code, "dataset": dataset, "sharding": sharding}
    asked = request.request_of(model, size=size, width=width, **options)
    queries = request.queries(asked)
    folders = {str(one): store.find(inspectors, str(one), role) for one in asked.settings}
    graphs = request.graphs_of(queries, fresh=fresh, say=say)
    from driple.inspector.predict.predictor import Inspector  # needs torch: only after names and graphs are right

    found: dict[int, Prediction] = {}
    for text, folder in folders.items():
        places = [place for place, query in enumerate(queries) if str(query.setting) == text]
        inspector = Inspector(folder, Path(datasets))
        if inspector.setting != text:
            raise BadInput(f"{folder}: its inspector is of {inspector.setting}, not of {text}")
        answers = inspector.answer([queries[place] for place in places], [graphs[place] for place in places])
        if measured is not None:
            found_rows = (measured_values(one.query, role, one.columns, Path(measured)) for one in answers)
            answers = [replace(one, **fields) for one, fields in zip(answers, found_rows, strict=True)]
        found |= dict(zip(places, answers, strict=True))
    return Predictions(tuple(found[place] for place in range(len(queries))))
