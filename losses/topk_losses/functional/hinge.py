"""The hinges of Lapin et al. 2015 to 2018: top-K, convex, calibrated and smooth."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from topk_losses._core.autograd import losses_by
from topk_losses._core.backends import choose
from topk_losses._core.checks import check_positive, check_topk
from topk_losses._core.reduction import Reduction, Shared, reduce_loss, takes_single_rows
from topk_losses._core.shapes import per_label, with_nan_where_invalid
from topk_losses._rows.selection import among, largest
from topk_losses._smooth_hinge import cpu
from topk_losses._smooth_hinge.plain import PlainSmoothHinge

__all__ = ["calibrated_topk_hinge", "convex_topk_hinge", "smooth_topk_hinge", "topk_hinge"]


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


@takes_single_rows
def smooth_topk_hinge(
    scores: Tensor,
    target: Tensor,
    k: int,
    gamma: float = 1.0,
    margin: float | Tensor = 1.0,
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Smooth top-K hinge: a smoothed mean of the K largest pairwise hinges of the other classes against the target.

    .. math::
        \max_x \; \sum_{j \ne y} x_j (\alpha + s_j - s_y) - \frac{\gamma}{2} \sum_{j \ne y} x_j^2, \qquad
        0 \le x_j \le \frac{1}{K}, \quad \sum_{j \ne y} x_j \le 1

    It is the Moreau envelope of ``(1/K) Σ_{i<=K} ((α + s_{\y} - s_y)_[i])_+``: it lies below that mean by at most
    ``γ / 2K`` and tends to it as γ → 0. The gradient is the maximising x for the other classes and ``-Σ x`` for the
    target; x is sparse where the scores are spread out. The maximum is computed exactly.

    Of the authors' two variants this is β. Variant α, which caps x at ``Σ x / K`` instead of 1/K, is not provided.
    The smooth top-K SVM of Berrada et al. is another loss, :func:`smooth_topk_svm`.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss, at L times the
            time and memory.
        k: K, in ``[1, L - 1]``.
        gamma: γ, the strength of the smoothing, above 0.
        margin: α, a number or one per class ``(L,)``.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, k outside ``[1, L - 1]``, γ not above 0.

    References:
        Lapin, Hein, Schiele: Loss Functions for Top-k Error: Analysis and Insights, CVPR 2016; Top-k Multiclass SVM,
        NIPS 2015.

    Example:
        >>> import torch
        >>> smooth_topk_hinge(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]), k=2)
        tensor(2.2500)
    """
    check_topk(scores, k, margin)
    check_positive("gamma", gamma)

    plain = PlainSmoothHinge(k, gamma)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        margins = per_label(margin, labels, rows)
        if labels.shape[1] != 1:
            return plain.of_labels(rows, labels, margins)
        backend = choose("smooth_topk_hinge", numba=lambda asked: cpu.refusal(rows, k, asked))
        rule = cpu.NumbaSmoothHinge(k, gamma) if backend == "numba" else plain
        margins = margins.squeeze(1) if isinstance(margins, Tensor) else margins
        return losses_by(rule, rows, labels, margins).unsqueeze(1)

    return reduce_loss(losses, scores, target, Reduction(**shared))
