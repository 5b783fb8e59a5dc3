"""The expected k-th largest score, relative to the largest or to a label's: the choice of the rule for a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from topk_losses._core.autograd import Rule, losses_by
from topk_losses._core.backends import choose
from topk_losses._core.checks import values_are_readable
from topk_losses._expected import cpu
from topk_losses._expected.plain import below_largest, relative
from topk_losses._expected.quadrature import rank_mean
from topk_losses._rows.selection import Groups, grouped

__all__ = ["LongRows", "expected_above", "expected_below_largest"]

SHORTEST = 64  # rows with fewer classes than this, or than 8 k, are computed by plain.py


def expected_below_largest(scores: Tensor, k: int, epsilon: float) -> Tensor:
    """The expectation minus the largest score, which is treated as a constant: ``(N, L)`` to ``(N,)``, float64.

    This difference stays accurate when all scores have a large common offset, and being float64 also when the largest
    score is far above the others. For rows with NaN or +inf the result is undefined.
    """
    if _backend(scores, k, epsilon) == "numba":
        return _compiled(scores, None, k, epsilon)
    if (
        epsilon > 0
        and scores.shape[1] >= max(SHORTEST, 8 * k)
        and values_are_readable(scores)
        and len(scores)
    ):
        return _long(scores, None, k, epsilon)
    return below_largest(scores, k, epsilon)


def expected_above(scores: Tensor, labels: Tensor, k: int, epsilon: float) -> Tensor:
    """The expectation minus the scores of labels ``(N, C)``: ``(N, C)``; undefined for rows with NaN or +inf."""
    if labels.shape[1] == 1 and _backend(scores, k, epsilon) == "numba":
        return _compiled(scores, labels, k, epsilon).unsqueeze(1).to(scores.dtype)
    own = scores.gather(1, labels).double() - scores.detach().amax(1, keepdim=True)
    return (expected_below_largest(scores, k, epsilon).unsqueeze(1) - own).to(scores.dtype)


def _backend(scores: Tensor, k: int, epsilon: float) -> str:
    return choose("expected_topk", numba=lambda _: cpu.refusal(scores, k, epsilon))


def _compiled(scores: Tensor, labels: Tensor | None, k: int, epsilon: float) -> Tensor:
    """The expectation from the kernels, minus the score of one label per row, or minus the largest score."""
    levels = cpu.levels(scores.detach(), k, epsilon)
    usual = levels.counts >= 0
    if not usual.all():
        return _apart(_compiled, usual, scores, labels, k, epsilon)
    rule = cpu.NumbaExpected(k, epsilon, levels, labels is not None)
    return losses_by(rule, scores, _no_labels(scores) if labels is None else labels)


def _long(scores: Tensor, labels: None, k: int, epsilon: float) -> Tensor:
    """:func:`expected_below_largest` in torch, for long rows."""
    groups = grouped(scores.detach(), k)
    usual = (groups.largest < torch.inf) & (groups.centre > -torch.inf)
    if not usual.all():
        return _apart(_long, usual, scores, labels, k, epsilon)
    return losses_by(LongRows(k, epsilon, groups), scores, _no_labels(scores))


def _apart(
    function: Callable[..., Tensor],
    usual: Tensor,
    scores: Tensor,
    labels: Tensor | None,
    k: int,
    epsilon: float,
) -> Tensor:
    """A function's results for the usual rows, and :func:`relative`'s for those with NaN, +inf or too few classes."""
    result = scores.new_empty(len(scores), dtype=torch.float64)
    for chosen, loss in ((usual, function), (~usual, relative)):
        rows = chosen.nonzero().squeeze(1)
        if len(rows):
            own = None if labels is None else labels.index_select(0, rows)
            result = result.index_put((rows,), loss(scores.index_select(0, rows), own, k, epsilon))
    return result


def _no_labels(scores: Tensor) -> Tensor:
    return torch.empty(len(scores), 0, dtype=torch.int64, device=scores.device)


class Kept(NamedTuple):
    """What the gradient needs."""

    classes: Tensor
    """The classes that can be the k-th largest ``(M, N)``."""
    probabilities: Tensor
    """Their probabilities to be it ``(M, N)``."""


@dataclass(frozen=True, eq=False)
class LongRows(Rule[Any]):
    """The expected k-th largest minus the largest score, which is treated as a constant.

    Attributes:
        k: Rank.
        epsilon: ε.
        groups: The scores in groups, with finite centres.
    """

    keeps = Kept

    k: int
    epsilon: float
    groups: Groups

    def plain(self, scores: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        """The values, computed without reading the scores."""
        return below_largest(scores, self.k, self.epsilon)

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Any]:  # noqa: ARG002
        """The values, and what the gradient needs."""
        ranked = rank_mean(scores, self.groups, self.k, self.epsilon, with_gradient)
        offset = ranked.hard.double() - self.groups.largest.double()
        return offset + self.epsilon * ranked.shift, Kept(ranked.classes, ranked.probabilities)

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Any) -> tuple[Tensor]:  # noqa: ARG002
        """The gradient: each row's probabilities times that of its value."""
        slope = torch.zeros_like(scores, memory_format=torch.contiguous_format)
        slope.scatter_add_(1, kept.classes.t(), (kept.probabilities * gradient).t().to(slope.dtype))
        return (slope,)
