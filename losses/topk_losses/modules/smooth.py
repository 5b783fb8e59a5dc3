"""The smooth top-K SVM as a module."""

from __future__ import annotations

from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import check_k, check_positive
from topk_losses.modules._base import Loss

__all__ = ["SmoothTopKSVM"]


class SmoothTopKSVM(Loss):
    """Smooth top-K SVM, see :func:`~topk_losses.functional.smooth_topk_svm`.

    Args:
        k: K, in ``[1, L - 1]``.
        tau: temperature τ, above 0.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.smooth_topk_svm` rejects.

    Example:
        >>> import torch
        >>> SmoothTopKSVM(k=2, tau=0.1)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(1.4994)
    """

    soft_targets = False

    def __init__(
        self,
        k: int,
        tau: float = 1.0,
        margin: float | Tensor = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        check_positive("tau", tau)
        self.k = k
        self.tau = tau
        self._set_margin(margin)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.smooth_topk_svm(
            scores, target, k=self.k, tau=self.tau, margin=self.margin, **self._shared
        )
