"""Cross-entropy for long tails as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import check_margins, check_not_negative, check_positive
from topk_losses.margins import uneven_margins
from topk_losses.modules._base import Loss, check_values

__all__ = ["LDAM", "BalancedSoftmax", "LogitAdjusted", "VectorScaling"]


class LDAM(Loss):
    """LDAM, see :func:`~topk_losses.functional.ldam`.

    The constructor takes margins; :meth:`from_counts` derives them from the class counts.

    Args:
        margins: m, one per class ``(L,)``, kept as a buffer.
        scale: λ, above 0.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.ldam` rejects.

    Example:
        >>> import torch
        >>> loss = LDAM.from_counts([1600, 100, 100], max_margin=0.2)
        >>> loss(torch.tensor([[0.5, 0.4, 0.1]]), torch.tensor([1]))
        tensor(9.0001)
    """

    margins: Tensor

    def __init__(
        self,
        margins: Tensor,
        scale: float = 30.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_margins(margins)
        check_values("margins", margins)
        check_positive("scale", scale)
        self.register_buffer("margins", margins)
        self.scale = scale

    @classmethod
    def from_counts(
        cls,
        class_counts: Tensor | Sequence[int],
        max_margin: float = 0.5,
        scale: float = 30.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Self:
        """Return the loss whose margins are :func:`~topk_losses.uneven_margins` of the class counts ``(L,)``."""
        margins = uneven_margins(class_counts, max_margin)
        return cls(margins, scale, weight=weight, ignore_index=ignore_index, reduction=reduction)

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.ldam(scores, target, margins=self.margins, scale=self.scale, **self._shared)


class LogitAdjusted(Loss):
    """Logit-adjusted cross-entropy, see :func:`~topk_losses.functional.logit_adjusted`.

    Args:
        class_counts: n, the number of training samples of each class ``(L,)``, above 0, kept as a buffer.
        tau: τ, above 0.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.logit_adjusted` rejects.

    Example:
        >>> import torch
        >>> LogitAdjusted([100, 10, 1], tau=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(2.2734)
    """

    class_counts: Tensor

    def __init__(
        self,
        class_counts: Tensor | Sequence[int],
        tau: float = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self._set_counts(class_counts)
        check_positive("tau", tau)
        self.tau = tau

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.logit_adjusted(
            scores, target, class_counts=self.class_counts, tau=self.tau, **self._shared
        )


class BalancedSoftmax(LogitAdjusted):
    """Balanced softmax: :class:`LogitAdjusted` at τ = 1, with its other arguments."""

    def __init__(
        self,
        class_counts: Tensor | Sequence[int],
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(class_counts, weight=weight, ignore_index=ignore_index, reduction=reduction)


class VectorScaling(Loss):
    """The vector-scaling loss, see :func:`~topk_losses.functional.vector_scaling`.

    Args:
        class_counts: n, the number of training samples of each class ``(L,)``, above 0, kept as a buffer.
        tau: τ, at least 0.
        gamma: γ, at least 0.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.vector_scaling` rejects.

    Example:
        >>> import torch
        >>> VectorScaling([100, 10, 1])(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(3.8248)
    """

    class_counts: Tensor

    def __init__(
        self,
        class_counts: Tensor | Sequence[int],
        tau: float = 1.0,
        gamma: float = 0.3,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self._set_counts(class_counts)
        check_not_negative("tau", tau)
        check_not_negative("gamma", gamma)
        self.tau = tau
        self.gamma = gamma

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.vector_scaling(
            scores, target, class_counts=self.class_counts, tau=self.tau, gamma=self.gamma, **self._shared
        )
