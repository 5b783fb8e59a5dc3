"""Generalised cross-entropy as a module."""

from __future__ import annotations

from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import check_exponent
from topk_losses.modules._base import Loss

__all__ = ["GeneralizedCrossEntropy", "MeanAbsoluteError"]


class GeneralizedCrossEntropy(Loss):
    """Generalised cross-entropy, see :func:`~topk_losses.functional.generalized_cross_entropy`.

    Args:
        gamma: γ, above 0 and at most 1.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.generalized_cross_entropy` rejects.

    Example:
        >>> import torch
        >>> GeneralizedCrossEntropy(gamma=1.0)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([0]))
        tensor(0.3692)
    """

    def __init__(
        self,
        gamma: float = 0.7,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_exponent("gamma", gamma)
        self.gamma = gamma

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.generalized_cross_entropy(scores, target, gamma=self.gamma, **self._shared)


class MeanAbsoluteError(GeneralizedCrossEntropy):
    """Mean absolute error: :class:`GeneralizedCrossEntropy` at γ = 1, with its other arguments."""

    def __init__(
        self, *, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(1.0, weight=weight, ignore_index=ignore_index, reduction=reduction)
