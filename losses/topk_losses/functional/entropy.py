"""Cross-entropy and its relatives. A rule takes rows ``(M, L)`` and labels ``(M, C)`` to losses ``(M, C)``."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from topk_losses._core.checks import all_within, check_exponent, check_not_negative
from topk_losses._core.reduction import (
    Reduction,
    Shared,
    names_shared,
    reduce_entropy,
    reduce_loss,
    takes_single_rows,
)
from topk_losses._core.shapes import cross_entropies, log_softmax

__all__ = ["cross_entropy", "focal", "generalized_cross_entropy", "mean_absolute_error"]


@takes_single_rows
def cross_entropy(scores: Tensor, target: Tensor, **shared: Unpack[Shared]) -> Tensor:
    r"""Cross-entropy, equal to torch's in value and gradient.

    .. math:: -\log \mathrm{softmax}(s)_y

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes and labels out of range.

    Example:
        >>> import torch
        >>> cross_entropy(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(1.4076)
    """
    return reduce_entropy(scores, target, Reduction(**shared))


@takes_single_rows
def focal(scores: Tensor, target: Tensor, gamma: float = 2.0, **shared: Unpack[Shared]) -> Tensor:
    r"""Focal loss: cross-entropy in which well-classified samples weigh less.

    .. math:: (1 - p_y)^\gamma \cdot (-\log p_y), \qquad p = \mathrm{softmax}(s)

    The gradient is finite for every γ, even where p rounds to 1.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        gamma: γ, at least 0; at 0 this is cross-entropy.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

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
        if gamma == 0:
            return cross_entropies(rows, labels)
        own = log_softmax(rows).gather(1, labels)
        bounds = torch.finfo(own.dtype)
        if not all_within(own, -bounds.max, -bounds.tiny):
            # At 0 and at infinity the derivatives of the power and of the product would be 0 · inf.
            own = own.clamp(-bounds.max, -bounds.tiny)
        return (-torch.expm1(own)) ** gamma * -own

    return reduce_loss(losses, scores, target, Reduction(**shared))


@takes_single_rows
def generalized_cross_entropy(
    scores: Tensor,
    target: Tensor,
    gamma: float = 0.7,
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Generalised cross-entropy: cross-entropy in the limit γ → 0, the probability of an error ``1 - q_y`` at γ = 1.

    .. math:: (1 - q_y^\gamma) / \gamma, \qquad q = \mathrm{softmax}(s)

    It is at most 1 / γ, and its gradient is that of cross-entropy times ``q_y^γ``. A label that the network finds
    unlikely, as wrong labels often are, therefore has less influence.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        gamma: γ, above 0 and at most 1.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

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
        own = log_softmax(rows).gather(1, labels)
        return -torch.expm1(own) if gamma == 1 else torch.expm1(gamma * own) / -gamma

    return reduce_loss(losses, scores, target, Reduction(**shared))


@names_shared
def mean_absolute_error(scores: Tensor, target: Tensor, **shared: Unpack[Shared]) -> Tensor:
    """Mean absolute error, halved: :func:`generalized_cross_entropy` at γ = 1.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

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
    return generalized_cross_entropy(scores, target, 1.0, **shared)
