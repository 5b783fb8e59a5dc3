"""Top-K entropy: a softmax in which no other class has more than 1/K of the other classes' total probability.

The loss is the maximum of ``⟨x, a⟩ - Σ x_j log x_j - (1 - u) log(1 - u)``, with ``a_j = s_j - s_y`` for the classes
``j ≠ y`` and ``u = Σ x_j``, over all x with ``0 <= x_j <= u / K`` and ``u <= 1``. Write ``x = u z``. Then z is in the
simplex with cap 1/K for every u, and the value becomes ``u V + h(u)`` with h the binary entropy and

    V = max { ⟨z, a⟩ - Σ z_j log z_j  |  Σ z_j = 1, 0 <= z_j <= 1/K },

so ``u = sigmoid(V)`` and the loss is ``softplus(V)``. V is a log-sum-exp with a cap: for some t the t largest classes
have 1/K each, and the others share the rest in proportion to ``exp(a_j)``. With ``o_1 >= o_2 >= …`` the sorted scores
of the other classes and ``Z_t = Σ_{j>t} exp(o_j)``,

    V = (1/K) Σ_{j<=t} (o_j + log K) + (1 - t/K) (log Z_t - log(1 - t/K)) - s_y.

With t classes at the cap, the next class would exceed it if ``(K - t) exp(o_{t+1}) > Z_t``. If this fails for some t,
it fails for every larger t, because ``Z_{t+1} = Z_t - exp(o_{t+1}) >= (K - t - 1) exp(o_{t+1})``. So the right t is the
number of those in ``0 … K - 2`` for which it holds; at ``t = K - 1`` it never holds. For the same reason
``z_j = min(1/K, (1 - t/K) exp(o_j) / Z_t)`` for every class, and this z is the gradient of V. V is continuously
differentiable; higher derivatives exist where no class is exactly at its cap.

All exponentials except those of the K largest scores are relative to the (K+1)-th score: none overflows, and for a
label among the K best their sum is at least 1. The K largest are few, and are computed in float64 whatever their range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from topk_losses._core.autograd import RuleOfLabels
from topk_losses._core.checks import check_topk
from topk_losses._core.reduction import Reduction, Shared, reduce_loss, takes_single_rows
from topk_losses._core.shapes import log_sum_without, with_nan_where_invalid
from topk_losses._rows.exponentials import Kept, kept_and_sum, multiples
from topk_losses._rows.selection import among, largest, others_of, places_among

__all__ = ["topk_entropy", "truncated_topk_entropy"]


@takes_single_rows
def topk_entropy(scores: Tensor, target: Tensor, k: int, **shared: Unpack[Shared]) -> Tensor:
    r"""Top-K entropy: cross-entropy in which no other class gets more than 1/K of the other classes' probability.

    .. math::
        \max_x \; \sum_{j \ne y} x_j (s_j - s_y - \log x_j) - (1 - u) \log(1 - u), \qquad
        u = \sum_{j \ne y} x_j \le 1, \quad 0 \le x_j \le u / K

    The maximum is computed exactly, without iteration: it is ``log(1 + exp(V - s_y))`` with V the log-sum-exp of the
    other scores under the cap ``x_j <= u / K``. The gradient is ``x`` for the other classes and ``-u`` for the label.
    The loss is convex and continuously differentiable; higher derivatives exist where no class is exactly at its cap.
    For K = 1 it is cross-entropy, for K = L - 1 the logistic loss of ``s_y`` against the others' mean plus
    ``log(L - 1)``.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and k outside ``[1, L - 1]``.

    References:
        Lapin, Hein, Schiele: Loss Functions for Top-k Error: Analysis and Insights, CVPR 2016; Analysis and
        Optimization of Loss Functions for Multiclass, Top-k, and Multilabel Classification, TPAMI 2017.

    Example:
        >>> import torch
        >>> topk_entropy(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]), k=2)
        tensor(1.0986)
    """
    check_topk(scores, k)
    losses = TopKEntropy(k).losses
    return reduce_loss(losses, scores, target, Reduction(**shared))


@dataclass(frozen=True)
class TopKEntropy(RuleOfLabels[Kept]):
    """The rule of top-K entropy."""

    keeps = Kept

    k: int

    def of_labels(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The losses ``(M, C)`` for labels ``(M, C)`` in differentiable operations."""
        top = largest(rows, self.k + 1)
        next_best, few = _reference(top.values)
        shifted = rows - next_best
        ahead = top.indices[:, : self.k]
        small = shifted.scatter(1, ahead, -torch.inf).exp()
        # The label's own term is at most 1. Where it was part of the sum, exp(o_K) >= 1 is added below, so the
        # subtraction loses no accuracy.
        rest = small.sum(1, keepdim=True) - small.gather(1, labels)
        leading = (top.values.double() - next_best).masked_fill(few, 0)
        places = places_among(ahead, labels, rows)
        value = self._capped(leading, rest.double().masked_fill(few, 1), places)[0]
        own = rows.gather(1, labels).double() - next_best
        own = own.masked_fill(own == -torch.inf, torch.finfo(own.dtype).min)
        losses = -logsigmoid(own - value).to(rows.dtype).masked_fill(few, 0)
        return with_nan_where_invalid(losses, top.values)

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Kept]:  # noqa: ARG002
        """The losses, and what the gradient needs; the K largest classes are kept one by one."""
        top = largest(scores, self.k + 1)
        next_best, few = _reference(top.values)
        ahead = top.indices[:, : self.k]
        exponentials, total = kept_and_sum(scores, next_best, torch.cat([ahead, labels], 1))
        leading = (top.values.double() - next_best).masked_fill_(few, 0)
        rest = total.masked_fill_(few, 1)
        value, log_unit = self._capped(leading, rest, places_among(ahead, labels, scores))
        argument = scores.gather(1, labels).double() - next_best - value
        losses = with_nan_where_invalid(
            (-logsigmoid(argument)).to(scores.dtype).masked_fill(few, 0), top.values
        )
        chance = (-argument).sigmoid().masked_fill(few, 0)
        capped = (leading[:, : self.k] + log_unit).exp().clamp(max=1 / self.k) * chance
        numbers = torch.cat([log_unit.exp() * chance, -chance], 1)
        return losses.squeeze(1), Kept(exponentials, ahead, capped.to(scores.dtype), numbers.to(scores.dtype))

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Kept) -> tuple[Tensor]:
        """The gradient: ``u z_j`` for the other classes, ``-u`` for the label."""
        exponentials, ahead, capped, numbers = kept
        along = gradient.unsqueeze(1)
        by_score = multiples(exponentials, scores, numbers[:, :1] * along)
        by_score.scatter_(1, ahead, capped * along).scatter_(1, labels, numbers[:, 1:] * along)
        return (by_score,)

    def _capped(self, leading: Tensor, rest: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """V without ``-s_y``, and ``log((1 - t/K) / Z_t)``, ``(M, C)`` each, relative to the (K+1)-th score.

        Args:
            leading: The K + 1 largest scores, descending, ``(M, K + 1)``, the last one 0.
            rest: The sum of the exponentials of all classes after the K largest, without the label's, ``(M, C)``.
            places: The rank of the label among the K largest, from 0; K for other labels, ``(M, C)``.
        """
        k = self.k
        others = others_of(leading[:, :k], places)  # o_1 … o_{K-1}
        # o_1 … o_{K-1} contain the K-th best only if the label is among the K best. Otherwise it belongs to the rest.
        last = leading[:, k - 1 : k]
        log_rest = torch.where(
            places < k, rest.masked_fill(places == k, 1).log(), last + torch.log1p(rest * (-last).exp())
        ).unsqueeze(2)
        with torch.no_grad():
            behind = torch.cat([log_rest, others.flip(2)], 2).logcumsumexp(2).flip(2)[..., : k - 1]  # log Z_t
            t = torch.arange(k - 1, device=leading.device)
            count = (others + torch.log((k - t).double()) > behind).sum(2, keepdim=True)
            above = t < count
        log_z = torch.cat([others.masked_fill(above, -torch.inf), log_rest], 2).logsumexp(2)
        share = 1 - count.squeeze(2).double() / k
        total = others.masked_fill(~above, 0).sum(2) / k + (1 - share) * math.log(k)
        return total + share * (log_z - share.log()), share.log() - log_z


def _reference(top: Tensor) -> tuple[Tensor, Tensor]:
    """The (K+1)-th score, or the largest where it is masked; and whether it is masked, ``(M, 1)`` each."""
    first, last = top[:, :1].detach(), top[:, -1:].detach()
    few = last == -torch.inf
    return torch.where(few, first, last), few


@takes_single_rows
def truncated_topk_entropy(scores: Tensor, target: Tensor, k: int, **shared: Unpack[Shared]) -> Tensor:
    r"""Truncated top-K entropy: cross-entropy without the K - 1 highest-scoring of the other classes.

    .. math:: \log\Bigl(1 + \sum_{j \in R} e^{s_j - s_y}\Bigr), \qquad
        R = \{j \ne y\} \text{ without the } K - 1 \text{ largest scores}

    At K = 1 it is cross-entropy.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and k outside ``[1, L - 1]``.

    References:
        Lapin, Hein, Schiele: Loss Functions for Top-k Error: Analysis and Insights, CVPR 2016.

    Example:
        >>> import torch
        >>> truncated_topk_entropy(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]), k=2)
        tensor(0.3133)
    """
    check_topk(scores, k)
    losses = TruncatedEntropy(k).losses
    return reduce_loss(losses, scores, target, Reduction(**shared))


@dataclass(frozen=True)
class TruncatedEntropy(RuleOfLabels[Kept]):
    """The rule of truncated top-K entropy.

    A label among the K best competes with all classes after them; any other label competes with the K-th best as well.
    In units of the K-th largest exponential, let B be the sum of the exponentials after the K best and ``o`` that of
    the label. The loss is ``log(1 + B / o)`` for a label among the K best, else ``log((1 + B) / o)``. For the classes
    after the K best, except the label, the gradient is their exponential times ``1 / (o + B)`` or ``1 / (1 + B)``.
    """

    keeps = Kept

    k: int

    def of_labels(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The losses ``(M, C)`` for labels ``(M, C)`` in differentiable operations."""
        top = largest(rows, self.k)
        # Relative to the largest score, as in log_softmax.
        centre = top.values[:, :1].detach()
        behind = log_sum_without(rows - centre, top.indices)
        others = torch.logaddexp(behind, top.values[:, -1:] - centre)
        own = rows.gather(1, labels) - centre
        inside = among(top.indices, labels, rows)
        losses = torch.where(inside, -logsigmoid(own - behind), others - own)
        return with_nan_where_invalid(losses, top.values)

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Kept]:  # noqa: ARG002
        """The losses, and what the gradient needs; the K best classes and the label are kept one by one."""
        top = largest(scores, self.k)
        last = top.values[:, -1:]
        last = last.masked_fill(last == -torch.inf, 0)  # no class is left after the K best
        exponentials, behind = kept_and_sum(scores, last, top.indices)
        own = (scores.gather(1, labels) - last).double().clamp(min=torch.finfo(scores.dtype).min)
        inside = (top.indices == labels).any(1, keepdim=True)
        log_behind = behind.log()
        losses = torch.where(inside, -logsigmoid(own - log_behind), torch.log1p(behind) - own)
        # Both denominators are at least 1, except for masked labels, which have no gradient.
        factor = (
            torch.where(inside, -torch.logaddexp(own, log_behind), -torch.log1p(behind)).exp().clamp(max=1)
        )
        slopes = torch.zeros_like(top.values)
        slopes[:, -1:] = factor.masked_fill(inside, 0)
        by_label = torch.where(inside, -(log_behind - own).sigmoid(), -1)
        numbers = torch.cat([factor, by_label], 1).to(scores.dtype)
        losses = with_nan_where_invalid(losses.to(scores.dtype), top.values)
        return losses.squeeze(1), Kept(exponentials, top.indices, slopes, numbers)

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Kept) -> tuple[Tensor]:
        """Multiples of the exponentials after the K best, with the slopes of the K best and of the label."""
        exponentials, places, slopes, numbers = kept
        along = gradient.unsqueeze(1)
        by_score = multiples(exponentials, scores, numbers[:, :1] * along)
        by_score.scatter_(1, places, slopes * along)
        return (by_score.scatter_add_(1, labels, numbers[:, 1:] * along),)
