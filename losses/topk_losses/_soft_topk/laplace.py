"""The soft top-K of LapSum: the Laplace probability of each class to exceed a common threshold, with sum K.

With F the distribution function of the Laplace distribution, ``p_i = F((s_i - b) / α)`` with b such that ``Σ p_i = K``.
In units of α, if j scores lie above b,

    Σ p_i = j - A e^b / 2 + B e^-b / 2,    A = Σ_{i<=j} exp(-s_[i]),    B = Σ_{i>j} exp(s_[i]),

so ``e^b`` is the positive root of ``A x² + 2 (K - j) x - B``. It is computed without cancellation: with ``d = K - j``
and ``r = |d| + sqrt(d² + A B)``, b is ``log(B / r)`` for ``d > 0``, ``log(r / A)`` for ``d < 0`` and ``log(B / A) / 2``
for ``d = 0``. ``A B`` is at most ``j (L - j)`` for scores of any range. To find j: a score is at least b if and only if
the sum with this score in place of b is at most K.

Each of the j classes has ``p_i >= 1/2``, so ``j <= 2 K``. Hence only the 2K + 1 largest scores are sorted, and the
others enter B through one sum. Computations for the 2K + 1 largest are in float64.

The threshold is between the K-th and the (K+1)-th largest score, or at most ``log L`` beyond them: further up, the
classes after the K - 1 best would sum to less than 1; further down, the K + 1 best alone would sum to more than K.
Distances from the nearer of these two scores have small rounding errors, so float32 distances from b are computed as
the sum of this distance and the rest.

The gradient does not require differentiating b. With the densities ``f_i`` at the threshold and ``w_l = f_l / Σ f``,
``∂p_i / ∂s_l = f_i (δ_il - w_l)``, and the gradient of ``-log p_y`` is ``(w_l - δ_yl) f_y / p_y``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from topk_losses._core.autograd import RuleOfLabels, in_forward_mode
from topk_losses._core.shapes import with_nan
from topk_losses._rows.exponentials import Kept, kept_and_sum, multiples
from topk_losses._rows.selection import largest

__all__ = ["LapSum", "soft_topk"]

ABSENT = torch.finfo(torch.float32).min / 4  # replaces the logarithm of 0: logsumexp has no gradient at -inf


class _Leading(NamedTuple):
    """The largest scores of each row, from which the threshold is computed.

    Attributes:
        places: classes of the m = 2K + 1 (or L) largest scores, descending, ``(M, m)``.
        values: these scores minus the K-th largest, in units of α, float64, ``(M, m)``; 0 in rows without a threshold.
        centre: the K-th largest score itself, ``(M, 1)``.
        second: the (K+1)-th, ``(M, 1)``.
        last: the m-th, ``(M, 1)``.
        few: whether at most K classes are unmasked, ``(M, 1)``; such a row has no threshold.
        invalid: whether the row contains NaN or +inf, ``(M, 1)``.
    """

    places: Tensor
    values: Tensor
    centre: Tensor
    second: Tensor
    last: Tensor
    few: Tensor
    invalid: Tensor


def _leading(rows: Tensor, k: int, alpha: float) -> _Leading:
    top = largest(rows, min(2 * k + 1, rows.shape[1]))
    scores = top.values.detach()
    second = scores[:, min(k, rows.shape[1] - 1)].unsqueeze(1)
    few = second == -torch.inf if k < rows.shape[1] else torch.ones_like(second, dtype=torch.bool)
    centre, second = scores[:, k - 1 : k].masked_fill(few, 0), second.masked_fill(few, 0)
    values = ((top.values.double() - centre) / alpha).masked_fill(few, 0)
    last = scores[:, -1:].masked_fill(scores[:, -1:] == -torch.inf, 0)
    return _Leading(top.indices, values, centre, second, last, few, ~(scores[:, :1] < torch.inf))


def _threshold(values: Tensor, log_rest: Tensor, k: int) -> Tensor:
    """The threshold b ``(M, 1)``, from the largest values, descending ``(M, m)``, and ``log Σ exp`` of the others."""
    ranks = torch.arange(1, values.shape[1] + 1, device=values.device)
    with torch.no_grad():
        below = torch.cat([log_rest, values.flip(1)], 1).logcumsumexp(1).flip(1)[:, 1:]  # log B for j = 1 … m
        above = (-values).logcumsumexp(1)  # log A
        half = ((below - values).exp() - (above + values).exp()) / 2
        j = (ranks + half <= k).sum(1, keepdim=True)
    outside = ranks > j
    log_a = (-values).masked_fill(outside, ABSENT).logsumexp(1, keepdim=True)
    log_b = torch.cat([values.masked_fill(~outside, ABSENT), log_rest], 1).logsumexp(1, keepdim=True)
    d = k - j
    size = d.abs().clamp(min=1)  # d = 0 needs no root, and a root of 0 would have no derivative
    log_r = torch.log(size + torch.sqrt(size * size + torch.exp(log_a + log_b)))
    away = torch.where(d > 0, log_b - log_r, log_r - log_a)
    return torch.where(d == 0, (log_b - log_a) / 2, away)


def _differentiable(rows: Tensor, k: int, alpha: float) -> tuple[Tensor, _Leading]:
    """The threshold b, and the scores that it is computed from, in differentiable operations."""
    leading = _leading(rows, k, alpha)
    rest = ((rows - leading.last) / alpha).scatter(1, leading.places, ABSENT).logsumexp(1, keepdim=True)
    offset = (leading.last.double() - leading.centre) / alpha
    log_rest = (rest.double() + offset).masked_fill(leading.few, 0)
    return _threshold(leading.values, log_rest, k), leading


def _memberships(rows: Tensor, k: int, alpha: float) -> tuple[Tensor, Tensor]:
    """The p and ``min(p, 1 - p)``, ``(M, L)`` each, in differentiable operations."""
    b, leading = _differentiable(rows, k, alpha)
    gap = (leading.second.double() - leading.centre) / alpha
    upper = b.detach().abs() <= (b.detach() - gap).abs()
    reference = torch.where(upper, leading.centre, leading.second)
    offset = (b - gap.masked_fill(upper, 0)).to(rows.dtype)
    x = (rows - reference) / alpha - offset
    tail = torch.exp(-x.abs()) / 2
    p = torch.where(x > 0, 1 - tail, tail)
    p = torch.where(leading.few, (rows.detach() > -torch.inf).to(p.dtype), p)
    return with_nan(p, leading.invalid), with_nan(tail.masked_fill(leading.few, 0), leading.invalid)


class _SoftTopK(torch.autograd.Function):
    """The memberships p and ``min(p, 1 - p) = αf``, from which the gradient takes one pass.

    The second keeps its accuracy where p rounds to 1, so gradients through the threshold stay right.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor, k: int, alpha: float) -> tuple[Tensor, Tensor]:
        return _memberships(rows, k, alpha)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, float], output: tuple[Tensor, Tensor]) -> None:
        ctx.alpha = inputs[2]
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, by_p: Tensor, by_tail: Tensor) -> tuple[Tensor, None, None]:
        p, tail = ctx.saved_tensors
        gradient = by_p + torch.where(p > 0.5, -by_tail, by_tail)
        total = tail.sum(1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)
        mean = (tail * gradient).sum(1, keepdim=True) / total
        return tail * (gradient - mean) / ctx.alpha, None, None


def soft_topk(rows: Tensor, k: int, alpha: float) -> Tensor:
    """The memberships p ``(M, L)`` of rows ``(M, L)``."""
    if torch.compiler.is_compiling() or in_forward_mode():
        return _memberships(rows, k, alpha)[0]
    p: Tensor = _SoftTopK.apply(rows, k, alpha)[0]
    return p


@dataclass(frozen=True)
class LapSum(RuleOfLabels[Kept]):
    """The rule of the loss ``-log p_y``."""

    keeps = Kept

    k: int
    alpha: float

    def of_labels(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The losses ``(M, C)`` for labels ``(M, C)`` in differentiable operations."""
        b, leading = _differentiable(rows, self.k, self.alpha)
        return self._of_labels(rows, labels, b, leading)[0]

    def _of_labels(self, rows: Tensor, labels: Tensor, b: Tensor, leading: _Leading) -> tuple[Tensor, Tensor]:
        """The losses, and ``f_y / p_y`` as a detached factor of their gradient."""
        x = (rows.gather(1, labels).double() - leading.centre) / self.alpha - b
        tail = torch.exp(-x.abs()) / 2
        losses = torch.where(x > 0, -torch.log1p(-tail), math.log(2) - x)
        losses = with_nan(losses.to(rows.dtype).masked_fill(leading.few, 0), leading.invalid)
        slope = torch.where(x > 0, tail / (1 - tail), 1) / self.alpha
        return losses, slope.detach().masked_fill(leading.few, 0)

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Kept]:  # noqa: ARG002
        """The losses, and what the gradient needs; the 2K + 1 largest classes are kept one by one."""
        leading = _leading(scores, self.k, self.alpha)
        exponentials, total = kept_and_sum(scores, leading.last, leading.places, 1 / self.alpha)
        offset = (leading.last.double() - leading.centre) / self.alpha
        log_rest = (total.log() + offset).clamp_(min=ABSENT)
        b = _threshold(leading.values, log_rest, self.k)
        losses, slope = self._of_labels(scores, labels, b, leading)
        weights = torch.cat([-(leading.values - b).abs(), log_rest - b], 1)
        log_total = weights.logsumexp(1, keepdim=True)
        large = (weights[:, :-1] - log_total).exp() * slope
        # All classes after the 2K + 1 largest are below b.
        unit = (offset - b - log_total).clamp(max=0).exp() * slope
        numbers = torch.cat([unit, slope], 1)
        return losses.squeeze(1), Kept(
            exponentials, leading.places, large.to(scores.dtype), numbers.to(scores.dtype)
        )

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Kept) -> tuple[Tensor]:
        """The gradient ``(w_l - δ_yl) f_y / p_y``."""
        exponentials, places, large, numbers = kept
        along = gradient.unsqueeze(1)
        by_score = multiples(exponentials, scores, numbers[:, :1] * along, 1 / self.alpha)
        by_score.scatter_(1, places, large * along).scatter_add_(1, labels, -numbers[:, 1:] * along)
        return (by_score,)
