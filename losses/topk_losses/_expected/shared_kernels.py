"""What the kernels of the expected k-th largest hand to each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_losses._core.numba import compiled

__all__ = ["Room", "Rules", "Tables"]

Doubles = NDArray[np.float64]
Whole = NDArray[np.int64]

BLOCK = 16  # T
LEADING = 4  # times k: at least so many classes are swept above a crowd
LEADING_SPARE = 64  # classes above a crowd beyond these, at most

borrowing = compiled("contract", counting=False, inner=True)
summing = compiled("reassoc", "contract", "nsz", counting=False, inner=True)


class Rules(NamedTuple):
    """How precise the quadrature is, and what it does with crowds."""

    depth: float  # of a candidate below the centre
    noise: float  # that is as good as impossible
    tail: float  # of F, where the lattice ends
    target: float  # of the error
    cap: float  # of what the two halves of the lattice may differ by
    most: float  # tail probability of a crowd's class
    crowded: int  # candidates beyond which there is a crowd
    cell: float  # width of a crowd's cell


class Tables(NamedTuple):
    """Functions of x - t on one of the lattices."""

    values: Doubles  # Φ and φ, flat (PHASES, 2, M)
    logs: Doubles  # Taylor's terms of log(1 - Φ), flat (PHASES, LOG_TERMS, M)
    length: int  # M
    step: float  # between the nodes, of PHASES places
    places: float  # per ε


class Room(NamedTuple):
    """What one thread needs for a row with C candidates, of which up to S are swept."""

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
