"""Cross-entropy with a change against wrong labels: smoothed targets, and scores of bounded length."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from topk_losses._core.checks import FINITE, all_within, check_positive, check_share
from topk_losses._core.reduction import Reduction, Shared, reduce_entropy, reduce_loss, takes_single_rows
from topk_losses._core.shapes import log_softmax

__all__ = ["label_smoothing", "logit_clip"]


@takes_single_rows
def label_smoothing(
    scores: Tensor,
    target: Tensor,
    epsilon: float = 0.1,
    **shared: Unpack[Shared],
) -> Tensor:
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
def logit_clip(
    scores: Tensor,
    target: Tensor,
    limit: float = 1.5,
    **shared: Unpack[Shared],
) -> Tensor:
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
