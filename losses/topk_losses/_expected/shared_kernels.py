"""Constants, parameters and buffers that the CPU kernels of the expected k-th largest share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_losses._core.numba import compiled

__all__ = ["Buffers", "Rules", "Tables"]

Doubles = NDArray[np.float64]
Whole = NDArray[np.int64]

BLOCK = 16  # T, the number of nodes in a block
LEADING = 4  # at least this times k classes are swept above a crowd
LEADING_SPARE = 64  # at most this many further classes are swept

inner = compiled("contract", counting=False, inner=True)
summing = compiled("reassoc", "contract", "nsz", counting=False, inner=True)


class Rules(NamedTuple):
    """The precision of the quadrature, and the parameters of crowds."""

    depth: float  # candidates are at most this far below the centre
    noise: float  # noise of this size is treated as impossible
    tail: float  # δ: the lattice ends where F is this close to 0 or 1
    target: float  # the error allowed
    cap: float  # the difference allowed between even and odd nodes
    most: float  # the largest tail probability of a crowd's class
    crowded: int  # with more candidates than this there is a crowd
    cell: float  # width of a crowd's cell


class Tables(NamedTuple):
    """Tables of functions of x - t for one lattice."""

    values: Doubles  # Φ and φ, flat (PHASES, 2, M)
    logs: Doubles  # coefficients of polynomials for log(1 - Φ), flat (PHASES, LOG_TERMS, M)
    length: int  # M
    step: float  # distance of the nodes; PHASES table places per step
    places: float  # table places per ε


class Buffers(NamedTuple):
    """Buffers of one thread for a row with up to C candidates, up to S of them swept."""

    x: Doubles  # (C,)
    lead: Doubles  # (S,)
    points: Doubles  # (C,)
    masses: Doubles  # (C,)
    cells: Whole  # (C,)
    sizes: Whole
    active: Whole  # (S,)
    exceed: Doubles  # (S, k T)
    density: Doubles  # (S, k T)
    before: Doubles  # (S, (k + 1) T)
    state: Doubles  # ((k + 1) T,)
    follow: Doubles  # ((k + 1) T,)
    sums: Doubles  # (k, T)
    lanes: Doubles  # (4, T)
    cdf: Doubles  # (T,)
    slopes: Doubles  # (S,)
    crowd_slopes: Doubles  # (C,)
