"""The losses by name, as functions of the arm's k, the class counts and the loss's own parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

import topk_losses as tl

__all__ = ["LOSSES", "TemperedCrossEntropy"]


class TemperedCrossEntropy(nn.Module):
    """Cross-entropy with a temperature, ``T · CE(s / T)``, so that it has a parameter to search as other losses do.

    At ``T = 1`` it is cross-entropy; as ``T → 0`` it tends to ``max(s) - s_y``.

    Args:
        temperature: T, above 0.

    Example:
        >>> import torch
        >>> scores, target = torch.randn(4, 10), torch.randint(10, (4,))
        >>> bool(TemperedCrossEntropy(1.0)(scores, target) == tl.CrossEntropy()(scores, target))
        True
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature!r}")
        self.temperature = temperature
        self.cross_entropy = tl.CrossEntropy()

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores ``(N, L)`` and labels, int64 ``(N,)`` or soft ``(N, L)``."""
        if self.temperature == 1:
            return self.cross_entropy(scores, target)  # type: ignore[no-any-return]
        loss: Tensor = self.cross_entropy(scores / self.temperature, target)
        return self.temperature * loss


def _at_least_one(class_counts: Tensor) -> Tensor:
    """Return the counts with 1 instead of 0: label noise can leave a class without a sample.

    A class without a sample is never the target, so its own margin is never used. As a competitor of other classes it
    gets the offset of a class with one sample. With a count of 0, the logarithm would take it out of the softmax.
    Deferred class weights do the same, see :func:`~topk_platform.training.steps.optim.effective_weights`.
    """
    return class_counts.clamp(min=1)


def _own(loss: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Return a loss as a function of what it has of its own: class weights and reductions are not for studies."""
    signature = inspect.signature(loss)
    own = [taken for taken in signature.parameters.values() if taken.kind is not taken.KEYWORD_ONLY]

    def built(**given: Any) -> nn.Module:
        if "class_counts" in given:
            given["class_counts"] = _at_least_one(given["class_counts"])
        return loss(**given)

    built.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    return built


def _ldam(class_counts: Tensor, max_margin: float = 0.5, scale: float = 30.0) -> nn.Module:
    return tl.LDAM(tl.uneven_margins(_at_least_one(class_counts), max_margin), scale=scale)


def _noised_imbalanced(
    k: int,
    class_counts: Tensor,
    epsilon: float = 0.01,
    samples: int | None = 5,
    max_margin: float = 0.2,
    scale: float = 50.0,
) -> nn.Module:
    margins = tl.uneven_margins(_at_least_one(class_counts), max_margin)
    return tl.NoisedImbalancedTopKHinge(k, margins, epsilon=epsilon, samples=samples, scale=scale)


def _early_learning(class_counts: Tensor, strength: float = 3.0, beta: float = 0.7) -> nn.Module:
    return tl.EarlyLearning(int(class_counts.sum()), len(class_counts), strength, beta)


def _sorting_topk_cross_entropy(
    k: int, steepness: float = 2.0, candidates: int = 16, relaxation: str = "cauchy", top1: float = 0.0
) -> nn.Module:
    """Return the loss; ``top1`` is the weight of its top-1 component, and ``1 - top1`` that of top-K."""
    mixture = [top1] + [0.0] * (k - 2) + [1 - top1] if k > 1 and top1 else None
    return tl.SortingTopKCrossEntropy(k, steepness, candidates, relaxation, mixture)


LOSSES: dict[str, Callable[..., nn.Module]] = {
    "active_passive_loss": _own(tl.ActivePassiveLoss),
    "asymmetric_loss": _own(tl.AsymmetricLoss),
    "autkc": _own(tl.AUTKC),
    "balanced_softmax": _own(tl.BalancedSoftmax),
    "calibrated_topk_hinge": _own(tl.CalibratedTopKHinge),
    "conformal_training": _own(tl.ConformalTraining),
    "convex_topk_hinge": _own(tl.ConvexTopKHinge),
    "cross_entropy": TemperedCrossEntropy,
    "early_learning": _early_learning,
    "focal": _own(tl.Focal),
    "generalized_cross_entropy": _own(tl.GeneralizedCrossEntropy),
    "label_smoothing": _own(tl.LabelSmoothing),
    "ldam": _ldam,
    "logit_adjusted": _own(tl.LogitAdjusted),
    "logit_clip": _own(tl.LogitClip),
    "noised_imbalanced_topk_hinge": _noised_imbalanced,
    "noised_topk_hinge": _own(tl.NoisedTopKHinge),
    "smooth_topk_hinge": _own(tl.SmoothTopKHinge),
    "smooth_topk_svm": _own(tl.SmoothTopKSVM),
    "soft_topk_loss": _own(tl.SoftTopKLoss),
    "sorting_topk_cross_entropy": _sorting_topk_cross_entropy,
    "symmetric_cross_entropy": _own(tl.SymmetricCrossEntropy),
    "topk_entropy": _own(tl.TopKEntropy),
    "topk_grouping": _own(tl.TopKGrouping),
    "topk_hinge": _own(tl.TopKHinge),
    "topk_transition": _own(tl.TopKTransition),
    "truncated_topk_entropy": _own(tl.TruncatedTopKEntropy),
    "vector_scaling": _own(tl.VectorScaling),
}
