"""Hinge losses on the K-th largest score. A rule takes rows ``(M, L)`` and labels ``(M, C)`` to losses ``(M, C)``."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from topk_losses._core.checks import check_topk
from topk_losses._core.reduction import Reduction, Shared, reduce_loss, takes_single_rows
from topk_losses._core.shapes import per_label
from topk_losses._rows.invalid import with_nan_where_invalid
from topk_losses._rows.places import among
from topk_losses._rows.selection import largest

__all__ = ["calibrated_topk_hinge", "convex_topk_hinge", "topk_hinge"]


@takes_single_rows
def topk_hinge(
    scores: Tensor,
    target: Tensor,
    k: int,
    margin: float | Tensor = 1.0,
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Top-K hinge: the target's score must exceed the K-th largest score of the other classes by a margin.

    .. math:: \bigl(\alpha + (s_{\setminus y})_{[K]} - s_y\bigr)_+

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

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
    check_topk(scores, k, margin)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        top = largest(rows, k + 1)
        # If the label is among the K best, the K-th largest of the others is the (K+1)-th of all.
        others = torch.where(
            among(top.indices[:, :k], labels, rows), top.values[:, k:], top.values[:, k - 1 : k]
        )
        violation = others - rows.gather(1, labels) + per_label(margin, labels, rows)
        return with_nan_where_invalid(violation, top.values).relu()

    return reduce_loss(losses, scores, target, Reduction(**shared))


@takes_single_rows
def convex_topk_hinge(
    scores: Tensor,
    target: Tensor,
    k: int,
    margin: float | Tensor = 1.0,
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Convex top-K hinge: as :func:`topk_hinge`, with the mean of the K largest scores in place of the K-th largest.

    .. math:: \Bigl(\frac{1}{K} \sum_{i \le K} (s + \alpha (1 - \delta_y))_{[i]} - s_y\Bigr)_+

    with δ_y the one-hot vector of the target. As in the papers, the target's own score is among those sorted.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

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
    check_topk(scores, k, margin)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        # With o_[i] the i-th largest score of the others and d_i = o_[i] + α - s_y: (Σ_{i<K} d_i + (d_K)_+)_+ / K.
        top = largest(rows, k + 1)
        # Relative to the largest score: sums of scores with a large common offset would lose low-order digits.
        centre = top.values[:, :1].detach()
        first, own = top.values - centre, rows.gather(1, labels) - centre
        alpha = per_label(margin, labels, rows)
        # A label among the K - 1 best adds s_y - s_y = 0 to the sum over the K best.
        total = torch.where(
            among(top.indices[:, : k - 1], labels, rows),
            first[:, :k].sum(1, keepdim=True) - k * own,
            first[:, : k - 1].sum(1, keepdim=True) - (k - 1) * own,
        )
        last = torch.where(among(top.indices[:, :k], labels, rows), first[:, k:], first[:, k - 1 : k])
        violation = total + (k - 1) * alpha + (last - own + alpha).relu()
        # Of fewer than K other classes none keeps the label out of the top K.
        violation = violation.masked_fill((last.detach() == -torch.inf) & (centre < torch.inf), 0)
        return with_nan_where_invalid(violation, top.values).relu() / k

    return reduce_loss(losses, scores, target, Reduction(**shared))


@takes_single_rows
def calibrated_topk_hinge(
    scores: Tensor,
    target: Tensor,
    k: int,
    margin: float | Tensor = 1.0,
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Calibrated top-K hinge: the target's score must exceed the (K+1)-th largest of all scores by a margin.

    .. math:: (\alpha + s_{[K+1]} - s_y)_+

    Unlike :func:`topk_hinge` it is top-K calibrated: minimising its expectation minimises the top-K error.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

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
    check_topk(scores, k, margin)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        top = largest(rows, k + 1).values
        violation = top[:, k:] - rows.gather(1, labels) + per_label(margin, labels, rows)
        return with_nan_where_invalid(violation, top).relu()

    return reduce_loss(losses, scores, target, Reduction(**shared))
