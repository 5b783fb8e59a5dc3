"""Simple losses as the two lines of torch that stand in for them in people's scripts, for ``losses.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from topk_losses import functional

__all__ = ["Pair", "pairs"]

Pair = tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]
"""Our loss and the two lines, as functions of scores and labels."""


def pairs(classes: int, batch: int) -> Mapping[str, Pair]:
    """Every simple loss, with its own parameters as they are by default."""
    source = torch.Generator().manual_seed(0)
    mixed = torch.rand(batch, classes, generator=source).softmax(1)
    return {
        "cross_entropy": (functional.cross_entropy, cross_entropy),
        "soft targets": (
            lambda s, _: functional.cross_entropy(s, mixed),
            lambda s, _: cross_entropy(s, mixed),
        ),
        "label_smoothing": (
            functional.label_smoothing,
            lambda s, y: cross_entropy(s, y, label_smoothing=0.1),
        ),
        **_of_counts(classes),
        **_against_noise(torch.rand(batch, classes, generator=source) / classes),
    }


def _of_counts(classes: int) -> Mapping[str, Pair]:
    counts = torch.arange(classes, 0, -1)
    margins = functional.uneven_margins(counts, 0.5)

    def ldam(s: Tensor, y: Tensor) -> Tensor:
        lowered = s - margins[y][:, None] * one_hot(y, classes)
        return cross_entropy(30 * lowered, y)

    return {
        "ldam": (lambda s, y: functional.ldam(s, y, margins), ldam),
        "balanced_softmax": (
            lambda s, y: functional.balanced_softmax(s, y, counts),
            lambda s, y: cross_entropy(s + counts.log(), y),
        ),
        "vector_scaling": (
            lambda s, y: functional.vector_scaling(s, y, counts),
            lambda s, y: cross_entropy(s * (counts / counts.max()) ** 0.3 + counts.log(), y),
        ),
    }


def _against_noise(memory: Tensor) -> Mapping[str, Pair]:
    def remembering(s: Tensor, y: Tensor) -> Tensor:
        agreement = (s.softmax(1) * memory).sum(1)
        return cross_entropy(s, y) + 3 * (1 - agreement).log().mean()

    return {
        "focal": (functional.focal, _focal),
        "generalized_cross_entropy": (
            functional.generalized_cross_entropy,
            lambda s, y: ((1 - _own(s, y) ** 0.7) / 0.7).mean(),
        ),
        "mean_absolute_error": (functional.mean_absolute_error, lambda s, y: (1 - _own(s, y)).mean()),
        "symmetric_cross_entropy": (
            functional.symmetric_cross_entropy,
            lambda s, y: 0.1 * cross_entropy(s, y) + 9.2103 * (1 - _own(s, y)).mean(),
        ),
        "active_passive_loss": (functional.active_passive_loss, _active_passive),
        "asymmetric_loss": (
            functional.asymmetric_loss,
            lambda s, y: ((1.6**0.6 - (0.6 + _own(s, y)) ** 0.6) / 0.6).mean(),
        ),
        "logit_clip": (functional.logit_clip, _clipped),
        "early_learning": (lambda s, y: functional.early_learning(s, y, memory), remembering),
    }


def _own(s: Tensor, y: Tensor) -> Tensor:
    return s.softmax(1).gather(1, y[:, None])


def _focal(s: Tensor, y: Tensor) -> Tensor:
    entropy = cross_entropy(s, y, reduction="none")
    return ((1 - (-entropy).exp()) ** 2 * entropy).mean()


def _clipped(s: Tensor, y: Tensor) -> Tensor:
    norm = s.norm(dim=1, keepdim=True)
    return cross_entropy(s * (1.5 / norm).clamp(max=1), y)


def _active_passive(s: Tensor, y: Tensor) -> Tensor:
    log_p = s.log_softmax(1)
    own = log_p.gather(1, y[:, None])
    return (own / log_p.sum(1, keepdim=True) + 9.2103 * (1 - own.exp())).mean()
