"""CPU kernels of the soft top-K's logistic and Laplace shapes: the threshold.

The threshold b is relative to the (K+1)-th largest score and in units of τ. For the logistic and the Laplace shape the
exponentials ``e_j`` of the classes after the K best are computed once. With ``v = e_j exp(-b)``, logistic memberships
are ``v q`` and their densities ``v q²``, ``q = 1 / (1 + v)``; Laplace ones are ``v w (1 - w / 2)`` and ``v w² / 2``,
``w = 1 / max(v, 1)``. What the K best lack of 1 follows likewise from ``exp(b - gap)``, gap the distance of the K-th
from the (K+1)-th score, and their exponentials relative to the K-th. So none overflows, and a step takes one division.
"""

from __future__ import annotations

import math

import numpy as np

from topk_losses._core.numba_kernels import ONE, SUMMED, Doubles, Floats, inner, summing
from topk_losses._soft_topk.shapes import CODES

__all__ = ["exponential_threshold"]

LOGISTIC, LAPLACE = CODES["logistic"], CODES["laplace"]
MOST_STEPS = 100  # about four are needed
SMALL = 5e-4  # the size of a last step: the remaining error is a quarter of its square
WIDE = 60.0  # for gaps above this, exp(-gap) is negligible
HALF = np.float32(0.5)
ZERO = np.float32(0)


@summing
def _part_logistic(exponentials: Floats, inverse: np.float32) -> tuple[float, float]:
    total, slope = ZERO, ZERO
    for j in range(len(exponentials)):
        q = ONE / (ONE + exponentials[j] * inverse)
        one = exponentials[j] * q
        total += one
        slope += one * q
    return np.float64(total), np.float64(slope)


@summing
def _part_laplace(exponentials: Floats, inverse: np.float32) -> tuple[float, float]:
    total, slope = ZERO, ZERO
    for j in range(len(exponentials)):
        v = exponentials[j] * inverse
        w = ONE / (v if v > ONE else ONE)
        one = exponentials[j] * w
        total += one * (ONE - HALF * w)
        slope += HALF * one * w
    return np.float64(total), np.float64(slope)


@inner
def _others(exponentials: Floats, inverse: float, shape: int) -> tuple[float, float]:
    """The sums of the others' memberships and of their densities, both divided by ``exp(-b)``."""
    total, slope = 0.0, 0.0
    for start in range(0, len(exponentials), SUMMED):
        part = exponentials[start : start + SUMMED]
        if shape == LOGISTIC:
            one, two = _part_logistic(part, np.float32(inverse))
        else:
            one, two = _part_laplace(part, np.float32(inverse))
        total += one
        slope += two
    return total, slope


@inner
def _best(near: Doubles, power: float, shape: int) -> tuple[float, float]:
    """The sums of what the K best lack of 1, and of their densities, both divided by ``exp(b - gap)``."""
    total, slope = 0.0, 0.0
    for j in range(len(near)):
        if shape == LOGISTIC:
            q = 1 / (1 + near[j] * power)
            total += near[j] * q
            slope += near[j] * q * q
        else:
            w = 1 / max(near[j] * power, 1.0)
            total += near[j] * w * (1 - w / 2)
            slope += near[j] * w * w / 2
    return total, slope


@inner
def _start(behind: float, near: Doubles, gap: float) -> float:
    """A first guess of b: the others' memberships taken as exponentials, what the K best lack saturating at K."""
    ahead, k = 0.0, len(near)
    for j in range(k):
        ahead += near[j]
    if gap > WIDE:
        return (gap + math.log(behind / ahead)) / 2
    root = math.sqrt(behind * behind + 4 * k * k * behind / ahead * math.exp(gap))
    return math.log((behind + root) / (2 * k))


@inner
def exponential_threshold(
    exponentials: Floats, near: Doubles, gap: float, shape: int, below: float, beyond: float
) -> float:
    """The threshold b, from the exponentials of the others and of the K best."""
    low, high = -below, gap + beyond
    behind = _others(exponentials, 0.0, LOGISTIC)[0]
    b = min(max(_start(behind, near, gap), low), high)
    for _ in range(MOST_STEPS):
        lacking, slope = _best(near, math.exp(b - gap), shape)
        if shape == LAPLACE and b >= 0:  # all others are below b, where the Laplace F is half the exponential
            held = other = behind / 2
        else:
            held, other = _others(exponentials, math.exp(-b), shape)
        value = 2 * b - gap + math.log(lacking / held)
        if value > 0:
            high = b
        else:
            low = b
        step = b - value / (slope / lacking + other / held)
        if abs(step - b) < SMALL:
            return step
        b = step if low <= step <= high else (low + high) / 2
    return b
