"""The loss on LapSum's soft top-K as a module."""

from __future__ import annotations

from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import check_k, check_positive
from topk_losses.modules._base import Loss

__all__ = ["LapSumTopKLoss"]


class LapSumTopKLoss(Loss):
    """LapSum top-K loss, see :func:`~topk_losses.functional.lapsum_topk_loss`.

    Args:
        k: K, in ``[1, L - 1]``.
        temperature: T, above 0.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.lapsum_topk_loss` rejects.

    Example:
        >>> import torch
        >>> LapSumTopKLoss(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(1.2736)
    """

    def __init__(
        self,
        k: int,
        temperature: float = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        check_positive("temperature", temperature)
        self.k = k
        self.temperature = temperature

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.lapsum_topk_loss(
            scores,
            target,
            k=self.k,
            temperature=self.temperature,
            **self._shared,
        )
