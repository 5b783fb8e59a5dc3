"""What the kernels of the smooth top-K SVM hand to each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Room"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

HEADER = 4  # numbers kept of a row before its coefficients: sigmoid, reference, and how many of both lists
TOLERANCE = 2e-7  # what may be left out of log σ_K; the gradient's row still sums to 0, whatever is left out
INFINITE = np.float32(np.inf)


class Room(NamedTuple):
    """What one thread needs for a row: L classes, G groups, up to M values taken out."""

    values: Floats  # (L,)
    power: Floats  # (SUMMED,)
    maxima: Floats  # (G,)
    group_values: Floats  # (G,)
    taken: Floats  # (M,)
    exponents: Doubles  # (M,)
    mantissas: Doubles  # (M,)
    ratios: Doubles  # (M, K)
    tables: Doubles  # (M + 1, K + 1)
    sums: Doubles  # (K + 3,)
    rest: Doubles  # (K + 1,)
    weights: Doubles  # (K + 1,)
    start: Doubles  # (K + 1,)
    polynomials: Doubles  # (K + 1,)
