"""Bounded losses against wrong labels as modules."""

from __future__ import annotations

from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import check_asymmetric, check_not_negative, check_one_of
from topk_losses._rules.robust import PASSIVE
from topk_losses.modules._base import Loss

__all__ = ["ActivePassiveLoss", "AsymmetricLoss", "SymmetricCrossEntropy"]


class SymmetricCrossEntropy(Loss):
    """Symmetric cross-entropy, see :func:`~topk_losses.functional.symmetric_cross_entropy`.

    Args:
        alpha: α, at least 0.
        beta: β, at least 0.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.symmetric_cross_entropy` rejects.

    Example:
        >>> import torch
        >>> SymmetricCrossEntropy()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(7.0971)
    """

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_not_negative("alpha", alpha)
        check_not_negative("beta", beta)
        self.alpha = alpha
        self.beta = beta

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.symmetric_cross_entropy(
            scores, target, alpha=self.alpha, beta=self.beta, **self._shared
        )


class ActivePassiveLoss(Loss):
    """Active-passive loss, see :func:`~topk_losses.functional.active_passive_loss`.

    Args:
        alpha: α, at least 0.
        beta: β, at least 0.
        passive: ``"mae"``, ``"rce"`` or ``"nnce"``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.active_passive_loss` rejects.

    Example:
        >>> import torch
        >>> ActivePassiveLoss()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(7.2896)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        beta: float = 1.0,
        passive: str = "rce",
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_not_negative("alpha", alpha)
        check_not_negative("beta", beta)
        check_one_of("passive", passive, tuple(PASSIVE))
        self.alpha = alpha
        self.beta = beta
        self.passive = passive

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.active_passive_loss(
            scores, target, alpha=self.alpha, beta=self.beta, passive=self.passive, **self._shared
        )


class AsymmetricLoss(Loss):
    """Asymmetric loss, see :func:`~topk_losses.functional.asymmetric_loss`.

    Args:
        form: ``"agce"``, ``"aul"`` or ``"ael"``.
        a: a, above 0, for ``"aul"`` above 1.
        q: q, above 0.
        alpha: α, at least 0.
        beta: β, at least 0.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.asymmetric_loss` rejects.

    Example:
        >>> import torch
        >>> AsymmetricLoss()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(0.7034)
    """

    def __init__(
        self,
        form: str = "agce",
        a: float = 0.6,
        q: float = 0.6,
        alpha: float = 0.0,
        beta: float = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_asymmetric(form, a, q)
        check_not_negative("alpha", alpha)
        check_not_negative("beta", beta)
        self.form = form
        self.a = a
        self.q = q
        self.alpha = alpha
        self.beta = beta

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.asymmetric_loss(
            scores,
            target,
            form=self.form,
            a=self.a,
            q=self.q,
            alpha=self.alpha,
            beta=self.beta,
            **self._shared,
        )
