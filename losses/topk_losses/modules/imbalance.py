"""Cross-entropy for long tails as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, Unpack

import torch
from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import check_counts
from topk_losses._core.reduction import Shared
from topk_losses.margins import uneven_margins
from topk_losses.modules._base import Loss, Margins, NotNegative, Positive, module_of

__all__ = ["LDAM", "BalancedSoftmax", "LogitAdjusted", "VectorScaling"]


@module_of(functional.ldam)
class LDAM(Loss):
    """LDAM, see :func:`~topk_losses.functional.ldam`.

    The constructor takes margins; :meth:`from_counts` derives them from the class counts.

    Example:
        >>> import torch
        >>> loss = LDAM.from_counts([1600, 100, 100], max_margin=0.2)
        >>> loss(torch.tensor([[0.5, 0.4, 0.1]]), torch.tensor([1]))
        tensor(9.0001)
    """

    margins: Margins
    scale: Positive = 30.0

    @classmethod
    def from_counts(
        cls,
        class_counts: Tensor | Sequence[int],
        max_margin: float = 0.5,
        scale: float = 30.0,
        **shared: Unpack[Shared],
    ) -> Self:
        """Return the loss whose margins are :func:`~topk_losses.uneven_margins` of the class counts ``(L,)``."""
        return cls(uneven_margins(class_counts, max_margin), scale, **shared)


class _OfCounts(Loss):
    """What the losses of class counts have in common: a sequence of counts becomes a tensor."""

    class_counts: Tensor | Sequence[int]

    def check(self) -> None:
        """Refuse counts that are not above 0."""
        self.class_counts = torch.as_tensor(self.class_counts)
        check_counts(self.class_counts, look=True)


@module_of(functional.logit_adjusted)
class LogitAdjusted(_OfCounts):
    """Logit-adjusted cross-entropy, see :func:`~topk_losses.functional.logit_adjusted`.

    Example:
        >>> import torch
        >>> LogitAdjusted([100, 10, 1], tau=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(2.2734)
    """

    class_counts: Tensor | Sequence[int]
    tau: Positive = 1.0


@module_of(functional.balanced_softmax)
class BalancedSoftmax(_OfCounts):
    """Balanced softmax: :class:`LogitAdjusted` at τ = 1.

    Example:
        >>> import torch
        >>> BalancedSoftmax([100, 10, 1])(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(3.3400)
    """

    class_counts: Tensor | Sequence[int]


@module_of(functional.vector_scaling)
class VectorScaling(_OfCounts):
    """The vector-scaling loss, see :func:`~topk_losses.functional.vector_scaling`.

    Example:
        >>> import torch
        >>> VectorScaling([100, 10, 1])(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(3.8248)
    """

    class_counts: Tensor | Sequence[int]
    tau: NotNegative = 1.0
    gamma: NotNegative = 0.3
