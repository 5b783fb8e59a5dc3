"""CPU kernel of the relaxed sorting network, forward and backward, for several rows (*lanes*) at once.

The label is on the first wire, with value 0; the other values are relative to it and in units of 1 / β. The forward
pass keeps the values and probabilities after each stage, and the probability ``f`` of each comparator. A comparator
maps values a, b to ``a' = f a + (1 - f) b`` and ``b' = (1 - f) a + f b``, and probabilities p, q in the same way. With
capitals for derivatives of the loss, the derivative with respect to f is ``(a - b) (A' - B') + (p - q) (P' - Q')``.
Those with respect to a and b are the same two means of A' and B', plus and minus this times ``f'``.

Missing and masked classes have so low a value that other classes go before them with probability 1; between two of
them it is 1/2, which changes nothing. Loops are short and write few arrays, because only such loops are vectorised.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from topk_losses._core.numba_kernels import Doubles, Floats, Integers, entry, inner
from topk_losses._sorting.comparator_kernels import add, chances, densities, means, mix, products

__all__ = ["buffers_for", "comparators", "sorting"]


LANES = 32  # rows processed at once
MOST_VALUES = 2**16  # the largest product of wires, stages and lanes; large networks have fewer lanes
ABSENT = -1e300  # value of a missing class


@functools.cache
def comparators(wires: int) -> Integers:
    """Batcher's bitonic network: rows of first wire, distance to the second wire, and whether the larger goes first.

    A row stands for ``distance`` comparators with consecutive first wires, beginning with the row's first wire. Every
    stage begins with a row whose first wire is 0.
    """
    triples, block = [], 2
    while block <= wires:
        distance = block // 2
        while distance:
            triples += [(first, distance, first & block == 0) for first in range(0, wires, 2 * distance)]
            distance //= 2
        block *= 2
    return np.array(triples, np.int64)


def buffers_for(wires: int) -> tuple[Doubles, Doubles, Doubles, Doubles]:
    """Buffers for one thread: values and probabilities after each stage, comparators, derivatives, scratch."""
    levels = wires.bit_length() - 1
    stages = levels * (levels + 1) // 2
    lanes = max(1, min(LANES, MOST_VALUES // (wires * stages)))
    states = np.empty((2, stages + 1, wires * lanes))
    return (
        states,
        np.empty((stages, wires * lanes // 2)),
        np.empty((2, wires * lanes)),
        np.empty((4, wires * lanes)),
    )


@inner
def _forth(network: Integers, states: Doubles, stays: Doubles, lanes: int) -> None:
    stage = -1
    for c in range(len(network)):
        start, size = network[c, 0] * lanes, network[c, 1] * lanes
        stage += 1 if start == 0 else 0
        middle, end = start + size, start + 2 * size
        stay = stays[stage, start // 2 : start // 2 + size]
        value, new = states[0, stage], states[0, stage + 1]
        chances(value[start:middle], value[middle:end], 1.0 if network[c, 2] else -1.0, stay)
        means(stay, value[start:middle], value[middle:end], new[start:middle], new[middle:end])
        value, new = states[1, stage], states[1, stage + 1]
        means(stay, value[start:middle], value[middle:end], new[start:middle], new[middle:end])


@inner
def _back(
    network: Integers, states: Doubles, stays: Doubles, slopes: Doubles, lanes: int, scratch: Doubles
) -> None:
    """Turn the derivatives with respect to the network's outputs into those with respect to its inputs."""
    stage = len(stays)
    for c in range(len(network) - 1, -1, -1):
        start, size = network[c, 0] * lanes, network[c, 1] * lanes
        middle, end = start + size, start + 2 * size
        stage -= 1 if end == slopes.shape[1] else 0
        stay = stays[stage, start // 2 : start // 2 + size]
        a, b = states[0, stage, start:middle], states[0, stage, middle:end]
        p, q = states[1, stage, start:middle], states[1, stage, middle:end]
        one, two, both = scratch[0, :size], scratch[1, :size], scratch[2, :size]
        by_a, by_b = slopes[0, start:middle], slopes[0, middle:end]
        by_p, by_q = slopes[1, start:middle], slopes[1, middle:end]
        products(a, b, by_a, by_b, one)
        products(p, q, by_p, by_q, two)
        densities(a, b, one, two, both)
        mix(stay, by_a, by_b)
        mix(stay, by_p, by_q)
        sign = 1.0 if network[c, 2] else -1.0
        add(sign, both, by_a)
        add(-sign, both, by_b)


@inner
def _enter(
    row: Floats, label: int, places: Integers, steepness: float, wires: Doubles, lane: int, lanes: int
) -> bool:
    """Write a row to the wires of its lane, move the label to the front of ``places``; return whether it is valid."""
    own, n = float(row[label]), len(places)
    at = n - 1
    for j in range(n):
        if places[j] == label:
            at = j
    for j in range(at, 0, -1):
        places[j] = places[j - 1]
    places[0] = label
    valid = bool(own < np.inf)
    for j in range(1, n):
        valid = valid and bool(row[places[j]] < np.inf)
    own = own if valid and own > -np.inf else 0.0
    wires[lane] = 0.0
    for j in range(1, len(wires) // lanes):
        other = float(row[places[j]]) if j < n else -np.inf
        wires[j * lanes + lane] = (other - own) * steepness if valid and other > -np.inf else ABSENT
    return valid


@inner
def _softmax(values: Doubles, steepness: float, lane: int, lanes: int, out: Doubles) -> float:
    """The label's softmax probability; those of all candidates are written to the lane of ``out``."""
    largest, total = 0.0, 0.0
    for j in range(lane, len(values), lanes):
        largest = max(largest, values[j])
    for j in range(lane, len(values), lanes):
        out[j] = math.exp((values[j] - largest) / steepness)
        total += out[j]
    for j in range(lane, len(values), lanes):
        out[j] /= total
    return float(out[lane])


@inner
def _leave(
    top1: float,
    weights: Doubles,
    steepness: float,
    lane: int,
    lanes: int,
    states: Doubles,
    slopes: Doubles,
    softmax: Doubles,
) -> float:
    """The loss of a lane; writes its derivatives with respect to the network's outputs and through the softmax."""
    chances, chance = states[1, -1], 0.0
    if top1 > 0:
        chance = top1 * _softmax(states[0, 0], steepness, lane, lanes, softmax)
    first = chance
    for j in range(len(weights)):
        chance += weights[j] * chances[j * lanes + lane]
    if chance >= 1:  # by rounding: the loss and its gradient are 0
        softmax[lane::lanes] = 0.0
        return 0.0
    for j in range(len(weights)):
        slopes[1, j * lanes + lane] = -weights[j] / chance
    for j in range(lane, len(softmax), lanes):
        softmax[j] *= first / chance
    return -math.log(chance)


@inner
def _by_score(
    values: Doubles, softmax: Doubles, steepness: float, valid: bool, lane: int, lanes: int, out: Floats
) -> None:
    """Write the derivatives with respect to the scores, the label's first, from those for the wires' values."""
    total = 0.0
    for j in range(1, len(out)):
        slope = steepness * values[j * lanes + lane] + softmax[j * lanes + lane] if valid else np.nan
        total += slope
        out[j] = slope
    out[0] = -total


@entry
def sorting(
    scores: Floats,
    labels: Integers,
    places: Integers,
    wires: int,
    top1: float,
    weights: Doubles,
    steepness: float,
    network: Integers,
    with_gradient: bool,
    losses: Floats,
    slopes: Floats,
    states: Doubles,
    stays: Doubles,
    backward: Doubles,
    scratch: Doubles,
    first: int,
    last: int,
) -> None:
    """Write the losses of the rows from first to last, and their derivatives with respect to the candidates' scores.

    Args:
        scores: ``(N, L)``.
        labels: ``(N,)``.
        places: The m best classes, descending, or all if there are fewer; on return the label is the first of them.
        wires: m.
        top1: P_1, the weight of the softmax probability.
        weights: The weight of each rank's probability ``(K,)``.
        steepness: β.
        network: From :func:`comparators`.
        with_gradient: Whether derivatives are needed.
        losses: ``(N,)``, written.
        slopes: In the shape of ``places``, written.
        states: A buffer from :func:`buffers_for`.
        stays: The same.
        backward: The same.
        scratch: The same.
        first: The first row.
        last: The row after the last.
    """
    lanes, softmax = states.shape[2] // wires, scratch[3]
    softmax[:] = 0.0
    for begin in range(first, last, lanes):
        count = min(lanes, last - begin)
        states[:, 0] = 0.0
        states[1, 0, :lanes] = 1.0
        for t in range(count):
            i = begin + t
            losses[i] = (
                0.0 if _enter(scores[i], labels[i], places[i], steepness, states[0, 0], t, lanes) else np.nan
            )
        _forth(network, states, stays, lanes)
        backward[:] = 0.0
        for t in range(count):
            losses[begin + t] += _leave(top1, weights, steepness, t, lanes, states, backward, softmax)
        if with_gradient:
            _back(network, states, stays, backward, lanes, scratch)
            for t in range(count):
                i = begin + t
                _by_score(backward[0], softmax, steepness, not math.isnan(losses[i]), t, lanes, slopes[i])
