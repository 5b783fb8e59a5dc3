"""The top-K cross-entropy with sorting networks as a module."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import check_k
from topk_losses.functional.sorting import check_sorting
from topk_losses.modules._base import Loss

__all__ = ["SortingTopKCrossEntropy"]


class SortingTopKCrossEntropy(Loss):
    """Top-K cross-entropy with a sorting network, see :func:`~topk_losses.functional.sorting_topk_cross_entropy`.

    Args:
        k: K, in ``[1, L - 1]`` and below ``candidates``.
        steepness: β, the inverse temperature, above 0.
        candidates: m, the number of wires, a power of two.
        relaxation: ``"cauchy"`` or ``"logistic"``.
        mixture: P_1 … P_K, each at least 0, with sum 1; None for P_K = 1.
        weight: one factor per class ``(L,)``, kept as a buffer.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.sorting_topk_cross_entropy` rejects.

    Example:
        >>> import torch
        >>> SortingTopKCrossEntropy(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(0.9830)
    """

    def __init__(
        self,
        k: int,
        steepness: float = 2.0,
        candidates: int = 16,
        relaxation: str = "cauchy",
        mixture: Sequence[float] | None = None,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        check_k(k)
        check_sorting(k, steepness, candidates, relaxation, mixture)
        self.k = k
        self.steepness = steepness
        self.candidates = candidates
        self.relaxation = relaxation
        self.mixture = mixture

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L, ...)`` and targets."""
        return functional.sorting_topk_cross_entropy(
            scores,
            target,
            k=self.k,
            steepness=self.steepness,
            candidates=self.candidates,
            relaxation=self.relaxation,
            mixture=self.mixture,
            **self._shared,
        )
