"""InspectorModel: the networks of one setting and role, with everything that a prediction needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from driple.inspector.base_model.stacked_regressor import BaseModel
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.examples import Example, Examples, Graph, unmeasured
from driple.inspector.data.tensors import Preparation, Prepared
from driple.inspector.model.model_config import InspectorConfig
from driple.inspector.network.batching.execution_choice import choose
from driple.inspector.training.threads import suited, torch_threads

AT_ONCE = 64
_NO_LIMIT = 1e6
"""Without a limit, networks that are all at the limit of predictions do not seem to agree."""


@dataclass(frozen=True, eq=False, kw_only=True)
class InspectorModel:
    """Predicts targets from graphs and workload features. inspector_folder.py writes and reads it."""

    setting: str
    role: str
    split: str
    seed: int
    config: InspectorConfig
    preparation: Preparation
    networks: tuple[Any, ...] = field(repr=False)
    plains: tuple[BaseModel, ...] | None = field(repr=False)
    """The base model that each network corrects; None where there is none."""
    provenance: str
    """`measured`, `simulated` or `published` training rows."""
    dataset_sha256: str
    calibration: tuple[float, ...] | None = None
    """[columns]: factor of the networks' spread, so that it covers two thirds of the validation rows."""
    transferred_from: Mapping[str, Any] | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    """How the training went: epochs, seconds, validation error."""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The targets that it predicts."""
        return self.preparation.targets.columns

    def predict(
        self, examples: Examples | Sequence[Example], execution: str = "auto", *, judged: bool = False
    ) -> tuple[FloatArray, FloatArray | None]:
        """Values [n, columns] in the targets' own units, and their spread.

        A value is NaN where training had too few values of its target. The spread is about one standard deviation, or
        None with a single network. `judged` is for an evaluation: the source of a transfer then predicts its training
        jobs out of fold.
        """
        if not len(examples):
            return np.zeros((0, len(self.columns))), None
        outputs = self._outputs(examples, execution, judged)
        values = self.preparation.values(outputs.mean(0))
        spread = spread_of(self.preparation, outputs)
        if spread is not None and self.calibration is not None:
            spread = spread * np.asarray(self.calibration)
        return values, spread

    def predict_one(self, graph: Graph, workload: Mapping[str, Any]) -> tuple[FloatArray, FloatArray | None]:
        """The targets [columns] of one workload (keys as examples.WORKLOAD) with this graph, and their spread."""
        values, spread = self.predict([unmeasured(graph, workload)])
        return values[0], None if spread is None else spread[0]

    def _outputs(self, examples: Examples | Sequence[Example], execution: str, judged: bool) -> Any:
        """[networks, n, columns], scaled."""
        rows = self.preparation.apply(examples)
        build = choose(execution, rows.sizes())
        device = str(next(self.networks[0].parameters()).device)
        threads = suited(sum(rows.sizes()[:AT_ONCE]), self.config.network.hidden)
        with torch.inference_mode(), torch_threads(threads):
            facts = [self._facts(rows, member, judged).to(device) for member in range(len(self.networks))]
            found: list[list[Any]] = [[] for _ in self.networks]
            for number, batch in enumerate(rows.batches(range(len(rows)), AT_ONCE, build, device)):
                part = slice(number * AT_ONCE, (number + 1) * AT_ONCE)
                for network, known, outputs in zip(self.networks, facts, found, strict=True):
                    outputs.append(network(batch.graphs, known[part]).cpu())
            return torch.stack([torch.cat(outputs) for outputs in found])

    def _facts(self, rows: Prepared, member: int, judged: bool) -> Any:
        if self.plains is None:
            return rows.facts
        scales = self.preparation.facts, self.preparation.targets
        jobs = rows.jobs if judged else ()
        return rows.with_plain(self.plains[member].predict(rows.raw_facts, *scales, jobs)).facts


def spread_of(preparation: Preparation, outputs: Any) -> FloatArray | None:
    """How far networks differ [n, columns], in the targets' own units; None with a single one."""
    if len(outputs) < 2:
        return None
    return np.std([preparation.values(one, far=_NO_LIMIT) for one in outputs], axis=0, ddof=1)
