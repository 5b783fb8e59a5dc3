"""The area under the top-k curve as a module."""

from __future__ import annotations

from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import check_k, check_one_of
from topk_losses._rules.autkc import SURROGATES
from topk_losses.modules._base import Loss

__all__ = ["AUTKC"]


class AUTKC(Loss):
    """AUTKC, a surrogate for the area above the top-k curve, see :func:`~topk_losses.functional.autkc`.

    Args:
        k: K, in ``[1, L - 1]``.
        surrogate: ``"squared"``, ``"exponential"``, ``"logistic"`` or ``"hinge"``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.autkc` rejects.

    Example:
        >>> import torch
        >>> AUTKC(k=2, surrogate="hinge")(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.7500)
    """

    def __init__(
        self,
        k: int,
        surrogate: str = "squared",
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        check_one_of("surrogate", surrogate, tuple(SURROGATES))
        self.k = k
        self.surrogate = surrogate

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.autkc(scores, target, k=self.k, surrogate=self.surrogate, **self._shared)
