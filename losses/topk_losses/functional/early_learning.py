"""Early-learning regularisation."""

from __future__ import annotations

import math
from typing import Unpack

from torch import Tensor

from topk_losses._core.checks import all_within, check_not_negative, check_scores, check_target
from topk_losses._core.reduction import Reduction, Shared, names_shared, reduce_loss
from topk_losses._core.shapes import log_softmax

__all__ = ["early_learning"]

LEAST = 1e-4
"""The least ``1 - <p, t>``: the authors' code keeps probabilities at or below ``1 - 1e-4``."""


@names_shared
def early_learning(
    scores: Tensor,
    target: Tensor,
    memory: Tensor,
    strength: float = 3.0,
    **shared: Unpack[Shared],
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
        **shared: ``weight``, ``ignore_index`` and ``reduction``, as in torch's cross-entropy.

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

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        log_p, t = log_softmax(rows), memory.detach().to(rows.dtype)
        # 1 - <p, t> = (1 - Σ t) + Σ t (1 - p): sums of terms of one sign, exact where p is close to 1.
        apart = (1 - t.sum(1, keepdim=True)).clamp(min=0) - (t * log_p.expm1()).sum(1, keepdim=True)
        if not all_within(apart, LEAST, math.inf):
            apart = apart.clamp(min=LEAST)
        return strength * apart.log() - log_p.gather(1, labels)

    return reduce_loss(losses, scores, target, Reduction(**shared), soft=False)
