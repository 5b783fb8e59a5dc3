"""Exponentials of the many scores of a row that count by their sum: in a compiled loop where one can be had.

A loss whose gradient is a multiple of them needs the sum on its way forth and the multiples on its way back. Compiled,
they are computed twice, which costs less than to keep them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from topk_losses._kernels.compiled import in_parts, takes_on_cpu
from topk_losses._kernels.dispatch import is_batched

__all__ = ["kept_and_sum", "multiples", "takes_exponentials"]

FEWEST = 128  # with fewer classes, calls cost as much as torch's exponentials
SCORES_PER_THREAD = 2**18


def takes_exponentials(scores: Tensor) -> bool:
    """Whether the kernels can have these scores, and pay."""
    return scores.dtype == torch.float32 and scores.shape[1] >= FEWEST and takes_on_cpu(scores)


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
        The reference, or the exponentials ``(M, L)``; and the sums ``(M, 1)`` in float64.
    """
    rows, classes = scores.shape
    if not takes_exponentials(scores):
        small = (scores - reference).mul_(scale).scatter_(1, places, -torch.inf).exp_()
        return small, small.sum(1, keepdim=True).double()
    totals = torch.empty(rows, 1, dtype=torch.float64)
    arrays = _array(scores), _array(reference).reshape(-1), scale, _array(places), totals.numpy().reshape(-1)

    def part(first: int, last: int) -> None:
        _kernels().sums(*arrays, _kernels().room_for(classes), first, last)

    in_parts(part, rows, max(1, SCORES_PER_THREAD // classes))
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
    if is_batched(factor) or not takes_on_cpu(scores):
        return (scores - kept).mul_(scale).clamp_(max=1).exp_() * factor
    out = torch.empty_like(scores, memory_format=torch.contiguous_format)
    arrays = _array(scores), _array(kept).reshape(-1), scale, _array(factor).reshape(-1), out.numpy()
    in_parts(
        lambda first, last: _kernels().multiples(*arrays, first, last),
        len(scores),
        max(1, SCORES_PER_THREAD // scores.shape[1]),
    )
    return out


def _array(tensor: Tensor) -> Any:
    """The tensor's memory as NumPy's, put in order first if it is not."""
    return tensor.detach().resolve_neg().contiguous().numpy()


def _kernels() -> Any:
    from topk_losses._kernels import exponentials_numba  # noqa: PLC0415  # compiled when a call needs it

    return exponentials_numba
