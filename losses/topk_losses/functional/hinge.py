"""Hinge losses on the K-th largest score."""

from __future__ import annotations

import torch
from torch import Tensor

from topk_losses._checks import check_k, check_margin, check_scores
from topk_losses._kernels.selection import largest
from topk_losses._shapes import per_label, reduce_loss
from topk_losses.functional._ranks import among, invalid_rows_to_nan

__all__ = ["calibrated_topk_hinge", "convex_topk_hinge", "topk_hinge"]


def topk_hinge(
    scores: Tensor,
    target: Tensor,
    k: int,
    margin: float | Tensor = 1.0,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Top-K hinge: the target's score must exceed the K-th largest of the others by a margin.

    .. math:: \bigl(\alpha + (s_{\setminus y})_{[K]} - s_y\bigr)_+

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: int64 labels ``(N, ...)``, or probabilities of the scores' shape: the expected loss.
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``.
        ignore_index: label that counts for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and k outside ``[1, L - 1]``.

    References:
        Lapin, Hein, Schiele: Top-k Multiclass SVM, NIPS 2015; Garcin et al. 2022, (4).

    Example:
        >>> import torch
        >>> topk_hinge(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]), k=2)
        tensor(2.)
    """
    _check(scores, k, margin)

    def kernel(rows: Tensor, labels: Tensor) -> Tensor:
        top = largest(rows, k + 1)
        # Without a class of the K best, the K-th largest of the others is the next one.
        others = torch.where(
            among(top.indices[:, :k], labels, rows), top.values[:, k:], top.values[:, k - 1 : k]
        )
        losses = (others - rows.gather(1, labels) + per_label(margin, labels, rows)).relu()
        return invalid_rows_to_nan(losses, top.values)

    return reduce_loss(kernel, scores, target, weight=weight, ignore_index=ignore_index, reduction=reduction)


def convex_topk_hinge(
    scores: Tensor,
    target: Tensor,
    k: int,
    margin: float | Tensor = 1.0,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Convex top-K hinge: the mean of the K largest, the others raised by a margin, less the target's.

    .. math:: \Bigl(\frac{1}{K} \sum_{i \le K} (s + \alpha (1 - \delta_y))_{[i]} - s_y\Bigr)_+

    The target's own score stays among those that are sorted, as the papers have it.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: int64 labels ``(N, ...)``, or probabilities of the scores' shape: the expected loss.
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``.
        ignore_index: label that counts for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and k outside ``[1, L - 1]``.

    References:
        Lapin, Hein, Schiele: Top-k Multiclass SVM, NIPS 2015; Garcin et al. 2022, Table 1.

    Example:
        >>> import torch
        >>> convex_topk_hinge(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]), k=2)
        tensor(2.5000)
    """
    _check(scores, k, margin)

    def kernel(rows: Tensor, labels: Tensor) -> Tensor:
        top = largest(rows, k + 1)
        # Relative to the largest score: sums of scores that share an offset would lose the small digits.
        centre = top.values[:, :1].detach()
        first, own = top.values - centre, rows.gather(1, labels) - centre
        alpha = per_label(margin, labels, rows)
        # With o_[i] the i-th largest of the others and d_i = o_[i] + α - s_y, the loss is
        # (Σ_{i<K} d_i + (d_K)_+)_+ / K: of s_y and the K-th of the others, the larger one is in the sum.
        # A label among the K - 1 best adds s_y - s_y = 0 to the sum over the K best.
        total = torch.where(
            among(top.indices[:, : k - 1], labels, rows),
            first[:, :k].sum(1, keepdim=True) - k * own,
            first[:, : k - 1].sum(1, keepdim=True) - (k - 1) * own,
        )
        last = torch.where(among(top.indices[:, :k], labels, rows), first[:, k:], first[:, k - 1 : k])
        losses = (total + (k - 1) * alpha + (last - own + alpha).relu()).relu() / k
        return invalid_rows_to_nan(losses, top.values)

    return reduce_loss(kernel, scores, target, weight=weight, ignore_index=ignore_index, reduction=reduction)


def calibrated_topk_hinge(
    scores: Tensor,
    target: Tensor,
    k: int,
    margin: float | Tensor = 1.0,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Calibrated top-K hinge: the target's score must exceed the (K+1)-th largest of all by a margin.

    .. math:: (\alpha + s_{[K+1]} - s_y)_+

    Unlike :func:`topk_hinge` it is top-K calibrated: who minimises it minimises the top-K error.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: int64 labels ``(N, ...)``, or probabilities of the scores' shape: the expected loss.
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``.
        ignore_index: label that counts for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and k outside ``[1, L - 1]``.

    References:
        Yang, Koyejo: On the Consistency of Top-k Surrogate Losses, ICML 2020; Garcin et al. 2022, (5).

    Example:
        >>> import torch
        >>> calibrated_topk_hinge(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]), k=2)
        tensor(1.)
    """
    _check(scores, k, margin)

    def kernel(rows: Tensor, labels: Tensor) -> Tensor:
        top = largest(rows, k + 1).values
        losses = (top[:, k:] - rows.gather(1, labels) + per_label(margin, labels, rows)).relu()
        return invalid_rows_to_nan(losses, top)

    return reduce_loss(kernel, scores, target, weight=weight, ignore_index=ignore_index, reduction=reduction)


def _check(scores: Tensor, k: int, margin: float | Tensor) -> None:
    check_scores(scores)
    check_k(k, scores.shape[1] - 1)
    check_margin(margin, scores.shape[1])
