"""Sums and multiples of the exponentials of a row's scores, by a compiled loop where Numba is installed.

For a loss whose gradient is a multiple of the exponentials, the forward pass needs their sum and the backward pass the
multiples. The compiled loop computes the exponentials twice, which costs less than keeping them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from topk_losses._core import numba
from topk_losses._core.backends import choose, lazily

__all__ = ["Kept", "kept_and_sum", "multiples", "refusal"]

KERNELS = lazily("topk_losses._rows.exponentials_kernels")
FEWEST = 128  # with fewer classes, calling the kernel costs as much as torch's exponentials


class Kept(NamedTuple):
    """What the gradient needs if it is a multiple of the exponentials for all classes but a few."""

    exponentials: Tensor
    """The first result of :func:`kept_and_sum`."""
    places: Tensor
    """The exceptional classes ``(N, k)``."""
    slopes: Tensor
    """Their entries of the gradient ``(N, k)``."""
    numbers: Tensor
    """The factor of the exponentials, and the label's entry of the gradient, ``(N, 2)``."""


def refusal(scores: Tensor, asked: bool = False) -> str | None:
    """Why the kernels do not take these scores."""
    if scores.shape[1] < FEWEST and not asked:
        return "torch is as fast for so few classes"
    return numba.refusal(scores, (torch.float32,))


def kept_and_sum(
    scores: Tensor, reference: Tensor, places: Tensor, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """What :func:`multiples` needs, and ``Σ exp(scale (s - reference))`` over the classes that are not in ``places``.

    Not differentiable by autograd.

    Args:
        scores: ``(M, L)``.
        reference: ``(M, 1)``, at least as large as the scores in the sum, in their dtype.
        places: Classes ``(M, k)`` to leave out of the sum.
        scale: Above 0.

    Returns:
        From the kernels the reference ``(M, 1)``, from torch the exponentials ``(M, L)``; and the sums ``(M, 1)`` in
        float64.
    """
    rows, classes = scores.shape
    if choose("exponentials", numba=lambda asked: refusal(scores, asked)) == "torch":
        small = (scores - reference).mul_(scale).scatter_(1, places, -torch.inf).exp_()
        return small, small.sum(1, keepdim=True).double()
    totals = scores.new_empty(rows, 1, dtype=torch.float64)
    arrays = numba.array(scores), numba.array(reference).reshape(-1), scale, numba.array(places)
    out = totals.numpy().reshape(-1)

    def part(first: int, last: int) -> None:
        KERNELS().sums(*arrays, out, KERNELS().buffers_for(classes), first, last)

    numba.over_rows(part, scores)
    return reference, totals


def multiples(kept: Tensor, scores: Tensor, factor: Tensor, scale: float = 1.0) -> Tensor:
    """``factor · exp(scale (s - reference))`` ``(M, L)``; the caller overwrites the entries of the excluded classes.

    Args:
        kept: The first result of :func:`kept_and_sum`.
        scores: ``(M, L)``.
        factor: ``(M, 1)``.
        scale: Above 0.
    """
    if kept.shape[1] == scores.shape[1]:
        return kept * factor
    out = torch.empty_like(scores, memory_format=torch.contiguous_format)
    arrays = numba.array(scores), numba.array(kept).reshape(-1), scale, numba.array(factor).reshape(-1)
    numba.over_rows(lambda first, last: KERNELS().multiples(*arrays, out.numpy(), first, last), scores)
    return out
