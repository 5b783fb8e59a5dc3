"""The k largest scores of each row, for the CPU.

The classes are divided into a few groups, whose maxima are computed by vectorised code. Each of the k largest scores is
at least the k-th largest of these maxima, so it is in a group whose maximum is. Only these few groups are searched, and
the few candidates found are sorted by counting, for each, how many are larger. This avoids branches that a processor
cannot predict, which would cost more than the counting.

Scores are compared as integers with the same order, NaN being the largest, because integer maxima are vectorised.
"""

from __future__ import annotations

import numpy as np

from topk_losses._core.numba_kernels import Integers, Keys, entry, inner, key_of

__all__ = ["buffers_for", "largest"]


LANES = 64  # the smallest number of groups
GROUP = 32  # classes in a group of a long row
LEAST_KEY, LARGEST_KEY = np.int32(-(2**31)), np.int32(2**31 - 1)
INFINITE = np.int32(0x7F800000)  # the bits of +inf; larger bits, without the sign, are NaN


def buffers_for(classes: int, k: int) -> tuple[Keys, Keys, Integers]:
    """Buffers for one thread: group maxima, and candidates with their classes, with room for one group too many."""
    groups = LANES * max(1 + 2 * k // LANES, classes // (LANES * GROUP))
    most = 4 * k + 64 + classes // groups + 1
    return np.empty(groups, np.int32), np.empty(most, np.int32), np.empty(most, np.int64)


@inner
def _key(bits: np.int32) -> np.int32:
    """Map a float's bits to an integer with the same order; NaN of either sign is the largest."""
    return LARGEST_KEY if np.int32(bits & LARGEST_KEY) > INFINITE else key_of(bits)


@inner
def _group_maxima(row: Keys, maxima: Keys) -> None:
    """Write the largest key of the classes j, j + G, … for each j < G."""
    groups, classes = len(maxima), len(row)
    maxima[:] = LEAST_KEY
    whole = classes - classes % groups
    for start in range(0, whole, LANES):
        part, best = row[start : start + LANES], maxima[start % groups : start % groups + LANES]
        for j in range(LANES):
            key = _key(part[j])
            best[j] = key if key > best[j] else best[j]
    for j in range(whole, classes):
        maxima[j - whole] = max(_key(row[j]), maxima[j - whole])


@inner
def _count(keys: Keys, bound: int) -> int:
    """How many keys are at least the bound."""
    total, least = np.int32(0), np.int32(bound)
    for j in range(len(keys)):
        total += np.int32(keys[j] >= least)
    return int(total)


@inner
def _bound(keys: Keys, k: int) -> int:
    """A bound that at least k of the keys reach, and exactly k if possible."""
    low, high = np.int64(LARGEST_KEY), np.int64(LEAST_KEY)
    for j in range(len(keys)):
        low, high = min(low, keys[j]), max(high, keys[j])
    high += 1
    while high - low > 1:
        middle = (low + high) >> 1
        count = _count(keys, int(middle))
        if count == k:
            return int(middle)
        low, high = (middle, high) if count > k else (low, middle)
    return int(low)


@inner
def _candidates(row: Keys, maxima: Keys, bound: int, most: int, keys: Keys, places: Integers) -> int:
    """Collect the classes that reach the bound, and return their number; stop when there are more than ``most``."""
    count, groups = 0, len(maxima)
    for group in range(groups):
        if maxima[group] >= bound:
            for j in range(group, len(row), groups):
                keys[count] = _key(row[j])
                places[count] = j
                count += 1 if keys[count] >= bound else 0
            if count > most:
                break
    return count


@inner
def _rank(keys: Keys, i: int) -> int:
    """How many keys come before the i-th: the larger ones, and the equal ones with a lower index."""
    key, rank = keys[i], np.int32(0)
    for j in range(i):
        rank += np.int32(keys[j] >= key)
    for j in range(i + 1, len(keys)):
        rank += np.int32(keys[j] > key)
    return int(rank)


@inner
def _insert(key: np.int32, index: int, keys: Keys, places: Integers) -> None:
    """Insert a key into a descending list; the last key drops out."""
    j = len(keys) - 1
    while j > 0 and keys[j - 1] < key:
        keys[j] = keys[j - 1]
        places[j] = places[j - 1]
        j -= 1
    keys[j] = key
    places[j] = index


@inner
def _one_by_one(row: Keys, maxima: Keys, bound: int, keys: Keys, places: Integers) -> None:
    """Find the k largest by insertion, where many classes reach the bound: equal scores, or an unlucky order."""
    keys[:] = LEAST_KEY
    last = len(keys) - 1
    for group in range(len(maxima)):
        if maxima[group] >= bound and maxima[group] > keys[last]:
            for j in range(group, len(row), len(maxima)):
                key = _key(row[j])
                if key > keys[last]:
                    _insert(key, j, keys, places)


@entry
def largest(
    bits: Keys, maxima: Keys, keys: Keys, candidates: Integers, places: Integers, first: int, last: int
) -> None:
    """Write the classes of the k largest scores of each row, descending.

    Args:
        bits: The bits of the float32 scores ``(N, L)``, L at least k.
        maxima: A buffer from ``buffers_for``.
        keys: The same.
        candidates: The same.
        places: ``(N, k)``, written.
        first: The first row.
        last: The row after the last.
    """
    k = places.shape[1]
    most = 4 * k + 64
    for i in range(first, last):
        row = bits[i]
        _group_maxima(row, maxima)
        bound = _bound(maxima, k)
        count = _candidates(row, maxima, bound, most, keys, candidates)
        if count > most:
            _one_by_one(row, maxima, bound, keys[:k], places[i])
            continue
        for j in range(count):
            rank = _rank(keys[:count], j)
            if rank < k:
                places[i, rank] = candidates[j]
