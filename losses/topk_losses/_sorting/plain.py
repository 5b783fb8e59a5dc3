"""The probability that a label is among the K best, by a sorting network with relaxed comparators.

A comparator of two wires with the values a and b puts a on the upper wire with probability ``f = F(β (a - b))``: the
upper wire gets ``f a + (1 - f) b``, the lower one ``(1 - f) a + f b``. The classes move with the same probabilities, so
the product of all comparators is a doubly stochastic matrix of classes by ranks. The loss needs only the label's row of
it. So instead of the matrix, the label's probability of being on each wire passes through the network: 2 numbers per
wire instead of m.

The network is Batcher's bitonic network for m = 2, 4, 8, … wires. Each stage merges two sorted blocks, the second one
sorted in the opposite order, by comparing halves, then halves of halves. If all scores are equal, the last stage makes
every rank equally likely.

The wires start with the label, then the m - 1 largest other scores, descending. The order matters for a relaxed
network; this one is a function of the scores, and the loss is continuous where two of the other classes change places.
Missing and masked classes are compared without relaxation and go behind all others.

Everything is float64, which is cheap because a label has m numbers, not L. Cauchy probabilities fall like the inverse
distance, so the product over a wire's few comparators stays far above the smallest float64. Logistic probabilities fall
exponentially and are stored as logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from topk_losses._core.autograd import in_forward_mode
from topk_losses._core.checks import values_are_readable
from topk_losses._core.shapes import with_nan
from topk_losses._rows.selection import largest, others_of, places_among

__all__ = ["RELAXATIONS", "Network", "plain_losses"]

LABELS_AT_ONCE = 2**12  # labels whose networks are computed at once, to fit into the cache


class _Relaxation(Protocol):
    """A relaxation of comparators, and its representation of probabilities: ``never`` is 0, ``surely`` is 1."""

    never: float
    surely: float

    def chance(self, x: Tensor) -> Tensor:
        """The probability F(x), in this representation."""
        ...

    def mean(self, first: Tensor, a: Tensor, second: Tensor, b: Tensor) -> Tensor:
        """The outputs ``(2, 2, …)``, wire by value and probability, of comparators of a and b, weights ``(2, …)``."""
        ...

    def log_sum(self, chances: Tensor) -> Tensor:
        """The logarithm of the probability of being on one of these wires."""
        ...


class _Cauchy:
    never, surely = 0.0, 1.0

    def chance(self, x: Tensor) -> Tensor:
        # 1/2 + arctan(x) / π, accurate even far below 0
        return torch.atan2(torch.ones_like(x), -x) / math.pi

    def mean(self, first: Tensor, a: Tensor, second: Tensor, b: Tensor) -> Tensor:
        return first.unsqueeze(1) * a + second.unsqueeze(1) * b

    def log_sum(self, chances: Tensor) -> Tensor:
        return chances.sum(0).log()


class _Logistic:
    never, surely = -1e30, 0.0  # not -inf, at which logsumexp has no gradient

    def chance(self, x: Tensor) -> Tensor:
        return logsigmoid(x)

    def mean(self, first: Tensor, a: Tensor, second: Tensor, b: Tensor) -> Tensor:
        value = first.exp() * a[0] + second.exp() * b[0]
        # Not logaddexp: its second derivative is NaN where the two arguments are far apart.
        return torch.stack([value, torch.stack([first + a[1], second + b[1]]).logsumexp(0)], 1)

    def log_sum(self, chances: Tensor) -> Tensor:
        return chances.logsumexp(0)


RELAXATIONS: Final[dict[str, _Relaxation]] = {"cauchy": _Cauchy(), "logistic": _Logistic()}


class Network(NamedTuple):
    """The parameters of the network and the loss.

    Attributes:
        mixture: The weights P_1 … P_K.
        steepness: β.
        candidates: m, the number of wires.
        relaxation: The name of the comparators' relaxation.
    """

    mixture: Sequence[float]
    steepness: float
    candidates: int
    relaxation: str


def plain_losses(rows: Tensor, labels: Tensor, network: Network) -> Tensor:
    """The losses ``(M, C)`` of rows ``(M, L)`` for labels ``(M, C)``."""
    own, width = rows.gather(1, labels), min(network.candidates, rows.shape[1])
    if labels.shape[1] == 1:  # copying is cheaper than selecting one more class: topk slows down in steps
        others = rows.scatter(1, labels, -torch.inf)
        return _losses(largest(others, width - 1).values.unsqueeze(1), own, network).to(rows.dtype)
    top = largest(rows, width)
    best = others_of(top.values, places_among(top.indices, labels, rows))
    if labels.numel() > LABELS_AT_ONCE and values_are_readable(rows) and not in_forward_mode():
        losses: Tensor = _InParts.apply(best, own, network)
        return losses.to(rows.dtype)
    return _losses(best, own, network).to(rows.dtype)


class _InParts(torch.autograd.Function):
    """The losses of many labels, some at a time, to bound the memory for their networks.

    The gradient of each part is computed with its losses and kept, since it is much smaller than the network's states.
    """

    @staticmethod
    def forward(ctx: Any, best: Tensor, own: Tensor, network: Network) -> Tensor:
        ctx.network = network
        step = max(1, LABELS_AT_ONCE // len(own))
        parts = zip(best.split(step, 1), own.split(step, 1), strict=True)  # type: ignore[no-untyped-call]
        losses, by_best, by_own = zip(*(_with_gradient(*part, network) for part in parts), strict=True)
        ctx.save_for_backward(best, own, torch.cat(by_best, 1), torch.cat(by_own, 1))
        return torch.cat(losses, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        best, own, by_best, by_own = ctx.saved_tensors
        if torch.is_grad_enabled():  # the caller will differentiate this gradient
            losses = _losses(best, own, ctx.network)
            slopes = torch.autograd.grad(losses, (best, own), gradient, create_graph=True)
            return slopes[0], slopes[1], None
        return gradient.unsqueeze(2) * by_best, gradient * by_own, None


def _with_gradient(best: Tensor, own: Tensor, network: Network) -> tuple[Tensor, Tensor, Tensor]:
    """Losses ``(M, C)``, and their gradients with respect to ``best`` and ``own``."""
    with torch.enable_grad():
        leaves = best.detach().requires_grad_(), own.detach().requires_grad_()
        losses = _losses(*leaves, network)
        by_best, by_own = torch.autograd.grad(losses.sum(), leaves)
    return losses.detach(), by_best, by_own


def _losses(best: Tensor, own: Tensor, network: Network) -> Tensor:
    """The losses ``(M, C)``, from the labels' scores ``(M, C)`` and the largest others, descending ``(M, C, n)``."""
    values, invalid = _wires(best, own, network.candidates)
    mixture, parts = network.mixture, []
    if mixture[0] > 0:
        parts.append(math.log(mixture[0]) - values.logsumexp(0))  # softmax of the label, whose value is 0
    if any(mixture[1:]):
        kind = RELAXATIONS[network.relaxation]
        chances = _through_network(values, kind, network.steepness)
        parts += [
            math.log(share) + kind.log_sum(chances[:k])
            for k, share in enumerate(mixture[1:], start=2)
            if share > 0
        ]
    return with_nan(-torch.stack(parts).logsumexp(0), invalid).relu()


def _wires(best: Tensor, own: Tensor, candidates: int) -> tuple[Tensor, Tensor]:
    """Scores minus the label's on the wires ``(m, M, C)``, the label first; and whether a row has NaN or +inf."""
    own = own.double().unsqueeze(2)
    invalid = ~((best.detach()[..., :1] < torch.inf) & (own.detach() < torch.inf)).squeeze(2)
    own = with_nan(own.masked_fill(own == -torch.inf, 0), invalid.unsqueeze(2))
    others = best.double() - own
    missing = torch.full_like(own, -torch.inf).expand(-1, -1, candidates - 1 - others.shape[2])
    return torch.cat([torch.zeros_like(own), others, missing], 2).movedim(2, 0).contiguous(), invalid


def _through_network(values: Tensor, kind: _Relaxation, steepness: float) -> Tensor:
    """The probability that the class on the first wire ends on each wire, ``(m, M, C)``."""
    absent = values.detach() == -torch.inf
    # Where values can be read and no class is absent, a third of the work is saved. The last wire, with the smallest
    # of the other scores, shows this.
    some_absent = not values_are_readable(values) or bool(absent[-1].any())
    values = (values.masked_fill(absent, 0) if some_absent else values) * steepness
    start = torch.full_like(values[:1], kind.surely)
    wires = torch.stack([values, torch.cat([start, torch.full_like(values[1:], kind.never)])])
    size = wires.shape[1]
    block = 2
    while block <= size:
        distance = block // 2
        while distance:
            first_wire = 2 * distance * torch.arange(size // (2 * distance), device=values.device)
            descends = (first_wire & block == 0).reshape(-1, 1, 1, 1)
            a, b = _pairs(wires, distance)
            missing = _pairs(absent, distance) if some_absent else None
            gap = a[0] - b[0]
            gap = gap if block == size else torch.where(descends, gap, -gap)
            stay_and_swap = kind.chance(torch.stack([gap, -gap]))
            if missing is not None:
                stay_and_swap, absent = _sink(stay_and_swap, missing, descends, kind)
            wires = kind.mean(stay_and_swap, a, stay_and_swap.flip(0), b).movedim(0, 2).flatten(1, 3)
            distance //= 2
        block *= 2
    return wires[1]


def _pairs(wires: Tensor, distance: int) -> tuple[Tensor, Tensor]:
    """The two wires of each comparator of a distance: ``(…, m, M, C)`` to ``(…, m / 2 distance, distance, M, C)``."""
    first, second = wires.unflatten(-3, (-1, 2, distance)).unbind(-4)  # type: ignore[no-untyped-call]
    return first, second


def _sink(
    stay_and_swap: Tensor, missing: tuple[Tensor, Tensor], descends: Tensor, kind: _Relaxation
) -> tuple[Tensor, Tensor]:
    """The probabilities with missing classes put last for certain, and which output wires have no class."""
    a, b = missing
    both, either = a & b, a | b
    stays = torch.where(descends, b, a)
    stay_and_swap = stay_and_swap.masked_fill(torch.stack([stays, either & ~stays]), kind.surely)
    stay_and_swap = stay_and_swap.masked_fill(torch.stack([either & ~stays, stays]), kind.never)
    absent = torch.stack([torch.where(descends, both, either), torch.where(descends, either, both)], 1)
    return stay_and_swap, absent.flatten(0, 2)
