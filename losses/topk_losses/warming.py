"""Compiling the losses' kernels before training."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from topk_losses._core.checks import check_dimension
from topk_losses.modules import (
    NoisedTopKHinge,
    SmoothTopKHinge,
    SmoothTopKSVM,
    SoftTopKLoss,
    SortingTopKCrossEntropy,
    TopKEntropy,
    TopKTransition,
)

__all__ = ["warm_up"]

K = 5
COMPILED: tuple[Callable[[int], Callable[[Tensor, Tensor], Tensor]], ...] = (
    *(SmoothTopKSVM, TopKTransition, SmoothTopKHinge, TopKEntropy, SoftTopKLoss, SortingTopKCrossEntropy),
)


def warm_up(
    *losses: Callable[[Tensor, Tensor], Tensor],
    classes: int = 1000,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> None:
    """Compile the kernels of losses, or read them from disk, now rather than at the first training step.

    In a new installation the first call compiles for up to 15 seconds per loss. Later processes read the compiled
    kernels from disk; the environment variable ``TOPK_LOSSES_CACHE`` names the folder. Call it before worker processes
    start, so that they do not all compile the same kernels. The state of random generators does not change.

    Args:
        *losses: Losses of this package; by default all losses with kernels.
        classes: Number of classes in training. Triton compiles anew for another number, Numba does not.
        dtype: Dtype of the scores in training.
        device: Device of the scores in training.

    Raises:
        ValueError: For ``classes`` below 1, and for arguments that the losses reject.

    Example:
        >>> from topk_losses import TopKTransition
        >>> warm_up(TopKTransition(k=3), classes=100)
    """
    check_dimension("classes", classes)
    k = max(1, min(K, classes - 1))
    kernels = [loss_of(k) for loss_of in COMPILED]
    noised = [NoisedTopKHinge(k), NoisedTopKHinge(k, samples=None)]
    target = torch.zeros(2, dtype=torch.int64, device=device)
    for loss in losses or (*kernels, *noised):
        scores = torch.zeros(2, classes, dtype=dtype, device=device, requires_grad=True)
        devices = [scores.device] if scores.is_cuda else []
        with torch.random.fork_rng(devices), torch.enable_grad():
            loss(scores, target).sum().backward()  # type: ignore[no-untyped-call]
