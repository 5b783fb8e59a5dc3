"""Top-K entropy as a module."""

from __future__ import annotations

from torch import Tensor

from topk_losses import functional
from topk_losses.modules._base import TopKLoss

__all__ = ["TopKEntropy"]


class TopKEntropy(TopKLoss):
    """Top-K entropy, see :func:`~topk_losses.functional.topk_entropy`.

    Args:
        k: K, in ``[1, L - 1]``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.topk_entropy` rejects.

    Example:
        >>> import torch
        >>> TopKEntropy(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.3900)
    """

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.topk_entropy(scores, target, k=self.k, **self._shared)
