"""Cross-entropy and its relatives."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from topk_losses._checks import (
    check_counts,
    check_k,
    check_not_negative,
    check_per_class,
    check_positive,
    check_scores,
)
from topk_losses._shapes import Kernel, log_softmax, per_label, reduce_loss
from topk_losses.functional._ranks import invalid_rows_to_nan, log_sum_without
from topk_losses.functional._truncated import TruncatedEntropy

__all__ = ["balanced_softmax", "cross_entropy", "focal", "ldam", "logit_adjusted", "truncated_topk_entropy"]


def cross_entropy(
    scores: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Cross-entropy, equal to torch's in value and gradient.

    .. math:: -\log \mathrm{softmax}(s)_y

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: int64 labels ``(N, ...)``, or probabilities of the scores' shape.
        weight: one factor per class ``(L,)``.
        ignore_index: label that counts for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes and labels out of range.

    Example:
        >>> import torch
        >>> cross_entropy(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(1.4076)
    """

    def kernel(rows: Tensor, labels: Tensor) -> Tensor:
        return -log_softmax(rows).gather(1, labels)

    return reduce_loss(kernel, scores, target, weight=weight, ignore_index=ignore_index, reduction=reduction)


def focal(
    scores: Tensor,
    target: Tensor,
    gamma: float = 2.0,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Focal loss: cross-entropy with well-classified samples weighed down.

    .. math:: (1 - p_y)^\gamma \cdot (-\log p_y), \qquad p = \mathrm{softmax}(s)

    The gradient is finite for every γ, also where p rounds to 1.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: int64 labels ``(N, ...)``, or probabilities of the scores' shape: the expected loss.
        gamma: γ, at least 0; at 0 this is cross-entropy.
        weight: one factor per class ``(L,)``.
        ignore_index: label that counts for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and γ below 0.

    References:
        Lin et al.: Focal Loss for Dense Object Detection, ICCV 2017.

    Example:
        >>> import torch
        >>> focal(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(0.8029)
    """
    check_not_negative("gamma", gamma)

    def kernel(rows: Tensor, labels: Tensor) -> Tensor:
        entropy = -log_softmax(rows).gather(1, labels)
        # 1 - p = u·g(u) with u = -log p and g(u) = (1 - exp(-u)) / u in (0, 1]: as a power of u the
        # derivative at u = 0 is 0, where that of (1 - p)^γ would be infinite for γ < 1 and give 0 · inf.
        small = entropy < 1e-4
        kept = entropy.masked_fill(small, 1)
        shape = torch.where(small, 1 - entropy / 2, -torch.expm1(-kept) / kept)
        return entropy ** (1 + gamma) * shape**gamma

    return reduce_loss(kernel, scores, target, weight=weight, ignore_index=ignore_index, reduction=reduction)


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
    r"""LDAM: cross-entropy of scaled scores, of which the target's has been lowered by its class's margin.

    .. math:: -\log \mathrm{softmax}\bigl(\lambda (s - m_y \delta_y)\bigr)_y

    Args:
        scores: cosines ``(N, L)`` or ``(N, L, ...)``, as :class:`~topk_losses.CosineHead` returns them; -inf
            masks a class.
        target: int64 labels ``(N, ...)``, or probabilities of the scores' shape: the expected loss.
        margins: m, one per class ``(L,)``, from :func:`~topk_losses.uneven_margins`.
        scale: λ, above 0.
        weight: one factor per class ``(L,)``, for instance those of deferred re-weighting.
        ignore_index: label that counts for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and scales not above 0.

    References:
        Cao et al.: Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, NeurIPS 2019.

    Example:
        >>> import torch
        >>> ldam(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([0]), torch.tensor([0.1, 0.2, 0.5]), scale=10)
        tensor(0.0495)
    """
    check_scores(scores)
    check_per_class("margins", margins, scores.shape[1])
    check_positive("scale", scale)

    def kernel(rows: Tensor, labels: Tensor) -> Tensor:
        against = _log_odds_against(rows, labels, scale)
        return -logsigmoid(-against - scale * per_label(margins, labels, rows))

    return reduce_loss(kernel, scores, target, weight=weight, ignore_index=ignore_index, reduction=reduction)


def _log_odds_against(rows: Tensor, labels: Tensor, scale: float) -> Tensor:
    """``log Σ_{j≠c} exp(λ s_j) - λ s_c`` for the labels c, precise even where ``p_c`` rounds to 1.

    Only the largest class can have more than half of the sum, so only it needs the others' sum for itself.
    """
    largest = rows.detach().argmax(1, keepdim=True)
    rows = scale * (rows - rows.detach().gather(1, largest))
    rest = log_sum_without(rows, largest)
    total = rows.logsumexp(1, keepdim=True)
    own = rows.gather(1, labels)
    first = labels == largest
    share = (own - total).masked_fill(first, -torch.inf).exp()
    return invalid_rows_to_nan(torch.where(first, rest, total + torch.log1p(-share)) - own, total)


def balanced_softmax(
    scores: Tensor,
    target: Tensor,
    class_counts: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Balanced softmax: cross-entropy of the scores plus the logarithms of the classes' counts.

    .. math:: -\log \mathrm{softmax}(s + \log n)_y

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: int64 labels ``(N, ...)``, or probabilities of the scores' shape.
        class_counts: n, the training set's count of each class ``(L,)``, above 0.
        weight: one factor per class ``(L,)``.
        ignore_index: label that counts for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and counts not above 0.

    References:
        Ren et al.: Balanced Meta-Softmax for Long-Tailed Visual Recognition, NeurIPS 2020.

    Example:
        >>> import torch
        >>> balanced_softmax(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]), torch.tensor([100, 10, 1]))
        tensor(3.3400)
    """
    check_scores(scores)
    check_counts(class_counts, scores.shape[1])
    return reduce_loss(
        _adjusted(class_counts, 1.0),
        scores,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


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
    r"""Logit-adjusted cross-entropy: the scores plus τ times the logarithms of the classes' frequencies.

    .. math:: -\log \mathrm{softmax}\bigl(s + \tau \log(n / \textstyle\sum n)\bigr)_y

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: int64 labels ``(N, ...)``, or probabilities of the scores' shape.
        class_counts: n, the training set's count of each class ``(L,)``, above 0.
        tau: τ, above 0; at 1 this is :func:`balanced_softmax`.
        weight: one factor per class ``(L,)``.
        ignore_index: label that counts for nothing.
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
    return reduce_loss(
        _adjusted(class_counts, tau),
        scores,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def _adjusted(class_counts: Tensor, tau: float) -> Kernel:
    def kernel(rows: Tensor, labels: Tensor) -> Tensor:
        frequencies = class_counts.to(rows.dtype).log().log_softmax(0)
        return -log_softmax(rows + tau * frequencies).gather(1, labels)

    return kernel


def truncated_topk_entropy(
    scores: Tensor,
    target: Tensor,
    k: int,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Truncated top-K entropy: cross-entropy without the K - 1 largest of the other classes.

    .. math:: \log\Bigl(1 + \sum_{j \in R} e^{s_j - s_y}\Bigr), \qquad
        R = \{j \ne y\} \text{ without its K - 1 largest}

    At K = 1 it is cross-entropy.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: int64 labels ``(N, ...)``, or probabilities of the scores' shape: the expected loss.
        k: K, in ``[1, L - 1]``.
        weight: one factor per class ``(L,)``.
        ignore_index: label that counts for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and k outside ``[1, L - 1]``.

    References:
        Lapin, Hein, Schiele: Loss Functions for Top-k Error: Analysis and Insights, CVPR 2016.

    Example:
        >>> import torch
        >>> truncated_topk_entropy(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]), k=2)
        tensor(0.3133)
    """
    check_scores(scores)
    check_k(k, scores.shape[1] - 1)

    return reduce_loss(
        TruncatedEntropy(k).losses,
        scores,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )
