"""Normal and exponential numbers by NumPy's generator SFC64 and ziggurat method, as part of the kernels that draw.

They are bit for bit those of ``numpy.random.Generator(numpy.random.SFC64(words))``. Handing such an object to a kernel
takes longer than the draws of a small batch, and each number a call through a pointer.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba.np.random._constants import (
    fe_double,
    fi_double,
    ke_double,
    ki_double,
    we_double,
    wi_double,
    ziggurat_exp_r,
    ziggurat_nor_inv_r,
    ziggurat_nor_r,
)
from numpy.typing import NDArray

from topk_losses._core.numba_kernels import inner

__all__ = ["State", "exponential", "normal", "seed"]

State: TypeAlias = NDArray[np.uint64]
"""The generator's four words."""

# Numba makes a float of a uint64 and an int, so that every constant is a uint64.
WORD, LAST_BIT, LAST_BYTE, FRACTION = (np.uint64(2**bits - 1) for bits in (32, 1, 8, 52))
ONE, THREE, EIGHT, ELEVEN, SIXTEEN, ROTATED, HALF = (np.uint64(i) for i in (1, 3, 8, 11, 16, 24, 32))
UNROTATED = np.uint64(40)
# Those of NumPy's SeedSequence.
POOL_START, POOL_FACTOR = np.uint64(0x43B0D7E5), np.uint64(0x931E8875)
STATE_START, STATE_FACTOR = np.uint64(0x8B51F9DD), np.uint64(0x58F38DED)
MIXED, SUBTRACTED = np.uint64(0xCA01F9DD), np.uint64(0x4973F715)


@inner
def seed(number: int, part: int, state: State) -> None:
    """Start the generator for a part of the rows of a seed, with the words of both as NumPy splits an integer."""
    high = np.uint64(number) >> HALF
    state[0] = np.uint64(number) & WORD
    state[1] = high if high else np.uint64(part)
    state[2] = np.uint64(part) if high else np.uint64(0)
    state[3] = np.uint64(0)
    constant = POOL_START
    for i in range(4):
        state[i], constant = _hashed(state[i], constant, POOL_FACTOR)
    for i in range(4):
        for j in range(4):
            if i != j:
                value, constant = _hashed(state[i], constant, POOL_FACTOR)
                mixed = (MIXED * state[j] - SUBTRACTED * value) & WORD
                state[j] = mixed ^ (mixed >> SIXTEEN)
    first, constant = _long_word(state[0], state[1], STATE_START)
    second, constant = _long_word(state[2], state[3], constant)
    third, constant = _long_word(state[0], state[1], constant)
    state[0], state[1], state[2], state[3] = first, second, third, ONE
    for _ in range(12):
        _next(state)


@inner
def _hashed(value: np.uint64, constant: np.uint64, factor: np.uint64) -> tuple[np.uint64, np.uint64]:
    """A word of 32 bits hashed, and the next constant."""
    following = (constant * factor) & WORD
    product = ((value ^ constant) * following) & WORD
    return product ^ (product >> SIXTEEN), following


@inner
def _long_word(low: np.uint64, high: np.uint64, constant: np.uint64) -> tuple[np.uint64, np.uint64]:
    """A word of 64 bits from two hashed ones, and the next constant."""
    lower, constant = _hashed(low, constant, STATE_FACTOR)
    upper, constant = _hashed(high, constant, STATE_FACTOR)
    return lower | (upper << HALF), constant


@inner
def _next(state: State) -> np.uint64:
    """The generator's next word."""
    a, b, c, counter = state[0], state[1], state[2], state[3]
    word: np.uint64 = a + b + counter
    state[3] = counter + ONE
    state[0] = b ^ (b >> ELEVEN)
    state[1] = c + (c << THREE)
    state[2] = ((c << ROTATED) | (c >> UNROTATED)) + word
    return word


@inner
def _uniform(state: State) -> float:
    return float(np.int64(_next(state) >> ELEVEN) * 2.0**-53)


@inner
def normal(state: State) -> float:
    """A standard normal number."""
    while True:
        word = _next(state)
        layer = np.int64(word & LAST_BYTE)
        size = (word >> EIGHT >> ONE) & FRACTION
        x: float = np.int64(size) * wi_double[layer]
        x = -x if (word >> EIGHT) & LAST_BIT else x
        if size < ki_double[layer]:
            return x
        if layer == 0:
            while True:
                beyond: float = -ziggurat_nor_inv_r * np.log1p(-_uniform(state))
                height = -np.log1p(-_uniform(state))
                if height + height > beyond * beyond:
                    beyond += ziggurat_nor_r
                    return -beyond if (size >> EIGHT) & LAST_BIT else beyond
        span = fi_double[layer - 1] - fi_double[layer]
        if span * _uniform(state) + fi_double[layer] < np.exp(-0.5 * x * x):
            return x


@inner
def exponential(state: State) -> float:
    """A standard exponential number."""
    while True:
        word = _next(state) >> THREE
        layer, size = np.int64(word & LAST_BYTE), word >> EIGHT
        x: float = np.int64(size) * we_double[layer]
        if size < ke_double[layer]:
            return x
        if layer == 0:
            return float(ziggurat_exp_r - np.log1p(-_uniform(state)))
        span = fe_double[layer - 1] - fe_double[layer]
        if span * _uniform(state) + fe_double[layer] < np.exp(-x):
            return x
