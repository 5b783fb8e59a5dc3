"""CPU kernels for the sums and multiples of exponentials of a row's scores, without keeping the exponentials."""

from __future__ import annotations

import numpy as np

from topk_losses._core.numba_kernels import (
    LOG2E,
    ONE,
    SUMMED,
    Doubles,
    Floats,
    Integers,
    buffers_for,
    drop_subnormal,
    entry,
    powers_of_two,
    sum_of,
)

__all__ = ["buffers_for", "multiples", "sums"]


@entry
def sums(
    scores: Floats,
    references: Floats,
    scale: float,
    places: Integers,
    totals: Doubles,
    buffers: Floats,
    first: int,
    last: int,
) -> None:
    """Write the sums of ``exp(scale (s - reference))`` over the classes of each row that are not in ``places``.

    Args:
        scores: ``(N, L)``.
        references: ``(N,)``, at least as large as the scores in the sum.
        scale: Above 0.
        places: Classes to leave out, ``(N, k)``.
        totals: ``(N,)``, written.
        buffers: A buffer from ``buffers_for``.
        first: The first row.
        last: The row after the last.
    """
    exponent = np.float32(scale * LOG2E)
    for i in range(first, last):
        powers_of_two(scores[i], references[i], exponent, ONE, buffers)
        for j in range(places.shape[1]):
            buffers[places[i, j]] = 0
        totals[i] = 0
        for start in range(0, len(buffers), SUMMED):
            totals[i] += np.float64(sum_of(buffers[start : start + SUMMED]))


@entry
def multiples(
    scores: Floats, references: Floats, scale: float, factors: Floats, out: Floats, first: int, last: int
) -> None:
    """Write ``factor · exp(scale (s - reference))``, with exponentials capped at 2.

    Args:
        scores: ``(N, L)``.
        references: ``(N,)``.
        scale: Above 0.
        factors: ``(N,)``.
        out: ``(N, L)``, written.
        first: The first row.
        last: The row after the last.
    """
    exponent = np.float32(scale * LOG2E)
    for i in range(first, last):
        powers_of_two(scores[i], references[i], exponent, factors[i], out[i])
        drop_subnormal(out[i])
