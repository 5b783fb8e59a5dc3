"""Cross-entropy with a change against wrong labels: smoothed targets, and scores of bounded length."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from topk_losses._core.checks import (
    FINITE,
    all_within,
    check_not_negative,
    check_positive,
    check_scores,
    check_share,
    check_target,
)
from topk_losses._core.reduction import (
    Reduction,
    Shared,
    names_shared,
    reduce_entropy,
    reduce_loss,
    takes_single_rows,
)
from topk_losses._core.shapes import log_softmax

__all__ = ["early_learning", "label_smoothing", "logit_clip"]


@takes_single_rows
def label_smoothing(scores: Tensor, target: Tensor, epsilon: float = 0.1, **shared: Unpack[Shared]) -> Tensor:
    r"""Label smoothing: cross-entropy with targets of which a share ε is spread evenly over all classes.

    .. math:: -(1 - \varepsilon) \log p_y - \frac{\varepsilon}{L} \sum_j \log p_j, \qquad p = \mathrm{softmax}(s)

    Masked classes have no share. At ε = 0 this is cross-entropy.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        epsilon: ε, at least 0 and below 1.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and ε outside ``[0, 1)``.

    References:
        Szegedy et al.: Rethinking the Inception Architecture for Computer Vision, CVPR 2016; Lukasik et al.: Does Label
        Smoothing Mitigate Label Noise?, ICML 2020.

    Example:
        >>> import torch
        >>> label_smoothing(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(1.4076)
    """
    check_share("epsilon", epsilon)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        log_p = log_softmax(rows)
        masked = rows.detach() == -torch.inf
        mean = log_p.masked_fill(masked, 0).sum(1, keepdim=True) / (~masked).sum(1, keepdim=True)
        return -(1 - epsilon) * log_p.gather(1, labels) - epsilon * mean

    # With weights per class torch weighs each term of the sum, and here each label weighs its sample.
    how = Reduction(**shared)
    direct = partial(_smoothed_directly, epsilon=epsilon) if how.weight is None else None
    return reduce_loss(losses, scores, target, how, direct=direct)


def _smoothed_directly(rows: Tensor, target: Tensor, epsilon: float, **shared: Any) -> Tensor:
    """Label smoothing without masked classes, for labels or probabilities, by torch's kernels."""
    if not target.is_floating_point():
        return cross_entropy(rows, target, label_smoothing=epsilon, **shared)
    share = target.sum(1, keepdim=True) * (epsilon / target.shape[1])
    return cross_entropy(rows, torch.add(share, target, alpha=1 - epsilon), **shared)


@takes_single_rows
def logit_clip(scores: Tensor, target: Tensor, limit: float = 1.5, **shared: Unpack[Shared]) -> Tensor:
    r"""LogitClip: cross-entropy of scores that are shortened where their Euclidean norm is above a limit.

    .. math:: -\log \mathrm{softmax}\bigl(s \min(1, \tau / \lVert s \rVert_2)\bigr)_y

    It is bounded by ``log L + √2 τ``, so that no wrong label costs much more than others. Masked classes are left out
    of the norm. Unlike other losses it changes when a constant is added to all scores.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        limit: τ, above 0.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and τ not above 0.

    References:
        Wei et al.: Mitigating Memorization of Noisy Labels by Clipping the Model Prediction, ICML 2023.

    Example:
        >>> import torch
        >>> logit_clip(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(1.2433)
    """
    check_positive("limit", limit)

    def clipped(rows: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        if all_within(norm, *FINITE):
            return rows * (limit / norm.clamp(min=limit))
        masked = rows.detach() == -torch.inf
        scores = rows.masked_fill(masked, 0)
        # In units of the largest, so that no square overflows.
        size = scores.detach().abs().amax(1, keepdim=True).clamp(min=1)
        norm = size * torch.linalg.vector_norm(scores / size, dim=1, keepdim=True)
        return (scores * (limit / norm.clamp(min=limit))).masked_fill(masked, -torch.inf)

    return reduce_entropy(scores, target, Reduction(**shared), clipped)


LEAST = 1e-4
"""The least ``1 - <p, t>``: the authors' code keeps probabilities at or below ``1 - 1e-4``."""


@names_shared
def early_learning(
    scores: Tensor,
    target: Tensor,
    memory: Tensor,
    strength: float = 3.0,
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Early-learning regularisation: cross-entropy, and a reward for agreeing with a sample's earlier predictions.

    .. math:: -\log p_y + \lambda \log\bigl(1 - \langle p, t \rangle\bigr), \qquad p = \mathrm{softmax}(s)

    t is the running average of the sample's predictions, see :class:`~topk_losses.EarlyLearning`, and a constant for
    the gradient. Networks fit right labels before wrong ones. So t is often right where the label is wrong, and the
    second term outweighs the first there. ``1 - <p, t>`` is taken to be at least 1e-4, as in the authors' code. At
    λ = 0 this is cross-entropy.

    Args:
        scores: ``(N, L)``; -inf masks a class.
        target: labels ``(N,)``.
        memory: t, one row per sample ``(N, L)``, at least 0 with sums of at most 1.
        strength: λ, at least 0.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N,)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and λ below 0.

    References:
        Liu, Niles-Weed, Razavian, Fernandez-Granda: Early-Learning Regularization Prevents Memorization of Noisy
        Labels, NeurIPS 2020.

    Example:
        >>> import torch
        >>> scores, memory = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.9, 0.0, 0.0]])
        >>> early_learning(scores, torch.tensor([1]), memory)
        tensor(-1.3317)
    """
    check_scores(scores)
    check_target(target)
    check_scores(memory, "memory")
    check_not_negative("strength", strength)
    if scores.ndim != 2 or memory.shape != scores.shape:
        raise ValueError(
            "scores and memory must both have the shape (N, L), got "
            f"{tuple(scores.shape)} and {tuple(memory.shape)}"
        )

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        log_p, t = log_softmax(rows), memory.detach().to(rows.dtype)
        # 1 - <p, t> = (1 - Σ t) + Σ t (1 - p): sums of terms of one sign, exact where p is close to 1.
        apart = (1 - t.sum(1, keepdim=True)).clamp(min=0) - (t * log_p.expm1()).sum(1, keepdim=True)
        if not all_within(apart, LEAST, math.inf):
            apart = apart.clamp(min=LEAST)
        return strength * apart.log() - log_p.gather(1, labels)

    return reduce_loss(losses, scores, target, Reduction(**shared), soft=False)
