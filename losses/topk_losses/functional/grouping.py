"""Top-K grouping, and the transition from cross-entropy to it, of Sawada et al. 2020."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor

from topk_losses._core.backends import choose
from topk_losses._core.checks import check_topk
from topk_losses._core.reduction import Reduction, Shared, reduce_loss, takes_single_rows
from topk_losses._grouping import cpu
from topk_losses._grouping.plain import PlainGrouping

__all__ = ["topk_grouping", "topk_transition"]


@takes_single_rows
def topk_grouping(scores: Tensor, target: Tensor, k: int, **shared: Unpack[Shared]) -> Tensor:
    r"""Top-K grouping: cross-entropy in which the K highest-scoring classes count as a single class.

    .. math:: -\Bigl(\sum_{i \le K} t_{[i]}\Bigr) \log \sum_{i \le K} q_{[i]}
        - \sum_{i > K} t_{[i]} \log q_{[i]}, \qquad q = \mathrm{softmax}(s)

    with t the target distribution and ``[i]`` the class with the i-th largest q.

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities t of the scores' shape.
        k: K, in ``[1, L - 1]``.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and k outside ``[1, L - 1]``.

    References:
        Sawada et al.: Trade-offs in Top-k Classification Accuracies on Losses for Deep Learning, 2020, (5).

    Example:
        >>> import torch
        >>> topk_grouping(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]), k=2)
        tensor(0.0943)
    """
    check_topk(scores, k)
    losses = _grouping_losses(k, transition=False)
    return reduce_loss(losses, scores, target, Reduction(**shared))


@takes_single_rows
def topk_transition(
    scores: Tensor,
    target: Tensor,
    k: int,
    detach_weight: bool = False,
    **shared: Unpack[Shared],
) -> Tensor:
    r"""Top-K transition: moves from cross-entropy to :func:`topk_grouping` as the probability S of the top K grows.

    .. math:: (1 - S) \cdot \mathrm{cross\_entropy} + S \cdot \mathrm{grouping}, \qquad
        S = \sum_{i \le K} q_{[i]}

    Args:
        scores: ``(N, L)`` or ``(N, L, ...)``; -inf masks a class.
        target: labels ``(N, ...)``, or probabilities of the scores' shape.
        k: K, in ``[1, L - 1]``.
        detach_weight: whether the gradient treats S as a constant.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: for wrong shapes and dtypes, labels out of range and k outside ``[1, L - 1]``.

    References:
        Sawada et al.: Trade-offs in Top-k Classification Accuracies on Losses for Deep Learning, 2020, (6).

    Example:
        >>> import torch
        >>> topk_transition(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]), k=2)
        tensor(0.2126)
    """
    check_topk(scores, k)
    losses = _grouping_losses(k, transition=True, detach_weight=detach_weight)
    return reduce_loss(losses, scores, target, Reduction(**shared))


def _grouping_losses(
    k: int, transition: bool, detach_weight: bool = False
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function from rows ``(M, L)`` and labels ``(M, C)`` to the losses ``(M, C)``."""
    plain = PlainGrouping(k, transition, detach_weight)

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        hard = labels.shape[1] == 1
        backend = choose("topk_grouping", numba=lambda _: cpu.refusal(rows)) if hard else "torch"
        rule = cpu.NumbaGrouping(k, transition, detach_weight) if backend == "numba" else plain
        return rule.losses(rows, labels)

    return losses
