"""Slow and obvious references: every loss written out for one row of scores, in float64.

Each takes a row ``(L,)`` and a label, and returns a scalar that autograd can differentiate, so they check gradients as
well as values. They follow the definitions literally: sums over subsets run over all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from topk_losses.testing import entropy_oracles, operator_oracles
from topk_losses.testing.entropy_oracles import *  # noqa: F403 - all oracles are in this module
from topk_losses.testing.entropy_oracles import cross_entropy
from topk_losses.testing.operator_oracles import *  # noqa: F403
from topk_losses.testing.operator_oracles import lapsum_topk, noised_topk, soft_topk

__all__ = [  # noqa: PLE0604
    "autkc",
    "calibrated_topk_hinge",
    "conformal_training",
    "convex_topk_hinge",
    "inclusion_probabilities",
    "lapsum_topk_loss",
    "log_elementary_symmetric",
    "noised_topk_hinge",
    "rowwise",
    "smooth_topk_hinge",
    "smooth_topk_svm",
    "soft_topk_loss",
    "sorting_topk_cross_entropy",
    "topk_entropy",
    "topk_grouping",
    "topk_hinge",
    "topk_transition",
    "truncated_topk_entropy",
    *entropy_oracles.__all__,
    *operator_oracles.__all__,
]


def rowwise(loss: Callable[..., Tensor], scores: Tensor, target: Tensor, **parameters: object) -> Tensor:
    """Apply an oracle to each row of scores ``(N, L)`` and labels ``(N,)``; return the losses ``(N,)`` in float64.

    Example:
        >>> rowwise(cross_entropy, torch.zeros(2, 4), torch.tensor([0, 3])).exp()
        tensor([4., 4.], dtype=torch.float64)
    """
    rows = zip(scores.double(), target.tolist(), strict=True)
    return torch.stack([loss(row, label, **parameters) for row, label in rows])


def conformal_training(
    scores: Tensor,
    labels: Sequence[int],
    alpha: float,
    temperature: float,
    kappa: float,
    size_weight: float,
    classification: float,
) -> Tensor:
    """The loss of a batch ``(N, L)``, sample by sample and class by class; ``rowwise`` does not apply to it."""
    logs = [row - torch.log(sum((torch.exp(s) for s in row), torch.zeros_like(row[0]))) for row in scores]
    half = len(scores) // 2
    own = sorted((logs[i][labels[i]] for i in range(max(half, 1))), key=lambda log: log.item())
    position = min(alpha * (1 + 1 / len(own)), 1.0) * (len(own) - 1)
    low, share = math.floor(position), position - math.floor(position)
    threshold = (1 - share) * own[low] + share * own[min(low + 1, len(own) - 1)]
    total = torch.zeros((), dtype=scores.dtype)
    for i in range(half, len(scores)):
        inside = [1 / (1 + torch.exp((threshold - log) / temperature)) for log in logs[i]]
        size = sum(inside, torch.zeros((), dtype=scores.dtype))
        excess = size - kappa if size > kappa else 0 * size
        total = total + classification * (1 - inside[labels[i]]) + size_weight * excess
    return torch.log(total / (len(scores) - half) + 1e-8)


def _others(s: Tensor, y: int) -> Tensor:
    """The scores of the other classes, descending."""
    return torch.cat([s[:y], s[y + 1 :]]).sort(descending=True).values


def _margin(margin: float | Tensor, y: int) -> float | Tensor:
    return margin[y] if isinstance(margin, Tensor) else margin


def _subset_sums(s: Tensor, subsets: Iterable[tuple[int, ...]]) -> Tensor:
    return torch.stack([s[list(subset)].sum() for subset in subsets])


def topk_hinge(s: Tensor, y: int, k: int, margin: float | Tensor = 1.0) -> Tensor:
    r"""``(α + (s_{\y})_[K] - s_y)_+``."""
    return (_margin(margin, y) + _others(s, y)[k - 1] - s[y]).relu()


def convex_topk_hinge(s: Tensor, y: int, k: int, margin: float | Tensor = 1.0) -> Tensor:
    """``(mean of the K largest of s + α (1 - onehot(y)) - s_y)_+``."""
    raised = s + _margin(margin, y) * (torch.arange(len(s)) != y)
    return (raised.sort(descending=True).values[:k].mean() - s[y]).relu()


def calibrated_topk_hinge(s: Tensor, y: int, k: int, margin: float | Tensor = 1.0) -> Tensor:
    """``(α + s_[K+1] - s_y)_+``."""
    return (_margin(margin, y) + s.sort(descending=True).values[k] - s[y]).relu()


def noised_topk_hinge(
    s: Tensor, y: int, k: int, epsilon: float, noise: Tensor, margin: float = 1.0
) -> Tensor:
    """``(α + topE_{K+1} - s_y)_+`` with noise ``(B, L)``."""
    return (margin + noised_topk(s, k + 1, epsilon, noise) - s[y]).relu()


def smooth_topk_svm(s: Tensor, y: int, k: int, tau: float = 1.0, margin: float | Tensor = 1.0) -> Tensor:
    """Berrada et al. 2018 (9), with its two sums: over all K-subsets, and over those that contain y."""
    subsets = list(combinations(range(len(s)), k))
    outside = torch.tensor([y not in subset for subset in subsets])
    total = (_subset_sums(s, subsets) / k + _margin(margin, y) * outside.to(s.dtype)) / tau
    return tau * (total.logsumexp(0) - total[~outside].logsumexp(0))


def log_elementary_symmetric(v: Tensor, k: int) -> Tensor:
    """``log Σ_A exp(Σ_{j∈A} v_j)`` over all k-subsets."""
    return _subset_sums(v, combinations(range(len(v)), k)).logsumexp(0)


def inclusion_probabilities(s: Tensor, k: int, temperature: float = 1.0) -> Tensor:
    """For each class, the weight of the k-subsets that contain it, divided by that of all k-subsets."""
    subsets = list(combinations(range(len(s)), k))
    weights = (_subset_sums(s, subsets) / temperature).softmax(0)
    holds = torch.tensor([[j in subset for j in range(len(s))] for subset in subsets])
    return weights @ holds.to(weights)


def autkc(s: Tensor, y: int, k: int, surrogate: str = "squared") -> Tensor:
    """``(1 / K) Σ ℓ(q_y - q_j)`` over the K + 1 best other classes; for the hinge, scores take the place of q."""
    values = s if surrogate == "hinge" else s.softmax(0)
    losses: dict[str, Callable[[Tensor], Tensor]] = {
        "squared": lambda x: (1 - x).square(),
        "exponential": lambda x: (-x).exp(),
        "logistic": lambda x: (1 + (-x).exp()).log(),
        "hinge": lambda x: (1 - x).clamp(min=0),
    }
    return losses[surrogate](values[y] - _others(values, y)[: k + 1]).sum() / k


def topk_grouping(s: Tensor, y: int, k: int) -> Tensor:
    """Cross-entropy in which the K best classes count as one."""
    best = s.sort(descending=True).indices[:k]
    q = s.softmax(0)
    return -q[best].sum().log() if y in best.tolist() else -q[y].log()


def topk_transition(s: Tensor, y: int, k: int, detach_weight: bool = False) -> Tensor:
    """``(1 - S) · cross_entropy + S · grouping``."""
    share = s.softmax(0).sort(descending=True).values[:k].sum()
    share = share.detach() if detach_weight else share
    return (1 - share) * cross_entropy(s, y) + share * topk_grouping(s, y, k)


def truncated_topk_entropy(s: Tensor, y: int, k: int) -> Tensor:
    """``log(1 + Σ exp(s_j - s_y))`` over the other classes without their K - 1 largest scores."""
    return torch.log(1 + (_others(s, y)[k - 1 :] - s[y]).exp().sum())


def lapsum_topk_loss(s: Tensor, y: int, k: int, temperature: float = 1.0) -> Tensor:
    """``-log p_y``."""
    return -torch.log(lapsum_topk(s, k, temperature)[y])


def soft_topk_loss(
    s: Tensor, y: int, k: int, tau: float = 1.0, shape: str = "logistic", form: str = "log"
) -> Tensor:
    """``-log p_y`` or ``1 - p_y``."""
    p = soft_topk(s, k, tau, shape)[y]
    return -torch.log(p) if form == "log" else 1 - p


def smooth_topk_hinge(s: Tensor, y: int, k: int, gamma: float = 1.0, margin: float | Tensor = 1.0) -> Tensor:
    """``⟨x, a⟩ - γ/2 ‖x‖²`` for the optimal x, found by bisection; since it is optimal, x is constant for autograd."""
    a = _others(s, y) - s[y] + _margin(margin, y)
    low, high = a.detach().new_tensor(0.0), a.detach().max().relu()
    for _ in range(100):
        t = (low + high) / 2
        low, high = (t, high) if ((a.detach() - t) / gamma).clamp(0, 1 / k).sum() > 1 else (low, t)
    x = ((a.detach() - high) / gamma).clamp(0, 1 / k)
    return (x * a).sum() - gamma / 2 * (x * x).sum()


def sorting_topk_cross_entropy(
    s: Tensor,
    y: int,
    k: int,
    steepness: float = 2.0,
    candidates: int = 16,
    relaxation: str = "cauchy",
    mixture: Sequence[float] | None = None,
) -> Tensor:
    """``-log Σ_j P_j · P(the label is among the j best)``, from the whole matrix of classes by ranks."""
    others = _others(s, y)[: candidates - 1]
    wires: list[Any] = [s[y], *others.unbind(), *[None] * (candidates - 1 - len(others))]
    sources = list(torch.eye(candidates, dtype=s.dtype))  # the mixture of classes on each wire
    for upper, lower in _bitonic(candidates):
        a, b = wires[upper], wires[lower]
        if a is None or b is None:  # a missing class goes last
            if a is None:
                wires[upper], wires[lower] = b, a
                sources[upper], sources[lower] = sources[lower], sources[upper]
            continue
        x = steepness * (a - b)
        stay = 0.5 + x.atan() / math.pi if relaxation == "cauchy" else x.sigmoid()
        for values in (wires, sources):
            a, b = values[upper], values[lower]
            values[upper], values[lower] = stay * a + (1 - stay) * b, (1 - stay) * a + stay * b
    among = torch.stack(sources)[:, 0].cumsum(0)
    first = s[y].exp() / (s[y].exp() + others.exp().sum())
    shares = [0.0] * (k - 1) + [1.0] if mixture is None else mixture
    return -torch.log(sum((p * (first if j == 0 else among[j]) for j, p in enumerate(shares)), first * 0))


def _bitonic(size: int) -> Iterable[tuple[int, int]]:
    """The comparators of Batcher's network as in textbooks: every second block is sorted in the opposite order."""
    block = 2
    while block <= size:
        distance = block // 2
        while distance:
            for i in range(size):
                if not i & distance:
                    yield (i, i | distance) if not i & block else (i | distance, i)
            distance //= 2
        block *= 2


def topk_entropy(s: Tensor, y: int, k: int) -> Tensor:
    """``softplus(V - s_y)``, V the largest ``⟨z, s⟩ + H(z)`` of the feasible z with t = 0, 1, … entries at the cap."""
    others, values = _others(s, y), []
    for t in range(min(k, len(others) - 1) + 1):
        z = torch.cat([torch.full_like(others[:t], 1 / k), (1 - t / k) * others[t:].softmax(0)])
        if t < k and (z <= 1 / k + 1e-12).all():
            values.append((z * (others - z.log())).sum())
    return torch.nn.functional.softplus(torch.stack(values).max() - s[y])
