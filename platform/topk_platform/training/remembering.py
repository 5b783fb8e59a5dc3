"""A learner for losses that remember each training sample: it gives them the places of a batch's samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import cast

import torch
from torch import Tensor

from topk_platform.data import Split
from topk_platform.specs import Trial
from topk_platform.training.losses import BoundLoss
from topk_platform.training.shown import ShownSession
from topk_platform.training.steps.batches import Batches

__all__ = ["PlacedBatches", "RememberingSession"]


@dataclass
class PlacedBatches(Batches):
    """The usual batches, which say where their samples lie in the training split."""

    base: Batches | None = None
    rows: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))  # of the batch taken last

    @classmethod
    def of(cls, batches: Batches) -> PlacedBatches:
        """Return the same batches, from the same streams and augmented likewise."""
        return cls(**{one.name: getattr(batches, one.name) for one in fields(Batches)}, base=batches)

    def _augmented(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        assert self.base is not None  # noqa: S101 - for the type checker: `of` gives it
        return self.base._augmented(inputs, labels)

    def _plain(self, done: int) -> Iterator[tuple[Tensor, Tensor]]:
        assert self.base is not None  # noqa: S101 - as above
        labels = self.split.labels
        places = Split(self.split.inputs, torch.arange(len(labels), device=labels.device))
        for inputs, rows in replace(self.base, split=places, size=self.size)._plain(done):
            self.rows = rows
            yield inputs, labels[rows]


class PlacedLoss(BoundLoss):
    """A loss that is called with the place of each sample as well, ``index=``."""

    rows: list[Tensor]
    """The places of the samples of each part of a batch, in the order in which the parts are taken."""

    @classmethod
    def of(cls, loss: BoundLoss) -> PlacedLoss:
        """Return the same loss."""
        return cls(loss.module, loss.generator, loss.weights, loss.in_epoch)

    def __call__(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of the next part."""
        rows = self.rows.pop(0)
        if self._warming:
            return super().__call__(scores, target)
        loss: Tensor = self.module(scores, target, index=rows)
        return loss


@dataclass
class RememberingSession(ShownSession):
    """A session whose loss has a state for each training sample; the loss's buffers, in checkpoints, hold it."""

    @classmethod
    def prepare(cls, trial: Trial) -> RememberingSession:
        """Return a fresh session."""
        session = cast("RememberingSession", super().prepare(trial))
        session.batches = PlacedBatches.of(session.batches)
        session.loss = PlacedLoss.of(session.loss)
        return session

    def _step(self, inputs: Tensor, target: Tensor) -> Tensor:
        placed, batches = cast("PlacedLoss", self.loss), cast("PlacedBatches", self.batches)
        placed.rows = list(batches.rows.chunk(self.recipe.accumulate))
        return super()._step(inputs, target)
