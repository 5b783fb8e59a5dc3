"""The losses on the soft top-K membership that a threshold defines, as a module."""

from __future__ import annotations

from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import check_k, check_positive, check_soft_topk
from topk_losses.modules._base import Loss

__all__ = ["LapSumTopKLoss", "SoftTopKLoss"]


class SoftTopKLoss(Loss):
    """Soft top-K loss, see :func:`~topk_losses.functional.soft_topk_loss`.

    Args:
        k: K, in ``[1, L - 1]``.
        tau: τ, above 0.
        shape: ``"logistic"``, ``"laplace"``, ``"gaussian"``, ``"clip"``, ``"power"`` or ``"midpoint"``.
        form: ``"log"``, which ``"clip"`` and ``"power"`` do not have, or ``"error"``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.soft_topk_loss` rejects.

    Example:
        >>> import torch
        >>> SoftTopKLoss(k=2, form="error")(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(0.6470)
    """

    def __init__(
        self,
        k: int,
        tau: float = 1.0,
        shape: str = "logistic",
        form: str = "log",
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        check_positive("tau", tau)
        check_soft_topk(shape, form)
        self.k = k
        self.tau = tau
        self.shape = shape
        self.form = form

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.soft_topk_loss(
            scores, target, k=self.k, tau=self.tau, shape=self.shape, form=self.form, **self._shared
        )


class LapSumTopKLoss(SoftTopKLoss):
    """LapSum top-K loss: :class:`SoftTopKLoss` with the Laplace shape, and the temperature as τ."""

    def __init__(
        self,
        k: int,
        temperature: float = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        check_positive("temperature", temperature)
        super().__init__(
            k, temperature, "laplace", weight=weight, ignore_index=ignore_index, reduction=reduction
        )

    @property
    def temperature(self) -> float:
        """τ by the name that the paper gives it."""
        return self.tau
