"""Cross-entropy for long tails."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from topk_losses._core.checks import (
    check_counts,
    check_margins,
    check_not_negative,
    check_positive,
    check_scores,
)
from topk_losses._core.reduction import Reduction, reduce_loss, takes_single_rows
from topk_losses._rules import entropies

__all__ = ["balanced_softmax", "ldam", "logit_adjusted", "vector_scaling"]


@takes_single_rows
def ldam(
    scores: Tensor,
    target: Tensor,
    margins: Tensor,
    scale: float = 30.0,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""LDAM: cross-entropy of scaled scores, with the target's score lowered by the margin of its class.

    .. math:: -\log \mathrm{softmax}\bigl(\lambda (s - m_y \delta_y)\bigr)_y

    with δ_y the one-hot vector of the target.

    Args:
        scores: cosines ``(N, L)`` or ``(N, L, ...)``, as :class:`~topk_losses.CosineHead` returns them; -inf
            masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        margins: m, one per class ``(L,)``, see :func:`~topk_losses.uneven_margins`.
        scale: λ, above 0.
        weight: one factor per class ``(L,)``, for instance that of deferred re-weighting.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and λ not above 0.

    References:
        Cao et al.: Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, NeurIPS 2019.

    Example:
        >>> import torch
        >>> ldam(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([0]), torch.tensor([0.1, 0.2, 0.5]), scale=10)
        tensor(0.0495)
    """
    check_scores(scores)
    check_margins(margins, scores.shape[1])
    check_positive("scale", scale)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return entropies.ldam(rows, labels, margins, scale)

    direct = partial(entropies.ldam_directly, margins=margins, scale=scale)
    how = Reduction(weight, ignore_index, reduction)
    return reduce_loss(losses, scores, target, how, direct=None if target.is_floating_point() else direct)


@takes_single_rows
def logit_adjusted(
    scores: Tensor,
    target: Tensor,
    class_counts: Tensor,
    tau: float = 1.0,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Logit-adjusted cross-entropy: that of the scores plus τ times the logarithms of the class frequencies.

    .. math:: -\log \mathrm{softmax}\bigl(s + \tau \log(n / \textstyle\sum n)\bigr)_y

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape.
        class_counts: n, the number of training samples of each class ``(L,)``, above 0.
        tau: τ, above 0; at 1 this is :func:`balanced_softmax`.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, counts or τ not above 0.

    References:
        Menon et al.: Long-tail Learning via Logit Adjustment, ICLR 2021.

    Example:
        >>> import torch
        >>> counts = torch.tensor([100, 10, 1])
        >>> logit_adjusted(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]), counts, tau=0.5)
        tensor(2.2734)
    """
    check_scores(scores)
    check_counts(class_counts, scores.shape[1])
    check_positive("tau", tau)

    def adjusted(rows: Tensor) -> Tensor:
        return entropies.adjusted(rows, class_counts, tau)

    return entropies.entropy_of(scores, target, Reduction(weight, ignore_index, reduction), adjusted)


def balanced_softmax(
    scores: Tensor,
    target: Tensor,
    class_counts: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Balanced softmax: :func:`logit_adjusted` at τ = 1.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape.
        class_counts: n, the number of training samples of each class ``(L,)``, above 0.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: as for :func:`logit_adjusted`.

    References:
        Ren et al.: Balanced Meta-Softmax for Long-Tailed Visual Recognition, NeurIPS 2020.

    Example:
        >>> import torch
        >>> balanced_softmax(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]), torch.tensor([100, 10, 1]))
        tensor(3.3400)
    """
    return logit_adjusted(
        scores, target, class_counts, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


@takes_single_rows
def vector_scaling(
    scores: Tensor,
    target: Tensor,
    class_counts: Tensor,
    tau: float = 1.0,
    gamma: float = 0.3,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Vector-scaling loss: logit adjustment, and scores of rare classes that count for less.

    .. math:: -\log \mathrm{softmax}\bigl((n / \max n)^\gamma s + \tau \log(n / \textstyle\sum n)\bigr)_y

    At γ = 0 this is :func:`logit_adjusted`. At τ = 0 it is the class-dependent temperature of Ye et al. 2020. A network
    that fits all training images needs the factors: at the end of its training, sums no longer matter to it.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape.
        class_counts: n, the number of training samples of each class ``(L,)``, above 0.
        tau: τ, at least 0.
        gamma: γ, at least 0.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, counts not above 0, τ or γ below 0.

    References:
        Kini et al.: Label-Imbalanced and Group-Sensitive Classification under Overparameterization, NeurIPS 2021; Ye et
        al.: Identifying and Compensating for Feature Deviation in Imbalanced Deep Learning, arXiv 2020.

    Example:
        >>> import torch
        >>> counts = torch.tensor([100, 10, 1])
        >>> vector_scaling(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]), counts)
        tensor(3.8248)
    """
    check_scores(scores)
    check_counts(class_counts, scores.shape[1])
    check_not_negative("tau", tau)
    check_not_negative("gamma", gamma)

    def scaled(rows: Tensor) -> Tensor:
        return entropies.adjusted(rows, class_counts, tau, gamma)

    return entropies.entropy_of(scores, target, Reduction(weight, ignore_index, reduction), scaled)
