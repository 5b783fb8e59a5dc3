"""The smooth convex top-K hinge as a module."""

from __future__ import annotations

from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import check_k, check_positive
from topk_losses.modules._base import Loss

__all__ = ["SmoothTopKHinge"]


class SmoothTopKHinge(Loss):
    """Smooth top-K hinge, see :func:`~topk_losses.functional.smooth_topk_hinge`.

    Args:
        k: K, in ``[1, L - 1]``.
        gamma: γ, the strength of the smoothing, above 0.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.smooth_topk_hinge` rejects.

    Example:
        >>> import torch
        >>> SmoothTopKHinge(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.2500)
    """

    def __init__(
        self,
        k: int,
        gamma: float = 1.0,
        margin: float | Tensor = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        check_positive("gamma", gamma)
        self.k = k
        self.gamma = gamma
        self._set_margin(margin)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.smooth_topk_hinge(
            scores, target, k=self.k, gamma=self.gamma, margin=self.margin, **self._shared
        )
