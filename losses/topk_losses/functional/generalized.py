"""Generalised cross-entropy, a loss that is robust to label noise."""

from __future__ import annotations

from torch import Tensor

from topk_losses._core.checks import check_exponent
from topk_losses._core.reduction import Reduction, reduce_loss, takes_single_rows
from topk_losses._rules import entropies

__all__ = ["generalized_cross_entropy", "mean_absolute_error"]


@takes_single_rows
def generalized_cross_entropy(
    scores: Tensor,
    target: Tensor,
    gamma: float = 0.7,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Generalised cross-entropy: cross-entropy in the limit γ → 0, the probability of an error ``1 - q_y`` at γ = 1.

    .. math:: (1 - q_y^\gamma) / \gamma, \qquad q = \mathrm{softmax}(s)

    It is at most 1 / γ, and its gradient is that of cross-entropy times ``q_y^γ``. A label that the network finds
    unlikely, as wrong labels often are, therefore has less influence.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        gamma: γ, above 0 and at most 1.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and γ outside ``(0, 1]``.

    Note:
        It has H-consistency bounds for top-K, like cross-entropy and the other comp-sum losses (Cortes et al. 2024,
        Theorem 4.5).

    References:
        Zhang, Sabuncu: Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels, NeurIPS
        2018; Cortes, Mao, Mohri, Mohri, Zhong: Cardinality-Aware Set Prediction and Top-k Classification, NeurIPS
        2024.

    Example:
        >>> import torch
        >>> generalized_cross_entropy(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(0.8953)
    """
    check_exponent("gamma", gamma)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return entropies.generalized(rows, labels, gamma)

    return reduce_loss(losses, scores, target, Reduction(weight, ignore_index, reduction))


def mean_absolute_error(
    scores: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Mean absolute error, halved: :func:`generalized_cross_entropy` at γ = 1.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: as for :func:`generalized_cross_entropy`.

    References:
        Ghosh, Kumar, Sastry: Robust Loss Functions under Label Noise for Deep Neural Networks, AAAI 2017.

    Example:
        >>> import torch
        >>> mean_absolute_error(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(0.7553)
    """
    return generalized_cross_entropy(
        scores, target, 1.0, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
