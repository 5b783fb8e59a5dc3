"""What a loss and its gradient are, and whether they wait for a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["nothing_waits", "with_gradient"]


def with_gradient(loss: Callable[[Tensor], Tensor], scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of a function of scores, detached, and the gradient of their sum."""
    leaf = scores.detach().clone().requires_grad_()
    values = loss(leaf)
    (gradient,) = torch.autograd.grad(values.sum(), leaf)
    return values.detach(), gradient


@contextmanager
def nothing_waits() -> Iterator[None]:
    """Make it an error to wait for the GPU within the block."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
