"""Φ, φ and log(1 - Φ) at a block's nodes, by series around the places of a table."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from topk_losses._expected.shared_kernels import BLOCK, Tables, inner

__all__ = ["logs", "tails"]

Doubles = NDArray[np.float64]

LOG_TERMS = 6
SHIFT = 3  # a table entry shifted right by this many bits is its step of the lattice
PHASES = 1 << SHIFT  # table places per step of the lattice


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
