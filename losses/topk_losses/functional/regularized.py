"""Cross-entropy with a regulariser against wrong labels."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from topk_losses._core.checks import (
    check_not_negative,
    check_positive,
    check_scores,
    check_share,
    check_target,
)
from topk_losses._core.reduction import Reduction, reduce_loss, takes_single_rows
from topk_losses._rules import robust
from topk_losses._rules.early_learning import regularized
from topk_losses._rules.entropies import entropy_of

__all__ = ["early_learning", "label_smoothing", "logit_clip"]


@takes_single_rows
def label_smoothing(
    scores: Tensor,
    target: Tensor,
    epsilon: float = 0.1,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Label smoothing: cross-entropy with targets of which a share ε is spread evenly over all classes.

    .. math:: -(1 - \varepsilon) \log p_y - \frac{\varepsilon}{L} \sum_j \log p_j, \qquad p = \mathrm{softmax}(s)

    Masked classes have no share. At ε = 0 this is cross-entropy.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        epsilon: ε, at least 0 and below 1.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and ε outside ``[0, 1)``.

    References:
        Szegedy et al.: Rethinking the Inception Architecture for Computer Vision, CVPR 2016; Lukasik et al.: Does Label
        Smoothing Mitigate Label Noise?, ICML 2020.

    Example:
        >>> import torch
        >>> label_smoothing(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(1.4076)
    """
    check_share("epsilon", epsilon)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return robust.smoothed(rows, labels, epsilon)

    # With weights per class torch weighs each term of the sum, and here each label weighs its sample.
    direct = partial(robust.smoothed_directly, epsilon=epsilon) if weight is None else None
    how = Reduction(weight, ignore_index, reduction)
    return reduce_loss(losses, scores, target, how, direct=direct)


@takes_single_rows
def logit_clip(
    scores: Tensor,
    target: Tensor,
    limit: float = 1.5,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""LogitClip: cross-entropy of scores that are shortened where their Euclidean norm is above a limit.

    .. math:: -\log \mathrm{softmax}\bigl(s \min(1, \tau / \lVert s \rVert_2)\bigr)_y

    It is bounded by ``log L + √2 τ``, so that no wrong label costs much more than others. Masked classes are left out
    of the norm. Unlike other losses it changes when a constant is added to all scores.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        limit: τ, above 0.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and τ not above 0.

    References:
        Wei et al.: Mitigating Memorization of Noisy Labels by Clipping the Model Prediction, ICML 2023.

    Example:
        >>> import torch
        >>> logit_clip(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(1.2433)
    """
    check_positive("limit", limit)

    def clipped(rows: Tensor) -> Tensor:
        return robust.clipped(rows, limit)

    return entropy_of(scores, target, Reduction(weight, ignore_index, reduction), clipped)


def early_learning(
    scores: Tensor,
    target: Tensor,
    memory: Tensor,
    strength: float = 3.0,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Early-learning regularisation: cross-entropy, and a reward for agreeing with a sample's earlier predictions.

    .. math:: -\log p_y + \lambda \log\bigl(1 - \langle p, t \rangle\bigr), \qquad p = \mathrm{softmax}(s)

    t is the running average of the sample's predictions, see :class:`~topk_losses.EarlyLearning`, and a constant for
    the gradient. Networks fit right labels before wrong ones. So t is often right where the label is wrong, and the
    second term outweighs the first there. ``1 - <p, t>`` is taken to be at least 1e-4, as in the authors' code. At
    λ = 0 this is cross-entropy.

    Args:
        scores: ``(N, L)``; -inf masks a class.
        target: labels ``(N,)``.
        memory: t, one row per sample ``(N, L)``, at least 0 with sums of at most 1.
        strength: λ, at least 0.
        weight: one factor per class ``(L,)``.
        ignore_index: label of the samples to leave out, as in torch.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N,)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and λ below 0.

    References:
        Liu, Niles-Weed, Razavian, Fernandez-Granda: Early-Learning Regularization Prevents Memorization of Noisy
        Labels, NeurIPS 2020.

    Example:
        >>> import torch
        >>> scores, memory = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.9, 0.0, 0.0]])
        >>> early_learning(scores, torch.tensor([1]), memory)
        tensor(-1.3317)
    """
    check_scores(scores)
    check_target(target)
    check_scores(memory, "memory")
    check_not_negative("strength", strength)
    if scores.ndim != 2 or memory.shape != scores.shape:
        raise ValueError(
            "scores and memory must both have the shape (N, L), got "
            f"{tuple(scores.shape)} and {tuple(memory.shape)}"
        )
    known = memory.detach()

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return regularized(rows, labels, known, strength)

    return reduce_loss(losses, scores, target, Reduction(weight, ignore_index, reduction), soft=False)
