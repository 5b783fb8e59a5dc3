"""Hinge losses on the K-th largest score as modules."""

from __future__ import annotations

from torch import Tensor

from topk_losses import functional
from topk_losses._checks import check_k
from topk_losses.modules._base import Loss

__all__ = ["CalibratedTopKHinge", "ConvexTopKHinge", "TopKHinge"]


class TopKHinge(Loss):
    """Top-K hinge, see :func:`~topk_losses.functional.topk_hinge`.

    Args:
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label that counts for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.topk_hinge` rejects.

    Example:
        >>> import torch
        >>> TopKHinge(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.)
    """

    def __init__(
        self,
        k: int,
        margin: float | Tensor = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        self.k = k
        self._set_margin(margin)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Scores ``(N, L, ...)`` and targets to the loss."""
        return functional.topk_hinge(
            scores,
            target,
            k=self.k,
            margin=self.margin,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class ConvexTopKHinge(Loss):
    """Convex top-K hinge, see :func:`~topk_losses.functional.convex_topk_hinge`.

    Args:
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label that counts for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.convex_topk_hinge` rejects.

    Example:
        >>> import torch
        >>> ConvexTopKHinge(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.5000)
    """

    def __init__(
        self,
        k: int,
        margin: float | Tensor = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        self.k = k
        self._set_margin(margin)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Scores ``(N, L, ...)`` and targets to the loss."""
        return functional.convex_topk_hinge(
            scores,
            target,
            k=self.k,
            margin=self.margin,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class CalibratedTopKHinge(Loss):
    """Calibrated top-K hinge, see :func:`~topk_losses.functional.calibrated_topk_hinge`.

    Args:
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label that counts for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.calibrated_topk_hinge` rejects.

    Example:
        >>> import torch
        >>> CalibratedTopKHinge(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(1.)
    """

    def __init__(
        self,
        k: int,
        margin: float | Tensor = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        self.k = k
        self._set_margin(margin)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Scores ``(N, L, ...)`` and targets to the loss."""
        return functional.calibrated_topk_hinge(
            scores,
            target,
            k=self.k,
            margin=self.margin,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )
