"""The noised top-K hinges as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import check_k, check_margins, check_not_negative, check_positive, check_samples
from topk_losses.margins import uneven_margins
from topk_losses.modules._base import Loss, check_values

__all__ = ["NoisedImbalancedTopKHinge", "NoisedTopKHinge"]


class NoisedTopKHinge(Loss):
    """Noised top-K hinge, see :func:`~topk_losses.functional.noised_topk_hinge`.

    Args:
        k: K, in ``[1, L - 1]``.
        epsilon: ε, the standard deviation of the noise, at least 0.
        samples: B, the number of draws, or None for the exact expectation. Evaluation mode (``loss.eval()``) also
            computes the exact expectation.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.noised_topk_hinge` rejects.

    Example:
        >>> import torch
        >>> loss = NoisedTopKHinge(k=2, epsilon=0.5, samples=None)
        >>> loss(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(1.0731)
    """

    def __init__(
        self,
        k: int,
        epsilon: float = 0.2,
        samples: int | None = 10,
        margin: float | Tensor = 1.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        check_not_negative("epsilon", epsilon)
        check_samples(samples)
        self.k = k
        self.epsilon = epsilon
        self.samples = samples
        self._set_margin(margin)

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
        samples = _samples_of(self, noise, generator)
        return functional.noised_topk_hinge(
            scores,
            target,
            k=self.k,
            epsilon=self.epsilon,
            samples=samples,
            margin=self.margin,
            noise=noise,
            generator=generator,
            **self._shared,
        )


class NoisedImbalancedTopKHinge(Loss):
    """Noised imbalanced top-K hinge, see :func:`~topk_losses.functional.noised_imbalanced_topk_hinge`.

    The constructor takes margins; :meth:`from_counts` derives them from the class counts.

    Args:
        k: K, in ``[1, L - 1]``.
        margins: m, one per class ``(L,)``, kept as a buffer.
        epsilon: ε, the standard deviation of the noise, at least 0.
        samples: B, the number of draws, or None for the exact expectation. Evaluation mode (``loss.eval()``) also
            computes the exact expectation.
        scale: λ, above 0.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for what :func:`~topk_losses.functional.noised_imbalanced_topk_hinge` rejects.

    Example:
        >>> import torch
        >>> loss = NoisedImbalancedTopKHinge.from_counts([1600, 100, 1600, 1600], k=2, epsilon=0.0)
        >>> loss(torch.tensor([[0.9, 0.1, 0.5, 0.0]]), torch.tensor([1]))
        tensor(10.)
    """

    margins: Tensor

    def __init__(
        self,
        k: int,
        margins: Tensor,
        epsilon: float = 0.01,
        samples: int | None = 5,
        scale: float = 50.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        check_margins(margins)
        check_values("margins", margins)
        check_not_negative("epsilon", epsilon)
        check_samples(samples)
        check_positive("scale", scale)
        self.k = k
        self.register_buffer("margins", margins)
        self.epsilon = epsilon
        self.samples = samples
        self.scale = scale

    @classmethod
    def from_counts(
        cls,
        class_counts: Tensor | Sequence[int],
        k: int,
        max_margin: float = 0.2,
        epsilon: float = 0.01,
        samples: int | None = 5,
        scale: float = 50.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Self:
        """Return the loss whose margins are :func:`~topk_losses.uneven_margins` of the class counts ``(L,)``."""
        margins = uneven_margins(class_counts, max_margin)
        return cls(
            k, margins, epsilon, samples, scale, weight=weight, ignore_index=ignore_index, reduction=reduction
        )

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
        samples = _samples_of(self, noise, generator)
        return functional.noised_imbalanced_topk_hinge(
            scores,
            target,
            k=self.k,
            margins=self.margins,
            epsilon=self.epsilon,
            samples=samples,
            scale=self.scale,
            noise=noise,
            generator=generator,
            **self._shared,
        )


def _samples_of(
    loss: NoisedTopKHinge | NoisedImbalancedTopKHinge,
    noise: Tensor | None,
    generator: torch.Generator | Sequence[torch.Generator] | None,
) -> int | None:
    """Return B, or None for the exact expectation."""
    return loss.samples if loss.training or noise is not None or generator is not None else None
