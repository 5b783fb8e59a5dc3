"""Top-k accuracy with ties told truthfully: plain, averaged over classes, and turned around."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from topk_platform.specs import accuracy_names, candidate_names

__all__ = ["Scorer", "candidates", "macro_average", "places", "topk_credit"]


def places(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many scores are above the target's, and how many others equal it; a row with a NaN is behind all.

    Args:
        scores: ``(..., L)``.
        target: int64 ``(...)``.

    Returns:
        int64 ``(...)`` each.
    """
    own = scores.gather(-1, target.unsqueeze(-1))
    greater = (scores > own).sum(-1)
    tied = (scores == own).sum(-1) - 1
    nan = scores.isnan().any(-1)
    return greater.masked_fill(nan, scores.shape[-1]), tied.masked_fill(nan, 0)


def topk_credit(scores: Tensor, target: Tensor, topk: Sequence[int]) -> Tensor:
    """Return each sample's expected top-k hit under random tie-breaking.

    With g scores above that of the target and t others equal to it, the credit is
    ``clip((k - g) / (t + 1), 0, 1)``. A row with a NaN scores 0.

    Args:
        scores: ``(..., L)``.
        target: int64 ``(...)``.
        topk: The k wanted.

    Returns:
        float64 ``(len(topk), ...)``.

    Example:
        >>> topk_credit(torch.zeros(1, 4), torch.tensor([2]), [1, 2]).flatten().tolist()
        [0.25, 0.5]
    """
    return _credit(*places(scores, target), topk)


def _credit(greater: Tensor, tied: Tensor, topk: Sequence[int]) -> Tensor:
    return torch.stack([((k - greater).double() / (tied + 1)).clamp(0, 1) for k in topk])


def candidates(scores: Tensor, target: Tensor, accuracy: float) -> Tensor:
    """Return the least K whose top-K accuracy reaches ``accuracy``; NaN where even K = L does not.

    Args:
        scores: ``(..., N, L)``.
        target: int64 ``(..., N)``.
        accuracy: In ``(0, 1]``.

    Returns:
        float64 ``(...)``.

    Source:
        sawada2020, V-B.

    Example:
        >>> scores = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        >>> candidates(scores, torch.tensor([0, 1]), 0.99).item()
        2.0
    """
    return _candidates(*places(scores, target), scores.shape[-1], accuracy)


def _candidates(greater: Tensor, tied: Tensor, classes: int, accuracy: float) -> Tensor:
    # A sample's credit rises by 1 / (t + 1) at each K from g + 1 to g + t + 1: differences, summed up twice.
    rise = torch.zeros((*greater.shape[:-1], classes + 3), dtype=torch.float64, device=greater.device)
    step = 1 / (tied + 1).double()
    rise.scatter_add_(-1, greater + 1, step)
    rise.scatter_add_(-1, greater + tied + 2, -step)
    curve = rise.cumsum(-1).cumsum(-1)[..., 1 : classes + 1] / greater.shape[-1]
    enough = curve >= accuracy - 1e-9  # sums of fractions
    return torch.where(enough.any(-1), enough.double().argmax(-1) + 1.0, torch.nan)


def macro_average(credit: Tensor, target: Tensor, classes: int) -> Tensor:
    """Return the mean over the classes that occur of each class's own mean credit.

    Args:
        credit: ``(..., N)``.
        target: int64 ``(..., N)``, or of a shape that expands to the credit's.
        classes: L.

    Returns:
        ``(...)``.
    """
    return _mean_of_classes(*_by_class(credit, target, classes), torch.ones((), dtype=torch.bool))


def _by_class(credit: Tensor, target: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    target = target.expand_as(credit)
    empty = torch.zeros((*credit.shape[:-1], classes), dtype=credit.dtype, device=credit.device)
    counts = empty.scatter_add(-1, target, torch.ones_like(credit))
    return empty.scatter_add(-1, target, credit), counts


def _mean_of_classes(sums: Tensor, counts: Tensor, group: Tensor) -> Tensor:
    # No boolean indexing, which would wait for the device; NaN where the group has no class.
    chosen = group.to(counts.device) & (counts > 0)
    means = torch.where(chosen, sums / counts.clamp(min=1), 0)
    return means.sum(-1) / chosen.sum(-1)


@dataclass(frozen=True)
class Scorer:
    """Measures a split for one network or a stack of them, without waiting for the device.

    Args:
        topk: The k of the accuracies.
        targets: Accuracies of which the least K is wanted that reaches them.
        groups: Masks over the classes, bool ``(..., L)``: many-, medium- and few-shot.

    Example:
        >>> scorer = Scorer((1,), (), (torch.tensor([True, False]),) + (torch.tensor([False, True]),) * 2)
        >>> values = scorer(torch.eye(2), torch.tensor([0, 0]))
        >>> scorer.named(values.tolist())
        {'top1': 0.5, 'macro_top1': 0.5, 'many_top1': 0.5}
    """

    topk: tuple[int, ...]
    targets: tuple[float, ...]
    groups: tuple[Tensor, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What is measured."""
        return accuracy_names(self.topk) + candidate_names(self.targets)

    def __call__(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the measures, float64 ``(..., names)``, of scores ``(..., N, L)`` and labels ``(..., N)``."""
        greater, tied = places(scores, target)
        credit = _credit(greater, tied, self.topk)
        sums, counts = _by_class(credit, target, scores.shape[-1])
        everything = torch.ones_like(counts[0], dtype=torch.bool)
        means = [_mean_of_classes(sums, counts, group) for group in (everything, *self.groups)]
        least = [_candidates(greater, tied, scores.shape[-1], accuracy)[None] for accuracy in self.targets]
        return torch.cat([credit.mean(-1), *means, *least]).movedim(0, -1)

    def named(self, values: Sequence[float]) -> dict[str, float]:
        """Return the measures by name, without those of groups that have no class in the split."""
        return {name: value for name, value in zip(self.names, values, strict=True) if not math.isnan(value)}
