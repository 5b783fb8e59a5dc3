"""The area under the top-k curve: the label against each of the K + 1 best of the other classes.

The curve is the top-k accuracy over k = 1 … K. A label behind j other classes is among the k best from ``k = j + 1``
on, so each of the K best other classes that is ahead of the label costs 1 / K of the area. The loss replaces this step
function of the difference by a smooth surrogate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from topk_losses._core.checks import check_one_of, check_topk
from topk_losses._core.reduction import Reduction, Shared, reduce_loss, takes_single_rows
from topk_losses._core.shapes import log_softmax, with_nan_where_invalid
from topk_losses._rows.selection import largest, others_of, places_among

__all__ = ["autkc"]

SURROGATES: dict[str, Callable[[Tensor], Tensor]] = {
    "squared": lambda x: (1 - x) ** 2,
    "exponential": lambda x: torch.exp(-x),
    "logistic": lambda x: torch.nn.functional.softplus(-x),
    "hinge": lambda x: (1 - x).relu(),
}
"""Functions of the label's value minus another class's; values are probabilities, for ``"hinge"`` scores."""


@takes_single_rows
def autkc(
    scores: Tensor,
    target: Tensor,
    k: int,
    surrogate: str = "squared",
    **shared: Unpack[Shared],
) -> Tensor:
    r"""AUTKC: a surrogate for the area above the curve of top-k accuracy, k = 1 … K, so every k up to K counts.

    .. math:: \frac{1}{K} \sum_{j=1}^{K+1} \ell\bigl(q_y - (q_{\setminus y})_{[j]}\bigr), \qquad
        q = \mathrm{softmax}(s)

    with ``ℓ(x)`` one of ``(1 - x)²``, ``e^-x`` and ``log(1 + e^-x)``. The hinge ``(1 - x)_+`` is applied to scores
    instead of probabilities and is meant for comparison: the paper shows that the first three are consistent for the
    area and that the hinge is not. The matching metric is the mean of top-1 … top-K accuracy. The authors train the
    first epochs with cross-entropy, because differences of probabilities have a small gradient at the start.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        surrogate: ``"squared"``, ``"exponential"``, ``"logistic"`` or ``"hinge"``.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``. Where fewer than K + 1 other classes are left, the sum is over them.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, k outside ``[1, L - 1]``, unknown surrogates.

    References:
        Wang et al.: Optimizing Partial Area Under the Top-k Curve: Theory and Practice, TPAMI 2023.

    Example:
        >>> import torch
        >>> autkc(torch.tensor([[2.0, 1.0, 0.0, 0.0]]), torch.tensor([1]), k=2)
        tensor(1.6965)
    """
    check_topk(scores, k)
    check_one_of("surrogate", surrogate, tuple(SURROGATES))

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        top = largest(rows, min(k + 2, rows.shape[1]))
        values = with_nan_where_invalid(rows if surrogate == "hinge" else log_softmax(rows).exp(), top.values)
        places = places_among(top.indices, labels, rows)
        best = others_of(values.gather(1, top.indices), places)
        masked = others_of(top.values.detach(), places) == -torch.inf
        gaps = values.gather(1, labels).unsqueeze(2) - best.masked_fill(masked, 0)
        return SURROGATES[surrogate](gaps).masked_fill(masked, 0).sum(2) / k

    return reduce_loss(losses, scores, target, Reduction(**shared))
