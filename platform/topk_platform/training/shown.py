"""A learner that shows other weights than those that it trains: their average, or a changed last layer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from topk_platform.data import Images
from topk_platform.specs import SWA, LogitAdjustment, Recipe, Trial
from topk_platform.training.after import AFTERS, last_layer
from topk_platform.training.averaging import AVERAGES, Average, load_state, state_of
from topk_platform.training.session import Session
from topk_platform.training.setup import generator_of
from topk_platform.training.steps.batches import prepared
from topk_platform.training.steps.depth import drop_blocks
from topk_platform.training.steps.optim import learning_rate
from topk_platform.training.steps.stepping import precision

__all__ = ["ShownSession", "check_additions"]


def check_additions(model: nn.Module, recipe: Recipe, classes: int) -> None:
    """Raise ``UserError`` unless a recipe's additions are possible with a network.

    Args:
        model: The network. The check may change it, so it must not be used afterwards.
        recipe: The recipe.
        classes: L.
    """
    if recipe.after is not None:
        last_layer(model, classes, bias=isinstance(recipe.after, LogitAdjustment))
    if recipe.stochastic_depth:
        drop_blocks(model, recipe.stochastic_depth)


@contextmanager
def _plain_means(model: nn.Module) -> Iterator[None]:
    """Reset the running statistics; in the block, they become the plain means over the batches.

    The momenta are restored even after an error, because later trials may share a compiled network.
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


@dataclass
class ShownSession(Session):
    """A session that validates, keeps and exports weights that are computed from those that it trains."""

    average: Average | None = None
    layer: str = ""  # the last layer's name, if a step after training changes it
    made: tuple[int, dict[str, Tensor]] | None = (
        None  # the mean weights with their statistics, and how many weights were averaged
    )

    @classmethod
    def prepare(cls, trial: Trial) -> ShownSession:
        """Return a fresh session.

        Raises:
            UserError: if the network has no last layer or no residual blocks, and the recipe needs them.
        """
        session = cast("ShownSession", super().prepare(trial))
        recipe, model = session.recipe, session.model
        if recipe.average is not None:
            session.average = AVERAGES[recipe.additions["average"]](recipe, model.state_dict())
        if recipe.additions.get("after", "") in AFTERS:
            bias = recipe.additions["after"] == "LogitAdjustment"
            session.layer = last_layer(model, session.dataset.classes, bias)
        if recipe.stochastic_depth:
            drop_blocks(model, recipe.stochastic_depth)
        return session

    def _step(self, inputs: Tensor, target: Tensor) -> Tensor:
        loss = super()._step(inputs, target)
        if self.average is not None:
            self.average.note(self.model.state_dict(), self.step, self.epoch_steps)
        return loss

    def rate(self, member: int = 0, step: int | None = None) -> float:
        """Return the learning rate of a step, by default the last one; with ``SWA`` it stays once averaging begins."""
        average = self.recipe.average
        if not isinstance(average, SWA):
            return super().rate(member, step)
        steps = self.recipe.epochs * self.epoch_steps
        step = self.step - 1 if step is None else step
        return learning_rate(self.recipe, min(step, int(average.start * steps)), steps)

    def validate(self) -> Tensor:
        """Return ``(1, 1 + measures)`` of the validation split, scored with the shown weights."""
        with self._holding(self.weights()):
            return super().validate()

    def weights(self, member: int = 0) -> dict[str, Tensor]:
        """Return a copy of the shown weights and buffers."""
        shown = super().weights(member) if self.average is None else self._averaged(self.average)
        if self.layer:
            after = AFTERS[self.recipe.additions["after"]]
            shown = after(self.recipe, shown, self.layer, self.dataset.class_counts)
        return shown

    def _averaged(self, average: Average) -> dict[str, Tensor]:
        if not average.values:
            return super().weights()
        values = {name: value.clone() for name, value in average.values.items()}
        if not average.of_epochs or not any(isinstance(m, _BatchNorm) for m in self.model.modules()):
            return values
        if self.made is None or self.made[0] != average.count:
            with self._holding(values):
                self._recompute_statistics()
                self.made = average.count, super().weights()
        return {name: value.clone() for name, value in self.made[1].items()}

    @torch.no_grad()
    def _recompute_statistics(self) -> None:
        """Set the running statistics to those of the training samples without augmentation."""
        self.model.eval()
        numerics = self.recipe.numerics
        with _plain_means(self.model):
            for part in self._parts():
                if len(part) > 1:  # one sample alone may have no variance
                    with precision(self.trial.device, numerics.bfloat16):
                        self.model(prepared(part, self.normalisation, numerics.channels_last))

    def _parts(self) -> Iterator[Tensor]:
        """Return the training inputs in parts as large as in training, or a little smaller.

        The plain mean over parts needs parts of equal size, up to one sample, and a random order, because data often
        lie sorted by class. The order is always the same.
        """
        split, recipe = self.dataset.train, self.recipe
        size = max(math.ceil(recipe.batch_size / recipe.accumulate), 2)
        order = torch.randperm(len(split), generator=generator_of(self.trial, "statistics"))
        parts = order.tensor_split(math.ceil(len(order) / size))
        inputs = split.inputs
        if isinstance(inputs, Images):
            return inputs.stream(parts)
        return (inputs[rows.to(inputs.device)] for rows in parts)

    @contextmanager
    def _holding(self, weights: dict[str, Tensor]) -> Iterator[None]:
        """Give the network these weights in the block, and the trained ones again afterwards."""
        trained = super().weights()
        self.model.load_state_dict(weights)
        try:
            yield
        finally:
            self.model.load_state_dict(trained)

    def state(self) -> dict[str, object]:
        """Return all that the next steps depend on."""
        return {**super().state(), "model": super().weights(), "average": state_of(self.average)}

    def load_state(self, state: dict[str, object]) -> None:
        """Continue from a state that :meth:`state` returned."""
        super().load_state(state)
        load_state(self.average, cast("dict[str, Any]", state["average"]), self.model.state_dict())
        self.made = None
