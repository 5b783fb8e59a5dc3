"""The losses of a stack's members in one call, also where the members' values differ."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from topk_platform.data import Dataset
from topk_platform.specs import Scalar, Trial, numbers
from topk_platform.training.loss_table import LOSSES
from topk_platform.training.losses import BoundLoss, build_loss, takes_class_counts

__all__ = ["Together", "losses_together"]


class _Scale(NamedTuple):
    """A loss's parameter t with ``L(s; t) = t · L(s / t; 1)``, and how a margin is part of the scores, if it has one.

    Args:
        name: The parameter's name.
        shift: Returns what a loss without a margin takes from the label's score in place of a margin, given K and the
            margin; None for a loss without one.
    """

    name: str
    shift: Callable[[int, float], float] | None = None


_SCALES: Mapping[str, _Scale] = {
    "calibrated_topk_hinge": _Scale("margin"),
    "convex_topk_hinge": _Scale("margin"),
    "cross_entropy": _Scale("temperature"),
    # α - s_y / K is -(s_y - K α) / K
    "smooth_topk_svm": _Scale("tau", lambda k, margin: k * margin),
    "topk_hinge": _Scale("margin"),
}
_MARGIN = "margin"


@dataclass(frozen=True)
class Together:
    """One call of a loss for all members.

    Args:
        loss: The loss: that of each member, or that with t = 1 and without a margin.
        scale: Each member's t, ``(members, 1, 1)``; None if all members have the same loss.
        shift: What is taken from the score of the label, over t, likewise; None without a margin.
    """

    loss: BoundLoss
    scale: Tensor | None = None
    shift: Tensor | None = None

    def __call__(self, scores: Tensor, target: Tensor, generators: Sequence[Generator]) -> Tensor:
        """Return the mean losses of scores ``(members, n, L)`` and labels ``(members, n)``, ``(members,)``."""
        shape = scores.shape[:2]
        if self.scale is not None:
            scores = scores / self.scale
        if self.shift is not None:
            scores = scores.scatter_add(2, target[:, :, None], -self.shift.expand(*shape, 1))
        flat = self.loss.per_sample(scores.flatten(0, 1), target.flatten(0, 1), generators)
        losses = flat.view(shape).mean(1)
        return losses if self.scale is None else losses * self.scale.view(-1)


def losses_together(
    trials: Sequence[Trial], datasets: Sequence[Dataset], losses: Sequence[BoundLoss], epoch: int
) -> Together | None:
    """Return the losses of an ensemble's members as one call in an epoch, or None if they need one each.

    Args:
        trials: The trials.
        datasets: Their data.
        losses: Their losses in this epoch.
        epoch: From 0.
    """
    arm = trials[0].arm
    counts = [dataset.class_counts for dataset in datasets]
    same = not takes_class_counts(arm.loss) or all(torch.equal(count, counts[0]) for count in counts)
    if not (same and all(loss.separable for loss in losses)):
        return None
    own = [numbers(trial.setting.own, epoch, arm.recipe.epochs) for trial in trials]
    if all(values == own[0] for values in own):
        return Together(losses[0])
    if (scale := _SCALES.get(arm.loss.name)) is None:
        return None
    values = [_with_defaults(arm.loss.name, given) for given in own]
    of_scale = {scale.name} | ({_MARGIN} if scale.shift else set())
    rest = [{name: value for name, value in each.items() if name not in of_scale} for each in values]
    if any(others != rest[0] for others in rest) or any(float(each[scale.name]) <= 0 for each in values):
        return None
    unit: dict[str, Any] = {**rest[0], scale.name: 1.0, **({_MARGIN: 0.0} if scale.shift else {})}
    module = build_loss(arm.loss, unit, arm.k, counts[0]).to(trials[0].device)
    scales = _column([float(each[scale.name]) for each in values], trials[0].device)
    shifts = None
    if scale.shift is not None:
        shifts = (
            _column([scale.shift(arm.k, float(each[_MARGIN])) for each in values], trials[0].device) / scales
        )
    return Together(BoundLoss(module, losses[0].generator), scales, shifts)


def _with_defaults(loss: str, own: Mapping[str, Scalar]) -> dict[str, Any]:
    takes = inspect.signature(LOSSES[loss]).parameters.values()
    return {p.name: p.default for p in takes if p.default is not p.empty} | dict(own)


def _column(values: Sequence[float], device: str) -> Tensor:
    return torch.tensor(values, device=device)[:, None, None]
