"""Cross-entropy for long tails."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from topk_losses._core.checks import (
    check_counts,
    check_margins,
    check_not_negative,
    check_positive,
    check_scores,
)
from topk_losses._core.reduction import (
    Reduction,
    Shared,
    names_shared,
    reduce_entropy,
    reduce_loss,
    takes_single_rows,
)
from topk_losses._core.shapes import log_sum_without, per_label, with_nan_where_invalid

__all__ = ["balanced_softmax", "ldam", "logit_adjusted", "vector_scaling"]


@takes_single_rows
def ldam(
    scores: Tensor,
    target: Tensor,
    margins: Tensor,
    scale: float = 30.0,
    **shared: Unpack[Shared],
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
        against = _log_odds_against(rows, labels, scale) + scale * per_label(margins, labels, rows)
        return softplus(against, threshold=50)  # where log(1 + exp(x)) is x in float64 as well

    direct = partial(_ldam_directly, margins=margins, scale=scale)
    how = Reduction(**shared)
    return reduce_loss(losses, scores, target, how, direct=None if target.is_floating_point() else direct)


def _ldam_directly(rows: Tensor, target: Tensor, margins: Tensor, scale: float, **shared: Any) -> Tensor:
    """:func:`ldam` by torch's kernels, for labels ``(M,)``."""
    labels = target.clamp(0, rows.shape[1] - 1).unsqueeze(1)  # an ignored label may be out of range
    centred = rows - rows.detach().amax(1, keepdim=True)  # an offset would cost digits
    lowered = (scale * centred).scatter_add_(1, labels, -scale * margins.to(rows.dtype)[labels])
    return cross_entropy(lowered, target, **shared)


def _log_odds_against(rows: Tensor, labels: Tensor, scale: float) -> Tensor:
    """``log Σ_{j≠c} exp(λ s_j) - λ s_c`` for the labels c, accurate even where ``p_c`` rounds to 1.

    Of several labels only the class with the largest score can have more than half of the sum. So only for that class
    does subtracting its own term lose accuracy, and the sum over the others is computed separately.
    """
    largest = rows.detach().argmax(1, keepdim=True)
    rows = scale * (rows - rows.detach().gather(1, largest))
    rest = log_sum_without(rows, largest)
    total = rows.logsumexp(1, keepdim=True)
    own = rows.gather(1, labels)
    first = labels == largest
    share = (own - total).masked_fill(first, -torch.inf).exp()
    return with_nan_where_invalid(torch.where(first, rest, total + torch.log1p(-share)) - own, total)


@takes_single_rows
def logit_adjusted(
    scores: Tensor,
    target: Tensor,
    class_counts: Tensor,
    tau: float = 1.0,
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Logit-adjusted cross-entropy: that of the scores plus τ times the logarithms of the class frequencies.

    .. math:: -\log \mathrm{softmax}\bigl(s + \tau \log(n / \textstyle\sum n)\bigr)_y

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape.
        class_counts: n, the number of training samples of each class ``(L,)``, above 0.
        tau: τ, above 0; at 1 this is :func:`balanced_softmax`.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

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
        return _adjusted(rows, class_counts, tau)

    return reduce_entropy(scores, target, Reduction(**shared), adjusted)


def _adjusted(rows: Tensor, class_counts: Tensor, tau: float, gamma: float = 0.0) -> Tensor:
    """``(n / max n)^γ s + τ log n``; the constant ``-τ log Σ n`` would not change cross-entropy."""
    logs = class_counts.to(rows.dtype).log()
    if gamma:
        rows = rows * torch.exp(gamma * (logs - logs.amax()))
    elif rows.dtype == torch.float64:  # an offset would cost digits; in float32 a further pass costs too much
        rows = rows - rows.detach().amax(1, keepdim=True)
    return rows + (logs if tau == 1 else tau * logs)


@names_shared
def balanced_softmax(
    scores: Tensor,
    target: Tensor,
    class_counts: Tensor,
    **shared: Unpack[Shared],
) -> Tensor:
    """Balanced softmax: :func:`logit_adjusted` at τ = 1.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape.
        class_counts: n, the number of training samples of each class ``(L,)``, above 0.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

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
    return logit_adjusted(scores, target, class_counts, **shared)


@takes_single_rows
def vector_scaling(
    scores: Tensor,
    target: Tensor,
    class_counts: Tensor,
    tau: float = 1.0,
    gamma: float = 0.3,
    **shared: Unpack[Shared],
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
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

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
        return _adjusted(rows, class_counts, tau, gamma)

    return reduce_entropy(scores, target, Reduction(**shared), scaled)
