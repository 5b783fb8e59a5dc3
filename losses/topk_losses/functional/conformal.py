"""Conformal training: smooth conformal sets within a batch, made small."""

from __future__ import annotations

import torch
from torch import Tensor

from topk_losses._core.checks import (
    check_labels,
    check_not_negative,
    check_positive,
    check_scores,
    check_share,
    check_soft,
    check_target,
)
from topk_losses._core.shapes import computing, full_precision

__all__ = ["conformal_training"]

_TINY = 1e-8  # added before the logarithm, as the authors' code does


def conformal_training(
    scores: Tensor,
    target: Tensor,
    alpha: float = 0.01,
    temperature: float = 1.0,
    kappa: float = 1.0,
    size_weight: float = 0.01,
    classification: float = 1.0,
) -> Tensor:
    r"""Conformal training: the batch's first half calibrates smooth sets, those of its second half shall be small.

    .. math::
        \log \Bigl( \frac{1}{n} \sum_i \bigl[ \gamma \, (1 - C_{i y_i})
        + \lambda \max(0, \textstyle\sum_j C_{ij} - \kappa) \bigr] + 10^{-8} \Bigr),
        \qquad C_{ij} = \sigma\Bigl(\frac{\log p_{ij} - q}{T}\Bigr)

    with p the softmax and q the ``α (1 + 1/m)``-quantile of ``log p`` of the true classes of the first m samples. C is
    how much class j is in the set of sample i. The quantile is exact, with linear interpolation, and its gradient goes
    to the two order statistics next to it; the authors sort softly, with a small dispersion.

    The loss belongs to a batch, not to a sample: it has no ``weight``, ``ignore_index`` or ``reduction``, and takes no
    soft targets. The batch should be large: with α = 0.01, a half of 50 samples has its threshold at the least likely
    true class. A single sample is its own calibration. After training, sets need a real calibration.
    ``torch.export`` makes a graph for any even number of samples from 4 on: ``2 * torch.export.Dim("half", min=2)``.

    Args:
        scores: ``(N, L)`` in random order; -inf masks a class, which must be the true class of no sample.
        target: labels ``(N,)``.
        alpha: α, in [0, 1): the share of true classes that sets may miss.
        temperature: T, above 0; at a small T sets are hard.
        kappa: κ, at least 0: sets up to this size cost nothing.
        size_weight: λ, at least 0.
        classification: γ, at least 0, the weight of true classes that are not in their sets. With 0 the loss is that
            of sizes alone, and λ only adds a constant.

    Returns:
        A scalar, also for a loss of one sample; float64 for float64 scores, else float32.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, an empty batch, α outside [0, 1), T not above 0,
            and κ, λ or γ below 0.

    References:
        Stutz, Dvijotham, Cemgil, Doucet: Learning Optimal Conformal Classifiers, ICLR 2022.

    Example:
        >>> scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0], [1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
        >>> conformal_training(scores, torch.tensor([0, 1, 2, 1]))
        tensor(-0.6556)
    """
    check_scores(scores)
    if scores.ndim != 2 or not scores.shape[0]:
        raise ValueError(f"scores must have the shape (N, L) with N of at least 1, got {tuple(scores.shape)}")
    check_target(target)
    if target.is_floating_point():
        check_soft(scores, target, ignore_index=None, taken=False)
    check_labels(target, scores.shape, scores.shape[1], ignore_index=None)
    check_share("alpha", alpha)
    check_positive("temperature", temperature)
    for name, value in (("kappa", kappa), ("size_weight", size_weight), ("classification", classification)):
        check_not_negative(name, value)
    with full_precision(scores):
        logs = computing(scores).log_softmax(1)
        own = logs.gather(1, target.to(torch.int64)[:, None])
        half = logs.shape[0] // 2
        threshold = _quantile(own[: max(half, 1), 0], alpha)
        sizes = torch.sigmoid((logs[half:] - threshold) / temperature).sum(1)
        missed = torch.sigmoid((threshold - own[half:, 0]) / temperature)
        return (classification * missed + size_weight * (sizes - kappa).clamp(min=0)).mean().add(_TINY).log()


def _quantile(values: Tensor, alpha: float) -> Tensor:
    """The ``α (1 + 1/m)``-quantile of ``(m,)``, as ``torch.quantile`` interpolates, which ``vmap`` does slowly."""
    count = values.shape[0]
    ascending = values.sort().values
    # In tensors, because the number of values may be a symbol.
    ranks = torch.arange(count, dtype=torch.float64, device=values.device)
    position = (alpha * (1 + 1 / ranks.new_full((), count))).clamp(max=1) * (count - 1)
    below = (ranks <= position).sum() - 1
    low, high = ascending.gather(0, torch.stack([below, (below + 1).clamp(max=count - 1)])).unbind(0)
    spoilt = 0 * values.sum()  # NaN where a value is, which sorting puts last
    return low + (position - below).to(low.dtype) * (high - low) + spoilt
