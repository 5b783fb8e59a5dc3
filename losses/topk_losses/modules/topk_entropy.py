"""Top-K entropy as a module."""

from __future__ import annotations

from torch import Tensor

from topk_losses import functional
from topk_losses._checks import check_k
from topk_losses.modules._base import Loss

__all__ = ["TopKEntropy"]


class TopKEntropy(Loss):
    """Top-K entropy, see :func:`~topk_losses.functional.topk_entropy`.

    Args:
        k: K, in ``[1, L - 1]``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label that counts for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.topk_entropy` rejects.

    Example:
        >>> import torch
        >>> TopKEntropy(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.3900)
    """

    def __init__(
        self,
        k: int,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        self.k = k

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Scores ``(N, L, ...)`` and targets to the loss."""
        return functional.topk_entropy(
            scores,
            target,
            k=self.k,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )
