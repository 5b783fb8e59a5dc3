"""Exponentials of all scores of a row, for the CPU: their sum, and multiples of them. Nothing of their size is kept."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from topk_losses._kernels.compiled import compiled_with

__all__ = ["multiples", "room_for", "sums"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Places = NDArray[np.int64]

SUMMED = 1024  # values whose sum is float32
LOG2E = math.log2(math.e)

# 2^x: x less the nearest whole number, found by adding a number whose last place is 1, goes into a polynomial with
# a relative error of 2e-9; the whole number goes into the exponent's bits.
ROUNDER = np.float32(1.5 * 2**23)
BIAS = np.int32(127)
FRACTION = np.int32(23)
FLUSHED, CAPPED = np.float32(-127), np.float32(1)
ONE = np.float32(1)
P1, P2, P3 = np.float32(0.6931471824645996), np.float32(0.24022647738456726), np.float32(0.055503323674201965)
P4, P5, P6 = (
    np.float32(0.00961843691766262),
    np.float32(0.0013398873852565885),
    np.float32(0.00015353361959569156),
)

borrowing = compiled_with(counting=False)
contracting = compiled_with("contract", counting=False)
summing = compiled_with("reassoc", "contract", counting=False)


def room_for(classes: int) -> Floats:
    """Memory for one thread."""
    return np.empty(classes, np.float32)


@contracting
def _powers(
    values: Floats, reference: np.float32, scale: np.float32, factor: np.float32, out: Floats
) -> None:
    """``factor · 2^(scale (values - reference))`` with a power of at most 2, and 0 below 2^-126; NaN stays."""
    for j in range(len(values)):
        exponent = (values[j] - reference) * scale
        exponent = FLUSHED if exponent < FLUSHED else exponent
        exponent = CAPPED if exponent > CAPPED else exponent
        rounded = exponent + ROUNDER
        x = exponent - (rounded - ROUNDER)
        bits = np.float32(rounded).view(np.int32)
        power = np.int32((bits + BIAS) << FRACTION).view(np.float32) * factor
        out[j] = power * (ONE + x * (P1 + x * (P2 + x * (P3 + x * (P4 + x * (P5 + x * P6))))))


@summing
def _sum(values: Floats) -> np.float32:
    total = np.float32(0)
    for j in range(len(values)):
        total += values[j]
    return total


@borrowing
def sums(
    scores: Floats,
    references: Floats,
    scale: float,
    places: Places,
    totals: Doubles,
    room: Floats,
    first: int,
    last: int,
) -> None:
    """The sums of ``exp(scale (s - reference))`` over the classes of each row but those in places.

    Args:
        scores: ``(N, L)``.
        references: ``(N,)``, no smaller than the scores that count.
        scale: Above 0.
        places: ``(N, k)``.
        totals: ``(N,)``, written.
        room: Memory from ``room_for``.
        first: The first row.
        last: The row after the last.
    """
    exponent = np.float32(scale * LOG2E)
    for i in range(first, last):
        _powers(scores[i], references[i], exponent, ONE, room)
        for j in range(places.shape[1]):
            room[places[i, j]] = 0
        totals[i] = 0
        for start in range(0, len(room), SUMMED):
            totals[i] += np.float64(_sum(room[start : start + SUMMED]))


@borrowing
def multiples(
    scores: Floats, references: Floats, scale: float, factors: Floats, out: Floats, first: int, last: int
) -> None:
    """``factor · exp(scale (s - reference))``, where the exponential counts for at most 2.

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
        _powers(scores[i], references[i], exponent, factors[i], out[i])
