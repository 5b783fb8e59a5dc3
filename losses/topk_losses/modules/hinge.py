"""The hinges of the K-th largest score, and the area under the top-k curve, as modules."""

from __future__ import annotations

from topk_losses import functional
from topk_losses._core.checks import check_one_of
from topk_losses.functional.autkc import SURROGATES
from topk_losses.modules._base import K, Loss, Margin, Positive, module_of

__all__ = ["AUTKC", "CalibratedTopKHinge", "ConvexTopKHinge", "SmoothTopKHinge", "SmoothTopKSVM", "TopKHinge"]


@module_of(functional.topk_hinge)
class TopKHinge(Loss):
    """Top-K hinge, see :func:`~topk_losses.functional.topk_hinge`.

    Example:
        >>> import torch
        >>> TopKHinge(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.)
    """

    k: K
    margin: Margin = 1.0


@module_of(functional.convex_topk_hinge)
class ConvexTopKHinge(Loss):
    """Convex top-K hinge, see :func:`~topk_losses.functional.convex_topk_hinge`.

    Example:
        >>> import torch
        >>> ConvexTopKHinge(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.5000)
    """

    k: K
    margin: Margin = 1.0


@module_of(functional.calibrated_topk_hinge)
class CalibratedTopKHinge(Loss):
    """Calibrated top-K hinge, see :func:`~topk_losses.functional.calibrated_topk_hinge`.

    Example:
        >>> import torch
        >>> CalibratedTopKHinge(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(1.)
    """

    k: K
    margin: Margin = 1.0


@module_of(functional.smooth_topk_hinge)
class SmoothTopKHinge(Loss):
    """Smooth top-K hinge, see :func:`~topk_losses.functional.smooth_topk_hinge`.

    Example:
        >>> import torch
        >>> SmoothTopKHinge(k=2)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.2500)
    """

    k: K
    gamma: Positive = 1.0
    margin: Margin = 1.0


@module_of(functional.smooth_topk_svm)
class SmoothTopKSVM(Loss):
    """Smooth top-K SVM, see :func:`~topk_losses.functional.smooth_topk_svm`.

    Example:
        >>> import torch
        >>> SmoothTopKSVM(k=2, tau=0.1)(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(1.4994)
    """

    soft_targets = False

    k: K
    tau: Positive = 1.0
    margin: Margin = 1.0


@module_of(functional.autkc)
class AUTKC(Loss):
    """AUTKC, a surrogate for the area above the top-k curve, see :func:`~topk_losses.functional.autkc`.

    Example:
        >>> import torch
        >>> AUTKC(k=2, surrogate="hinge")(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]))
        tensor(2.7500)
    """

    k: K
    surrogate: str = "squared"

    def check(self) -> None:
        """Refuse arguments of the constructor."""
        check_one_of("surrogate", self.surrogate, tuple(SURROGATES))
