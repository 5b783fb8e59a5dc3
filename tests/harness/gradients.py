"""What a loss and its gradient are, for the tests of losses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["with_gradient"]


def with_gradient(loss: Callable[[Tensor], Tensor], scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of a function of scores, detached, and the gradient of their sum."""
    leaf = scores.detach().clone().requires_grad_()
    values = loss(leaf)
    (gradient,) = torch.autograd.grad(values.sum(), leaf)
    return values.detach(), gradient
