"""Averages of a network's weights over the steps of its training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from topk_platform.specs import EMA, SWA, Recipe

__all__ = ["AVERAGES", "Average", "ExponentialAverage", "MeanOfEpochs"]

_SLOWER = 9  # steps: step t averages with min(decay, t / (t + 9))


class Average(Protocol):
    """An average of weights and buffers, by name."""

    values: dict[str, Tensor]
    count: int
    of_epochs: bool

    def note(self, weights: Mapping[str, Tensor], step: int, epoch_steps: int) -> None:
        """Process the weights after a step.

        Args:
            weights: The current weights, which change in place later.
            step: From 1.
            epoch_steps: Steps of an epoch.
        """
        ...


class ExponentialAverage:
    """The average of :class:`~topk_platform.specs.EMA`.

    Args:
        recipe: The recipe.
        weights: The initial ones.
    """

    of_epochs = False

    def __init__(self, recipe: Recipe, weights: Mapping[str, Tensor]) -> None:
        assert isinstance(recipe.average, EMA)  # noqa: S101 - for the type checker: the table's key says so
        self._decay = recipe.average.decay
        self.values = _copied(weights)
        self.count = 0

    def note(self, weights: Mapping[str, Tensor], step: int, epoch_steps: int) -> None:
        """Move the average towards the weights."""
        del epoch_steps
        self.count = step
        _move(self.values, weights, 1 - min(self._decay, step / (step + _SLOWER)))


class MeanOfEpochs:
    """The mean of :class:`~topk_platform.specs.SWA`; empty until the first epoch that counts has ended.

    Args:
        recipe: The recipe.
        weights: The initial ones.
    """

    of_epochs = True

    def __init__(self, recipe: Recipe, weights: Mapping[str, Tensor]) -> None:
        del weights
        assert isinstance(recipe.average, SWA)  # noqa: S101 - as above
        self._begins = recipe.average.start * recipe.epochs
        self.values: dict[str, Tensor] = {}
        self.count = 0

    def note(self, weights: Mapping[str, Tensor], step: int, epoch_steps: int) -> None:
        """Add the weights to the mean at the end of an epoch that counts; do nothing after other steps."""
        epoch, rest = divmod(step, epoch_steps)
        if rest or epoch <= self._begins:
            return
        self.count += 1
        if self.count == 1:
            self.values = _copied(weights)
        else:
            _move(self.values, weights, 1 / self.count)


AVERAGES: dict[str, Callable[[Recipe, Mapping[str, Tensor]], Average]] = {
    "EMA": ExponentialAverage,
    "SWA": MeanOfEpochs,
}
"""The averages by the names of their specs."""


def _copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in weights.items()}


def _move(average: Mapping[str, Tensor], weights: Mapping[str, Tensor], share: float) -> None:
    """Move an average towards weights by a share of the distance, in place; whole numbers are copied."""
    for name, value in weights.items():
        if value.is_floating_point():
            average[name].lerp_(value.detach(), share)
        else:
            average[name].copy_(value)


def state_of(average: Average | None) -> dict[str, Any]:
    """Return an average as tensors and plain data."""
    return {} if average is None else {"values": _copied(average.values), "count": average.count}


def load_state(average: Average | None, state: Mapping[str, Any], like: Mapping[str, Tensor]) -> None:
    """Restore an average from what :func:`state_of` returned, on the device of the weights ``like``."""
    if average is not None:
        average.values = {n: v.to(like[n].device, copy=True) for n, v in state["values"].items()}
        average.count = state["count"]
