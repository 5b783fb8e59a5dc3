"""The area under the top-k curve."""

from __future__ import annotations

from torch import Tensor

from topk_losses._core.checks import check_k, check_one_of, check_scores
from topk_losses._core.reduction import Reduction, reduce_loss, takes_single_rows
from topk_losses._rules import autkc as rules

__all__ = ["autkc"]


@takes_single_rows
def autkc(
    scores: Tensor,
    target: Tensor,
    k: int,
    surrogate: str = "squared",
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
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
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

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
    check_scores(scores)
    check_k(k, scores.shape[1] - 1)
    check_one_of("surrogate", surrogate, tuple(rules.SURROGATES))

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return rules.autkc(rows, labels, k, surrogate)

    return reduce_loss(losses, scores, target, Reduction(weight, ignore_index, reduction))
