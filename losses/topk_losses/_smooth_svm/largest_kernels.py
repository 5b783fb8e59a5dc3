"""Taking the K largest scores out of a row, and all others that are too large for power sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topk_losses._core.numba_kernels import LOWEST, ONE, inner, key_of, powers_of_two
from topk_losses._smooth_svm.power_sums_kernels import two_sums
from topk_losses._smooth_svm.shared_kernels import INFINITE, Buffers

__all__ = ["largest_key", "largest_other", "take_out"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Whole = NDArray[np.int32]

LANES = 64  # the smallest number of groups
LOWEST_KEY = np.int32(-(2**31) + 2**23)


@inner
def largest_key(values: Floats) -> np.int32:
    """The largest value as an order-preserving integer: its search is vectorised, that of a float is not."""
    bits = values.view(np.int32)
    largest = LOWEST_KEY
    for j in range(len(bits)):
        key = key_of(bits[j])
        largest = key if key > largest else largest
    return largest


@inner
def largest_other(row: Floats, label: int) -> np.float32:
    """The largest score of the other classes; masked classes have the smallest finite score."""
    key = max(largest_key(row[:label]), largest_key(row[label + 1 :]))
    return np.int32(key_of(key)).view(np.float32)


@inner
def _group_maxima(row: Floats, label: int, maxima: Floats) -> None:
    """Write the largest score of the classes j, j + G, … for each j < G, without the label."""
    groups, classes = len(maxima), len(row)
    maxima[:] = LOWEST
    whole = classes - classes % groups
    for start in range(0, whole, LANES):
        part, best = row[start : start + LANES], maxima[start % groups : start % groups + LANES]
        for j in range(LANES):
            best[j] = part[j] if part[j] > best[j] else best[j]
    for j in range(whole, classes):
        maxima[j - whole] = max(row[j], maxima[j - whole])
    own = label % groups
    maxima[own] = LOWEST
    for j in range(own, classes, groups):
        if j != label:
            maxima[own] = max(row[j], maxima[own])


@inner
def _insert(value: np.float32, index: int, count: int, values: Floats, places: Whole) -> None:
    """Insert a value into the descending list of the first ``count``; the last value drops out."""
    j = count - 1
    while j > 0 and values[j - 1] < value:
        values[j] = values[j - 1]
        places[j] = places[j - 1]
        j -= 1
    values[j] = value
    places[j] = index


@inner
def _largest(row: Floats, label: int, k: int, maxima: Floats, values: Floats, places: Whole) -> None:
    """Write the K largest scores of the other classes, descending, and their classes."""
    values[:k] = -INFINITE
    for j in range(len(maxima)):
        if maxima[j] > values[k - 1]:
            _insert(maxima[j], 0, k, values, places)
    bound = values[k - 1]
    values[:k] = -INFINITE
    for group in range(len(maxima)):
        if maxima[group] >= bound:
            for j in range(group, len(row), len(maxima)):
                value = max(row[j], LOWEST)
                if value > values[k - 1] and j != label:
                    _insert(value, j, k, values, places)


@inner
def take_out(
    row: Floats, label: int, k: int, scale: np.float32, buffers: Buffers, places: Whole
) -> tuple[int, float]:
    """Take out the values too large for power sums; return their number and W.

    The remaining values are in ``buffers.values``, in units of the K-th largest.
    """
    values, taken, groups = buffers.values, buffers.taken, len(buffers.maxima)
    _group_maxima(row, label, buffers.maxima)
    _largest(row, label, k, buffers.maxima, taken, places)
    powers_of_two(row, taken[k - 1], scale, ONE, values)
    powers_of_two(buffers.maxima, taken[k - 1], scale, ONE, buffers.group_values)
    values[label] = 0
    for i in range(k):
        values[places[i]] = 0
    weight = 1 + two_sums(values)[0]
    threshold = weight / (2 * k)
    count = k
    for group in range(groups):
        if buffers.group_values[group] > threshold:
            for j in range(group, len(row), groups):
                if values[j] > threshold and count < len(taken):
                    taken[count] = row[j]
                    places[count] = j
                    values[j] = 0
                    count += 1
    return count, weight
