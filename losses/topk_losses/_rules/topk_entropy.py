"""Top-K entropy: a softmax that gives no class but the label more than 1/K of what the others have together.

The loss is the greatest value of ``⟨x, a⟩ - Σ x_j log x_j - (1 - u) log(1 - u)``, with ``a_j = s_j - s_y`` for the
classes ``j ≠ y`` and ``u = Σ x_j``, over the x with ``0 <= x_j <= u / K`` and ``u <= 1``. Write ``x = u z``: then z
is in the simplex with the cap 1/K whatever u is, and the value becomes ``u V + h(u)`` with h the entropy of a coin and

    V = max { ⟨z, a⟩ - Σ z_j log z_j  |  Σ z_j = 1, 0 <= z_j <= 1/K },

so that ``u = sigmoid(V)`` and the loss is ``softplus(V)``. V is a log-sum-exp with a cap: for some t the t largest
classes have 1/K each, and the others share what is left in proportion to ``exp(a_j)``. With ``o_1 >= o_2 >= …`` the
sorted others and ``Z_t = Σ_{j>t} exp(o_j)``,

    V = (1/K) Σ_{j<=t} (o_j + log K) + (1 - t/K) (log Z_t - log(1 - t/K)) - s_y.

The next class would exceed the cap if ``(K - t) exp(o_{t+1}) > Z_t``. Where it does not, it does not for any larger t
either (``Z_{t+1} = Z_t - exp(o_{t+1}) >= (K - t - 1) exp(o_{t+1})``), so that t is the number of those in
``0 … K - 2`` for which it does; at ``t = K - 1`` it never does. By the same step
``z_j = min(1/K, (1 - t/K) exp(o_j) / Z_t)`` for every class, and this z is V's gradient. V has one derivative
everywhere, and further ones where no class is just at its cap.

All exponentials but those of the K largest scores are relative to the (K+1)-th: none overflows, and their sum is at
least 1 for a label among the K best. The K largest are few and computed in float64, whatever their range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from topk_losses._core.autograd import RuleOfLabels
from topk_losses._rows.exponentials import Kept, kept_and_sum, multiples
from topk_losses._rows.invalid import spoilt_where_invalid
from topk_losses._rows.places import others_of, places_among
from topk_losses._rows.selection import largest

__all__ = ["TopKEntropy"]


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
        # What the label adds itself is at most 1, and exp(o_K) >= 1 is added where it was among the summands.
        rest = small.sum(1, keepdim=True) - small.gather(1, labels)
        leading = (top.values.double() - next_best).masked_fill(few, 0)
        places = places_among(ahead, labels, rows)
        value = self._capped(leading, rest.double().masked_fill(few, 1), places)[0]
        own = rows.gather(1, labels).double() - next_best
        own = own.masked_fill(own == -torch.inf, torch.finfo(own.dtype).min)
        losses = -logsigmoid(own - value).to(rows.dtype).masked_fill(few, 0)
        return spoilt_where_invalid(losses, top.values)

    def forward(self, scores: Tensor, labels: Tensor, *, with_gradient: bool) -> tuple[Tensor, Kept]:  # noqa: ARG002
        """The losses; what the small classes' slopes need, the large ones' places and slopes, two numbers per row."""
        top = largest(scores, self.k + 1)
        next_best, few = _reference(top.values)
        ahead = top.indices[:, : self.k]
        exponentials, total = kept_and_sum(scores, next_best, torch.cat([ahead, labels], 1))
        leading = (top.values.double() - next_best).masked_fill_(few, 0)
        rest = total.masked_fill_(few, 1)
        value, log_unit = self._capped(leading, rest, places_among(ahead, labels, scores))
        argument = scores.gather(1, labels).double() - next_best - value
        losses = spoilt_where_invalid(
            (-logsigmoid(argument)).to(scores.dtype).masked_fill(few, 0), top.values
        )
        chance = (-argument).sigmoid().masked_fill(few, 0)
        capped = (leading[:, : self.k] + log_unit).exp().clamp(max=1 / self.k) * chance
        numbers = torch.cat([log_unit.exp() * chance, -chance], 1)
        return losses.squeeze(1), Kept(exponentials, ahead, capped.to(scores.dtype), numbers.to(scores.dtype))

    def backward(self, gradient: Tensor, scores: Tensor, labels: Tensor, kept: Kept) -> tuple[Tensor]:
        """``u z_j`` for the other classes, ``-u`` for the label."""
        exponentials, ahead, capped, numbers = kept
        along = gradient.unsqueeze(1)
        by_score = multiples(exponentials, scores, numbers[:, :1] * along)
        by_score.scatter_(1, ahead, capped * along).scatter_(1, labels, numbers[:, 1:] * along)
        return (by_score,)

    def _capped(self, leading: Tensor, rest: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """V without ``-s_y``, and ``log((1 - t/K) / Z_t)``, ``(M, C)`` each, relative to the (K+1)-th score.

        Args:
            leading: The K + 1 largest scores, descending, ``(M, K + 1)``, the last one 0.
            rest: The sum of the exponentials behind the K largest without the label's, ``(M, C)``.
            places: The label's among the K largest, else K, ``(M, C)``.
        """
        k = self.k
        others = others_of(leading[:, :k], places)  # o_1 … o_{K-1}
        # The K-th best belongs to the others' rest unless the label is one of the K best: then all of them moved up.
        last = leading[:, k - 1 : k]
        log_rest = torch.where(
            places < k,
            rest.masked_fill(places == k, 1).log(),
            last + torch.log1p(rest * (-last).exp()),
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
    """The (K+1)-th score, or the largest where that is masked, and whether it is, ``(M, 1)`` each."""
    first, last = top[:, :1].detach(), top[:, -1:].detach()
    few = last == -torch.inf
    return torch.where(few, first, last), few
