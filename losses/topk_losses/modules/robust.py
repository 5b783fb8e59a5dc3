"""Losses against wrong labels as modules."""

from __future__ import annotations

from topk_losses import functional
from topk_losses._core.checks import check_one_of
from topk_losses.functional.robust import PASSIVE, check_asymmetric
from topk_losses.modules._base import Loss, NotNegative, Positive, Share, module_of

__all__ = ["ActivePassiveLoss", "AsymmetricLoss", "LabelSmoothing", "LogitClip", "SymmetricCrossEntropy"]


@module_of(functional.label_smoothing)
class LabelSmoothing(Loss):
    """Label smoothing, see :func:`~topk_losses.functional.label_smoothing`.

    Example:
        >>> import torch
        >>> LabelSmoothing()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(1.4076)
    """

    epsilon: Share = 0.1


@module_of(functional.logit_clip)
class LogitClip(Loss):
    """LogitClip, see :func:`~topk_losses.functional.logit_clip`.

    Example:
        >>> import torch
        >>> LogitClip()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(1.2433)
    """

    limit: Positive = 1.5


@module_of(functional.symmetric_cross_entropy)
class SymmetricCrossEntropy(Loss):
    """Symmetric cross-entropy, see :func:`~topk_losses.functional.symmetric_cross_entropy`.

    Example:
        >>> import torch
        >>> SymmetricCrossEntropy()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(7.0971)
    """

    alpha: NotNegative = 0.1
    beta: NotNegative = 1.0


@module_of(functional.active_passive_loss)
class ActivePassiveLoss(Loss):
    """Active-passive loss, see :func:`~topk_losses.functional.active_passive_loss`.

    Example:
        >>> import torch
        >>> ActivePassiveLoss()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(7.2896)
    """

    alpha: NotNegative = 1.0
    beta: NotNegative = 1.0
    passive: str = "rce"

    def check(self) -> None:
        """Refuse arguments of the constructor."""
        check_one_of("passive", self.passive, tuple(PASSIVE))


@module_of(functional.asymmetric_loss)
class AsymmetricLoss(Loss):
    """Asymmetric loss, see :func:`~topk_losses.functional.asymmetric_loss`.

    Example:
        >>> import torch
        >>> AsymmetricLoss()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(0.7034)
    """

    form: str = "agce"
    a: float = 0.6
    q: float = 0.6
    alpha: NotNegative = 0.0
    beta: NotNegative = 1.0

    def check(self) -> None:
        """Refuse arguments of the constructor."""
        check_asymmetric(self.form, self.a, self.q)
