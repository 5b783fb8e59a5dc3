"""Functions that Numba kernels of several families share: powers of two, sums, and order-preserving integers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from topk_losses._core.numba import compiled

__all__ = [
    "LOG2E",
    "LOWEST",
    "ONE",
    "SUMMED",
    "Doubles",
    "Floats",
    "Integers",
    "Keys",
    "buffers_for",
    "contracting",
    "drop_subnormal",
    "entry",
    "inner",
    "key_of",
    "powers_of_two",
    "scale_by",
    "sum_of",
    "summing",
]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
Keys = NDArray[np.int32]

SUMMED = 1024  # length of the blocks whose sums are float32; block sums are added in float64
LOG2E = math.log2(math.e)
LOWEST = np.float32(-3.4028234663852886e38)  # the smallest finite score
MAGNITUDE, SIGN = np.int32(2**31 - 1), np.int32(31)
LEAST_NORMAL, LOWEST_INTEGER = np.int32(2**23), np.int32(-(2**31))  # the bits of 2^-126, and of -0

# 2^x: adding ROUNDER, a float whose last bit is worth 1, rounds x to the nearest integer. A polynomial with a relative
# error of 2e-9 gives the power of the fractional part; the integer goes into the exponent bits.
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


entry = compiled(counting=False)
inner = compiled(counting=False, inner=True)
contracting = compiled("contract", counting=False, inner=True)
summing = compiled("reassoc", "contract", counting=False, inner=True)


def buffers_for(classes: int) -> Floats:
    """A buffer for one thread."""
    return np.empty(classes, np.float32)


@inner
def key_of(bits: np.int32) -> np.int32:
    """Map a float's bits to an integer with the same order as the floats; applied twice, it returns the bits.

    Maxima of integers are vectorised, those of floats are not. Positive NaN is the largest, then +inf.
    """
    return np.int32(bits ^ (np.int32(bits >> SIGN) & MAGNITUDE))


@contracting
def powers_of_two(
    values: Floats, reference: np.float32, scale: np.float32, factor: np.float32, out: Floats
) -> None:
    """Write ``factor · 2^(scale (values - reference))``; powers are at most 2, and 0 below 2^-126; NaN stays NaN."""
    for j in range(len(values)):
        exponent = (values[j] - reference) * scale
        exponent = FLUSHED if exponent < FLUSHED else exponent
        exponent = CAPPED if exponent > CAPPED else exponent
        rounded = exponent + ROUNDER
        x = exponent - (rounded - ROUNDER)
        bits = np.float32(rounded).view(np.int32)
        power = np.int32((bits + BIAS) << FRACTION).view(np.float32) * factor
        out[j] = power * (ONE + x * (P1 + x * (P2 + x * (P3 + x * (P4 + x * (P5 + x * P6))))))


@inner
def drop_subnormal(values: Floats) -> None:
    """Replace numbers below the smallest normal one by 0 of their sign; NaN stays.

    Processors multiply subnormal numbers many times more slowly, so they slow the backward pass of a network.
    """
    bits = values.view(np.int32)
    for j in range(len(bits)):
        small = np.int32(bits[j] & MAGNITUDE) < LEAST_NORMAL
        bits[j] = np.int32(bits[j] & LOWEST_INTEGER) if small else bits[j]


@summing
def sum_of(values: Floats) -> np.float32:
    total = np.float32(0)
    for j in range(len(values)):
        total += values[j]
    return total


@contracting
def scale_by(values: Floats, factor: np.float32) -> None:
    for j in range(len(values)):
        values[j] *= factor
