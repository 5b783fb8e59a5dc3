"""Top-K entropy, the conjugate of entropy on the top-K simplex."""

from __future__ import annotations

from torch import Tensor

from topk_losses._core.checks import check_k, check_scores
from topk_losses._core.reduction import Reduction, reduce_loss, takes_single_rows
from topk_losses._rules.topk_entropy import TopKEntropy

__all__ = ["topk_entropy"]


@takes_single_rows
def topk_entropy(
    scores: Tensor,
    target: Tensor,
    k: int,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Top-K entropy: cross-entropy in which no other class gets more than 1/K of the other classes' probability.

    .. math::
        \max_x \; \sum_{j \ne y} x_j (s_j - s_y - \log x_j) - (1 - u) \log(1 - u), \qquad
        u = \sum_{j \ne y} x_j \le 1, \quad 0 \le x_j \le u / K

    The maximum is computed exactly, without iteration: it is ``log(1 + exp(V - s_y))`` with V the log-sum-exp of the
    other scores under the cap ``x_j <= u / K``. The gradient is ``x`` for the other classes and ``-u`` for the label.
    The loss is convex and continuously differentiable; higher derivatives exist where no class is exactly at its cap.
    For K = 1 it is cross-entropy, for K = L - 1 the logistic loss of ``s_y`` against the others' mean plus
    ``log(L - 1)``.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        k: K, in ``[1, L - 1]``.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and k outside ``[1, L - 1]``.

    References:
        Lapin, Hein, Schiele: Loss Functions for Top-k Error: Analysis and Insights, CVPR 2016; Analysis and
        Optimization of Loss Functions for Multiclass, Top-k, and Multilabel Classification, TPAMI 2017.

    Example:
        >>> import torch
        >>> topk_entropy(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]), k=2)
        tensor(1.0986)
    """
    check_scores(scores)
    check_k(k, scores.shape[1] - 1)
    losses = TopKEntropy(k).losses
    return reduce_loss(losses, scores, target, Reduction(weight, ignore_index, reduction))
