"""Top-K grouping and transition as modules."""

from __future__ import annotations

from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import check_k
from topk_losses.modules._base import Loss, TopKLoss

__all__ = ["TopKGrouping", "TopKTransition"]


class TopKGrouping(TopKLoss):
    """Top-K grouping, see :func:`~topk_losses.functional.topk_grouping`.

    Args:
        k: K, in ``[1, L - 1]``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.topk_grouping` rejects.

    Example:
        >>> import torch
        >>> TopKGrouping(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.4608)
    """

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.topk_grouping(scores, target, k=self.k, **self._shared)


class TopKTransition(Loss):
    """Top-K transition, see :func:`~topk_losses.functional.topk_transition`.

    Args:
        k: K, in ``[1, L - 1]``.
        detach_weight: whether the gradient treats S as a constant.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.topk_transition` rejects.

    Example:
        >>> import torch
        >>> TopKTransition(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.4608)
    """

    def __init__(
        self,
        k: int,
        detach_weight: bool = False,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        self.k = k
        self.detach_weight = detach_weight

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.topk_transition(
            scores, target, k=self.k, detach_weight=self.detach_weight, **self._shared
        )
