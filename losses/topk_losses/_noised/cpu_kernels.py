"""CPU kernels that draw for the noised top-K operator, and of the hinge; ``cpu.py`` has the method and its proof."""

from __future__ import annotations

import functools
import math
import threading
from typing import TYPE_CHECKING

import numpy as np

from topk_losses._core.numba import compiled
from topk_losses._core.numba_kernels import inner
from topk_losses._noised.bins_kernels import BINS, WIDTH, bin_row, groups_of
from topk_losses._noised.lanes_kernels import draw

if TYPE_CHECKING:
    from topk_losses._noised.bins_kernels import Buffers, Floats, Integers, Tables

__all__ = ["draw_rows", "generator", "hinge_gradients", "hinges", "tables"]

OF_THREAD = threading.local()
MOST_LANES = 64  # draws made side by side
LANES_SCORES = 2**21  # the most scores in all lanes together


def generator(seed: int, part: int) -> np.random.Generator:
    """The random generator for one part of a seed's rows, until this thread asks for another.

    Each thread has one, which is seeded anew: that is faster, and leaves no cycles to the garbage collector.
    """
    words = (
        [seed & 0xFFFFFFFF, seed >> 32, part] if seed >> 32 else [seed, part]
    )  # as numpy splits an integer
    own: np.random.Generator | None = getattr(OF_THREAD, "generator", None)
    if own is None:
        own = OF_THREAD.generator = np.random.Generator(np.random.SFC64())
    own.bit_generator.state = np.random.SFC64(np.array(words, np.uint32)).state
    return own


@functools.cache
def tables() -> Tables:
    """The tables that depend only on the bins."""
    gaps = [i * WIDTH for i in range(BINS + 1)]
    return (
        np.array([_tail_probability((i + 0.5 - BINS) * WIDTH) for i in range(2 * BINS)]),
        np.array([-1 / math.log1p(-_tail_probability(gap)) for gap in gaps]),
        np.array([(gap + math.sqrt(gap * gap + 4)) / 2 for gap in gaps]),
    )


def _tail_probability(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


@compiled()
def draw_rows(
    scores: Floats,
    k: int,
    epsilon: float,
    wanted: float,
    gap_tables: Tables,
    rng: np.random.Generator,
    classes: Integers,
    noise: Floats,
) -> None:
    """Write the classes ``(N, B)`` of the k-th largest and their mean noise ``(N,)``, for scores ``(N, L)``.

    The noise is NaN in rows with NaN or +inf, and -inf in rows with fewer than k unmasked classes; classes are then -1.
    """
    size = scores.shape[1]
    lanes = max(8, min(classes.shape[1], MOST_LANES, LANES_SCORES // size))
    largest = np.empty(k)
    candidates = np.empty(size, np.int64), np.empty(size), np.empty(size, np.int64)
    binned = np.empty(size, np.int64), np.empty(size), np.empty(BINS + 1, np.int64)
    block = (
        np.empty((2 * size, lanes)),
        np.empty((size, lanes), np.int64),
        np.empty(lanes, np.int64),
        np.empty((k + 1, lanes)),
        np.empty(lanes, np.int64),
    )
    completion = np.empty(size), np.empty(size, np.bool_), largest
    search = np.empty(groups_of(size, k), scores.dtype), largest
    buffers = search, candidates, binned, np.empty((4, BINS + 1), np.int64), block, completion
    _draw_each(scores, epsilon, wanted, gap_tables, rng, buffers, classes, noise)


@inner
def _draw_each(
    scores: Floats,
    epsilon: float,
    wanted: float,
    gap_tables: Tables,
    rng: np.random.Generator,
    buffers: Buffers,
    classes: Integers,
    noise: Floats,
) -> None:
    """The loop of :func:`draw_rows`, compiled without reference counting because it makes no arrays."""
    (maxima, largest), candidates, binned, tiers, block, completion = buffers
    for n in range(len(scores)):
        row = scores[n]
        centre, edge = bin_row(row, epsilon, wanted, gap_tables[0], maxima, largest, candidates, binned)
        if centre > -np.inf:
            noise[n] = draw(
                row, centre, epsilon, edge, binned, gap_tables, tiers, rng, block, completion, classes[n]
            )
        else:
            classes[n], noise[n] = -1, centre


@compiled()
def hinges(
    scores: Floats,
    labels: Integers,
    margins: Floats,
    ignored: int,
    classes: Integers,
    noise: Floats,
    losses: Floats,
    active: Floats,
) -> None:
    """Write the losses ``(N,)`` and the derivative of the hinge function ``(N,)``, for the draws of ``draw_rows``.

    The loss is 0 for ignored labels and +inf for labels whose score is -inf, both without gradient. Margins are
    ``(1,)`` or ``(N,)``.
    """
    for n in range(len(scores)):
        losses[n], active[n] = 0.0, 0.0
        if labels[n] == ignored:
            continue
        own = float(scores[n, labels[n]])
        if own == -np.inf:
            losses[n] = np.inf
            continue
        ahead = 0.0
        for c in classes[n]:
            if c >= 0:
                ahead += scores[n, c] - own
        argument = margins[n % len(margins)] + ahead / classes.shape[1] + noise[n]
        if not argument <= 0:
            losses[n], active[n] = argument, 1.0 if argument > 0 else np.nan


@compiled()
def hinge_gradients(
    labels: Integers, classes: Integers, active: Floats, gradients: Floats, out: Floats
) -> None:
    """Add the gradients to ``out`` ``(N, L)``: each class's share of the draws, minus 1 for the label, if active."""
    shares = np.zeros(out.shape[1])
    for n in range(len(out)):
        if active[n] == 0:
            continue
        slope = active[n] * gradients[n]
        shares[labels[n]] -= slope
        for c in classes[n]:
            if c >= 0:
                shares[c] += slope / classes.shape[1]
        out[n, labels[n]] = shares[labels[n]]
        shares[labels[n]] = 0.0
        for c in classes[n]:
            if c >= 0 and c != labels[n]:
                out[n, c] += shares[c]
                shares[c] = 0.0
