"""Losses on soft memberships in the top K as modules."""

from __future__ import annotations

from collections.abc import Sequence

from topk_losses import functional
from topk_losses._core.checks import check_soft_topk
from topk_losses.functional.soft_topk import check_sorting
from topk_losses.modules._base import K, Loss, Positive, module_of

__all__ = ["LapSumTopKLoss", "SoftTopKLoss", "SortingTopKCrossEntropy"]


@module_of(functional.soft_topk_loss)
class SoftTopKLoss(Loss):
    """Soft top-K loss, see :func:`~topk_losses.functional.soft_topk_loss`.

    Example:
        >>> import torch
        >>> SoftTopKLoss(k=2, form="error")(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(0.6470)
    """

    k: K
    tau: Positive = 1.0
    shape: str = "logistic"
    form: str = "log"

    def check(self) -> None:
        """Refuse arguments of the constructor."""
        check_soft_topk(self.shape, self.form)


@module_of(functional.lapsum_topk_loss)
class LapSumTopKLoss(Loss):
    """LapSum top-K loss: :class:`SoftTopKLoss` with the Laplace shape, and the temperature as τ.

    Example:
        >>> import torch
        >>> LapSumTopKLoss(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(1.2736)
    """

    k: K
    temperature: Positive = 1.0


@module_of(functional.sorting_topk_cross_entropy)
class SortingTopKCrossEntropy(Loss):
    """Top-K cross-entropy with a sorting network, see :func:`~topk_losses.functional.sorting_topk_cross_entropy`.

    Example:
        >>> import torch
        >>> SortingTopKCrossEntropy(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(0.9830)
    """

    k: K
    steepness: float = 2.0
    candidates: int = 16
    relaxation: str = "cauchy"
    mixture: Sequence[float] | None = None

    def check(self) -> None:
        """Refuse arguments of the constructor."""
        check_sorting(self.k, self.steepness, self.candidates, self.relaxation, self.mixture)
