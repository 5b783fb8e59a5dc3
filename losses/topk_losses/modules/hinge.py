"""Hinge losses on the K-th largest score as modules."""

from __future__ import annotations

from torch import Tensor

from topk_losses import functional
from topk_losses.modules._base import TopKHingeLoss

__all__ = ["CalibratedTopKHinge", "ConvexTopKHinge", "TopKHinge"]


class TopKHinge(TopKHingeLoss):
    """Top-K hinge, see :func:`~topk_losses.functional.topk_hinge`.

    Args:
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.topk_hinge` rejects.

    Example:
        >>> import torch
        >>> TopKHinge(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.)
    """

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.topk_hinge(scores, target, k=self.k, margin=self.margin, **self._shared)


class ConvexTopKHinge(TopKHingeLoss):
    """Convex top-K hinge, see :func:`~topk_losses.functional.convex_topk_hinge`.

    Args:
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.convex_topk_hinge` rejects.

    Example:
        >>> import torch
        >>> ConvexTopKHinge(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.5000)
    """

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.convex_topk_hinge(scores, target, k=self.k, margin=self.margin, **self._shared)


class CalibratedTopKHinge(TopKHingeLoss):
    """Calibrated top-K hinge, see :func:`~topk_losses.functional.calibrated_topk_hinge`.

    Args:
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.calibrated_topk_hinge` rejects.

    Example:
        >>> import torch
        >>> CalibratedTopKHinge(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(1.)
    """

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.calibrated_topk_hinge(scores, target, k=self.k, margin=self.margin, **self._shared)
