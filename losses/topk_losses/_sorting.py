"""The chance of a label to be among the K best, by a sorting network whose comparators are relaxed.

A comparator of two wires with the values a and b puts the larger one up with the chance ``f = F(β (a - b))``: the upper
wire leaves with ``f a + (1 - f) b``, the lower one with what remains. The same f says where a class goes, so that the
product of all comparators is a doubly stochastic matrix of classes by ranks. A loss wants one row of it, the label's:
instead of the matrix, the label's chance to be on each wire goes through the network, 2 numbers per wire instead of m.

The network is Batcher's bitonic one for m = 2, 4, 8, … wires, all its comparators pointing the same way: each stage
first compares the wires of a block with those of its mirror image, then halves and halves again. Where all scores are
equal, its last stage makes every rank equally likely.

On the wires are, in this order, the label and the m - 1 largest others, descending. The order matters for a relaxed
network; this one depends on the scores alone, and the loss is continuous where two of the others change places.
Classes that are missing or masked are compared without relaxation and sink below all others.

All is float64, for a label has m numbers, not L. Cauchy's chances fall as the inverse distance, and the product of a
wire's few comparators is far from the smallest float64; logistic ones fall exponentially and are kept as logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from topk_losses._checks import values_are_readable
from topk_losses._places import others_of, places_among

__all__ = ["RELAXATIONS", "sorting_losses"]


class _Relaxation(Protocol):
    """How comparators are relaxed, and how the chances to be on a wire are kept; ``never`` is 0, ``surely`` 1."""

    never: float
    surely: float

    def chance(self, x: Tensor) -> Tensor:
        """F."""
        ...

    def mean(self, stay: Tensor, first: Tensor, swap: Tensor, second: Tensor) -> Tensor:
        """What a wire carries, value and chance ``(2, …)``, from the two that it came from, weighted."""
        ...

    def log_sum(self, chances: Tensor) -> Tensor:
        """The logarithm of the chance to be on one of these wires."""
        ...


class _Cauchy:
    never, surely = 0.0, 1.0

    def chance(self, x: Tensor) -> Tensor:
        # 1/2 + arctan(x) / π, exact far below 0 too
        return torch.atan2(torch.ones_like(x), -x) / math.pi

    def mean(self, stay: Tensor, first: Tensor, swap: Tensor, second: Tensor) -> Tensor:
        return stay * first + swap * second

    def log_sum(self, chances: Tensor) -> Tensor:
        return chances.sum(2).log()


class _Logistic:
    never, surely = -1e30, 0.0  # not -inf, of which logsumexp has no gradient

    def chance(self, x: Tensor) -> Tensor:
        return logsigmoid(x)

    def mean(self, stay: Tensor, first: Tensor, swap: Tensor, second: Tensor) -> Tensor:
        value = stay.exp() * first[0] + swap.exp() * second[0]
        # Not logaddexp, whose second derivative is NaN where the two are far apart.
        return torch.stack([value, torch.stack([stay + first[1], swap + second[1]]).logsumexp(0)])

    def log_sum(self, chances: Tensor) -> Tensor:
        return chances.logsumexp(2)


RELAXATIONS: Final[dict[str, _Relaxation]] = {"cauchy": _Cauchy(), "logistic": _Logistic()}


def sorting_losses(
    rows: Tensor,
    labels: Tensor,
    mixture: Sequence[float],
    steepness: float,
    candidates: int,
    relaxation: str,
) -> Tensor:
    """The kernel: losses ``(M, C)`` of rows ``(M, L)`` for labels ``(M, C)``; ``mixture`` has K weights."""
    values, invalid = _wires(rows, labels, candidates)
    parts = []
    if mixture[0] > 0:
        parts.append(math.log(mixture[0]) - values.logsumexp(2))  # softmax of the label, whose value is 0
    if any(mixture[1:]):
        kind = RELAXATIONS[relaxation]
        chances = _through_network(values, kind, steepness)
        parts += [
            math.log(share) + kind.log_sum(chances[..., :k])
            for k, share in enumerate(mixture[1:], start=2)
            if share > 0
        ]
    losses = -torch.stack(parts).logsumexp(0)
    return losses.clamp(min=0).to(rows.dtype).masked_fill(invalid, torch.nan)


def _wires(rows: Tensor, labels: Tensor, candidates: int) -> tuple[Tensor, Tensor]:
    """Scores less the label's on the wires ``(M, C, m)``, the label first, and whether a row has NaN or +inf."""
    if (
        labels.shape[1] == 1
    ):  # a copy costs less than one more class: from K = n / 64 on, torch's topk is slower
        best = (
            rows.scatter(1, labels, -torch.inf)
            .topk(min(candidates, rows.shape[1]) - 1, dim=1)
            .values.unsqueeze(1)
        )
    else:
        top = rows.topk(min(candidates, rows.shape[1]), dim=1)
        best = others_of(top.values, places_among(top.indices, labels, rows))
    own = rows.gather(1, labels).double().unsqueeze(2)
    invalid = ~((best.detach()[..., :1] < torch.inf) & (own.detach() < torch.inf)).squeeze(2)
    own = own.masked_fill(own == -torch.inf, 0)
    others = best.double() - own
    missing = torch.full_like(own, -torch.inf).expand(-1, -1, candidates - 1 - others.shape[2])
    return torch.cat([torch.zeros_like(own), others, missing], 2), invalid


def _through_network(values: Tensor, kind: _Relaxation, steepness: float) -> Tensor:
    """The chance of the class on the first wire to leave on each, ``(M, C, m)``."""
    absent = values.detach() == -torch.inf
    # If it is free to see that none is, half of the work is saved. The last wire has the smallest of the others.
    some_absent = not values_are_readable(values) or bool(absent[..., -1].any())
    values = (values.masked_fill(absent, 0) if some_absent else values) * steepness
    start = torch.full_like(values[..., :1], kind.surely)
    wires = torch.stack([values, torch.cat([start, torch.full_like(values[..., 1:], kind.never)], -1)])
    block = 2
    while block <= wires.shape[-1]:
        part, mirrored = block, True
        while part >= 2:
            first, second = _halves(wires, part, mirrored)
            missing = _halves(absent, part, mirrored) if some_absent else None
            upper, lower = _compare(first, second, missing, kind)
            wires = _whole(upper, lower, mirrored)
            if missing is not None:
                absent = _whole(missing[0] & missing[1], missing[0] | missing[1], mirrored)
            part, mirrored = part // 2, False
        block *= 2
    return wires[1]


def _halves(wires: Tensor, block: int, mirrored: bool) -> tuple[Tensor, Tensor]:
    """The wires ``(…, m)`` of each block's first half and what they meet in the second, as it is or mirrored."""
    shape = (*wires.shape[:-1], -1, 2, block // 2)
    first, second = wires.reshape(shape).unbind(-2)
    return first, second.flip(-1) if mirrored else second


def _whole(first: Tensor, second: Tensor, mirrored: bool) -> Tensor:
    """Inverse of :func:`_halves`."""
    return torch.stack([first, second.flip(-1) if mirrored else second], -2).flatten(-3)


def _compare(
    first: Tensor, second: Tensor, missing: tuple[Tensor, Tensor] | None, kind: _Relaxation
) -> tuple[Tensor, Tensor]:
    """Values and chances of the upper and the lower wires, ``(2, …)`` each."""
    gap = first[0] - second[0]
    stay, swap = kind.chance(gap), kind.chance(-gap)
    if missing is not None:
        a, b = missing
        stay = stay.masked_fill(a, kind.never).masked_fill(b, kind.surely)
        swap = swap.masked_fill(a, kind.surely).masked_fill(b, kind.never)
    return kind.mean(stay, first, swap, second), kind.mean(swap, first, stay, second)
