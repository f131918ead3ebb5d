"""The training loop: in each epoch a pass over the training rows, then an evaluation of the validation rows.

Random numbers of an epoch depend only on the seed and the number of the epoch, so a resumed training ends with the same
weights as an uninterrupted one.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from driple.contracts.errors import BadInput, DripleError
from driple.inspector.data.tensors import Batch, Preparation, Prepared
from driple.inspector.evaluation.scores import nrmse_within, ranges_of
from driple.inspector.model.model_config import TrainingConfig
from driple.inspector.network.batching.execution_choice import choose
from driple.inspector.training.seeds import seed_of
from driple.inspector.training.training_state import TrainingState
from driple.inspector.training.transfer import Transferred

ORDER, DROPOUT = 1, 2
"""Purposes of random numbers in an epoch."""
LOOKED_AT = 64
"""Rows of a batch that is only evaluated."""


class Loop:
    """A training between two epochs. A state is resumed only if its fingerprint is the same."""

    def __init__(
        self,
        learner: Transferred,
        train: Prepared,
        val: Prepared,
        training: TrainingConfig,
        preparation: Preparation,
        *,
        seed: int,
        execution: str,
        device: str,
        fingerprint: Mapping[str, Any],
    ) -> None:
        self.learner, self._train, self._val, self.training = learner, train, val, training
        self._preparation, self._seed, self._device = preparation, seed, device
        self._build = choose(execution, train.sizes() + val.sizes())
        learner.network.to(device)
        self._parameters = learner.tuned()
        make = torch.optim.AdamW if training.decoupled else torch.optim.Adam
        self._optimiser = make(self._parameters, lr=training.learning_rate, weight_decay=training.weight_decay)
        self._kept: list[tuple[Batch, Any]] | None = None
        self._val_batches: list[tuple[Batch, Any]] | None = None
        self._ranges = ranges_of(train.truth, val.truth)
        self.diverged = False
        # Replaced as a whole: an interrupt finds the epoch before or this one, never a mixture.
        self.at = TrainingState(fingerprint, [], 0, math.inf, 0.0, {}, {}, {})

    def take(self, state: TrainingState) -> None:
        """Continues from a state; raises BadInput if it is of another network."""
        try:
            self.learner.network.load_state_dict(state.network)
            _load_optimiser(self._optimiser, self._parameters, state.optimiser)
        except (RuntimeError, KeyError, ValueError, IndexError):
            raise BadInput("--resume: the state is of a network of another shape; train without --resume") from None
        self.at = state

    def done(self) -> bool:
        epoch = len(self.at.history) - 1
        waited = epoch - self.at.best_epoch
        return self.diverged or epoch >= self.training.epochs or waited >= self.training.patience

    def step(self) -> None:
        """One epoch; number 0 only evaluates the initial network.

        Raises:
            DripleError: the initial errors are not finite.
        """
        started, before = time.perf_counter(), self.at
        epoch = len(before.history)
        loss = self._learn(epoch) if epoch else self._loss_before()
        val_loss, val_nrmse = self._validate()
        error = val_nrmse if self.training.watch == "nrmse" else val_loss
        if not (math.isfinite(loss) and math.isfinite(error)):
            if not before.history:
                raise DripleError(
                    "the first outputs of the network are not finite: look for extreme values in the dataset, or scale "
                    "them (--set feature_scale=log --set target_scale=log)"
                )
            self.diverged = True
            return
        network = {name: tensor.detach().clone() for name, tensor in self.learner.network.state_dict().items()}
        seconds = before.seconds + time.perf_counter() - started
        row = {"train_loss": loss, "val_loss": val_loss, "val_nrmse": val_nrmse, "seconds": seconds}
        after = dataclasses.replace(
            before,
            history=[*before.history, row],
            seconds=seconds,
            network=network,
            optimiser=_optimiser_tensors(self._optimiser),
        )
        if error < before.best_error:
            after = dataclasses.replace(after, best=network, best_error=error, best_epoch=epoch)
        self.at = after

    def _learn(self, epoch: int) -> float:
        torch.manual_seed(seed_of(self._seed, epoch, DROPOUT))
        self.learner.network.train()
        total, count = torch.zeros((), device=self._device), torch.zeros((), device=self._device)
        for batch, once in self._batches(epoch):
            self._optimiser.zero_grad(set_to_none=True)
            known = batch.mask.sum()
            squares = ((self.learner(batch.graphs, once, batch.facts) - batch.targets) ** 2 * batch.mask).sum()
            (squares / known.clamp(min=1)).backward()
            if self.training.clip:
                torch.nn.utils.clip_grad_norm_(self._parameters, self.training.clip)
            self._optimiser.step()
            total += squares.detach()
            count += known
        return float(total / count.clamp(min=1))

    def _batches(self, epoch: int) -> Iterable[tuple[Batch, Any]]:
        shuffle = self.training.shuffle
        if shuffle and not self.learner.keeps_batches:
            return self._made(self._train, self._drawn(len(self._train), epoch), self.training.batch_size)
        if self._kept is None:
            # Drawn once, so that a batch is not a consecutive part of the dataset.
            rows = self._drawn(len(self._train), 0) if shuffle else range(len(self._train))
            self._kept = list(self._made(self._train, rows, self.training.batch_size))
        return [self._kept[place] for place in self._drawn(len(self._kept), epoch)] if shuffle else self._kept

    def _drawn(self, count: int, epoch: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed_of(self._seed, epoch, ORDER))
        return list(torch.randperm(count, generator=generator).tolist())

    def _made(self, rows: Prepared, order: Iterable[int], size: int) -> Iterable[tuple[Batch, Any]]:
        for batch in rows.batches(list(order), size, self._build, self._device):
            yield batch, self.learner.cache(batch.graphs)

    def _loss_before(self) -> float:
        if self.learner.keeps_batches:
            batches = list(self._batches(0))
        else:
            batches = list(self._made(self._train, range(len(self._train)), LOOKED_AT))
        targets = torch.cat([batch.targets.cpu() for batch, _ in batches])
        return _loss(self._outputs(batches), targets, torch.cat([batch.mask.cpu() for batch, _ in batches]))

    def _validate(self) -> tuple[float, float]:
        """Masked mean square of scaled targets, and mean NRMSE in the targets' own units."""
        if self._val_batches is None:
            self._val_batches = list(self._made(self._val, range(len(self._val)), LOOKED_AT))
        outputs = self._outputs(self._val_batches)
        loss = _loss(outputs, self._val.targets, self._val.mask)
        if not math.isfinite(loss):
            return loss, math.inf
        nrmse = nrmse_within(self._val.truth, self._preparation.values(outputs), self._ranges)
        # Where every target is constant there is no range to divide by.
        return loss, math.sqrt(loss) if nrmse is None else nrmse

    def _outputs(self, batches: Iterable[tuple[Batch, Any]]) -> Any:
        self.learner.network.eval()
        with torch.no_grad():
            return torch.cat([self.learner(batch.graphs, once, batch.facts).cpu() for batch, once in batches])


def _loss(outputs: Any, targets: Any, mask: Any) -> float:
    return float(((outputs - targets) ** 2 * mask).sum() / mask.sum().clamp(min=1))


def _optimiser_tensors(optimiser: Any) -> dict[str, Any]:
    return {
        f"{number}.{name}": torch.as_tensor(value).clone()
        for number, slots in optimiser.state_dict()["state"].items()
        for name, value in slots.items()
    }


def _load_optimiser(optimiser: Any, parameters: list[Any], tensors: Mapping[str, Any]) -> None:
    slots: dict[int, dict[str, Any]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        slots.setdefault(int(number), {})[name] = value
    for place, values in slots.items():
        for name, value in values.items():
            if name != "step" and value.shape != parameters[place].shape:
                raise ValueError(f"parameter {place}: {tuple(value.shape)}")
    optimiser.load_state_dict({**optimiser.state_dict(), "state": slots})
