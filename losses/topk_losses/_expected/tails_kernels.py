"""Φ, φ and log(1 - Φ) by series around the places of a table, and the types that the kernels of a family share."""

from __future__ import annotations

import math
from typing import NamedTuple

from topk_losses._core.numba import compiled
from topk_losses._core.numba_kernels import Doubles, Integers

__all__ = ["Buffers", "Rules", "Tables", "logs", "tails"]


BLOCK = 16  # T, the number of nodes in a block
LEADING = 4  # at least this times k classes are swept above a crowd
LEADING_SPARE = 64  # at most this many further classes are swept

inner = compiled("contract", counting=False, inner=True)
summing = compiled("reassoc", "contract", "nsz", counting=False, inner=True)
LOG_TERMS = 6
SHIFT = 3  # a table entry shifted right by this many bits is its step of the lattice
PHASES = 1 << SHIFT  # table places per step of the lattice


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
    cells: Integers  # (C,)
    sizes: Integers
    active: Integers  # (S,)
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


@inner
def _nearest(x: float, tables: Tables) -> tuple[int, int, float]:
    """The phase and the first table entry for x - t at a block's nodes, and the distance of x from the table entry."""
    position = math.floor(x * tables.places + 0.5)
    cell = int(position)
    first = min(max((tables.length >> 1) - (cell >> SHIFT), 0), tables.length - BLOCK)
    return cell & (PHASES - 1), first, x - position / tables.places


@inner
def tails(x: float, tables: Tables, exceed: Doubles, density: Doubles) -> None:
    """Write Φ and φ at ``x - j h``, x relative to the block's first node, by Taylor series around the table entry."""
    phase, first, d = _nearest(x, tables)
    first += phase * 2 * tables.length
    tail = tables.values[first : first + BLOCK]
    first += tables.length
    peak = tables.values[first : first + BLOCK]
    second = d * d
    c0 = d * (1.0 - second * (1.0 / 6.0 - second / 40.0))
    c1 = second * (second / 8.0 - 0.5)
    c2 = second * d * (1.0 / 6.0 - second / 20.0)
    c3, c4 = -second * second / 24.0, second * second * d / 120.0
    shrink = 1.0 - second * (0.5 - second / 8.0)
    start = x - d
    for j in range(BLOCK):
        u = start - tables.step * j
        f = peak[j]
        exceed[j] = tail[j] + f * (c0 + u * (c1 + u * (c2 + u * (c3 + u * c4))))
        w = u * d
        w = 1.0 - w * (1.0 - w * (0.5 - w * (1.0 / 6.0 - w * (1.0 / 24.0 - w * (1.0 / 120.0)))))
        density[j] = f * shrink * w


@inner
def logs(x: float, tables: Tables, out: Doubles) -> None:
    """Write ``log P(X <= t)`` for the block's nodes t."""
    phase, first, d = _nearest(x, tables)
    d *= tables.places
    first += (phase + 1) * LOG_TERMS * tables.length
    for j in range(BLOCK):
        out[j] = 0.0
    for _ in range(LOG_TERMS):
        first -= tables.length
        term = tables.logs[first : first + BLOCK]
        for j in range(BLOCK):
            out[j] = out[j] * d + term[j]
