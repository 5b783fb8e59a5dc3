"""The noised top-K hinges as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, Unpack

import torch
from torch import Tensor

from topk_losses import functional
from topk_losses._core.reduction import Shared
from topk_losses.margins import uneven_margins
from topk_losses.modules._base import K, Loss, Margin, Margins, NotNegative, Positive, Samples, module_of

__all__ = ["NoisedImbalancedTopKHinge", "NoisedTopKHinge"]


class _Noised(Loss):
    """What the noised hinges have in common: draws in training mode, the exact expectation in evaluation mode."""

    def forward(
        self,
        scores: Tensor,
        target: Tensor,
        *,
        noise: Tensor | None = None,
        generator: torch.Generator | Sequence[torch.Generator] | None = None,
    ) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets; ``noise`` has the shape ``(B, N, L, ...)``.

        In evaluation mode the loss is the exact expectation, unless ``noise`` or ``generator`` is given.
        """
        given: dict[str, Any] = {"noise": noise, "generator": generator}
        if not self.training and noise is None and generator is None:
            given["samples"] = None
        return self._value(scores, target, **given)


@module_of(functional.noised_topk_hinge)
class NoisedTopKHinge(_Noised):
    """Noised top-K hinge, see :func:`~topk_losses.functional.noised_topk_hinge`.

    Evaluation mode (``loss.eval()``) computes the exact expectation, as ``samples=None`` always does.

    Example:
        >>> import torch
        >>> loss = NoisedTopKHinge(k=2, epsilon=0.5, samples=None)
        >>> loss(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(1.0731)
    """

    k: K
    epsilon: NotNegative = 0.2
    samples: Samples = 10
    margin: Margin = 1.0


@module_of(functional.noised_imbalanced_topk_hinge)
class NoisedImbalancedTopKHinge(_Noised):
    """Noised imbalanced top-K hinge, see :func:`~topk_losses.functional.noised_imbalanced_topk_hinge`.

    The constructor takes margins; :meth:`from_counts` derives them from the class counts. Evaluation mode
    (``loss.eval()``) computes the exact expectation, as ``samples=None`` always does.

    Example:
        >>> import torch
        >>> loss = NoisedImbalancedTopKHinge.from_counts([1600, 100, 1600, 1600], k=2, epsilon=0.0)
        >>> loss(torch.tensor([[0.9, 0.1, 0.5, 0.0]]), torch.tensor([1]))
        tensor(10.)
    """

    k: K
    margins: Margins
    epsilon: NotNegative = 0.01
    samples: Samples = 5
    scale: Positive = 50.0

    @classmethod
    def from_counts(
        cls,
        class_counts: Tensor | Sequence[int],
        k: int,
        max_margin: float = 0.2,
        epsilon: float = 0.01,
        samples: int | None = 5,
        scale: float = 50.0,
        **shared: Unpack[Shared],
    ) -> Self:
        """Return the loss whose margins are :func:`~topk_losses.uneven_margins` of the class counts ``(L,)``."""
        return cls(k, uneven_margins(class_counts, max_margin), epsilon, samples, scale, **shared)
