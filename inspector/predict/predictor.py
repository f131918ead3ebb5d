"""Inspector: a trained model that is loaded and predicts. The only file of the predict path that needs torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput
from driple.contracts.setting import Setting
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import unmeasured
from driple.inspector.model import store
from driple.inspector.model.inspector_folder import load
from driple.inspector.model.inspector_model import InspectorModel
from driple.inspector.model.training_rows import TrainingRows, load_rows
from driple.inspector.predict import request
from driple.inspector.predict.job_answer import with_jobs
from driple.inspector.predict.novelty import TrainingRegion
from driple.inspector.predict.plan_request import PLAN_OPTIONS, plan_of
from driple.inspector.predict.prediction import InspectorInfo, Prediction, Predictions
from driple.inspector.predict.step_traffic import with_traffic
from driple.inspector.training.threads import torch_threads
from driple.pipeline.graph.public import OpGraph


class Inspector:
    """The trained model of one setting and role.

    inspector = Inspector.load("cpu-p2w2-1g")
    print(inspector.predict("resnet56", batch_size=64))

    Args:
        folder: of the inspector.
        datasets: where its dataset may be, if the training rows are not kept beside it.
    """

    def __init__(self, folder: Path, datasets: Path = Path("datasets")) -> None:
        self.model = load(folder)
        self._datasets = datasets
        rows = _rows(folder, datasets, self.model)
        made = self.model.preparation
        self.region = None if rows is None else TrainingRegion(rows, made.facts, made.featuriser.loops)
        self.info = InspectorInfo(
            folder=folder,
            networks=len(self.model.networks),
            rows=None if rows is None else len(rows.rows),
            finished=bool(self.model.training.get("finished", True)),
            **{name: getattr(self.model, name) for name in ("role", "provenance", "split", "dataset_sha256")},
        )

    @classmethod
    def load(
        cls,
        path_or_setting: str | Path,
        *,
        inspectors: str | Path | None = None,
        role: str = "worker",
        datasets: str | Path = "datasets",
    ) -> Inspector:
        """Loads an inspector.

        Args:
            path_or_setting: the folder of an inspector, or the setting whose inspector is wanted.
            inspectors: the folder of inspectors; default `./inspectors`, then those installed with driple.
            role: `worker` or `ps`.
            datasets: where its dataset may be, if the training rows are not kept beside it.

        Raises:
            BadInput: there is none, or it cannot be read.
        """
        folder = Path(path_or_setting)
        if not store.is_inspector(folder):
            folder = store.find(inspectors, str(Setting.parse(str(path_or_setting))), role)
        return cls(folder, Path(datasets))

    @property
    def setting(self) -> str:
        return self.model.setting

    @property
    def columns(self) -> tuple[str, ...]:
        return self.model.columns

    def predict(self, model: str | None = None, **options: Any) -> Predictions:
        """Predicts workloads that have never run; arguments as `driple.inspector.predict.predict_workload.predict`.

        Without `workers`: an inspector has one setting.

        Raises:
            BadInput: an unknown name, or options that contradict each other.
        """
        planned = {name: options.pop(name) for name in PLAN_OPTIONS if name in options}
        plan = plan_of([Setting.parse(self.setting)], self.model.role, **planned)
        how = {name: options.pop(name) for name in ("fresh", "say") if name in options}
        queries = request.queries(request.request_of(model, setting=self.setting, **options))
        graphs = request.graphs_of(queries, **how)
        answers = self.answer([one.with_batch_of(graph) for one, graph in zip(queries, graphs, strict=True)], graphs)
        answers = with_traffic(answers, how.get("say"))
        return Predictions(tuple(answers if plan is None else with_jobs(answers, plan, self._datasets)))

    def answer(self, queries: Sequence[request.PredictionQuery], graphs: Sequence[OpGraph]) -> list[Prediction]:
        """The predictions for queries of this setting and their graphs, in this order."""
        examples = [unmeasured(graph, one.workload) for graph, one in zip(graphs, queries, strict=True)]
        # Several threads are slower for a network this small: 160 ms instead of 3.
        with torch_threads(1):
            values, spread = self.model.predict(examples)
        limits = self.model.preparation.targets.at_limit(values)
        return [
            Prediction(
                query=query,
                columns=self.columns,
                values=tuple(values[place].tolist()),
                spread=None if spread is None else tuple(spread[place].tolist()),
                inspector=self.info,
                novelty=None if self.region is None else self.region.novelty_of(example, query.maker),
                ops=len(graph.ops),
                unsized=graph.unsized,
                traffic_known=not math.isnan(graph.bytes_received),
                limited=tuple(name for name, limit in zip(self.columns, limits[place], strict=True) if limit),
            )
            for place, (query, example, graph) in enumerate(zip(queries, examples, graphs, strict=True))
        ]


def _rows(folder: Path, datasets: Path, model: InspectorModel) -> TrainingRows | None:
    rows = load_rows(folder, dataset_sha256=model.dataset_sha256, split=model.split, role=model.role)
    if rows is not None or not datasets.exists():
        return rows
    try:
        examples = read_examples(datasets, model.setting, model.role, mix_machines=True)
        if examples.sha256 != model.dataset_sha256:
            return None
        return TrainingRows.of(examples, model.split, model.preparation.featuriser.loops)
    except BadInput:  # no such dataset here: predictions only lack their novelty
        return None
