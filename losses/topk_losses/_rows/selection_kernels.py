"""The k largest scores of each row, for the CPU.

Each class belongs to one of a few groups, whose maxima are found for many groups at once: what is among the k largest
is at least the k-th largest of these maxima, and thus in a group whose maximum is. Few groups are looked into, and the
few candidates found there are counted into their order. Nothing branches on what a processor cannot foresee, which
costs more than the counting.

Scores are compared as whole numbers in the order of the scores, NaN being the largest: such maxima are vectorised.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topk_losses._core.numba_kernels import borrowing, entry, key_of

__all__ = ["largest", "rooms_for"]

Keys = NDArray[np.int32]
Places = NDArray[np.int64]

LANES = 64  # the least number of groups
GROUP = 32  # classes in a group, if they are many
LEAST_KEY, LARGEST_KEY = np.int32(-(2**31)), np.int32(2**31 - 1)
INFINITE = np.int32(0x7F800000)  # the bits of +inf; what is above, without its sign, is NaN


def rooms_for(classes: int, k: int) -> tuple[Keys, Keys, Places]:
    """Memory for one thread: the groups' maxima, and candidates with their places, a group more than are sorted."""
    groups = LANES * max(1 + 2 * k // LANES, classes // (LANES * GROUP))
    most = 4 * k + 64 + classes // groups + 1
    return np.empty(groups, np.int32), np.empty(most, np.int32), np.empty(most, np.int64)


@borrowing
def _key(bits: np.int32) -> np.int32:
    """A float's bits in the order of the floats, in which NaN of either sign is the largest."""
    return LARGEST_KEY if np.int32(bits & LARGEST_KEY) > INFINITE else key_of(bits)


@borrowing
def _group_maxima(row: Keys, maxima: Keys) -> None:
    """The largest of the classes j, j + G, … for each j < G."""
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


@borrowing
def _count(keys: Keys, bound: int) -> int:
    """How many are at least the bound."""
    total, least = np.int32(0), np.int32(bound)
    for j in range(len(keys)):
        total += np.int32(keys[j] >= least)
    return int(total)


@borrowing
def _bound(keys: Keys, k: int) -> int:
    """A number that at least k of the keys reach, and no more if it can be."""
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


@borrowing
def _candidates(row: Keys, maxima: Keys, bound: int, most: int, keys: Keys, places: Places) -> int:
    """Collect the classes that reach the bound; their number, of which more than ``most`` is too many."""
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


@borrowing
def _rank(keys: Keys, i: int) -> int:
    """How many come before the i-th: those that are larger, and earlier ones that are equal."""
    key, rank = keys[i], np.int32(0)
    for j in range(i):
        rank += np.int32(keys[j] >= key)
    for j in range(i + 1, len(keys)):
        rank += np.int32(keys[j] > key)
    return int(rank)


@borrowing
def _insert(key: np.int32, place: int, keys: Keys, places: Places) -> None:
    """Put a key where it belongs, descending; the last one falls out."""
    j = len(keys) - 1
    while j > 0 and keys[j - 1] < key:
        keys[j] = keys[j - 1]
        places[j] = places[j - 1]
        j -= 1
    keys[j] = key
    places[j] = place


@borrowing
def _one_by_one(row: Keys, maxima: Keys, bound: int, keys: Keys, places: Places) -> None:
    """The largest, where more than a few reach the bound: equal scores, or a row in an unlucky order."""
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
    bits: Keys, maxima: Keys, keys: Keys, candidates: Places, places: Places, first: int, last: int
) -> None:
    """Places of the k largest of the rows from first to last, descending.

    Args:
        bits: The float32 scores ``(N, L)`` as whole numbers, L at least k.
        maxima: Memory from ``rooms_for``.
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
