"""How much larger a loss's learning rate has to be than cross-entropy's."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from topk_losses._core.checks import check_scores

__all__ = ["matched_scale"]


def matched_scale(criterion: Callable[[Tensor, Tensor], Tensor], scores: Tensor, labels: Tensor) -> float:
    r"""Return the factor of the learning rate with which the first steps are as long as with cross-entropy.

    .. math:: \lVert \nabla_s \, \mathrm{cross\_entropy} \rVert \; / \; \lVert \nabla_s L \rVert

    The gradient of an untrained network is about K times smaller with the smooth top-K SVM than with cross-entropy. At
    cross-entropy's learning rate the network is then hardly trained.

    Args:
        criterion: The loss, as a function of scores and labels that returns a scalar.
        scores: The scores of some batches from the untrained network, ``(N, L)`` or ``(N, L, ...)``.
        labels: Their labels ``(N, ...)``.

    Returns:
        A number above 0. It waits for a GPU.

    Raises:
        ValueError: If one of the two gradients is 0 or not finite, and for what the criterion rejects.

    Example:
        >>> from topk_losses import SmoothTopKSVM
        >>> scores, labels = torch.zeros(8, 100), torch.arange(8)
        >>> round(matched_scale(SmoothTopKSVM(k=5), scores, labels), 2)
        5.05
    """
    check_scores(scores)
    return _length("scores", cross_entropy, scores, labels) / _length("criterion", criterion, scores, labels)


def _length(
    name: str, criterion: Callable[[Tensor, Tensor], Tensor], scores: Tensor, labels: Tensor
) -> float:
    """The norm of a loss's gradient; the name is that of the argument to blame if it is useless."""
    with torch.enable_grad():
        leaf = scores.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(criterion(leaf, labels), leaf)
    length: float = gradient.double().norm().item()
    if not 0 < length < math.inf:
        raise ValueError(
            f"{name} must have a finite gradient other than 0 at these scores, got a norm of {length}"
        )
    return length
