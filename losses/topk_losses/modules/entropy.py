"""Cross-entropy and its relatives, top-K grouping and transition as modules."""

from __future__ import annotations

from topk_losses import functional
from topk_losses.modules._base import Exponent, K, Loss, NotNegative, module_of

__all__ = [
    "CrossEntropy",
    "Focal",
    "GeneralizedCrossEntropy",
    "MeanAbsoluteError",
    "TopKEntropy",
    "TopKGrouping",
    "TopKTransition",
    "TruncatedTopKEntropy",
]


@module_of(functional.cross_entropy)
class CrossEntropy(Loss):
    """Cross-entropy, see :func:`~topk_losses.functional.cross_entropy`.

    Example:
        >>> import torch
        >>> CrossEntropy()(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.4608)
    """


@module_of(functional.focal)
class Focal(Loss):
    """Focal loss, see :func:`~topk_losses.functional.focal`.

    Example:
        >>> import torch
        >>> Focal(gamma=2.0)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.0586)
    """

    gamma: NotNegative = 2.0


@module_of(functional.generalized_cross_entropy)
class GeneralizedCrossEntropy(Loss):
    """Generalised cross-entropy, see :func:`~topk_losses.functional.generalized_cross_entropy`.

    Example:
        >>> import torch
        >>> GeneralizedCrossEntropy(gamma=1.0)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([0]))
        tensor(0.3692)
    """

    gamma: Exponent = 0.7


@module_of(functional.mean_absolute_error)
class MeanAbsoluteError(Loss):
    """Mean absolute error: :class:`GeneralizedCrossEntropy` at γ = 1.

    Example:
        >>> import torch
        >>> MeanAbsoluteError()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(0.7553)
    """


@module_of(functional.truncated_topk_entropy)
class TruncatedTopKEntropy(Loss):
    """Truncated top-K entropy, see :func:`~topk_losses.functional.truncated_topk_entropy`.

    Example:
        >>> import torch
        >>> TruncatedTopKEntropy(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(1.4644)
    """

    k: K


@module_of(functional.topk_entropy)
class TopKEntropy(Loss):
    """Top-K entropy, see :func:`~topk_losses.functional.topk_entropy`.

    Example:
        >>> import torch
        >>> TopKEntropy(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.3900)
    """

    k: K


@module_of(functional.topk_grouping)
class TopKGrouping(Loss):
    """Top-K grouping, see :func:`~topk_losses.functional.topk_grouping`.

    Example:
        >>> import torch
        >>> TopKGrouping(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.4608)
    """

    k: K


@module_of(functional.topk_transition)
class TopKTransition(Loss):
    """Top-K transition, see :func:`~topk_losses.functional.topk_transition`.

    Example:
        >>> import torch
        >>> TopKTransition(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.4608)
    """

    k: K
    detach_weight: bool = False
