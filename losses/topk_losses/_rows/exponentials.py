"""Exponentials of the many scores of a row that count by their sum: in a compiled loop where one can be had.

A loss whose gradient is a multiple of them needs the sum on its way forth and the multiples on its way back. Compiled,
they are computed twice, which costs less than to keep them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from topk_losses._core import numba
from topk_losses._core.backends import choose

__all__ = ["Kept", "kept_and_sum", "multiples", "refusal"]

FEWEST = 128  # with fewer classes, calls cost as much as torch's exponentials


class Kept(NamedTuple):
    """What the gradient of a loss needs that is a multiple of the exponentials, but for a few classes."""

    exponentials: Tensor
    """What :func:`kept_and_sum` keeps."""
    places: Tensor
    """The few classes ``(N, k)``."""
    slopes: Tensor
    """Their slopes ``(N, k)``."""
    numbers: Tensor
    """The exponentials' multiple, and the label's slope ``(N, 2)``."""


def refusal(scores: Tensor, asked: bool = False) -> str | None:
    """Why the kernels cannot have these scores."""
    if scores.shape[1] < FEWEST and not asked:
        return "torch is as fast for so few classes"
    return numba.refusal(scores, (torch.float32,))


def kept_and_sum(
    scores: Tensor, reference: Tensor, places: Tensor, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """What :func:`multiples` needs, and ``Σ exp(scale (s - reference))`` over the classes that are not in places.

    Not for autograd.

    Args:
        scores: ``(M, L)``.
        reference: ``(M, 1)``, no smaller than the scores that count, in their precision.
        places: Classes ``(M, k)`` that do not count.
        scale: Above 0.

    Returns:
        The reference ``(M, 1)`` from the kernels, the exponentials ``(M, L)`` from torch; and the sums ``(M, 1)`` in
        float64.
    """
    rows, classes = scores.shape
    if choose("exponentials", numba=lambda asked: refusal(scores, asked)) == "torch":
        small = (scores - reference).mul_(scale).scatter_(1, places, -torch.inf).exp_()
        return small, small.sum(1, keepdim=True).double()
    kernels, totals = _kernels(), torch.empty(rows, 1, dtype=torch.float64)
    arrays = numba.array(scores), numba.array(reference).reshape(-1), scale, numba.array(places)
    out = totals.numpy().reshape(-1)

    def part(first: int, last: int) -> None:
        kernels.sums(*arrays, out, kernels.room_for(classes), first, last)

    numba.in_parts(part, rows, numba.rows_per_thread(classes))
    return reference, totals


def multiples(kept: Tensor, scores: Tensor, factor: Tensor, scale: float = 1.0) -> Tensor:
    """``factor · exp(scale (s - reference))`` ``(M, L)``; what it is for the classes in places is for others to say.

    Args:
        kept: What :func:`kept_and_sum` gave.
        scores: ``(M, L)``.
        factor: ``(M, 1)``.
        scale: Above 0.
    """
    if kept.shape[1] == scores.shape[1]:
        return kept * factor
    out = torch.empty_like(scores, memory_format=torch.contiguous_format)
    arrays = numba.array(scores), numba.array(kept).reshape(-1), scale, numba.array(factor).reshape(-1)
    numba.in_parts(
        lambda first, last: _kernels().multiples(*arrays, out.numpy(), first, last),
        len(scores),
        numba.rows_per_thread(scores.shape[1]),
    )
    return out


def _kernels() -> Any:
    from topk_losses._rows import exponentials_kernels  # noqa: PLC0415  # imports Numba

    return exponentials_kernels
