"""The loss on the soft top-K of Struski et al. 2025."""

from __future__ import annotations

from torch import Tensor

from topk_losses._core.checks import check_k, check_positive, check_scores
from topk_losses._core.reduction import Reduction, reduce_loss, takes_single_rows
from topk_losses._soft_topk.rule import soft_topk_losses

__all__ = ["lapsum_topk_loss"]


@takes_single_rows
def lapsum_topk_loss(
    scores: Tensor,
    target: Tensor,
    k: int,
    temperature: float = 1.0,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""LapSum top-K loss: the negative logarithm of the target's soft membership in the top K.

    .. math:: -\log p_y, \qquad p_i = F\bigl((s_i - b) / T\bigr), \qquad \sum_i p_i = K

    with F the distribution function of the Laplace distribution, see :func:`lapsum_topk`. It is the top-K
    cross-entropy of Petersen et al. 2022 for a single K, with LapSum in place of their sorting networks. According
    to the notes in the authors' code, they ran their classification experiments with that loss, which can also mix
    several K. For a target below the threshold b the loss is linear, ``log 2 + (b - s_y) / T``. The computation uses
    log p_y directly, so the loss is exact however small p_y is.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        temperature: T, above 0.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range, k outside ``[1, L - 1]``, T not above 0.

    References:
        Struski et al.: LapSum - One Method to Differentiate Them All: Ranking, Sorting and Top-k Selection, ICML 2025;
        Petersen et al.: Differentiable Top-k Classification Learning, ICML 2022.

    Example:
        >>> import torch
        >>> lapsum_topk_loss(torch.tensor([[3.0, 1.0, 2.0, 0.5]]), torch.tensor([1]), k=2)
        tensor(1.2736)
    """
    check_scores(scores)
    check_k(k, scores.shape[1] - 1)
    check_positive("temperature", temperature)
    losses = soft_topk_losses(k, temperature, "laplace", by_log=True)
    return reduce_loss(losses, scores, target, Reduction(weight, ignore_index, reduction))
