"""CPU kernels of the soft top-K's bounded shapes, ``clip(x, 0, 1)`` and its cube."""

from __future__ import annotations

import numpy as np

from topk_losses._core.numba_kernels import (
    ONE,
    SUMMED,
    Floats,
    Integers,
    contracting,
    inner,
    scale_by,
    summing,
)

__all__ = ["bounded_densities", "bounded_threshold"]


MOST_STEPS = 100
SMALL, EXACT = 1e-9, 3e-8  # tolerances for the last step and for the sum of memberships
ZERO, THREE = np.float32(0), np.float32(3)


@contracting
def _distances(row: Floats, reference: np.float32, scale: np.float32, out: Floats) -> None:
    for j in range(len(row)):
        out[j] = (row[j] - reference) * scale


@summing
def _part(values: Floats, b: np.float32, cubed: bool) -> tuple[float, float]:
    """The sums of memberships and of densities."""
    total, slope = ZERO, ZERO
    for j in range(len(values)):
        x = values[j] - b
        inside = ONE if ZERO < x < ONE else ZERO
        x = ZERO if x < ZERO else x
        x = ONE if x > ONE else x
        total += x * x * x if cubed else x
        slope += THREE * x * x * inside if cubed else inside
    return np.float64(total), np.float64(slope)


@inner
def _density(x: float, cubed: bool) -> float:
    inside = 1.0 if 0 < x < 1 else 0.0
    return 3 * x * x * inside if cubed else inside


@inner
def _sums(
    row: Floats, places: Integers, tau: float, b: float, cubed: bool, values: Floats
) -> tuple[float, float]:
    """K minus the sum of all memberships, and the sum of all densities.

    The first is computed as what the K best lack of 1 minus the memberships of the others.
    """
    k, excess, slope = len(places) - 1, 0.0, 0.0
    reference = np.float64(row[places[k]])
    for j in range(k):
        x = (np.float64(row[places[j]]) - reference) / tau - b
        clipped = min(max(x, 0.0), 1.0)
        excess += 1 - (clipped**3 if cubed else clipped)
        slope += _density(x, cubed)
    for start in range(0, len(values), SUMMED):
        one, two = _part(values[start : start + SUMMED], np.float32(b), cubed)
        excess -= one
        slope += two
    return excess, slope


@inner
def bounded_threshold(row: Floats, places: Integers, tau: float, cubed: bool, values: Floats) -> float:
    """The threshold relative to the (K+1)-th score, in units of τ; it is at most 1 below that score."""
    k = len(places) - 1
    _distances(row, row[places[k]], np.float32(1 / tau), values)
    for j in range(k):
        values[places[j]] = -np.inf
    low, high, b = -1.0, 0.0, 0.0
    for _ in range(MOST_STEPS):
        excess, slope = _sums(row, places, tau, b, cubed, values)
        if abs(excess) <= EXACT:
            break
        if excess > 0:
            high = b
        else:
            low = b
        step = b - excess / slope
        # Strictly between the bounds: on a piecewise linear function Newton's steps can alternate between two corners.
        before, b = b, step if low < step < high else (low + high) / 2
        if abs(b - before) < SMALL:
            break
    return b


@summing
def _part_densities(out: Floats, b: np.float32, cubed: bool) -> float:
    """Replace distances by densities, and return their sum."""
    total = ZERO
    for j in range(len(out)):
        x = out[j] - b
        inside = ONE if ZERO < x < ONE else ZERO
        out[j] = THREE * x * x * inside if cubed and inside > ZERO else inside
        total += out[j]
    return np.float64(total)


@inner
def bounded_densities(
    row: Floats, places: Integers, tau: float, b: float, cubed: bool, factor: float, out: Floats
) -> None:
    """Write ``factor · F'_j / Σ F'``, or 0 if no class is between the bounds."""
    k, total = len(places) - 1, 0.0
    reference = np.float64(row[places[k]])
    _distances(row, row[places[k]], np.float32(1 / tau), out)
    for j in range(k):
        out[places[j]] = -np.inf
    for start in range(0, len(out), SUMMED):
        total += _part_densities(out[start : start + SUMMED], np.float32(b), cubed)
    for j in range(k):
        x = (np.float64(row[places[j]]) - reference) / tau - b
        out[places[j]] = _density(x, cubed)
        total += _density(x, cubed)
    scale_by(out, np.float32(factor / total if total > 0 else 0.0))
