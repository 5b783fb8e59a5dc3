"""Cross-entropy and its relatives."""

from __future__ import annotations

from torch import Tensor

from topk_losses._core.checks import check_k, check_not_negative, check_scores
from topk_losses._core.reduction import Reduction, reduce_loss, takes_single_rows
from topk_losses._rules import entropies
from topk_losses._rules.truncated import TruncatedEntropy

__all__ = ["cross_entropy", "focal", "truncated_topk_entropy"]


@takes_single_rows
def cross_entropy(
    scores: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Cross-entropy, equal to torch's in value and gradient.

    .. math:: -\log \mathrm{softmax}(s)_y

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes and labels out of range.

    Example:
        >>> import torch
        >>> cross_entropy(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(1.4076)
    """
    return entropies.entropy_of(scores, target, Reduction(weight, ignore_index, reduction))


@takes_single_rows
def focal(
    scores: Tensor,
    target: Tensor,
    gamma: float = 2.0,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Focal loss: cross-entropy in which well-classified samples weigh less.

    .. math:: (1 - p_y)^\gamma \cdot (-\log p_y), \qquad p = \mathrm{softmax}(s)

    The gradient is finite for every γ, even where p rounds to 1.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        gamma: γ, at least 0; at 0 this is cross-entropy.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and γ below 0.

    References:
        Lin et al.: Focal Loss for Dense Object Detection, ICCV 2017.

    Example:
        >>> import torch
        >>> focal(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(0.8029)
    """
    check_not_negative("gamma", gamma)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return entropies.focal(rows, labels, gamma)

    return reduce_loss(losses, scores, target, Reduction(weight, ignore_index, reduction))


@takes_single_rows
def truncated_topk_entropy(
    scores: Tensor,
    target: Tensor,
    k: int,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Truncated top-K entropy: cross-entropy without the K - 1 highest-scoring of the other classes.

    .. math:: \log\Bigl(1 + \sum_{j \in R} e^{s_j - s_y}\Bigr), \qquad
        R = \{j \ne y\} \text{ without the } K - 1 \text{ largest scores}

    At K = 1 it is cross-entropy.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

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
    check_scores(scores)
    check_k(k, scores.shape[1] - 1)
    losses = TruncatedEntropy(k).losses
    return reduce_loss(losses, scores, target, Reduction(weight, ignore_index, reduction))
