"""Conformal training as a module."""

from __future__ import annotations

from topk_losses import functional
from topk_losses.modules._base import Configured, NotNegative, Positive, Share, module_of

__all__ = ["ConformalTraining"]


@module_of(functional.conformal_training)
class ConformalTraining(Configured):
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

    soft_targets = False

    alpha: Share = 0.01
    temperature: Positive = 1.0
    kappa: NotNegative = 1.0
    size_weight: NotNegative = 0.01
    classification: NotNegative = 1.0
