"""CPU kernels that draw for the noised top-K operator, and of the hinge; ``cpu.py`` has the method and its proof."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from topk_losses._core.numba import compiled
from topk_losses._core.numba_kernels import entry, inner
from topk_losses._core.numba_random_kernels import seed
from topk_losses._noised.bins_kernels import BINS, WIDTH, bin_row, groups_of
from topk_losses._noised.lanes_kernels import draw

if TYPE_CHECKING:
    from topk_losses._noised.bins_kernels import Buffers, Doubles, Floats, Integers, Tables

__all__ = ["buffers_for", "draw_rows", "hinge_gradients", "hinges", "tables"]

MOST_LANES = 64  # draws made side by side
LANES_SCORES = 2**21  # the most scores in all lanes together


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


@entry
def lanes_of(size: int, samples: int) -> int:
    """The number of draws made side by side."""
    return max(8, min(samples, MOST_LANES, LANES_SCORES // size))


def buffers_for(scores: Floats, k: int, samples: int) -> tuple[Floats, Doubles, Integers]:
    """Buffers for one thread, which ``parts_of`` divides into parts."""
    size, lanes = scores.shape[1], lanes_of(scores.shape[1], samples)
    doubles = k + 3 * size + (2 * size + k + 1) * lanes
    integers = 4 + 5 * (BINS + 1) + 4 * size + (size + 2) * lanes
    return np.empty(groups_of(size, k), scores.dtype), np.empty(doubles), np.empty(integers, np.int64)


@inner
def parts_of(maxima: Floats, doubles: Doubles, integers: Integers, size: int, k: int, lanes: int) -> Buffers:
    """The parts of these buffers."""
    largest, x, sorted_x, values = (
        doubles[:k],
        doubles[k : k + size],
        doubles[k + size : k + 2 * size],
        doubles[k + 2 * size : k + 3 * size],
    )
    drawn = doubles[k + 3 * size :]
    state, tiers, starts = integers[:4], integers[4:], integers[4 + 4 * (BINS + 1) :]
    of_class = starts[BINS + 1 :]
    classes, bins, sorted_classes, above = (
        of_class[:size],
        of_class[size : 2 * size],
        of_class[2 * size : 3 * size],
        of_class[3 * size : 4 * size],
    )
    of_lane = of_class[4 * size :]
    block = (
        drawn[: 2 * size * lanes].reshape((2 * size, lanes)),
        of_lane[: size * lanes].reshape((size, lanes)),
        of_lane[size * lanes : (size + 1) * lanes],
        drawn[2 * size * lanes :].reshape((k + 1, lanes)),
        of_lane[(size + 1) * lanes :],
    )
    return (
        (maxima, largest),
        (classes, x, bins),
        (sorted_classes, sorted_x, starts[: BINS + 1]),
        tiers[: 4 * (BINS + 1)].reshape((4, BINS + 1)),
        block,
        (values, above, largest),
        state.view(np.uint64),
    )


@entry
def draw_rows(
    scores: Floats,
    epsilon: float,
    wanted: float,
    k: int,
    gap_tables: Tables,
    number: int,
    part: int,
    maxima: Floats,
    doubles: Doubles,
    integers: Integers,
    classes: Integers,
    noise: Floats,
) -> None:
    """Write the classes ``(N, B)`` of the k-th largest and their mean noise ``(N,)``, for scores ``(N, L)``.

    The random numbers are those of a part of the rows of a seed, ``number``. The noise is NaN in rows with NaN or +inf,
    and -inf in rows with fewer than k unmasked classes; classes are then -1.
    """
    size, lanes = scores.shape[1], lanes_of(scores.shape[1], classes.shape[1])
    parts = parts_of(maxima, doubles, integers, size, k, lanes)
    (_, largest), candidates, binned, tiers, block, completion, state = parts
    seed(number, part, state)
    for n in range(len(scores)):
        row = scores[n]
        centre, edge = bin_row(row, epsilon, wanted, gap_tables[0], maxima, largest, candidates, binned)
        if centre > -np.inf:
            noise[n] = draw(
                row, centre, epsilon, edge, binned, gap_tables, tiers, state, block, completion, classes[n]
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
    losses: Floats,
    active: Floats,
) -> None:
    """Replace the mean noise ``(N,)`` of the draws by the losses, and write the hinge function's derivative ``(N,)``.

    Labels are ``(N, 1)``.
    The loss is 0 for ignored labels and +inf for labels whose score is -inf, both without gradient. Margins are
    ``(1,)`` or ``(N,)``.
    """
    for n in range(len(scores)):
        noise = losses[n]
        losses[n], active[n] = 0.0, 0.0
        label = labels[n, 0]
        if label == ignored:
            continue
        own = float(scores[n, label])
        if own == -np.inf:
            losses[n] = np.inf
            continue
        ahead = 0.0
        for c in classes[n]:
            if c >= 0:
                ahead += scores[n, c] - own
        argument = margins[n % len(margins)] + ahead / classes.shape[1] + noise
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
        label = labels[n, 0]
        slope = active[n] * gradients[n]
        shares[label] -= slope
        for c in classes[n]:
            if c >= 0:
                shares[c] += slope / classes.shape[1]
        out[n, label] = shares[label]
        shares[label] = 0.0
        for c in classes[n]:
            if c >= 0 and c != label:
                out[n, c] += shares[c]
                shares[c] = 0.0
