"""The smooth convex top-K hinge of Lapin et al. 2016."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from topk_losses._core.autograd import losses_by
from topk_losses._core.backends import choose
from topk_losses._core.checks import check_positive, check_topk
from topk_losses._core.reduction import Reduction, Shared, reduce_loss, takes_single_rows
from topk_losses._core.shapes import per_label
from topk_losses._smooth_hinge import cpu
from topk_losses._smooth_hinge.plain import PlainSmoothHinge

__all__ = ["smooth_topk_hinge"]


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
