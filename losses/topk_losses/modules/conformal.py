"""Conformal training as a module."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from topk_losses import functional
from topk_losses._core.checks import check_not_negative, check_positive, check_share

__all__ = ["ConformalTraining"]


class ConformalTraining(nn.Module):
    """Conformal training, see :func:`~topk_losses.functional.conformal_training`.

    Args:
        alpha: α, in [0, 1): the share of true classes that sets may miss.
        temperature: T, above 0.
        kappa: κ, at least 0: sets up to this size cost nothing.
        size_weight: λ, at least 0.
        classification: γ, at least 0.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.conformal_training` rejects.

    Example:
        >>> import torch
        >>> scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0], [1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
        >>> ConformalTraining(kappa=0.0)(scores, torch.tensor([0, 1, 2, 1]))
        tensor(-0.6382)
    """

    soft_targets: ClassVar[bool] = False

    def __init__(
        self,
        alpha: float = 0.01,
        temperature: float = 1.0,
        kappa: float = 1.0,
        size_weight: float = 0.01,
        classification: float = 1.0,
    ) -> None:
        super().__init__()
        check_share("alpha", alpha)
        check_positive("temperature", temperature)
        for name, value in (
            ("kappa", kappa),
            ("size_weight", size_weight),
            ("classification", classification),
        ):
            check_not_negative(name, value)
        self.alpha, self.temperature, self.kappa = alpha, temperature, kappa
        self.size_weight, self.classification = size_weight, classification

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of a batch's scores ``(N, L)`` and labels ``(N,)``."""
        return functional.conformal_training(
            scores, target, self.alpha, self.temperature, self.kappa, self.size_weight, self.classification
        )

    def extra_repr(self) -> str:
        """Return the constructor's arguments as text."""
        return (
            f"alpha={self.alpha}, temperature={self.temperature}, kappa={self.kappa}, "
            f"size_weight={self.size_weight}, classification={self.classification}"
        )
