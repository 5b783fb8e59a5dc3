"""Top-K grouping and transition as modules."""

from __future__ import annotations

from topk_losses import functional
from topk_losses.modules._base import K, Loss, module_of

__all__ = ["TopKGrouping", "TopKTransition"]


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
