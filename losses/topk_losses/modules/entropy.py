"""Cross-entropy and its relatives as modules."""

from __future__ import annotations

from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import check_not_negative
from topk_losses.modules._base import Loss, TopKLoss

__all__ = ["CrossEntropy", "Focal", "TruncatedTopKEntropy"]


class CrossEntropy(Loss):
    """Cross-entropy, see :func:`~topk_losses.functional.cross_entropy`.

    Args:
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.cross_entropy` rejects.

    Example:
        >>> import torch
        >>> CrossEntropy()(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.4608)
    """

    def __init__(
        self, *, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(weight, ignore_index, reduction)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.cross_entropy(scores, target, **self._shared)


class Focal(Loss):
    """Focal loss, see :func:`~topk_losses.functional.focal`.

    Args:
        gamma: γ, at least 0.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.focal` rejects.

    Example:
        >>> import torch
        >>> Focal(gamma=2.0)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.0586)
    """

    def __init__(
        self,
        gamma: float = 2.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_not_negative("gamma", gamma)
        self.gamma = gamma

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.focal(scores, target, gamma=self.gamma, **self._shared)


class TruncatedTopKEntropy(TopKLoss):
    """Truncated top-K entropy, see :func:`~topk_losses.functional.truncated_topk_entropy`.

    Args:
        k: K, in ``[1, L - 1]``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.truncated_topk_entropy` rejects.

    Example:
        >>> import torch
        >>> TruncatedTopKEntropy(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(1.4644)
    """

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.truncated_topk_entropy(scores, target, k=self.k, **self._shared)
