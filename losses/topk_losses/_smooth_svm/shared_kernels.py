"""Constants and buffers that the CPU kernels of the smooth top-K SVM share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Buffers"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

HEADER = 4  # numbers kept per row before its lists: sigmoid, reference, and the lengths of both lists
TOLERANCE = 2e-7  # truncation error allowed in log σ_K; the gradient of a row sums to 0 for any truncation
INFINITE = np.float32(np.inf)


class Buffers(NamedTuple):
    """Buffers of one thread for a row: L classes, G groups, up to M values taken out."""

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
