"""A learner that trains the last layer again, from scratch and on balanced batches, in the last epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import torch
from torch import Generator, Tensor

from topk_platform.data import Images
from topk_platform.specs import RetrainedClassifier, Trial
from topk_platform.training.after import last_layer
from topk_platform.training.setup import initialised
from topk_platform.training.shown import ShownSession
from topk_platform.training.steps.batches import Batches
from topk_platform.training.steps.optim import learning_rate, make_optimizer

__all__ = ["BalancedBatches", "RetrainedSession", "balanced_rows"]


def balanced_rows(labels: Tensor, generator: Generator) -> Tensor:
    """Return as many rows as there are labels, drawn with replacement so that every class is equally likely.

    Args:
        labels: int64 ``(n,)``, on the CPU; classes without a sample are never drawn.
        generator: The source of randomness.
    """
    order = labels.argsort(stable=True)
    _, sizes = torch.unique(labels, return_counts=True)
    first = sizes.cumsum(0) - sizes
    drawn = torch.randint(len(sizes), (len(labels),), generator=generator)
    share = torch.rand(len(labels), generator=generator, dtype=torch.float64)
    return order[first[drawn] + (share * sizes[drawn]).long()]


@dataclass
class BalancedBatches(Batches):
    """Batches in which every class is equally likely. An epoch has as many as usual, drawn with replacement."""

    base: Batches | None = None

    @classmethod
    def of(cls, batches: Batches) -> BalancedBatches:
        """Return balanced batches of the same samples, with the same random streams and augmentation."""
        given = {one.name: getattr(batches, one.name) for one in fields(Batches)}
        return cls(**given, base=batches)

    def _augmented(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        assert self.base is not None  # noqa: S101 - for the type checker: `of` sets it
        return self.base._augmented(inputs, labels)

    def _plain(self, done: int) -> Iterator[tuple[Tensor, Tensor]]:
        rows = balanced_rows(self.split.labels.cpu(), self.order)
        parts = torch.split(rows, self.size)[done:]
        labels = [self.split.labels[part.to(self.split.labels.device)] for part in parts]
        yield from zip(self._inputs(parts, len(rows), done), labels, strict=True)

    def _inputs(self, parts: tuple[Tensor, ...], count: int, done: int) -> Iterator[Tensor]:
        images = self.split.inputs
        if not isinstance(images, Images):
            yield from (images[part.to(images.device)] for part in parts)
            return
        positions = None
        if self.augmentation.window:
            positions = torch.split(torch.rand((count, 2), generator=self.order), self.size)[done:]
        yield from images.stream(parts, positions)


@dataclass
class RetrainedSession(ShownSession):
    """A session of two stages: it trains the whole network, then its last layer from scratch on balanced batches."""

    second: bool = False
    classifier: str = ""

    @classmethod
    def prepare(cls, trial: Trial) -> RetrainedSession:
        """Return a fresh session.

        Raises:
            UserError: if the network's last layer is not linear.
        """
        session = cast("RetrainedSession", super().prepare(trial))
        session.classifier = last_layer(session.model, session.dataset.classes, bias=False)
        return session

    @property
    def _first_steps(self) -> int:
        return (self.recipe.epochs - self._later_epochs) * self.epoch_steps

    @property
    def _later_epochs(self) -> int:
        return cast("RetrainedClassifier", self.recipe.after).epochs

    def advance(self, pause: Callable[[], bool]) -> Tensor | None:
        """Train to the end of the epoch, or until ``pause`` returns True after a step; see :meth:`Session.advance`."""
        if self.step >= self._first_steps and not self.second:
            self._begin_second()
            initial = initialised(self.trial, self.dataset).get_submodule(self.classifier).state_dict()
            self.model.get_submodule(self.classifier).load_state_dict(initial)
        return super().advance(pause)

    def _begin_second(self) -> None:
        """Train only the last layer from now on, on balanced batches."""
        self.second = True
        classifier = self.model.get_submodule(self.classifier)
        self.model.requires_grad_(False)
        classifier.requires_grad_(True)
        parameters = [*classifier.parameters(), *self.loss.module.parameters()]
        self.optimizer = make_optimizer(self.recipe, parameters)
        self.batches = BalancedBatches.of(self.batches)

    def _step(self, inputs: Tensor, target: Tensor) -> Tensor:
        if self.second:
            self.model.eval()  # running statistics stay as they are, and dropout is off
        return super()._step(inputs, target)

    def rate(self, member: int = 0, step: int | None = None) -> float:  # noqa: ARG002 - there is one member
        """Return the learning rate of a step, by default the last one: each stage has the recipe's schedule."""
        step = self.step - 1 if step is None else step
        later = step >= self._first_steps
        epochs = self._later_epochs if later else self.recipe.epochs - self._later_epochs
        warmup = 0.0 if later else self.recipe.warmup
        recipe = replace(self.recipe, epochs=epochs, warmup=warmup, after=None)
        return learning_rate(recipe, step - self._first_steps * later, epochs * self.epoch_steps)

    def state(self) -> dict[str, object]:
        """Return all that the next steps depend on."""
        return {**super().state(), "second": self.second}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a state that :meth:`state` returned."""
        if state["second"]:
            self._begin_second()
        super().load_state(state)
