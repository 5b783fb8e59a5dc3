"""Turns any loss of rows into a loss of scores and targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor

from topk_losses._core.reduction import Reduction, Shared, names_shared, reduce_loss, takes_single_rows

__all__ = ["reduce_rows"]


@names_shared
def reduce_rows(
    losses: Callable[[Tensor, Tensor], Tensor],
    scores: Tensor,
    target: Tensor,
    *,
    soft_targets: bool = True,
    **shared: Unpack[Shared],
) -> Tensor:
    """Compute your own loss from a function of rows; layouts, precision, targets, weights and reductions are handled.

    Args:
        losses: Takes scores ``(M, L)``, in float32 or float64, and labels ``(M, C)``, and returns the losses ``(M, C)``
            of each row for each of its C labels.
        scores: ``(N, L)``, ``(N, L, ...)``, or a single row ``(L,)``; -inf masks a class.
        target: Labels ``(N, ...)``, or probabilities of the scores' shape, for the expected loss.
        soft_targets: Whether probabilities are accepted as targets.
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

    Returns:
        A scalar, or ``(N, ...)`` for ``"none"``.

    Raises:
        ValueError: For wrong shapes and dtypes and labels out of range.

    Example:
        >>> import torch
        >>> scores, target = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1])
        >>> reduce_rows(lambda rows, labels: -rows.log_softmax(1).gather(1, labels), scores, target)
        tensor(1.4076)
    """
    how = Reduction(**shared)

    @takes_single_rows
    def loss(scores: Tensor, target: Tensor) -> Tensor:
        return reduce_loss(losses, scores, target, how, soft=soft_targets)

    return loss(scores, target)
