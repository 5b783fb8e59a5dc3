"""Hinge losses on the K-th largest score."""

from __future__ import annotations

from torch import Tensor

from topk_losses._core.checks import check_k, check_margin, check_scores
from topk_losses._core.reduction import Reduction, reduce_loss, takes_single_rows
from topk_losses._rules import hinges

__all__ = ["calibrated_topk_hinge", "convex_topk_hinge", "topk_hinge"]


@takes_single_rows
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
    r"""Top-K hinge: the target's score must exceed the K-th largest score of the other classes by a margin.

    .. math:: \bigl(\alpha + (s_{\setminus y})_{[K]} - s_y\bigr)_+

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
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

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return hinges.on_the_others(rows, labels, k, margin)

    return reduce_loss(losses, scores, target, Reduction(weight, ignore_index, reduction))


@takes_single_rows
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
    r"""Convex top-K hinge: as :func:`topk_hinge`, with the mean of the K largest scores in place of the K-th largest.

    .. math:: \Bigl(\frac{1}{K} \sum_{i \le K} (s + \alpha (1 - \delta_y))_{[i]} - s_y\Bigr)_+

    with δ_y the one-hot vector of the target. As in the papers, the target's own score is among those sorted.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
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

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return hinges.convex(rows, labels, k, margin)

    return reduce_loss(losses, scores, target, Reduction(weight, ignore_index, reduction))


@takes_single_rows
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
    r"""Calibrated top-K hinge: the target's score must exceed the (K+1)-th largest of all scores by a margin.

    .. math:: (\alpha + s_{[K+1]} - s_y)_+

    Unlike :func:`topk_hinge` it is top-K calibrated: minimising its expectation minimises the top-K error.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        margin: α, a number or one per class ``(L,)``.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
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

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return hinges.calibrated(rows, labels, k, margin)

    return reduce_loss(losses, scores, target, Reduction(weight, ignore_index, reduction))


def _check(scores: Tensor, k: int, margin: float | Tensor) -> None:
    check_scores(scores)
    check_k(k, scores.shape[1] - 1)
    check_margin(margin, scores.shape[1])
