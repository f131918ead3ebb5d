"""Questions to answers. The only file behind driple-predict that needs torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from driple.contracts.errors import BadInput
from driple.contracts.metrics import COLUMNS
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import unmeasured
from driple.inspector.model.inspector_folder import load
from driple.inspector.model.inspector_model import InspectorModel
from driple.inspector.model.training_rows import TrainingRows, load_rows
from driple.inspector.predict.novelty import TrainingRegion
from driple.inspector.predict.prediction import InspectorInfo, Prediction
from driple.inspector.predict.request import PredictionQuery
from driple.inspector.training.threads import torch_threads
from driple.pipeline.graph.public import OpGraph


class Inspector:
    """An inspector, loaded, with its training rows.

    Args:
        folder: of the inspector.
        datasets: where its dataset may be, if the training rows are not kept beside it.
    """

    def __init__(self, folder: Path, datasets: Path) -> None:
        self.inspector = load(folder)
        rows = _rows(folder, datasets, self.inspector)
        self.neighbours = None if rows is None else TrainingRegion(rows, self.inspector.preparation.facts)
        self.about = InspectorInfo(
            folder=folder,
            role=self.inspector.role,
            provenance=self.inspector.provenance,
            split=self.inspector.split,
            networks=len(self.inspector.networks),
            rows=None if rows is None else len(rows.rows),
            dataset_sha256=self.inspector.dataset_sha256,
            finished=bool(self.inspector.training.get("finished", True)),
        )

    def answer(
        self, questions: Sequence[PredictionQuery], graph_of: Callable[[PredictionQuery], OpGraph]
    ) -> list[Prediction]:
        """The answers, in the order of the questions."""
        graphs = [graph_of(question) for question in questions]
        examples = [unmeasured(graph, one.workload) for graph, one in zip(graphs, questions, strict=True)]
        # For a network this small, threads wait for one another longer than they compute: 160 ms instead of 3.
        with torch_threads(1):
            values, spread = self.inspector.predict(examples)
        limits = self.inspector.preparation.targets.at_limit(values)
        return [
            Prediction(
                question=question,
                values=tuple(values[place].tolist()),
                spread=None if spread is None else tuple(spread[place].tolist()),
                about=self.about,
                near=None if self.neighbours is None else self.neighbours.near(example),
                ops=len(graph.ops),
                unsized=graph.unsized,
                traffic_known=not math.isnan(graph.bytes_received),
                limited=tuple(name for name, limit in zip(COLUMNS, limits[place], strict=True) if limit),
            )
            for place, (question, example, graph) in enumerate(zip(questions, examples, graphs, strict=True))
        ]


def answers(
    questions: Sequence[PredictionQuery],
    folders: Mapping[str, Path],
    datasets: Path,
    graph_of: Callable[[PredictionQuery], OpGraph],
) -> list[Prediction]:
    """Every question answered by the inspector of its setting, in the order of the questions.

    Args:
        questions: what is asked.
        folders: of a setting's text, the folder of its inspector.
        datasets: see Inspector.
        graph_of: of a question its graph.
    """
    found: dict[int, Prediction] = {}
    for setting, folder in folders.items():
        mine = [one for one in questions if str(one.setting) == setting]
        oracle = Inspector(folder, datasets)
        if oracle.inspector.setting != setting:
            raise BadInput(f"{folder}: its inspector is of {oracle.inspector.setting}, not of {setting}")
        found |= {id(one): answer for one, answer in zip(mine, oracle.answer(mine, graph_of), strict=True)}
    return [found[id(one)] for one in questions]


def _rows(folder: Path, datasets: Path, inspector: InspectorModel) -> TrainingRows | None:
    rows = load_rows(folder, dataset_sha256=inspector.dataset_sha256, split=inspector.split, role=inspector.role)
    if rows is not None or not datasets.exists():
        return rows
    try:
        examples = read_examples(datasets, inspector.setting, inspector.role)
        return TrainingRows.of(examples, inspector.split) if examples.sha256 == inspector.dataset_sha256 else None
    except BadInput:  # no such dataset here, which is no reason to give no answer
        return None
