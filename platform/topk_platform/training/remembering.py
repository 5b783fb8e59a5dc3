"""A learner for losses that remember each training sample: it passes them the position of every sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import cast

import torch
from torch import Tensor

from topk_platform.data import Split
from topk_platform.specs import Trial
from topk_platform.training.averaging import AveragedSession
from topk_platform.training.losses import BoundLoss
from topk_platform.training.steps.batches import Batches

__all__ = ["PlacedBatches", "RememberingSession"]


@dataclass
class PlacedBatches(Batches):
    """The usual batches, with the positions of their samples in the training split, ``rows``."""

    base: Batches | None = None
    rows: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))  # of the batch taken last

    @classmethod
    def of(cls, batches: Batches) -> PlacedBatches:
        """Return the same batches, with the same random streams and augmentation."""
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
    """A loss that is also called with the position of each sample, ``index=``."""

    rows: Tensor
    """The positions of the next batch's samples."""

    @classmethod
    def of(cls, loss: BoundLoss) -> PlacedLoss:
        """Return the same loss."""
        return cls(loss.module, loss.generator, loss.weights, loss.in_epoch)

    def __call__(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of the next batch."""
        loss: Tensor = self.module(scores, target, index=self.rows)
        return loss


@dataclass
class RememberingSession(AveragedSession):
    """A session whose loss has a state for each training sample. The loss's buffers hold it, and so do checkpoints."""

    @classmethod
    def prepare(cls, trial: Trial) -> RememberingSession:
        """Return a fresh session."""
        session = cast("RememberingSession", super().prepare(trial))
        session.batches = PlacedBatches.of(session.batches)
        session.loss = PlacedLoss.of(session.loss)
        return session

    def _step(self, inputs: Tensor, target: Tensor) -> Tensor:
        cast("PlacedLoss", self.loss).rows = cast("PlacedBatches", self.batches).rows
        return super()._step(inputs, target)
