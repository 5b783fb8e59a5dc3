"""The losses by name, as functions of the arm's k, the class counts and the loss's own parameters."""

from __future__ import annotations

from collections.abc import Callable

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


def _noised(k: int, epsilon: float = 0.2, samples: int | None = 10, margin: float = 1.0) -> nn.Module:
    return tl.NoisedTopKHinge(k, epsilon=epsilon, samples=samples, margin=margin)


def _smooth(k: int, tau: float = 1.0, margin: float = 1.0) -> nn.Module:
    return tl.SmoothTopKSVM(k, tau=tau, margin=margin)


def _topk_hinge(k: int, margin: float = 1.0) -> nn.Module:
    return tl.TopKHinge(k, margin=margin)


def _convex_topk_hinge(k: int, margin: float = 1.0) -> nn.Module:
    return tl.ConvexTopKHinge(k, margin=margin)


def _calibrated_topk_hinge(k: int, margin: float = 1.0) -> nn.Module:
    return tl.CalibratedTopKHinge(k, margin=margin)


def _focal(gamma: float = 2.0) -> nn.Module:
    return tl.Focal(gamma)


def _generalized_cross_entropy(gamma: float = 0.7) -> nn.Module:
    return tl.GeneralizedCrossEntropy(gamma)


def _label_smoothing(epsilon: float = 0.1) -> nn.Module:
    return tl.LabelSmoothing(epsilon)


def _symmetric_cross_entropy(alpha: float = 0.1, beta: float = 1.0) -> nn.Module:
    return tl.SymmetricCrossEntropy(alpha, beta)


def _active_passive_loss(alpha: float = 1.0, beta: float = 1.0, passive: str = "rce") -> nn.Module:
    return tl.ActivePassiveLoss(alpha, beta, passive)


def _asymmetric_loss(
    form: str = "agce", a: float = 0.6, q: float = 0.6, alpha: float = 0.0, beta: float = 1.0
) -> nn.Module:
    return tl.AsymmetricLoss(form, a, q, alpha, beta)


def _logit_clip(limit: float = 1.5) -> nn.Module:
    return tl.LogitClip(limit)


def _conformal_training(
    alpha: float = 0.01,
    temperature: float = 1.0,
    kappa: float = 1.0,
    size_weight: float = 0.01,
    classification: float = 1.0,
) -> nn.Module:
    return tl.ConformalTraining(alpha, temperature, kappa, size_weight, classification)


def _vector_scaling(class_counts: Tensor, tau: float = 1.0, gamma: float = 0.3) -> nn.Module:
    return tl.VectorScaling(_at_least_one(class_counts), tau=tau, gamma=gamma)


def _balanced_softmax(class_counts: Tensor) -> nn.Module:
    return tl.BalancedSoftmax(_at_least_one(class_counts))


def _logit_adjusted(class_counts: Tensor, tau: float = 1.0) -> nn.Module:
    return tl.LogitAdjusted(_at_least_one(class_counts), tau=tau)


def _early_learning(class_counts: Tensor, strength: float = 3.0, beta: float = 0.7) -> nn.Module:
    return tl.EarlyLearning(int(class_counts.sum()), len(class_counts), strength, beta)


def _topk_grouping(k: int) -> nn.Module:
    return tl.TopKGrouping(k)


def _topk_transition(k: int, detach_weight: bool = False) -> nn.Module:
    return tl.TopKTransition(k, detach_weight=detach_weight)


def _autkc(k: int, surrogate: str = "squared") -> nn.Module:
    return tl.AUTKC(k, surrogate=surrogate)


def _soft_topk_loss(k: int, tau: float = 1.0, shape: str = "logistic", form: str = "log") -> nn.Module:
    return tl.SoftTopKLoss(k, tau=tau, shape=shape, form=form)


def _smooth_topk_hinge(k: int, gamma: float = 1.0, margin: float = 1.0) -> nn.Module:
    return tl.SmoothTopKHinge(k, gamma=gamma, margin=margin)


def _sorting_topk_cross_entropy(
    k: int, steepness: float = 2.0, candidates: int = 16, relaxation: str = "cauchy", top1: float = 0.0
) -> nn.Module:
    """Return the loss; ``top1`` is the weight of its top-1 component, and ``1 - top1`` that of top-K."""
    mixture = [top1] + [0.0] * (k - 2) + [1 - top1] if k > 1 and top1 else None
    return tl.SortingTopKCrossEntropy(k, steepness, candidates, relaxation, mixture)


def _topk_entropy(k: int) -> nn.Module:
    return tl.TopKEntropy(k)


def _truncated_topk_entropy(k: int) -> nn.Module:
    return tl.TruncatedTopKEntropy(k)


LOSSES: dict[str, Callable[..., nn.Module]] = {
    "active_passive_loss": _active_passive_loss,
    "asymmetric_loss": _asymmetric_loss,
    "autkc": _autkc,
    "balanced_softmax": _balanced_softmax,
    "calibrated_topk_hinge": _calibrated_topk_hinge,
    "conformal_training": _conformal_training,
    "convex_topk_hinge": _convex_topk_hinge,
    "cross_entropy": TemperedCrossEntropy,
    "early_learning": _early_learning,
    "focal": _focal,
    "generalized_cross_entropy": _generalized_cross_entropy,
    "label_smoothing": _label_smoothing,
    "ldam": _ldam,
    "logit_adjusted": _logit_adjusted,
    "logit_clip": _logit_clip,
    "noised_imbalanced_topk_hinge": _noised_imbalanced,
    "noised_topk_hinge": _noised,
    "smooth_topk_hinge": _smooth_topk_hinge,
    "smooth_topk_svm": _smooth,
    "soft_topk_loss": _soft_topk_loss,
    "sorting_topk_cross_entropy": _sorting_topk_cross_entropy,
    "symmetric_cross_entropy": _symmetric_cross_entropy,
    "topk_entropy": _topk_entropy,
    "topk_grouping": _topk_grouping,
    "topk_hinge": _topk_hinge,
    "topk_transition": _topk_transition,
    "truncated_topk_entropy": _truncated_topk_entropy,
    "vector_scaling": _vector_scaling,
}
